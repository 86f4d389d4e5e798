package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// lineFunc plays a host.
type lineFunc func(ctx context.Context, op string, result any) error

func (f lineFunc) Call(ctx context.Context, op string, _, result any, _ func(json.RawMessage)) error {
	return f(ctx, op, result)
}

func (lineFunc) Close() {}

// Each method is asked of a real agent.
func TestSessionMethods(t *testing.T) {
	_, target, opts := setup(t)
	s, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), file); err != nil || got != "one\n" {
		t.Errorf("read: %q %v", got, err)
	}
	if off, rtt, err := s.ClockOffset(t.Context()); err != nil || rtt <= 0 || time.Duration(off).Abs() > time.Minute {
		t.Errorf("clock: %d %d %v", off, rtt, err)
	}
	var lines []string
	if err := s.Follow(t.Context(), func(l string) { lines = append(lines, l) }, "readlink", "-e", file); err != nil || !slices.Equal(lines, []string{file}) {
		t.Errorf("follow: %q %v", lines, err)
	}
	w := agent.WireResource{Kind: "nothing", Resource: json.RawMessage("{}")}
	var at []int
	if ds, err := s.Diffs(t.Context(), []agent.WireResource{w, w}, func(e agent.DiffsEvent) { at = append(at, e.Comparing) }); err != nil || len(ds) != 2 || ds[0].Error == nil || !slices.Equal(at, []int{0, 1}) {
		t.Errorf("diffs: %+v %v, at %v", ds, err, at)
	}
	if out, err := s.Run(t.Context(), resource.Action{Title: "say", Cmd: []string{"echo", "two"}}); err != nil || out.Stdout != "two\n" {
		t.Errorf("run: %+v %v", out, err)
	}
	var failed *agent.Error
	if _, err := Ask(t.Context(), s, agent.Op[agent.None, agent.None]("nothing"), agent.None{}); !errors.As(err, &failed) {
		t.Errorf("an op that is not there: %v", err)
	}
}

// One host that hangs, and one that fails, cost their own rows only.
func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("no answer within 1m"))
		defer cancel()
		hang := make(chan struct{})
		defer close(hang)
		got, failed := All(ctx, []string{"a", "b", "c", "d"}, func(ctx context.Context, n string) (string, error) {
			switch n {
			case "b":
				<-hang // does not even mind its context
			case "c":
				return "", errors.New("broken")
			case "d":
				<-ctx.Done()
				return "late", nil
			}
			return "is " + n, nil
		})
		if d := cmp.Diff(map[string]string{"a": "is a", "d": "late"}, got); d != "" {
			t.Error(d)
		}
		if err := failed.Join(); err == nil || err.Error() != "no answer within 1m\nbroken" || failed["b"] == nil || failed["c"] == nil {
			t.Errorf("failed: %v", err)
		}
	})
	var now, most atomic.Int64
	names := make([]string, 3*atOnce)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	err := Each(t.Context(), names, func(context.Context, string) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return nil
	})
	if err != nil || most.Load() > atOnce {
		t.Errorf("%v, %d at once", err, most.Load())
	}
	if err := Each(t.Context(), []string{"b", "a"}, func(_ context.Context, n string) error { return errors.New("no " + n) }); err == nil || err.Error() != "a: no a\nb: no b" {
		t.Errorf("%v", err)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Wait{Limit: time.Minute, Poll: time.Second}
		var seen []string
		w.Seen = func(left string) { seen = append(seen, left) }
		answers := []string{"two left", "two left", "one left", ""}
		start := time.Now()
		err := w.Until(t.Context(), func(context.Context) (string, error) {
			a := answers[0]
			answers = answers[1:]
			return a, nil
		})
		if err != nil || !slices.Equal(seen, []string{"two left", "one left"}) || time.Since(start) != 3*time.Second {
			t.Errorf("%v, seen %q, %v", err, seen, time.Since(start))
		}
		broken := errors.New("broken")
		if err := w.Until(t.Context(), func(context.Context) (string, error) { return "", broken }); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if err := w.Until(t.Context(), func(context.Context) (string, error) { return "one left", nil }); err == nil || err.Error() != "not done within 1m0s; last seen: one left" {
			t.Errorf("%v", err)
		}
		// A look that is cut short does not hide what was seen before.
		looks := 0
		err = w.Until(t.Context(), func(ctx context.Context) (string, error) {
			if looks++; looks == 1 {
				return "one left", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
		if err == nil || err.Error() != "not done within 1m0s; last seen: one left" {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.Pause = func(context.Context) { cancel() }
		if err := w.Until(ctx, func(context.Context) (string, error) { return "one left", nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A session that broke is opened again; an answer from the host is not
// mistaken for a broken session.
func TestPoolReconnects(t *testing.T) {
	var mu sync.Mutex
	dials := 0
	answers := []error{nil, errors.New("connection lost"), nil, &agent.Error{Message: "no such op"}, errors.New("lost"), errors.New("lost again")}
	p := NewPool(func(_ context.Context, name string) (*Session, error) {
		mu.Lock()
		defer mu.Unlock()
		dials++
		return New(name, lineFunc(func(context.Context, string, any) error {
			err := answers[0]
			answers = answers[1:]
			return err
		})), nil
	})
	defer p.Close()
	for i, want := range []struct {
		dials int
		err   string
	}{{1, ""}, {2, ""}, {2, "no such op"}, {3, "lost again"}} {
		_, err := p.Session("nfs1").Hello(t.Context())
		if dials != want.dials || (err == nil) != (want.err == "") || err != nil && err.Error() != want.err {
			t.Errorf("call %d: %d dials, error %v; want %+v", i, dials, err, want)
		}
	}
}

// An action is sent once: if the connection breaks meanwhile, it is not known
// whether it was done. A connection that broke before is found by a question.
func TestPoolSendsActionsOnce(t *testing.T) {
	lost := errors.New("connection lost")
	var asked []string
	answers := []error{nil, nil, lost, nil, nil, lost}
	p := NewPool(func(_ context.Context, name string) (*Session, error) {
		return New(name, lineFunc(func(_ context.Context, op string, _ any) error {
			asked = append(asked, op)
			err := answers[0]
			answers = answers[1:]
			return err
		})), nil
	})
	defer p.Close()
	act := func() error {
		_, err := p.Session("nfs1").Run(t.Context(), resource.Action{Title: "set", Cmd: []string{"set"}})
		return err
	}
	if err := errors.Join(act(), act()); err != nil { // the second finds the connection broken
		t.Fatal(err)
	}
	answers = []error{nil, lost}
	if err := act(); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if want := []string{"time", "run", "time", "time", "run", "time", "run"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// The sessions of a pool are under its gate.
func TestPoolIsUnderItsGate(t *testing.T) {
	p := NewPool(func(_ context.Context, name string) (*Session, error) {
		return New(name, lineFunc(func(context.Context, string, any) error { t.Error("the action reached the host"); return nil })), nil
	})
	p.Gate = Gate{DryRun: true}
	a := resource.Action{Title: "set", Cmd: []string{"set"}}
	if _, err := p.Session("nfs1").Run(t.Context(), a); !errors.Is(err, ErrDryRun) {
		t.Errorf("%v", err)
	}
}

// closing is a line that notes its end.
type closing struct {
	lineFunc
	closed *bool
}

func (c closing) Close() { *c.closed = true }

// A session that is open already is used and closed as one that was dialled.
func TestPoolKeeps(t *testing.T) {
	p := NewPool(func(context.Context, string) (*Session, error) { return nil, errors.New("dialled") })
	closed := false
	p.Keep(New("nfs1", closing{func(context.Context, string, any) error { return nil }, &closed}))
	if _, err := p.Session("nfs1").Hello(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Session("nfs2").Hello(t.Context()); err == nil || err.Error() != "dialled" {
		t.Errorf("%v", err)
	}
	if p.Close(); !closed {
		t.Error("not closed")
	}
}
