// Package plan turns a Design and facts into ordered steps, compares them
// with what is on the hosts, shows what would change, and applies it: every
// mutation goes through the one gate (host.Session.Run). It knows order, hosts and
// parallelism. Package resource knows how a resource is observed and changed; the
// caller supplies the sessions with hosts.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Step wants one resource on one host. Stages run one after the other, in
// the order in which they first appear; within a stage the hosts run in
// parallel, and on a host the steps in order; steps that are Apart side by side.
type Step struct {
	Stage    string
	Title    string
	Host     string
	Resource resource.Resource
	// Guards are asked right before each action of the step. If one refuses, or
	// cannot be asked, the action is not run.
	Guards []Step
	// Apart steps that follow each other do not depend on each other.
	Apart bool
}

// Kind is that of the step's resource.
func (s Step) Kind() string { return resource.KindOf(s.Resource) }

// ID is that of the step's resource, within its kind.
func (s Step) ID() string {
	_, id := s.Resource.Identity()
	return id
}

// named is the step's resource by kind and name.
func (s Step) named() string { return s.Kind() + " " + s.ID() }

// Planned is a step with what it would change: no actions, no change.
type Planned struct {
	Step
	Actions []resource.Action
	// Before is the present content of files that Actions would write.
	Before map[string][]byte
}

// Plan is every step, in order, and what each would change.
type Plan struct {
	Steps []Planned
	// DigestKey is the key of the digests by which secrets are shown; see
	// DigestKey. Without, a secret is shown as "(secret)".
	DigestKey []byte
	// Left are the clients that do not answer, with the errors. The plan has no step of them.
	Left host.Errors
	// Notes are what is not as it should be on servers, and no step mends, by host.
	Notes map[string][]prepared.Finding
}

// Pending are the steps that would change something.
func (p *Plan) Pending() []Planned {
	return slices.DeleteFunc(slices.Clone(p.Steps), func(s Planned) bool { return len(s.Actions) == 0 })
}

// Hosts is how many hosts have steps.
func (p *Plan) Hosts() int {
	on := map[string]bool{}
	for _, s := range p.Steps {
		on[s.Host] = true
	}
	return len(on)
}

// HostRefusal is a change that may not be made on a host.
type HostRefusal struct {
	Host, Step string
	resource.Refusal
}

func refuse(host, step, code string, args resource.With) HostRefusal {
	return HostRefusal{host, step, *resource.Refuse(code, args)}
}

// Refusals are all that a plan met. Nothing was changed.
type Refusals []HostRefusal

func (r Refusals) Error() string {
	lines := lists.Map(r, func(x HostRefusal) string { return fmt.Sprintf("%s: %s: %s; %s", x.Host, x.Step, x.What, x.Mend) })
	return strings.Join(lines, "\n")
}

// orNil is r as an error: nil if nothing was refused.
func (r Refusals) orNil() error {
	if len(r) == 0 {
		return nil
	}
	return r
}

// Observe gathers the facts of all hosts.
func Observe(ctx context.Context, hosts map[string]*host.Session) (Facts, error) {
	got, failed := host.All(ctx, slices.Sorted(maps.Keys(hosts)), func(ctx context.Context, name string) (gather.Plan, error) {
		h, err := host.Ask(ctx, hosts[name], gather.Op, gather.Request{Plan: true})
		if err != nil {
			err = fmt.Errorf("%s: facts: %w", name, err)
		}
		return h.Plan, err
	})
	f := Facts{Hosts: map[string]resource.HostFacts{}, OS: map[string]linux.OSRelease{}}
	for name, x := range got {
		f.Hosts[name], f.OS[name] = x.HostFacts, x.OSRelease
		if a := x.Brick.Applied; a != nil && (f.Applied == nil || a.Generation > f.Applied.Generation) {
			f.Applied = a
		}
	}
	return f, cmp.Or(ctx.Err(), failed.Join())
}

// Build asks every host, in one request each, what its steps would change.
// If any may not be made the error is Refusals, with all of them. Nothing is
// changed.
func Build(ctx context.Context, steps []Step, hosts map[string]*host.Session) (*Plan, error) {
	byHost := map[string][]Step{}
	for _, s := range steps {
		if hosts[s.Host] == nil {
			return nil, fmt.Errorf("step %q is for host %q, which is not connected", s.Title, s.Host)
		}
		byHost[s.Host] = append(byHost[s.Host], s)
	}
	results, failed := host.All(ctx, slices.Sorted(maps.Keys(byHost)), func(ctx context.Context, name string) ([]agent.DiffResult, error) {
		rs, err := diffs(ctx, hosts[name], byHost[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return rs, nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p := &Plan{}
	var refused Refusals
	for _, s := range steps {
		rs := results[s.Host]
		if rs == nil {
			continue // its host failed
		}
		r := rs[0]
		results[s.Host] = rs[1:]
		switch {
		// A disk that is missing is missed by every resource made of it.
		case r.Error != nil && r.Error.Refusal:
			x := HostRefusal{Host: s.Host, Step: s.Title, Refusal: resource.Refusal{Identity: r.Error.Refused, What: r.Error.Message, Mend: r.Error.Mend}}
			if !slices.ContainsFunc(refused, func(o HostRefusal) bool { return o.Host == x.Host && o.Error() == x.Error() }) {
				refused = append(refused, x)
			}
		case r.Error != nil && failed[s.Host] == nil:
			failed[s.Host] = &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: "observe", Err: r.Error}
		case r.Error == nil:
			p.Steps = append(p.Steps, Planned{Step: s, Actions: r.Actions, Before: r.Before})
		}
	}
	// Refusals first: what cannot be observed on a host is mostly for the
	// reason that it, or a disk, is not what the spec says.
	if len(refused) > 0 {
		return nil, refused
	}
	if err := failed.Join(); err != nil {
		return nil, err
	}
	return p, nil
}

// diffs asks a host about steps; there is one result for each.
func diffs(ctx context.Context, h *host.Session, steps []Step) ([]agent.DiffResult, error) {
	var rs []agent.WireResource
	for _, s := range steps {
		w, err := agent.Wire(s.Resource)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Title, err)
		}
		rs = append(rs, w)
	}
	var at agent.DiffsEvent
	results, err := h.Diffs(ctx, rs, func(e agent.DiffsEvent) { at = e })
	var silent *agent.SilentError
	if errors.As(err, &silent) && at.Comparing < len(steps) {
		return nil, fmt.Errorf("comparing %q: %w", steps[at.Comparing].Title, err)
	}
	if err != nil {
		return nil, err
	}
	if len(results) != len(steps) {
		return nil, fmt.Errorf("the agent compared %d resources of %d", len(results), len(steps))
	}
	return results, nil
}
