package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// CallLimit bounds a call. It is as long as the resolver's timeout: a process that waits for a
// name server runs within it. Source: resolv.conf(5), RES_TIMEOUT
const CallLimit = 5 * time.Second

// Program is an RPC program as rpcbind knows it. Source: rpc(5), nfsd(7).
type Program struct {
	Name            string
	Number, Version uint32
}

const rpcbindAddr = "127.0.0.1:111"

// portsOf asks rpcbind for the TCP port of each program, 0 for none, all over one
// connection. Source: RFC 1833, PMAPPROC_GETPORT of version 2; RFC 5531.
func portsOf(ctx context.Context, addr string, programs []Program) ([]uint16, error) {
	var ports []uint16
	err := connected(ctx, addr, func(c net.Conn) error {
		for i, p := range programs {
			port, err := getPort(c, uint32(i+1), p)
			if err != nil {
				return err
			}
			ports = append(ports, uint16(port))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ports, nil
}

// connected calls call with a connection, for CallLimit at most.
func connected(ctx context.Context, addr string, call func(c net.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	return call(c)
}

// callNull calls a program's NULL procedure, which does nothing: any reply shows that the
// daemon answers.
func callNull(ctx context.Context, at netip.AddrPort, p Program) error {
	err := connected(ctx, at.String(), func(c net.Conn) error {
		_, err := callRPC(c, 1, p, 0)
		return err
	})
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

func getPort(c io.ReadWriter, xid uint32, p Program) (uint32, error) {
	const getPort, overTCP = 3, 6
	b, err := callRPC(c, xid, Program{Name: "rpcbind", Number: 100000, Version: 2}, getPort, p.Number, p.Version, overTCP, 0)
	if err != nil {
		return 0, err
	}
	if len(b) < 4 {
		return 0, fmt.Errorf("rpcbind: %w", errRefused)
	}
	return binary.BigEndian.Uint32(b), nil
}

// errRefused says that a program has answered, but does not do what it was asked for.
var errRefused = errors.New("the question was refused")

// callRPC calls a procedure over TCP and returns its result. Source: RFC 5531.
func callRPC(c io.ReadWriter, xid uint32, p Program, procedure uint32, args ...uint32) ([]byte, error) {
	const (
		call, rpcVersion      = 0, 2
		lastFragment          = 1 << 31
		reply, accepted, fine = 1, 0, 0
		maxReply              = 4096
	)
	var msg []byte
	for _, w := range append([]uint32{xid, call, rpcVersion, p.Number, p.Version, procedure,
		0, 0, 0, 0}, // no credentials, no verifier
		args...) {
		msg = binary.BigEndian.AppendUint32(msg, w)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, lastFragment|uint32(len(msg))), msg...)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n&lastFragment == 0 || n&^lastFragment > maxReply {
		return nil, fmt.Errorf("the answer of %s is not understood", p.Name)
	}
	b := make([]byte, n&^lastFragment)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	word := func() uint32 {
		if len(b) < 4 {
			b = nil
			return ^uint32(0)
		}
		w := binary.BigEndian.Uint32(b)
		b = b[4:]
		return w
	}
	if word() != xid || word() != reply {
		return nil, fmt.Errorf("the answer of %s is not understood", p.Name)
	}
	if word() != accepted {
		return nil, fmt.Errorf("%s: %w", p.Name, errRefused)
	}
	word() // flavour of the verifier
	if skip := word(); uint64(skip) <= uint64(len(b)) {
		b = b[skip:]
	}
	if word() != fine {
		return nil, fmt.Errorf("%s: %w", p.Name, errRefused)
	}
	return b, nil
}
