package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Client talks to one QEMU over its machine protocol. QEMU serves one client at a
// time, so open a client for one task only and close it.
//
// Source: docs/interop/qmp-spec.rst of QEMU.
type Client struct {
	ctx    context.Context
	conn   net.Conn
	dec    *json.Decoder
	Answer time.Duration // limit of one command
}

type qmpMessage struct {
	Event  string          `json:"event"`
	Data   json.RawMessage `json:"data"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

const (
	// qmpTimeout bounds one command: QEMU answers at once unless its main loop hangs.
	qmpTimeout = 20 * time.Second
	// releaseTimeout bounds the wait until a device and its requests are gone. An
	// array may take long to answer requests under way on a slow machine.
	releaseTimeout = 2 * time.Minute
)

// DialSocket connects to a socket in the run directory. It uses a path through the
// open directory, because the full path may be too long for a socket's address.
func DialSocket(ctx context.Context, runDir, socket string) (net.Conn, error) {
	d, err := os.Open(runDir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", fmt.Sprint(d.Fd()), socket))
}

// Dial connects to the socket of that name in the run directory.
func Dial(ctx context.Context, runDir, socket string) (*Client, error) {
	conn, err := DialSocket(ctx, runDir, socket)
	if err != nil {
		return nil, err
	}
	q := &Client{ctx: ctx, conn: conn, dec: json.NewDecoder(conn), Answer: qmpTimeout}
	if err := q.greet(); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

// greet reads QEMU's greeting and ends the negotiation of capabilities.
func (q *Client) greet() error {
	if err := q.limit(); err != nil {
		return err
	}
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	if err := q.dec.Decode(&greeting); err != nil || greeting.QMP == nil {
		return fmt.Errorf("no QMP greeting: %v", err)
	}
	_, err := q.Call("qmp_capabilities", nil)
	return err
}

// limit starts the time of one command. It ends no later than the client's context.
func (q *Client) limit() error {
	if err := q.ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(q.Answer)
	if t, ok := q.ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	return q.conn.SetDeadline(deadline)
}

func (q *Client) Close() { q.conn.Close() }

// Call executes a command and returns what QEMU returned.
func (q *Client) Call(command string, args Props) (json.RawMessage, error) {
	m := Props{"execute": command}
	if args != nil {
		m["arguments"] = args
	}
	if err := q.limit(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(q.conn).Encode(m); err != nil {
		return nil, fmt.Errorf("qmp %s: %w", command, err)
	}
	return q.reply(command)
}

// reply returns what QEMU returned for a command.
func (q *Client) reply(command string) (json.RawMessage, error) {
	for {
		var r qmpMessage
		if err := q.dec.Decode(&r); err != nil {
			return nil, fmt.Errorf("qmp %s: %w", command, err)
		}
		switch {
		case r.Event != "":
		case r.Error != nil:
			return nil, &qmpError{Command: command, Class: r.Error.Class, Desc: r.Error.Desc}
		default:
			return r.Return, nil
		}
	}
}

// Unplug removes a device and waits until the guest has released it. A missing device
// is no error.
func (q *Client) Unplug(id string) error {
	if _, err := q.Call("device_del", Props{"id": id}); err != nil {
		if e, ok := err.(*qmpError); ok && e.Class == "DeviceNotFound" {
			return nil
		}
		return err
	}
	// QEMU lists the device until it is gone. The event may have come before we
	// connected, so use the list.
	return released("device "+id, func() (bool, error) {
		there, err := q.has(id)
		return !there, err
	})
}

// released asks until what QEMU is to let go of is gone.
func released(what string, gone func() (bool, error)) error {
	for limit := time.Now().Add(releaseTimeout); ; time.Sleep(20 * time.Millisecond) {
		if ok, err := gone(); err != nil || ok {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s is still in use %v after QEMU was told to remove it", what, releaseTimeout)
		}
	}
}

// has reports whether a device of that id is plugged in.
func (q *Client) has(id string) (bool, error) {
	out, err := q.Call("qom-list", Props{"path": "/machine/peripheral"})
	if err != nil {
		return false, err
	}
	type device struct {
		Name string `json:"name"`
	}
	var list []device
	if err := json.Unmarshal(out, &list); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(d device) bool { return d.Name == id }), nil
}

// Plug adds a device unless it is already plugged in.
func (q *Client) Plug(p Props) error {
	if there, err := q.has(p["id"].(string)); err != nil || there {
		return err
	}
	_, err := q.Call("device_add", p)
	return err
}

// plugLUN logs in to a LUN and adds it as a disk, unless it is already plugged in.
func (q *Client) plugLUN(session, device Props) error {
	if there, err := q.has(device["id"].(string)); err != nil || there {
		return err
	}
	if err := q.dropSession(session["node-name"].(string)); err != nil { // left by a killed unplug
		return err
	}
	if _, err := q.Call("blockdev-add", session); err != nil {
		return err
	}
	_, err := q.Call("device_add", device)
	return err
}

// dropSession ends a LUN's session, and waits until its device has released it: QEMU
// keeps the session while a request of the device is under way.
func (q *Client) dropSession(name string) error {
	return released("session "+name, func() (bool, error) {
		_, err := q.Call("blockdev-del", Props{"node-name": name})
		e, ok := err.(*qmpError)
		switch {
		case ok && strings.Contains(e.Desc, "Failed to find node"):
			return true, nil
		case ok && strings.Contains(e.Desc, "in use"):
			return false, nil
		}
		return err == nil, err
	})
}

// Status is QEMU's run state: "running", "paused", ...
func (q *Client) Status() (string, error) {
	out, err := q.Call("query-status", nil)
	if err != nil {
		return "", err
	}
	var s struct {
		Status string `json:"status"`
	}
	return s.Status, json.Unmarshal(out, &s)
}

type qmpError struct{ Command, Class, Desc string }

func (e *qmpError) Error() string { return fmt.Sprintf("qmp %s: %s", e.Command, e.Desc) }
