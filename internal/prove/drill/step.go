package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// Step is one step of a drill, of one of the kinds below.
type Step interface {
	do(ctx context.Context, e *engine) error
}

type (
	Inject  fault.Fault                // breaks something; the clock of the drill starts at the first one
	Prepare fault.Fault                // breaks something before the clock starts
	Mend    fault.Fault                // mends a fault
	At      time.Duration              // waits until so long after the first fault
	Wait    time.Duration              // waits
	Until   struct{ *fault.Condition } // waits for a condition; nil: does not wait
	Look    struct{}                   // records the findings of `mortar status`
	// Keep has writers leave the data written so far as it is, and go on behind it. In a drill
	// without such a step they do so at each fault.
	Keep struct{}
	// Drawn is an Inject or a Mend of a random schedule.
	Drawn struct {
		Step
		Try    bool // after an error note it and go on
		Beside bool // the next steps do not wait for this one
		Back   bool // of Mend: then do beside the next steps what remains to be done, which else heal does
	}
)

func (s Inject) do(ctx context.Context, e *engine) error  { return Drawn{Step: s}.do(ctx, e) }
func (s Prepare) do(ctx context.Context, e *engine) error { return Drawn{Step: s}.do(ctx, e) }
func (s Mend) do(ctx context.Context, e *engine) error    { return Drawn{Step: s}.do(ctx, e) }
func (s Wait) do(ctx context.Context, e *engine) error    { return e.Sleep(ctx, time.Duration(s)) }
func (s Keep) do(ctx context.Context, e *engine) error    { return e.mark(ctx) }

func (s At) do(ctx context.Context, e *engine) error {
	return e.Sleep(ctx, time.Until(time.Unix(0, e.evidence.Fault).Add(time.Duration(s))))
}

func (Look) do(ctx context.Context, e *engine) error {
	if lines := fault.StatusLines(ctx, &e.Site); len(lines) > 0 {
		e.status = lines
	}
	return nil
}

// actOf tells what a step injects or mends; the zero Fault: nothing.
func actOf(s Step) (f fault.Fault, mends bool) {
	switch s := s.(type) {
	case Inject:
		f = fault.Fault(s)
	case Prepare:
		f = fault.Fault(s)
	case Mend:
		return fault.Fault(s), true
	case Drawn:
		return actOf(s.Step)
	}
	return f, false
}

// prepared has steps come before the clock of the drill starts.
func prepared(steps []Step) []Step {
	for i := range steps {
		if s, ok := steps[i].(Inject); ok {
			steps[i] = Prepare(s)
		}
	}
	return steps
}

// perform carries out the steps of the drill, one after the other.
func (e *engine) perform(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, e.beside.wait()) }()
	for _, s := range e.steps {
		if err := s.do(ctx, e); err != nil {
			return err
		}
	}
	e.done = time.Now().UnixNano()
	return nil
}

// keeps says whether the writers leave what they have written so far as it is when a fault
// begins: before each fault, but not each time that it is injected again.
func (e *engine) keeps(f fault.Fault) bool {
	return !f.Setting() && !slices.Contains(e.steps, Step(Keep{})) && !slices.ContainsFunc(e.Injected, f.Is)
}

// do injects or mends a fault.
func (s Drawn) do(ctx context.Context, e *engine) error {
	ev := &e.evidence
	f, mends := actOf(s)
	words := "mending: " + f.String()
	_, first := s.Step.(Inject)
	first = first && ev.Fault == 0
	if !mends {
		words = f.Words()
		if e.keeps(f) {
			if err := e.markAt(ctx, first); err != nil {
				return err
			}
		}
	}
	e.Say("%s now", words)
	at := time.Now().UnixNano()
	if first {
		e.Watch.SetFault(at)
		ev.Fault = at
	}
	if !mends {
		if f.Kind == fault.ClientDown {
			e.loseClient(f.On)
		}
		// heal mends the fault even if Inject fails.
		e.Injected = append(e.Injected, f)
		e.Watch.Add(report.Event{NS: at, Host: f.On, Source: "drill", Kind: report.EventFault, Text: words})
	}
	if s.Beside {
		e.beside.run(f, func() error { return e.carryOut(ctx, s, words, at) })
		return nil
	}
	if err := e.carryOut(ctx, s, words, at); err != nil {
		return err
	}
	if f.Kind == fault.ConfirmOff {
		ev.Confirmed = at
	}
	for _, x := range e.leads()[1:] {
		if f.On == x.Active && x.Fault == 0 {
			x.Fault = at
		}
	}
	return nil
}

// carryOut injects or mends the fault of a step that began at a time.
func (e *engine) carryOut(ctx context.Context, s Drawn, words string, at int64) (err error) {
	f, mends := actOf(s)
	if e.expect.Wakes && f.Kind == fault.Freeze {
		e.Env.Excused.Set(f.On, !mends)
	}
	if in := e.InjectorOf(f); mends {
		err = in.Heal(ctx, f)
	} else {
		err = in.Inject(ctx, f)
	}
	if back := fault.Kinds[f.Kind].Back; err == nil && s.Back && back != nil {
		e.beside.run(f, func() error {
			if err := back(ctx, &e.Site, f); err != nil && ctx.Err() == nil {
				e.note("", "not given back yet after %s: %v", words, err) // heal gives it back
			}
			return nil
		})
	}
	switch {
	case err != nil && s.Try && ctx.Err() == nil:
		undone := fmt.Sprintf("%s: %v", words, err)
		e.Say("not done: %s", undone)
		e.note(f.On, "not done: %s", undone)
		if !mends {
			e.beside.locked(func() { e.beside.undone = append(e.beside.undone, undone) })
		}
	case err != nil:
		return fmt.Errorf("%s: %w", words, err)
	case mends:
		e.Watch.Add(report.Event{NS: at, Host: f.On, Source: "drill", Kind: report.EventMended, Text: words})
	}
	return nil
}

// note adds a note to the events of the drill.
func (e *engine) note(host, format string, args ...any) {
	e.Watch.Add(report.Event{NS: time.Now().UnixNano(), Host: host, Source: "drill", Kind: report.EventNote, Text: fmt.Sprintf(format, args...)})
}

// do waits for the condition.
func (s Until) do(ctx context.Context, e *engine) error {
	if s.Condition == nil {
		return nil
	}
	limit := time.Now().Add(s.Limit)
	for {
		ok, detail := s.Look(ctx, &e.Site)
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok || time.Now().After(limit) {
			at := ""
			if e.evidence.Fault != 0 {
				at = fmt.Sprintf("%+.2f s  ", float64(time.Now().UnixNano()-e.evidence.Fault)/1e9)
			}
			if ok {
				e.Say("%s%s: %s", at, s.What, detail)
			} else {
				e.Say("%snot seen within %s: %s; %s", at, report.Seconds(s.Limit.Seconds()), s.What, detail)
			}
			e.evidence.Conditions = append(e.evidence.Conditions, report.Check{Name: s.What, OK: ok, Detail: detail})
			return nil
		}
		if err := e.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// beside carries out steps beside the others, and keeps what could not be done.
type beside struct {
	mu      sync.Mutex
	running map[string]chan struct{} // by fault: closed when its last step is over
	errs    []error
	undone  []string // faults that could not be injected
	wg      sync.WaitGroup
}

// locked does something to what the steps have left.
func (b *beside) locked(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

// run carries out a step of a fault, after an earlier one of the same fault.
func (b *beside) run(f fault.Fault, do func() error) {
	done := make(chan struct{})
	var before chan struct{}
	b.locked(func() {
		if b.running == nil {
			b.running = map[string]chan struct{}{}
		}
		before, b.running[f.String()] = b.running[f.String()], done
	})
	b.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		err := do()
		b.locked(func() { b.errs = append(b.errs, err) })
	})
}

// wait waits until every step is over, and returns their errors.
func (b *beside) wait() (err error) {
	b.wg.Wait()
	b.locked(func() { err = errors.Join(b.errs...) })
	return err
}

// left lists the faults that could not be injected.
func (b *beside) left() (out []string) {
	b.locked(func() { out = slices.Clone(b.undone) })
	return out
}
