package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A brick with one server has no partner that takes over. The drill itself
// restores the server's power, plugs the cable in and starts the daemon again.
// Until then clients wait.

// aloneHold is how long a fault lasts before the drill mends it. A person takes
// longer, and clients notice the fault much sooner. A variable for tests.
var aloneHold = 10 * time.Second

// alone has the drills of a brick with one server, by DRILL-HOW, with their
// steps; nil: the steps of the table.
var alone = map[string]func(Scene) ([]Step, error){
	"path-one-hba": nil, "path-one-disk": nil, "controller-module": nil, "shared-disk-pulled": nil, "two-disks-pulled": nil, "disk-slow-throttled": nil, "bit-rot-scrub": nil,
	"local-disk-pulled": nil, "full-fs-full": nil, "client-crash-power": nil, "flapping-public": nil, "clock-jump-ahead": nil, "clock-jump-back": nil, "public-switch-switch": nil,
	"ssd-fail-first": nil, "ssd-fail-second": nil, "ssd-replace-pulled": nil, "ssd-both-pulled": nil, "cache-full-filled": nil,
	"service-kill-nfsd": restarted("nfsd"), "service-kill-mountd": restarted("rpc.mountd"), "service-kill-statd": restarted("rpc.statd"), "service-kill-nfsdcld": restarted("nfsdcld"),
	"public-link-cable":   mended(Fault{Kind: LinkDown, Args: []string{"public"}}),
	"server-crash-freeze": mended(Fault{Kind: Freeze}), "server-crash-panic": mended(Fault{Kind: Panic}), "server-crash-power": mended(Fault{Kind: PowerOff}),
	"ssd-missing-freeze": ssdGone(false), "ssd-missing-returned": ssdGone(true),
}

// errNeedsPair refuses drills that need a partner.
var errNeedsPair = errors.New("a pair of servers is needed, and this brick has none")

// onOne adapts a variant of a drill to a brick with one server.
func onOne(d Drill, v Variant) (Variant, error) {
	steps, ok := alone[Choice{d, v}.Name()]
	if !ok {
		return v, &Refused{fmt.Sprintf("drill %s --how %s: %v", d.Name, v.How, errNeedsPair)}
	}
	expect := d.Expected(v)
	switch {
	case steps != nil:
		v.Steps = steps
		expect.Stall = none // the stall lasts until a person mends the fault
		expect.Where = Returns
	case expect.Disks && d.Name != "local-disk" && !ofCache(d): // the system disks and the SSDs are no controller's
		v.Steps = withDisks(v.Steps)
	}
	if expect.Fencing = Nobody; expect.Where != Returns {
		expect.Where = Stays
	}
	v.Expect = &expect
	return v, nil
}

// withDisks refuses faults of disks or paths if a RAID controller inside the
// server has them: the server has one path to each LUN and does not see the disks.
func withDisks(steps func(Scene) ([]Step, error)) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		for i := range s.Design.Arrays {
			if a := &s.Design.Arrays[i]; s.Design.PathsTo(a, s.Active) < 2 {
				return nil, fmt.Errorf("%s is inside %s: there is one path to its LUNs, and its disks are its own", a.Name, s.Active)
			}
		}
		return steps(s)
	}
}

// mended is a fault of the server that the drill mends after aloneHold.
func mended(fault Fault) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		f := fault.of(s.Active)
		switch f.Kind {
		case LinkDown:
			return briefly(f, aloneHold, linkGone(f.Args[0], f.On)), nil
		case Freeze:
			return briefly(f, aloneHold, silent(f.On)), nil
		case Panic, PowerOff:
			steps := briefly(f, aloneHold, nil)
			steps[len(steps)-1].Until = booted("the server booted", f.On)
			return steps, nil
		}
		return briefly(f, aloneHold, nil), nil
	}
}

// restarted kills a daemon, which its unit then starts again.
func restarted(daemon string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		steps, err := kill(daemon)(s)
		if err != nil {
			return nil, err
		}
		back := steps[0]
		back.Mend = true
		return []Step{{Fault: back.Fault, Wait: aloneHold, Look: true}, back}, nil
	}
}

// ssdGone cuts the server's power while an SSD of the cache is missing, or holds
// stale data.
func ssdGone(returned bool) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		steps, err := ssdFail(0)(s)
		if err != nil {
			return nil, err
		}
		steps[0].Prepare = true
		if returned {
			steps = append(steps, Step{Fault: steps[0].Fault, Mend: true, Prepare: true, Wait: 3 * time.Second})
		}
		crash, err := mended(Fault{Kind: PowerOff})(s)
		return append(steps, crash...), err
	}
}

// units are the systemd units that start the daemons of a single server again.
// In a cluster the resource agent starts them.
//
// Source: systemd units of nfs-utils
var units = map[string]string{"nfsd": "nfs-server.service", "rpc.mountd": "nfs-mountd.service", "rpc.statd": "rpc-statd.service", "nfsdcld": "nfsdcld.service"}

// restart starts a daemon of a single server again, as its administrator does.
func (e *engine) restart(ctx context.Context, server, daemon string) error {
	unit := units[daemon]
	if unit == "" {
		return fmt.Errorf("no unit starts %s again", daemon)
	}
	return e.do(ctx, server, resource.Action{Title: "restart " + unit, Cmd: []string{"systemctl", "restart", unit}, Seconds: 120})
}

// single describes a server without a cluster as a cluster of one node. A service
// runs if its volume is mounted and nfsd has threads.
func (e *engine) single(ctx context.Context) (cluster, error) {
	server := e.servers[0]
	c := cluster{&linux.CRM{Nodes: []linux.CRMNode{{Name: server, Online: true}}}}
	if _, err := e.read(ctx, server, "/proc/uptime"); err != nil {
		return c, fmt.Errorf("%s: %w", server, err)
	}
	for _, s := range e.env.Design.Services() {
		r := linux.CRMResource{ID: resource.ServiceID(s.Name), Role: "Started", Managed: true}
		v := &View{e: e, Scene: Scene{Service: s}}
		if v.mounted(ctx, server) && daemonRuns(ctx, v, server, "nfsd") {
			r.Nodes = append(r.Nodes, linux.CRMOn{Name: server})
		}
		c.Resources = append(c.Resources, r)
	}
	return c, nil
}
