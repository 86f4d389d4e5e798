package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A brick with one server has nobody who takes over: the drill itself gives the
// server its power back, plugs the cable in and starts the daemon again. Until
// then clients wait.

// aloneHold is how long a fault is left before the drill mends it: a person
// takes longer, and a client notices after much less. A variable for tests.
var aloneHold = 10 * time.Second

// alone are the drills of a brick with one server, as DRILL-HOW, with their
// steps there; nil: those of the table.
var alone = map[string]func(Scene) ([]Step, error){
	"path-one-hba": nil, "path-one-disk": nil, "controller-module": nil, "shared-disk-pulled": nil, "two-disks-pulled": nil, "bit-rot-scrub": nil,
	"local-disk-pulled": nil, "full-fs-full": nil, "flapping-public": nil,
	"ssd-fail-first": nil, "ssd-fail-second": nil, "ssd-replace-pulled": nil, "ssd-both-pulled": nil, "cache-full-filled": nil,
	"service-kill-nfsd": restarted("nfsd"), "service-kill-mountd": restarted("rpc.mountd"), "service-kill-statd": restarted("rpc.statd"), "service-kill-nfsdcld": restarted("nfsdcld"),
	"public-link-cable":   mended(Fault{Kind: LinkDown, Args: []string{"public"}}),
	"server-crash-freeze": mended(Fault{Kind: Freeze}), "server-crash-panic": mended(Fault{Kind: Panic}), "server-crash-power": mended(Fault{Kind: PowerOff}),
	"ssd-missing-freeze": ssdGone(false), "ssd-missing-returned": ssdGone(true),
}

// errNeedsPair is of drills in which a partner has a part.
var errNeedsPair = errors.New("a pair of servers is needed, and this brick has none")

// onOne is a variant of a drill as it is done with one server.
func onOne(d Drill, v Variant) (Variant, error) {
	steps, ok := alone[Choice{d, v}.Name()]
	if !ok {
		return v, &Refused{fmt.Sprintf("drill %s --how %s: %v", d.Name, v.How, errNeedsPair)}
	}
	expect := d.Expected(v)
	switch {
	case steps != nil:
		v.Steps = steps
		expect.Stall = none // it is a person who mends it
	case expect.Disks && d.Name != "local-disk":
		v.Steps = withDisks(v.Steps)
	}
	expect.Where, expect.Fencing = Stays, Nobody
	v.Expect = &expect
	return v, nil
}

// withDisks refuses to take disks or paths from a RAID controller inside the
// server: it has one path to each LUN, and its disks are its own.
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

// mended is a fault of the server that is mended after a while.
func mended(f Fault) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		f.On = s.Active
		return []Step{{Fault: f, Wait: aloneHold}, {Fault: f, Mend: true}}, nil
	}
}

// restarted is a daemon that is killed, and started again by its unit.
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

// ssdGone is a server that loses its power while an SSD is missing, or holds what
// is not true any more.
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

// units start the daemons of a single server again. In a cluster the resource
// agent does.
//
// Source: systemd units of nfs-utils
var units = map[string]string{"nfsd": "nfs-server.service", "rpc.mountd": "nfs-mountd.service", "rpc.statd": "rpc-statd.service", "nfsdcld": "nfsdcld.service"}

// restart is what an administrator of a single server does.
func (e *engine) restart(ctx context.Context, server, daemon string) error {
	unit := units[daemon]
	if unit == "" {
		return fmt.Errorf("no unit starts %s again", daemon)
	}
	return e.do(ctx, server, resource.Action{Title: "restart " + unit, Cmd: []string{"systemctl", "restart", unit}, Seconds: 120})
}

// single is a server without a cluster, in the words of one: a service runs if
// its volume is mounted and nfsd has threads.
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
