package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Events of an apply.
const (
	EventStage     = "stage"      // a stage begins
	EventAction    = "action"     // an action begins
	EventWaiting   = "waiting"    // an action waits for that of another session, e.g. of an apply that was killed
	EventChanged   = "changed"    // a step changed something and is as wanted now
	EventUnchanged = "unchanged"  // a step was as wanted already
	EventFailed    = "failed"     // a step failed
	EventStageDone = "stage-done" // all hosts have done a stage
)

// Event tells how an apply goes on. It never holds a secret.
type Event struct {
	Event           string   `json:"event"`
	Stage           string   `json:"stage"`
	Host            string   `json:"host,omitempty"`
	Step            string   `json:"step,omitempty"`
	Resource        string   `json:"resource,omitempty"` // kind and name
	Action          string   `json:"action,omitempty"`
	Command         []string `json:"command,omitempty"`
	File            string   `json:"file,omitempty"`
	Seconds         float64  `json:"seconds,omitempty"` // of the step, for changed, unchanged and failed; of the stage, for stage-done
	Error           string   `json:"error,omitempty"`
	health.Identity          // of a refusal
}

// ApplyOptions of Apply.
type ApplyOptions struct {
	// MayDestroy are the serial numbers of disks the user allowed to wipe.
	MayDestroy []string
	// OnEvent is called one event at a time; may be nil.
	OnEvent func(Event)
	// AfterAction is called with the number of actions done so far, after
	// each; may be nil. Tests end the program in it.
	AfterAction func(n int)
	// Spared tells whether a host that goes away holds up no other; nil: none. Its other steps
	// are left out.
	Spared func(host string) bool
}

// Result of an apply, also of one that failed.
type Result struct {
	Changed   int     `json:"changed"`   // steps that changed something
	Unchanged int     `json:"unchanged"` // steps that were as wanted already
	Actions   int     `json:"actions"`   // commands run and files written
	Seconds   float64 `json:"seconds"`
	// Left are spared hosts that went away.
	Left host.Errors `json:"-"`
}

// Failure is what halted an apply, or kept a plan from being made.
type Failure struct {
	Host, Stage, Step string
	What              string // what was tried: the action's title, or "observe"
	Cmd               []string
	Code              int
	Stderr            string
	Err               error
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s: %s: %v", f.Host, f.Stage, f.Step, f.What, f.Err)
	if len(f.Cmd) > 0 {
		fmt.Fprintf(&b, "\n  command: %s\n  exit code: %d", Quote(f.Cmd), f.Code)
	}
	if s := strings.TrimSpace(f.Stderr); s != "" {
		b.WriteString("\n  stderr: " + strings.ReplaceAll(s, "\n", "\n          "))
	}
	return b.String()
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// maxRounds bounds how often a step may come back with further actions, as
// one does whose second action depends on what the first one made.
const maxRounds = 4

// Apply brings every step to what it wants. Each is compared again right
// before it is applied, and once more after: only what differs is done, and
// what was done must have worked. It halts on the first failure: actions
// under way on other hosts are finished, no other is begun. What was done
// stays done, so that the next Apply goes on where this one ended.
func (p *Plan) Apply(ctx context.Context, hosts map[string]*host.Session, opts ApplyOptions) (Result, error) {
	e := &engine{hosts: hosts, opts: opts, left: host.Errors{}}
	start := time.Now()
	var err error
	for _, stage := range p.stages() {
		begun := time.Now()
		e.emit(Event{Event: EventStage, Stage: stage.name})
		if err = e.stage(ctx, stage); err != nil {
			break
		}
		e.emit(Event{Event: EventStageDone, Stage: stage.name, Seconds: time.Since(begun).Seconds()})
	}
	return Result{
		Changed: int(e.changed.Load()), Unchanged: int(e.unchanged.Load()), Actions: int(e.actions.Load()),
		Seconds: time.Since(start).Seconds(), Left: e.left,
	}, err
}

type stage struct {
	name   string
	hosts  []string // in order of appearance
	byHost map[string][]Step
}

func (p *Plan) stages() []*stage {
	var all []*stage
	byName := map[string]*stage{}
	for _, s := range p.Steps {
		st := byName[s.Stage]
		if st == nil {
			st = &stage{name: s.Stage, byHost: map[string][]Step{}}
			byName[s.Stage] = st
			all = append(all, st)
		}
		if _, ok := st.byHost[s.Host]; !ok {
			st.hosts = append(st.hosts, s.Host)
		}
		st.byHost[s.Host] = append(st.byHost[s.Host], s.Step)
	}
	return all
}

type engine struct {
	hosts map[string]*host.Session
	opts  ApplyOptions

	changed, unchanged, actions atomic.Int64
	halted                      atomic.Bool
	left                        host.Errors // between two stages
	mu                          sync.Mutex  // one event, and one AfterAction, at a time
}

func (e *engine) emit(ev Event) {
	if e.opts.OnEvent == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.OnEvent(ev)
}

var errHalted = errors.New("halted: another host failed")

func (e *engine) stage(ctx context.Context, st *stage) error {
	names := slices.DeleteFunc(slices.Clone(st.hosts), func(n string) bool { return e.left[n] != nil })
	_, failed := host.All(ctx, names, func(ctx context.Context, name string) (struct{}, error) {
		err := e.host(ctx, name, st.byHost[name])
		if err != nil && !e.spares(name, err) {
			e.halted.Store(true)
		}
		if errors.Is(err, errHalted) {
			err = nil
		}
		return struct{}{}, err
	})
	for n, err := range failed {
		if e.spares(n, err) {
			e.left[n] = err
			delete(failed, n)
		}
	}
	if err := cmp.Or(ctx.Err(), failed.Join()); err != nil {
		return err
	}
	if e.halted.Load() {
		return errHalted
	}
	return nil
}

// spares tells whether a host's error holds up no other host.
func (e *engine) spares(name string, err error) bool {
	return e.opts.Spared != nil && e.opts.Spared(name) && doesNotAnswer(err)
}

// sideBySide is how many steps that are Apart are changed at the same time. To create an array took
// a server with one emulated processor 13 s, and each waits up to 100 s until udev has named it.
const sideBySide = 4

// host runs the steps of one stage on one host.
func (e *engine) host(ctx context.Context, name string, steps []Step) error {
	h := e.hosts[name]
	// All at once first: on a host that needs little that is all there is.
	results, err := e.looks(ctx, h, steps)
	if err != nil {
		return err
	}
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n-1].Apart && steps[n].Apart {
			n++
		}
		if len(results) == 0 { // something was changed since
			if results, err = e.looks(ctx, h, steps[:n]); err != nil {
				return e.failed(steps[0], time.Now(), err)
			}
		}
		// An error keeps others from beginning, and ends none.
		side, begin := errgroup.WithContext(ctx)
		side.SetLimit(sideBySide)
		for i, s := range steps[:n] {
			side.Go(func() error {
				switch {
				case e.halted.Load():
					return errHalted
				case begin.Err() != nil:
					return ctx.Err()
				}
				return e.step(ctx, h, s, results[i])
			})
		}
		if err := side.Wait(); err != nil {
			return err
		}
		changed := slices.ContainsFunc(results[:n], func(r agent.DiffResult) bool { return r.Error != nil || len(r.Actions) > 0 })
		if steps, results = steps[n:], results[n:]; changed {
			results = nil
		}
	}
	return nil
}

// step brings a step, which was compared, to what it wants.
func (e *engine) step(ctx context.Context, h *host.Session, s Step, res agent.DiffResult) (err error) {
	start := time.Now()
	if res.Error != nil {
		res, err = e.again(ctx, h, s, res)
	}
	ev, count := Event{Event: EventUnchanged, Stage: s.Stage, Host: s.Host, Step: s.Title, Resource: s.named()}, &e.unchanged
	if err == nil && len(res.Actions) > 0 {
		ev.Event, count = EventChanged, &e.changed
		err = e.converge(ctx, h, s, res.Actions)
	}
	if err != nil {
		return e.failed(s, start, err)
	}
	count.Add(1)
	ev.Seconds = time.Since(start).Seconds()
	e.emit(ev)
	return nil
}

func (e *engine) failed(s Step, start time.Time, err error) error {
	if ctxErr := errors.Is(err, context.Canceled); !ctxErr {
		e.emit(Event{Event: EventFailed, Stage: s.Stage, Host: s.Host, Step: s.Title,
			Resource: s.named(), Seconds: time.Since(start).Seconds(), Error: err.Error(), Identity: agent.Refused(err)})
	}
	return err
}

// looks compares steps of a host.
func (e *engine) looks(ctx context.Context, h *host.Session, steps []Step) ([]agent.DiffResult, error) {
	rs, err := diffs(ctx, h, steps)
	if err != nil {
		s := steps[0]
		return nil, &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: "observe", Err: err}
	}
	return rs, nil
}

func (e *engine) diff(ctx context.Context, h *host.Session, s Step) (agent.DiffResult, error) {
	rs, err := e.looks(ctx, h, []Step{s})
	if err != nil {
		return agent.DiffResult{}, err
	}
	return rs[0], nil
}

// converge runs actions until none is left to run. Of a resource that comes about
// by itself, only actions that were not run before.
func (e *engine) converge(ctx context.Context, h *host.Session, s Step, actions []resource.Action) error {
	_, waits := s.Resource.(resource.Settler)
	ran := map[string]bool{} // commands
	for range maxRounds {
		for _, a := range actions {
			if waits && ran[commandOf(a)] {
				continue
			}
			ran[commandOf(a)] = true
			if err := e.do(ctx, h, s, a); err != nil {
				return err
			}
		}
		res, err := e.settle(ctx, h, s, ran)
		if err != nil {
			return err
		}
		if len(res.Actions) == 0 {
			return nil
		}
		same := reflect.DeepEqual(res.Actions, actions)
		actions = res.Actions
		if same || waits && !anyNotRun(actions, ran) {
			break // the same once more would do the same
		}
	}
	var left []string
	for _, a := range actions {
		t := a.Title
		if _, ok := s.Resource.(resource.Settler); ok && a.Why != "" {
			t += ": " + a.Why
		}
		left = append(left, t)
	}
	return &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: "check",
		Err: fmt.Errorf("did not converge: the commands succeeded, but it would still have to %s", strings.Join(left, ", "))}
}

// commandOf tells actions of a step apart.
func commandOf(a resource.Action) string { return strings.Join(a.Cmd, "\x00") + "\x00" + a.Occasion }

// anyNotRun tells whether any of the actions was not run yet.
func anyNotRun(actions []resource.Action, ran map[string]bool) bool {
	return slices.ContainsFunc(actions, func(a resource.Action) bool { return !ran[commandOf(a)] })
}

// again looks once more at a resource that comes about by itself, whose first look failed:
// an earlier step may have given its server much to start. Other looks fail for good.
func (e *engine) again(ctx context.Context, h *host.Session, s Step, res agent.DiffResult) (agent.DiffResult, error) {
	if _, waits := s.Resource.(resource.Settler); waits && !res.Error.Refusal {
		return e.settle(ctx, h, s, nil)
	}
	return res, &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: "observe", Err: res.Error}
}

// settle compares after actions; what comes about by itself gets its time, unless
// something else is to be done for it that was not done yet. A look that fails is no end
// before that: a server that starts services may not answer for a minute.
func (e *engine) settle(ctx context.Context, h *host.Session, s Step, ran map[string]bool) (agent.DiffResult, error) {
	var limit time.Duration
	if r, ok := s.Resource.(resource.Settler); ok {
		limit = r.Settle()
	}
	for start := time.Now(); ; {
		res, err := e.diff(ctx, h, s)
		if err == nil && res.Error != nil {
			err = &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: "observe", Err: res.Error}
			if res.Error.Refusal || time.Since(start) >= limit {
				return res, err
			}
		} else if err != nil || len(res.Actions) == 0 || time.Since(start) >= limit || anyNotRun(res.Actions, ran) {
			return res, err
		}
		select {
		case <-ctx.Done():
			return res, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// guards asks the guards of a step, all at once.
func (e *engine) guards(ctx context.Context, guards []Step) error {
	var hosts []string
	by := map[string]Step{}
	for _, g := range guards {
		hosts = append(hosts, g.Host)
		by[g.Host] = g
	}
	_, failed := host.All(ctx, hosts, func(ctx context.Context, name string) (struct{}, error) {
		h := e.hosts[name]
		if h == nil {
			return struct{}{}, fmt.Errorf("%s is not connected: it cannot say whether it has this storage", name)
		}
		res, err := e.diff(ctx, h, by[name])
		if err == nil && res.Error != nil {
			err = fmt.Errorf("%s: %w", name, res.Error)
		}
		return struct{}{}, err
	})
	return cmp.Or(ctx.Err(), failed.Join())
}

// do takes an action through the gate.
func (e *engine) do(ctx context.Context, h *host.Session, s Step, a resource.Action) error {
	g := host.Gate{Permitted: e.opts.MayDestroy, Log: func(c host.Change) {
		ev := Event{Stage: s.Stage, Host: s.Host, Step: s.Title, Resource: s.named(),
			Action: c.Title, Command: c.Command, File: c.File}
		switch c.State {
		case host.Begins:
			ev.Event = EventAction
		case host.Waiting:
			ev.Event = EventWaiting
		default:
			return // the step's own event tells
		}
		e.emit(ev)
	}}
	err := e.guards(ctx, s.Guards)
	if err == nil {
		_, err = h.Under(g).Run(ctx, a)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f := &Failure{Host: s.Host, Stage: s.Stage, Step: s.Title, What: a.Title, Err: err}
		var ae *agent.Error
		if errors.As(err, &ae) {
			f.Cmd, f.Code, f.Stderr = ae.Cmd, ae.Code, ae.Stderr
		}
		return f
	}
	n := e.actions.Add(1)
	if e.opts.AfterAction != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.opts.AfterAction(int(n))
	}
	return nil
}
