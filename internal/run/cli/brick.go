package cli

import (
	"context"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// Brick is a brick that a command observes.
type Brick struct {
	Design *design.Design
	Hosts  *observe.Collector
	Facts  observe.Facts // the last observation
}

// Observe connects to the hosts of a brick. Its RAID arrays are asked from this machine.
func (e *Env) Observe(file, profile string, timeout time.Duration) (*Brick, error) {
	d, err := Load(file, profile)
	if err != nil {
		return nil, err
	}
	dial, err := host.ManagementDial(d.Spec)
	if err != nil {
		return nil, Fail(BadInput, err)
	}
	hosts, err := e.Collector(d, timeout)
	if err != nil {
		return nil, err
	}
	secrets := plan.Secrets(d.Spec, false)
	hosts.AskArrays(func(ctx context.Context, a *design.Array) raid.Answer {
		i := slices.IndexFunc(d.Spec.Arrays, func(x spec.Array) bool { return x.Name == a.Name })
		if i < 0 {
			return raid.Answer{NotAsked: "the spec does not list it"}
		}
		return raid.Ask(ctx, a, &d.Spec.Arrays[i], secrets, dial)
	})
	return &Brick{Design: d, Hosts: hosts}, nil
}

// Look observes a brick.
func (b *Brick) Look(ctx context.Context) *observe.Status {
	b.Facts = b.Hosts.Collect(ctx)
	return observe.Judge(b.Design, b.Facts)
}
