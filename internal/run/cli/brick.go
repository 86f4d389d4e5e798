package cli

import (
	"context"
	"fmt"
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

// Limit lists the hosts that --limit names; nil: all.
func Limit(d *design.Design, limit []string) (map[string]bool, error) {
	if limit == nil {
		return nil, nil
	}
	hosts, err := d.Spec.Select(limit)
	if err != nil {
		return nil, Fail(BadInput, fmt.Errorf("--limit: %w", err))
	}
	return hosts, nil
}

// Limited restricts a design that was loaded to the clients of a limit; nil: all. The servers
// stay, since what a brick is shows on all of them.
func Limited(limit []string, d *design.Design, err error) (*design.Design, error) {
	if err != nil || limit == nil {
		return d, err
	}
	hosts, err := Limit(d, limit)
	if err != nil {
		return nil, err
	}
	return design.KeepClients(d, func(c spec.Client) bool { return hosts[c.Name] }), nil
}

// Observe connects to the hosts of a brick, or of its clients to those of a limit. Its RAID
// arrays are asked from this machine.
func (e *Env) Observe(file, profile string, timeout time.Duration, limit []string) (*Brick, error) {
	d, err := Load(file, profile)
	if d, err = Limited(limit, d, err); err != nil {
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
