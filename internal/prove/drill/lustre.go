package drill

import (
	"context"
	"errors"
	"time"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// lustreDrills are the drills that only a Lustre brick can do.
var lustreDrills = []string{"ost-full", "lnet", "mds-and-oss"}

// errNoLustre refuses drills of parts that only a Lustre file system has.
var errNoLustre = errors.New("the brick has no Lustre file system")

// lnetGone takes the network from LNet of the active server. Corosync and SSH go on over
// the same interface, so only the watcher notices.
func lnetGone(s Scene) ([]Step, error) {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return nil, errNoLustre
	}
	return []Step{{Fault: Fault{Kind: LNetDown, On: s.Active}, Until: gaveUp(s.Active)}}, nil
}

// gaveUp waits until Pacemaker has stopped the service under test on a server.
func gaveUp(server string) *Condition {
	return logged("the watcher gives the targets up", 2*time.Minute, func(v *View, x report.Event) bool {
		return x.Kind == report.EventStopped && x.Host == server && aboutResource(x, v.e.resource)
	})
}

// between is the time between the faults of mds-and-oss: the first server has been fenced,
// and its partner waits for MMP.
const between = 15 * time.Second

func mdsAndOSS(s Scene) ([]Step, error) {
	if _, err := opposite(s.Design, s.Service); err != nil {
		return nil, err
	}
	return []Step{{Fault: Fault{Kind: Freeze, On: s.Active}, Wait: between}, {Fault: Fault{Kind: Freeze, On: s.Second}}}, nil
}

// hasLustre refuses a brick of another kind.
func hasLustre(e *engine, _ Fault) error {
	if kind.Of(e.env.Design).LNet(e.env.Design) == "" {
		return errNoLustre
	}
	return nil
}

// lnetDown removes the network of the targets. The loopback network of LNet stays.
//
// Source: lnetctl(8), net del
func (e *engine) lnetDown(ctx context.Context, f Fault) error {
	network := kind.Of(e.env.Design).LNet(e.env.Design)
	return e.do(ctx, f.On, resource.Action{Title: "take network " + network + " from LNet", Cmd: []string{"lnetctl", "net", "del", "--net", network}})
}

// lnetUp configures LNet as `mortar apply` does. A server that was fenced configures LNet
// when it boots.
func (e *engine) lnetUp(ctx context.Context, f Fault) error {
	wire, err := agent.Wire(plan.LNetOf(e.env.Design, f.On))
	if err != nil {
		return err
	}
	return e.settle(ctx, f.On, wire)
}
