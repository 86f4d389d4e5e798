package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A drill in which the service stays would pass if its fault never happened. The
// conditions of this file prove that the servers saw the fault.

// SeenLimit bounds the time until a server has noticed a fault. multipathd looks
// every two seconds at first; an emulated server needs seconds for mortar status.
const SeenLimit = time.Minute

// linkGone waits until the interface of each server on a network is down.
func linkGone(network string, servers ...string) *Condition {
	return &Condition{What: "the " + network + " link is down", Limit: SeenLimit, Sign: true, Look: func(ctx context.Context, v *Site) (bool, string) {
		for _, server := range servers {
			state, err := linkState(ctx, v, server, addressOn(v.Design, server, network))
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

// AllOf waits until each of several conditions is met. They are a sign of the fault if the
// first is.
func AllOf(what string, limit time.Duration, all ...*Condition) *Condition {
	return &Condition{What: what, Limit: limit, Sign: all[0].Sign, Look: func(ctx context.Context, v *Site) (bool, string) {
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

// Logged waits until a host has logged an event after the fault.
func Logged(what string, limit time.Duration, is func(v *Site, ev report.Event) bool) *Condition {
	return &Condition{What: what, Limit: limit, Look: func(_ context.Context, v *Site) (bool, string) {
		for _, ev := range v.Events() {
			if ev.NS > v.Watch.FaultNS() && is(v, ev) {
				return true, fmt.Sprintf("%s, %s after the fault: %s", ev.Host, report.Seconds(float64(ev.NS-v.Watch.FaultNS())/1e9), ev.Text)
			}
		}
		return false, "no host has logged it"
	}}
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
func linkState(ctx context.Context, b *Site, server, address string) (string, error) {
	name, err := interfaceOf(ctx, b, server, address, "ip")
	if err != nil {
		return "", err
	}
	return b.Read(ctx, server, "/sys/class/net/"+name+"/operstate")
}

// pathsLost waits until `mortar status` reports lost paths of each server to the disk or LUN what;
// "" is any.
func pathsLost(s Scene, what string, servers ...string) *Condition {
	signs := lists.Map(servers, func(server string) sign { return s.Storage().lost(what, server) })
	return Shows(SeenLimit, signs...)
}

func (mdStorage) lost(what, server string) sign {
	return SignOf(observe.PathLost, "host", server, "disks", what)
}

func (lunStorage) lost(what, server string) sign {
	return SignOf(array.Impaired, "hosts", server, "luns", what).or(unreached(what, server, 0))
}

// unreached is the sign that a server has no path to a LUN. The kernel may have removed the LUN.
func unreached(lun, server string, _ int) sign {
	return SignOf(array.Dead, "luns", lun, "hosts", server).or(SignOf(array.Missing, "luns", lun, "hosts", server))
}

// answersLate waits until a block of a device takes at least so long, in milliseconds, on the
// server that serves it.
func answersLate(device string, ms int) *Condition {
	return &Condition{What: "the server waits for the LUN", Limit: SeenLimit, Sign: true, Look: func(ctx context.Context, v *Site) (bool, string) {
		began := time.Now()
		err := v.Do(ctx, v.Active, resource.Action{Title: "read a block of " + device, Seconds: 30,
			Cmd: []string{"dd", "if=" + device, "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"}})
		if err != nil {
			return false, err.Error()
		}
		took := time.Since(began)
		return took >= time.Duration(ms)*time.Millisecond, fmt.Sprintf("a block of %s took %s, of which the LUN's delay is %s", device, report.Seconds(took.Seconds()), report.Seconds(float64(ms)/1e3))
	}}
}

// feedLost waits until `mortar status` reports that the active server lost its feed from a PDU.
func feedLost(s Scene, f Fault) *Condition {
	return Shows(2*time.Minute, SignOf(observe.FeedLost, "host", s.Active, "pdus", f.Args[0]))
}

// silent waits until a server leaves two questions unanswered, for three seconds each. A
// busy one may leave one.
func silent(_ Scene, f Fault) *Condition {
	return &Condition{What: "the server does not answer", Limit: SeenLimit, Sign: true, Look: func(ctx context.Context, v *Site) (bool, string) {
		var err error
		for range 2 {
			once, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err = v.Read(once, f.On, "/proc/uptime")
			cancel()
			if err == nil {
				return false, f.On + " answers"
			}
		}
		return true, fmt.Sprintf("%s: %v", f.On, err)
	}}
}

func (mdStorage) Rebuilds() bool { return true }

// StartedDegraded: parities are compared only of a RAID 6, and the disks
// below a mirror of dirty data may have been idle. Of others the start notes that a member
// is missing.
func (m mdStorage) StartedDegraded() *Condition {
	what, codes := "the array was degraded", []string{unit.NotedDegraded}
	written := m.Service.Storage.Cache == nil || m.Service.Storage.Cache.Mode != cache.WriteBack
	if m.Group.Level == 6 && written {
		// The array was assembled so, and its start had compared what the bitmap names.
		what, codes = "the array was dirty and degraded", []string{unit.NotedDirty, unit.NotedWhole}
	}
	var all []*Condition
	for _, code := range codes {
		all = append(all, Logged(code, 2*time.Minute, func(_ *Site, x report.Event) bool {
			return x.Host == m.Passive && x.Code == code && x.Subject == m.Group.Name
		}))
	}
	return AllOf(what, 2*time.Minute, all...)
}

// A sign is a finding of `mortar status` by which a fault is seen: its code, and pairs of the
// name and the value of an argument; or another one.
type sign []struct {
	code observe.Code
	args []string
}

// SignOf is the sign of a code with arguments. The value "" is any.
func SignOf(code observe.Code, args ...string) sign { return sign{{code, args}} }

func (s sign) or(o sign) sign { return append(s, o...) }

// In returns the text of the finding that is the sign, or that there is none.
func (s sign) In(all []*observe.Part) (bool, string) {
	for _, one := range s {
		for _, p := range all {
			if p.Has(one.code, one.args...) {
				return true, p.Text
			}
		}
	}
	return false, fmt.Sprintf("mortar status has no finding %s of %s", s[0].code, strings.Join(s[0].args, " "))
}

// Shows waits until `mortar status` has each of the signs.
func Shows(limit time.Duration, signs ...sign) *Condition {
	return &Condition{What: "status says so", Limit: limit, Sign: true, Look: func(ctx context.Context, v *Site) (bool, string) {
		all := v.Findings(ctx)
		var said []string
		for _, s := range signs {
			ok, text := s.In(all)
			if !ok {
				return false, text
			}
			said = append(said, text)
		}
		return len(said) > 0, strings.Join(slices.Compact(said), "; ")
	}}
}

// SlowSeen waits until mortar status names a slow disk, or says that it is dropped where
// the spec has that.
func SlowSeen(s Scene, disk string) *Condition {
	if s.Service.Storage.DropSlow {
		return Shows(dropLimit, SignOf(observe.DiskDropped, "disk", disk, "group", s.Group.Name))
	}
	return Shows(time.Minute, SignOf(observe.DiskSlow, "disk", disk))
}

// dropLimit bounds the time until a slow disk is dropped and status says so: the
// watcher compares disks for most of a minute, and then records what it does.
const dropLimit = 3 * time.Minute

// clockSeen waits until status names the clock. That of the first server that answers is the
// one with which it compares the others.
func clockSeen(_ Scene, f Fault) *Condition {
	return Shows(SeenLimit, SignOf(observe.ClockSkewed, "host", f.On).or(SignOf(observe.ClockSkewed, "reference", f.On)))
}

// mirrorDegraded waits until `mortar status` reports that a server's system mirror is degraded, or
// that it lacks the spare which has stood in since.
func mirrorDegraded(_ Scene, f Fault) *Condition {
	return Shows(SeenLimit, SignOf(observe.SystemArrayDegraded, "host", f.On).or(
		SignOf(observe.Code(prepared.Differs), "host", f.On, "what", prepared.MirrorSpares)))
}

// Elsewhere tells whether an SSD is inside a server that does not serve. No server looks at it.
func (s Scene) Elsewhere(ssd design.Disk) bool { return ssd.Server != "" && ssd.Server != s.Active }

// ssdOut waits until the cache works without an SSD. It is nil for one that no server looks at.
func ssdOut(s Scene, serial string) *Condition {
	k := s.Service.Storage.Cache
	i := slices.IndexFunc(k.SSDs, func(d design.Disk) bool { return d.Serial == serial })
	switch {
	case i < 0 || s.Elsewhere(k.SSDs[i]):
		return nil
	case k.Mode != cache.WriteBack:
		return SSDsAway(k.SSDs[i])
	}
	c := MirrorOf(s, len(k.SSDs)-1)
	c.Sign = true
	return c
}

// SSDsAway waits until mortar status misses each SSD.
func SSDsAway(ssds ...design.Disk) *Condition {
	signs := lists.Map(ssds, func(d design.Disk) sign { return SignOf(observe.SSDMissing, "ssd", d.Serial) })
	return Shows(SeenLimit, signs...)
}

// CacheCondition waits until seen accepts the cache's counters.
func CacheCondition(s Scene, what string, seen func(cache.Stats) bool) *Condition {
	return &Condition{What: what, Limit: time.Minute, Look: func(ctx context.Context, v *Site) (bool, string) {
		for _, server := range []string{v.Active, v.Passive} {
			st, err := CacheStats(ctx, v, server)
			if err != nil || !st.Up {
				continue
			}
			return seen(st), fmt.Sprintf("in sync: %v of %d, %d of %d bytes dirty", st.Mirror.InSync, st.Mirror.Members, st.Dirty, st.DirtyRoom)
		}
		return false, "the cache runs on no server"
	}}
}

// MirrorOf waits until n SSDs hold the newest dirty data.
func MirrorOf(s Scene, n int) *Condition {
	return CacheCondition(s, fmt.Sprintf("dirty data on %d SSDs", n), func(st cache.Stats) bool { return len(st.Mirror.InSync) == n })
}
