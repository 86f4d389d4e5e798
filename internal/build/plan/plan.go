// Package plan turns a Design and facts into ordered steps, compares them
// with what is on the hosts, shows what would change, and applies it: every
// mutation goes through the one gate (package gate). It knows order, hosts and
// parallelism; what a resource is made of it leaves to package resource, and
// how a host is reached to whoever hands it one.
package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Step wants one resource on one host. Stages run one after the other, in
// the order in which they first appear; within a stage the hosts run in
// parallel, and on a host the steps in order.
type Step struct {
	Stage    string
	Title    string
	Host     string
	Resource resource.Resource
	// Guards are asked right before each action of the step. If one refuses, or
	// cannot be asked, the action is not run.
	Guards []Step
}

// Host is a host with an agent, as the engine needs it. Call sends one op
// and waits for its result; it is called concurrently. Errors of the op are
// *agent.Error, anything else means that the host or the session is gone.
type Host interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
}

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
}

// Pending are the steps that would change something.
func (p *Plan) Pending() []Planned {
	var all []Planned
	for _, s := range p.Steps {
		if len(s.Actions) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// HostRefusal is a change that may not be made on a host.
type HostRefusal struct {
	Host, Step string
	resource.Refusal
}

// Refusals are all that a plan met. Nothing was changed.
type Refusals []HostRefusal

func (r Refusals) Error() string {
	var lines []string
	for _, x := range r {
		lines = append(lines, fmt.Sprintf("%s: %s: %s; %s", x.Host, x.Step, x.What, x.Mend))
	}
	return strings.Join(lines, "\n")
}

// hostsAtOnce bounds the hosts that are asked at the same time.
const hostsAtOnce = 64

// Observe gathers the facts of all hosts.
func Observe(ctx context.Context, hosts map[string]Host) (Facts, error) {
	f := Facts{Hosts: map[string]resource.HostFacts{}, OS: map[string]linux.OSRelease{}}
	var mu sync.Mutex
	err := eachHost(ctx, names(hosts), func(ctx context.Context, name string) error {
		var facts agent.Facts
		if err := hosts[name].Call(ctx, "facts", nil, &facts, nil); err != nil {
			return fmt.Errorf("%s: facts: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		f.Hosts[name], f.OS[name] = facts.HostFacts, facts.OSRelease
		return nil
	})
	return f, err
}

// Build asks every host, in one request each, what its steps would change.
// If any may not be made the error is Refusals, with all of them. Nothing is
// changed.
func Build(ctx context.Context, steps []Step, hosts map[string]Host) (*Plan, error) {
	byHost := map[string][]int{}
	for i, s := range steps {
		if hosts[s.Host] == nil {
			return nil, fmt.Errorf("step %q is for host %q, which is not connected", s.Title, s.Host)
		}
		byHost[s.Host] = append(byHost[s.Host], i)
	}
	p := &Plan{Steps: make([]Planned, len(steps))}
	for i, s := range steps {
		p.Steps[i].Step = s
	}
	refused := make([]*HostRefusal, len(steps))
	err := eachHost(ctx, names(byHost), func(ctx context.Context, name string) error {
		idx := byHost[name]
		mine := make([]Step, len(idx))
		for k, i := range idx {
			mine[k] = steps[i]
		}
		results, err := diffs(ctx, hosts[name], mine)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var failed error
		for k, i := range idx {
			r := results[k]
			switch {
			case r.Error != nil && r.Error.Refusal:
				refused[i] = &HostRefusal{Host: name, Step: steps[i].Title, Refusal: resource.Refusal{What: r.Error.Message, Mend: r.Error.Mend}}
			case r.Error != nil && failed == nil:
				failed = &Failure{Host: name, Stage: steps[i].Stage, Step: steps[i].Title, What: "observe", Err: r.Error}
			case r.Error == nil:
				p.Steps[i].Actions, p.Steps[i].Before = r.Actions, r.Before
			}
		}
		return failed
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// Refusals first: what cannot be observed on a host is mostly for the
	// reason that it, or a disk, is not what the spec says.
	var all Refusals
	for _, r := range refused {
		// A disk that is missing is missed by every resource made of it.
		if r != nil && !slices.ContainsFunc(all, func(x HostRefusal) bool { return x.Host == r.Host && x.Refusal == r.Refusal }) {
			all = append(all, *r)
		}
	}
	if len(all) > 0 {
		return nil, all
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// diffs asks a host about steps; there is one result for each.
func diffs(ctx context.Context, h Host, steps []Step) ([]agent.DiffResult, error) {
	var p agent.DiffsParams
	for _, s := range steps {
		w, err := agent.Wire(s.Resource)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Title, err)
		}
		p.Resources = append(p.Resources, w)
	}
	var r agent.DiffsResult
	var at agent.DiffsEvent
	err := h.Call(ctx, "diffs", p, &r, func(raw json.RawMessage) { _ = json.Unmarshal(raw, &at) })
	var silent *agent.SilentError
	if errors.As(err, &silent) && at.Comparing < len(steps) {
		return nil, fmt.Errorf("comparing %q: %w", steps[at.Comparing].Title, err)
	}
	if err != nil {
		return nil, err
	}
	if len(r.Results) != len(steps) {
		return nil, fmt.Errorf("the agent compared %d resources of %d", len(r.Results), len(steps))
	}
	return r.Results, nil
}

// eachHost runs f for each host, in parallel, and joins the errors. All are
// asked even if one fails, so that the user sees every failure at once.
func eachHost(ctx context.Context, hosts []string, f func(context.Context, string) error) error {
	errs := make([]error, len(hosts))
	gate := make(chan struct{}, hostsAtOnce)
	var wg sync.WaitGroup
	for i, name := range hosts {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			errs[i] = f(ctx, name)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func names[T any](m map[string]T) []string {
	all := make([]string, 0, len(m))
	for n := range m {
		all = append(all, n)
	}
	sort.Strings(all)
	return all
}
