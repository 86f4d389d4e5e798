package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// A drill in which the service stays would pass if its fault never happened. The
// conditions of this file prove that the servers saw the fault.

// seenLimit bounds the time until a server has noticed a fault. multipathd looks
// every two seconds at first; an emulated server needs seconds for mortar status.
const seenLimit = time.Minute

// witnessed adds a condition to the last step that steps returns.
func witnessed(steps func(Scene) ([]Step, error), seen func(Scene) *Condition) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		out, err := steps(s)
		if err == nil {
			out[len(out)-1].Until = seen(s)
		}
		return out, err
	}
}

// linkGone waits until the interface of each server on a network is down.
func linkGone(network string, servers ...string) *Condition {
	return &Condition{What: "the " + network + " link is down", Limit: seenLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		for _, server := range servers {
			state, err := v.e.linkState(ctx, server, addressOn(v.Design, server, network))
			if err != nil {
				return false, fmt.Sprintf("%s: %v", server, err)
			}
			if state != "down" && state != "lowerlayerdown" {
				return false, fmt.Sprintf("the %s interface of %s is %s", network, server, state)
			}
		}
		return true, fmt.Sprintf("the %s interface of %s has no link", network, strings.Join(servers, " and "))
	}}
}

// allOf waits until each of several conditions is met. They are a sign of the fault if the
// first is.
func allOf(what string, limit time.Duration, all ...*Condition) *Condition {
	return &Condition{What: what, Limit: limit, Sign: all[0].Sign, Look: func(ctx context.Context, v *View) (bool, string) {
		var said []string
		for _, c := range all {
			ok, detail := c.Look(ctx, v)
			if !ok {
				return false, detail
			}
			said = append(said, detail)
		}
		return true, strings.Join(said, "; ")
	}}
}

// logged waits until a host has logged an event after the fault.
func logged(what string, limit time.Duration, is func(v *View, ev report.Event) bool) *Condition {
	return &Condition{What: what, Limit: limit, Look: func(_ context.Context, v *View) (bool, string) {
		for _, ev := range v.events() {
			if ev.NS > v.fault && is(v, ev) {
				return true, fmt.Sprintf("%s, %s after the fault: %s", ev.Host, report.Seconds(float64(ev.NS-v.fault)/1e9), ev.Text)
			}
		}
		return false, "no host has logged it"
	}}
}

// cutOff waits until the interfaces of a server on both networks are down.
func cutOff(server string) *Condition {
	return allOf("both links are down", seenLimit, linkGone("private", server), linkGone("public", server))
}

// addressOn is the address of a server on the network private or public.
func addressOn(d *design.Design, server, network string) string {
	for _, s := range d.Spec.Servers {
		if s.Name == server && network == "private" {
			return s.Private
		}
	}
	return d.PublicOf(server)
}

// linkState is the operational state of the interface that has an address.
//
// Source: Documentation/networking/operstates.rst
func (e *engine) linkState(ctx context.Context, server, address string) (string, error) {
	out, err := e.query(ctx, server, "ip", "-o", "addr", "show", "to", address)
	if err != nil {
		return "", err
	}
	f := strings.Fields(out.Stdout)
	if len(f) < 2 {
		return "", fmt.Errorf("no interface has the address %s", address)
	}
	name, _, _ := strings.Cut(f[1], "@")
	state, err := e.read(ctx, server, "/sys/class/net/"+name+"/operstate")
	return strings.TrimSpace(state), err
}

// lost waits until `mortar status` reports lost paths of each server, to the disk what; "" is
// any.
func (m mdStorage) lost(what string, servers []string) *Condition {
	var signs []sign
	for _, server := range servers {
		lost := signOf(observe.PathLost, "host", server)
		if what != "" {
			lost = signOf(observe.PathLost, "host", server, "disks", what)
		}
		signs = append(signs, lost)
	}
	return shows(seenLimit, signs...)
}

// lost waits until each server reaches a LUN by fewer paths than designed.
func (l lunStorage) lost(what string, servers []string) *Condition {
	return &Condition{What: "the servers see the lost paths", Limit: seenLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		r, err := v.lunsSeen(ctx)
		if err != nil {
			return false, err.Error()
		}
		fewest := map[string]int{}
		for _, server := range servers {
			if fewest[server] = v.pathsMissing(r, what, server); fewest[server] == 0 {
				return false, fmt.Sprintf("%s has all its paths", server)
			}
		}
		return true, fmt.Sprintf("paths to a LUN that are gone: %d on %s", fewest[servers[0]], servers[0])
	}}
}

// pathsMissing is how many paths a server lacks to the LUN that it lacks most paths to.
// what is the LUN; "" is any.
func (v *View) pathsMissing(r array.Result, what, server string) (most int) {
	for i := range v.Design.Arrays {
		a := &v.Design.Arrays[i]
		if !slices.Contains(a.Servers, server) {
			continue
		}
		for _, l := range a.LUNs {
			if what != "" && l.Name != what {
				continue
			}
			paths := 0 // as of a LUN that the server does not see
			for _, m := range r.Matches {
				if m.LUN == l.Name && m.Host == server {
					paths = m.Seen.Paths
				}
			}
			most = max(most, v.Design.PathsTo(a, server)-paths)
		}
	}
	return most
}

// noPath waits until no server has a path to the LUNs of an array. The limit is
// short: the array is off meanwhile, and I/O waits for no_path_retry only.
func (l lunStorage) noPath(array string) *Condition {
	return &Condition{What: "no path is left", Limit: 20 * time.Second, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		r, err := v.lunsSeen(ctx)
		if err != nil {
			return false, err.Error()
		}
		for i := range v.Design.Arrays {
			for _, x := range v.Design.Arrays[i].LUNs {
				for _, m := range r.Matches {
					if v.Design.Arrays[i].Name == array && m.LUN == x.Name && m.Seen.Paths > 0 {
						return false, fmt.Sprintf("%s reaches LUN %s by %d paths", m.Host, m.LUN, m.Seen.Paths)
					}
				}
			}
		}
		return true, "neither server reaches a LUN of " + array
	}}
}

// late waits until a block of a device takes at least so long, in milliseconds, on the
// server that serves it.
func late(device string, ms int) *Condition {
	return &Condition{What: "the server waits for the LUN", Limit: seenLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		began := time.Now()
		err := v.e.do(ctx, v.Active, resource.Action{Title: "read a block of " + device, Seconds: 30,
			Cmd: []string{"dd", "if=" + device, "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"}})
		if err != nil {
			return false, err.Error()
		}
		took := time.Since(began)
		return took >= time.Duration(ms)*time.Millisecond, fmt.Sprintf("a block of %s took %s, of which the LUN's delay is %s", device, report.Seconds(took.Seconds()), report.Seconds(float64(ms)/1e3))
	}}
}

// feedLost waits until `mortar status` reports that a server lost its feed from a PDU.
func feedLost(server, pdu string) *Condition {
	return shows(2*time.Minute, signOf(observe.FeedLost, "host", server, "pdus", pdu))
}

// silent waits until a server leaves two questions unanswered, for three seconds each. A
// busy one may leave one.
func silent(server string) *Condition {
	return &Condition{What: "the server does not answer", Limit: seenLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		var err error
		for range 2 {
			once, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err = v.e.read(once, server, "/proc/uptime")
			cancel()
			if err == nil {
				return false, server + " answers"
			}
		}
		return true, fmt.Sprintf("%s: %v", server, err)
	}}
}

// booted waits until each server has booted after the fault.
func booted(what string, servers ...string) *Condition {
	var all []*Condition
	for _, s := range servers {
		all = append(all, resetItself(s))
	}
	return allOf(what, 10*time.Minute, all...)
}

func (mdStorage) rebuilds() bool { return true }

// startedDegraded: parities are compared only of a RAID 6, and the disks
// below a mirror of dirty data may have been idle. Of others the start notes that a member
// is missing.
func (m mdStorage) startedDegraded() *Condition {
	server := m.Passive
	what, notes := "the array was degraded", []string{" runs without "}
	written := m.Service.Storage.Cache == nil || m.Service.Storage.Cache.Mode != cache.WriteBack
	if m.Group.Level == 6 && written {
		// The array was assembled so, and its start had compared what the bitmap names.
		what, notes = "the array was dirty and degraded", []string{"array " + m.Group.Name + " is started dirty and degraded", "its parities agree: nothing is in doubt"}
	}
	var all []*Condition
	for _, note := range notes {
		all = append(all, logged(note, 2*time.Minute, func(_ *View, x report.Event) bool {
			return x.Host == server && strings.Contains(x.Text, m.Group.Name) && strings.Contains(x.Text, note)
		}))
	}
	return allOf(what, 2*time.Minute, all...)
}
