// Package procedure carries out what a person has a running brick do: a plan of steps in order,
// each a command on a host, a wait for a state of the cluster, or other work. Packages failover
// and lustre make the plans, from what they ask first.
//
// The package that makes a plan says what speaks against it and which state of the cluster it
// wants. Package procedure knows neither, and judges no health.
package procedure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
)

// Plan is a list of steps to carry out in order.
type Plan struct {
	What    string   `json:"what"` // failover, standby, drain OST0001 …
	Service string   `json:"service,omitempty"`
	Node    string   `json:"node,omitempty"` // standby and unstandby
	From    string   `json:"from,omitempty"`
	To      string   `json:"to,omitempty"`
	Via     string   `json:"via,omitempty"` // host of the commands that name none, and of the waits
	Steps   []Step   `json:"steps"`
	Nothing string   `json:"nothing,omitempty"` // why there is nothing to do
	Notes   []string `json:"notes,omitempty"`
	// Doubt is what confirm-doubt accepts.
	Doubt *doubt.Doubt `json:"doubt,omitempty"`
}

// Step is one command, a wait for a state of the cluster, or other work.
type Step struct {
	Title string
	// On is the host of the command or of the work; "": the plan's Via.
	On string
	// Action is the command; nil: Until or Work.
	Action *resource.Action
	// Judge says what of the command's output is worth telling, or what is wrong about it. It
	// may be nil.
	Judge func(resource.Output) (detail string, err error)
	// Always: Run runs the step even if an earlier step failed or was
	// interrupted, provided that it has run a command before.
	Always bool

	// Until reports whether the cluster is in the state that is waited for.
	Until func(*observe.Snapshot) (done bool, state string, err error)
	// Hint is a service address. When the address appears on To, Run asks the
	// cluster at once. Otherwise it asks seldom, since each query costs a process
	// on a server that is busy with a takeover.
	Hint string
	// Twice: Until must be met in two successive looks, because the cluster may
	// be about to act.
	Twice bool
	// Work has commands that are known only when it begins. say tells what is left of it.
	Work func(ctx context.Context, say func(left string)) error
}

// HostOf is the host of a step's command.
func (p *Plan) HostOf(s *Step) string { return cmp.Or(s.On, p.Via) }

// MarshalJSON writes the visible part of a step.
func (s Step) MarshalJSON() ([]byte, error) {
	shown := struct {
		Title   string   `json:"title"`
		On      string   `json:"on,omitempty"`
		Command []string `json:"command,omitempty"`
		File    string   `json:"file,omitempty"`
	}{Title: s.Title, On: s.On}
	if s.Action != nil {
		shown.Command = s.Action.Cmd
		if s.Action.File != nil {
			shown.File = s.Action.File.Path
		}
	}
	return json.Marshal(shown)
}

// Hosts are the hosts on which Run carries a plan out; *observe.Collector
// implements it. Tests have a fake cluster.
type Hosts interface {
	// Session returns the session with a host.
	Session(name string) *host.Session
	// Cluster returns the state of the cluster as a host sees it.
	Cluster(ctx context.Context, host string) (*observe.Snapshot, error)
	// HasAddress reports whether a host has an address on an interface. It starts
	// no process.
	HasAddress(ctx context.Context, host, address string) (bool, error)
}

// Event is progress: the begin of a step, a new state during a wait, or the end of
// a step.
type Event struct {
	Step    int     `json:"step"` // from 1
	Steps   int     `json:"steps"`
	Title   string  `json:"title"`
	State   string  `json:"state"` // started, waiting, done, failed
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"` // since the step began
}

// Options of Run.
type Options struct {
	// Wait bounds each wait.
	Wait time.Duration
	// Poll is the pause between two looks at the cluster, Glance the pause
	// between two calls of HasAddress, which cost nothing.
	Poll, Glance time.Duration
	// Grace bounds a step with Always after the context of Run has ended; 0: 30 s.
	Grace time.Duration
	// On receives progress; it may be nil.
	On func(Event)
}

// Run carries out a plan. After a failed step, or the end of ctx, it runs only the
// steps with Always. It returns the first error.
func Run(ctx context.Context, h Hosts, p *Plan, o Options) error {
	var failed error
	began := false // a step began that may have changed something
	for i := range p.Steps {
		s := &p.Steps[i]
		sctx := ctx
		if failed != nil || ctx.Err() != nil {
			if failed == nil {
				failed = context.Cause(ctx)
			}
			// Without a command before there is nothing to undo.
			if !s.Always || !began {
				continue
			}
			var cancel context.CancelFunc
			sctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(o.Grace, 30*time.Second))
			defer cancel()
		}
		began = began || s.Until == nil
		start := time.Now()
		emit := func(state, detail string) {
			if o.On != nil {
				o.On(Event{Step: i + 1, Steps: len(p.Steps), Title: s.Title, State: state, Detail: detail, Seconds: time.Since(start).Seconds()})
			}
		}
		emit("started", "")
		detail, err := do(sctx, h, p, s, o, emit)
		if err != nil {
			emit("failed", err.Error())
			if failed == nil {
				failed = err
			} else {
				failed = errors.Join(failed, err)
			}
			continue
		}
		emit("done", detail)
	}
	return failed
}

func do(ctx context.Context, h Hosts, p *Plan, s *Step, o Options, emit func(state, detail string)) (string, error) {
	switch {
	case s.Work != nil:
		if err := s.Work(ctx, func(left string) { emit("waiting", left) }); err != nil {
			return "", fmt.Errorf("%s: %w", p.HostOf(s), err)
		}
		return "", nil
	case s.Action != nil:
		out, err := h.Session(p.HostOf(s)).Run(ctx, *s.Action)
		var detail string
		if err == nil && s.Judge != nil {
			detail, err = s.Judge(out)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", p.HostOf(s), err)
		}
		return detail, err
	}
	var left, seen string
	held := 0
	w := host.Wait{Limit: o.Wait, Pause: func(ctx context.Context) { pause(ctx, h, p, s, o) }, Seen: func(left string) {
		if held == 0 {
			emit("waiting", left)
		}
	}}
	err := w.Until(ctx, func(ctx context.Context) (string, error) {
		snap, err := h.Cluster(ctx, p.Via)
		if err != nil {
			left = err.Error() // the cluster may not answer for a moment; Wait bounds that
			return left, nil
		}
		var done bool
		if done, seen, err = s.Until(snap); err != nil {
			return "", err
		}
		if !done {
			held, left = 0, seen
			return left, nil
		}
		if held++; held == 1 && s.Twice {
			return cmp.Or(left, seen), nil
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	return seen, nil
}

// pause waits until Run should ask the cluster again: for Poll, until the address
// of the step's hint appears, or until ctx ends.
func pause(ctx context.Context, h Hosts, p *Plan, s *Step, o Options) {
	again := time.NewTimer(o.Poll)
	defer again.Stop()
	// An address that is already present is no signal.
	glance := s.Hint != "" && o.Glance > 0
	if glance {
		if has, err := h.HasAddress(ctx, p.To, s.Hint); has || err != nil {
			glance = false
		}
	}
	var tick <-chan time.Time
	if glance {
		t := time.NewTicker(o.Glance)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			return
		case <-tick:
			if has, err := h.HasAddress(ctx, p.To, s.Hint); has && err == nil {
				return
			}
		}
	}
}
