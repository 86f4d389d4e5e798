package drill

import (
	"errors"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
)

// A brick with one server has no partner that takes over. The drill itself
// restores the server's power, plugs the cable in and starts the daemon again.
// Until then clients wait.

// aloneHold is how long a fault lasts before the drill mends it. A person takes
// longer, and clients notice the fault much sooner. A variable for tests.
var aloneHold = 10 * time.Second

// alone has the drills of a brick with one server, by DRILL-HOW, with their
// steps; nil: the steps of the table.
var alone = map[string]func(fault.Scene) ([]Step, error){
	"path-one-hba": nil, "path-one-disk": nil, "controller-module": nil, "shared-disk-pulled": nil, "two-disks-pulled": nil, "disk-slow-throttled": nil, "bit-rot-scrub": nil,
	"local-disk-pulled": nil, "full-fs-full": nil, "client-crash-power": nil, "flapping-public": nil, "clock-jump-ahead": nil, "clock-jump-back": nil, "public-switch-switch": nil,
	"ssd-fail-first": nil, "ssd-fail-second": nil, "ssd-replace-pulled": nil, "ssd-both-pulled": nil, "cache-full-filled": nil,
	"service-kill-nfsd": restarted("nfsd"), "service-kill-mountd": restarted("rpc.mountd"), "service-kill-statd": restarted("rpc.statd"), "service-kill-nfsdcld": restarted("nfsdcld"),
	"public-link-cable":   mended(Part{Kind: fault.LinkDown, On: fault.OnActive, Args: []string{"public"}}),
	"server-crash-freeze": mended(Part{Kind: fault.Freeze, On: fault.OnActive}), "server-crash-panic": mended(Part{Kind: fault.Panic, On: fault.OnActive}), "server-crash-power": mended(Part{Kind: fault.PowerOff, On: fault.OnActive}),
	"change-disk-replace": nil, "change-grow-disks": nil, "change-cache-kept": nil,
	"ssd-missing-freeze": ssdThen(false, mended(Part{Kind: fault.PowerOff, On: fault.OnActive})), "ssd-missing-returned": ssdThen(true, mended(Part{Kind: fault.PowerOff, On: fault.OnActive})),
}

// errNeedsPair refuses drills that need a partner.
var errNeedsPair = errors.New("a pair of servers is needed, and this brick has none")

// onOne adapts a variant of a drill to a brick with one server.
func onOne(d Drill, v Variant) (Variant, error) {
	steps, ok := alone[Choice{d, v}.Name()]
	if !ok {
		return v, &fault.Refused{Why: fmt.Sprintf("drill %s --how %s: %v", d.Name, v.How, errNeedsPair)}
	}
	expect := d.Expected(v)
	switch {
	case steps != nil:
		v.Steps = steps
		expect.Stall = noTarget // the stall lasts until a person mends the fault
		expect.Where = judge.Returns
	case expect.Disks && !d.ownDisks:
		v.Steps = withDisks(v.Steps)
	}
	if expect.Fencing = judge.NoServer; expect.Where != judge.Returns {
		expect.Where = judge.Stays
	}
	v.Expect = &expect
	return v, nil
}

// withDisks refuses faults of disks or paths if a RAID controller inside the
// server has them: the server has one path to each LUN and does not see the disks.
func withDisks(steps func(fault.Scene) ([]Step, error)) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		for i := range s.Design.Arrays {
			if a := &s.Design.Arrays[i]; s.Design.PathsTo(a, s.Active) < 2 {
				return nil, fmt.Errorf("%s is inside %s: there is one path to its LUNs, and its disks are its own", a.Name, s.Active)
			}
		}
		return steps(s)
	}
}

// mended is a fault of the server that the drill mends after aloneHold.
func mended(p Part) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		f := p.fault(s)
		if p.Kind == fault.Panic || p.Kind == fault.PowerOff {
			return []Step{Inject(f), Wait(aloneHold), Mend(f), Until{booted("the server booted", s.Active)}}, nil
		}
		return injectAndMend(s, f, aloneHold), nil
	}
}

// restarted kills a daemon, which its unit then starts again.
func restarted(daemon string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		steps, err := killDaemon(daemon)(s)
		if err != nil {
			return nil, err
		}
		f, _ := actOf(steps[0])
		return append([]Step{Inject(f), Wait(aloneHold), Look{}, Mend(f)}, steps[1:]...), nil
	}
}
