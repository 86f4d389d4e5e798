package drill

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func TestChoose(t *testing.T) {
	names := func(cs []Choice) (out []string) {
		for _, c := range cs {
			out = append(out, c.Name())
		}
		return out
	}
	for name, c := range map[string]struct {
		only, skip string
		want       []string // nil: an error
	}{
		"one":          {"path-one", "", []string{"path-one-hba", "path-one-disk"}},
		"one variant":  {"path-one-disk,power-bus", "", []string{"power-bus-feed", "path-one-disk"}},
		"skipped":      {"server-crash", "server-crash-freeze,server-crash-panic", []string{"server-crash-power"}},
		"unknown":      {"server-crush", "", nil},
		"unknown skip": {"", "magic", nil},
		"nothing left": {"power-bus", "power-bus", nil},
	} {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		got, err := Choose(split(c.only), split(c.skip))
		if (err != nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, names(got)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	all, err := Choose(nil, nil)
	if err != nil || len(all) < 30 {
		t.Errorf("%d drills, %v", len(all), err)
	}
}

// TestAll carries out a drill twice, and an impossible one.
func TestAll(t *testing.T) { synctest.Test(t, testAll) }

func testAll(t *testing.T) {
	p := newPair(t)
	p.alternate = true // the service moves back after each drill
	opt := p.options(t)
	dir := t.TempDir()
	d, v, err := Find("server-crash", "freeze")
	if err != nil {
		t.Fatal(err)
	}
	env := fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}
	moves, _, err := Find("failover", "")
	if err != nil {
		t.Fatal(err)
	}
	entries, runs, err := All(t.Context(), env, []Choice{{moves, moves.Variants[0]}, {d, v}}, 2, dir, opt)
	if err != nil || len(entries) != 2 || len(runs) != 2 {
		t.Fatalf("%d entries, %d runs, %v", len(entries), len(runs), err)
	}
	if e := entries[0]; e.Verdict != report.Refused || len(e.Reasons) != 1 || e.Repeats != 0 {
		t.Errorf("what cannot be done: %+v", e)
	}
	e := entries[1]
	if e.Verdict != report.Pass || e.Repeats != 2 || len(e.StallsSeconds) != 2 || e.MedianStallSeconds == nil {
		t.Errorf("verdict %s %q, %d repeats, stalls %v", e.Verdict, e.Reasons, e.Repeats, e.StallsSeconds)
	}
	if d := cmp.Diff([]string{"server-crash-freeze-1", "server-crash-freeze-2"}, e.Dirs); d != "" {
		t.Error(d)
	}
	read, readRuns, err := report.LoadEntries(dir)
	if err != nil || len(read) != 2 || len(readRuns) != 2 || read[1].Dir == "" {
		t.Errorf("what was written: %d entries, %d runs, %v", len(read), len(readRuns), err)
	}
	if _, err := report.Load(filepath.Join(dir, e.Dir)); err != nil {
		t.Error(err)
	}
}

// only is an Injector of some faults of the server that serves.
type only struct {
	*pair
	kinds []fault.Kind
}

func (o only) Can(f fault.Fault) error {
	if !slices.Contains(o.kinds, f.Kind) || f.On != "nfs1" {
		return errors.New("not here")
	}
	return nil
}

// TestRandom carries out a schedule that loses data, and finds its smallest part.
func TestRandom(t *testing.T) { synctest.Test(t, testRandom) }

func testRandom(t *testing.T) {
	p := newPair(t)
	p.alternate = true
	p.tamper = p.truncate
	env := fault.Env{Design: p.design(), Dial: p.dial, Injector: only{p, []fault.Kind{fault.Freeze, fault.Panic, fault.PowerOff}}, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}
	scene, err := planned(env)
	if err != nil {
		t.Fatal(err)
	}
	var drawn Schedule
	crashes := func(p Part) bool {
		return slices.Contains([]fault.Kind{fault.Freeze, fault.Panic, fault.PowerOff}, p.Kind)
	}
	for seed := uint64(0); len(drawn.Parts) != 2 || !crashes(drawn.Parts[0]) || !crashes(drawn.Parts[1]); seed++ {
		if drawn, err = Draw(scene, seed, (&fault.Site{Scene: scene, Env: env}).Can); err != nil {
			t.Fatal(err)
		}
	}
	dir, opt := t.TempDir(), p.options(t)
	opt.Rate = 10 // a schedule takes a minute
	restored := 0
	env.Restore = func(context.Context) error { restored++; return nil }
	entries, runs, smallest, err := Random(t.Context(), env, drawn.Seed, 1, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	// The whole schedule fails, so does its second fault alone, and nothing is smaller.
	if len(entries) != 2 || len(runs) != 2 || len(smallest) != 1 || len(smallest[0].Parts) != 1 || smallest[0].Parts[0].Kind != drawn.Parts[1].Kind {
		t.Fatalf("%d entries, %d runs, smallest %v of %v", len(entries), len(runs), smallest, drawn.Words())
	}
	if restored != 2 {
		t.Errorf("the brick was restored %d times, want once before each of two drills", restored)
	}
	for i, e := range entries {
		if want := [][]string{drawn.Words(), smallest[0].Words()}[i]; e.Verdict != report.Fail || *e.Seed != drawn.Seed || !slices.Equal(e.Schedule, want) || e.Smallest != (i == 1) || e.LostBytes == 0 {
			t.Errorf("%+v", e)
		}
		if s := runs[i].Summary; *s.Seed != drawn.Seed || !slices.Equal(s.Schedule, e.Schedule) {
			t.Errorf("summary: seed %d, %q", *s.Seed, s.Schedule)
		}
	}
	if read, _, err := report.LoadEntries(dir); err != nil || len(read) != 2 || !read[1].Smallest {
		t.Errorf("what was written: %+v, %v", read, err)
	}
}

// feeds is an Injector that switches PDUs.
type feeds struct {
	fault.Injector
	done []string
	can  error
}

func (f *feeds) Can(fault.Fault) error { return f.can }
func (f *feeds) Inject(_ context.Context, x fault.Fault) error {
	f.done = append(f.done, x.String())
	return nil
}
func (f *feeds) Heal(_ context.Context, x fault.Fault) error {
	f.done = append(f.done, "heal "+x.String())
	return nil
}

// mending is an Operator whose brick has faults for some looks.
type mending struct {
	fault.Operator
	faults int
	done   []string
}

func (m *mending) Status(context.Context) (*observe.Status, error) {
	if m.faults--; m.faults >= 0 {
		return &observe.Status{Parts: []*observe.Part{{Level: observe.Fault, Text: "nfs1 does not answer"}}}, nil
	}
	return &observe.Status{}, nil
}

func (m *mending) Standby(_ context.Context, node string, on bool) error {
	m.done = append(m.done, fmt.Sprint("standby ", node, " ", on))
	m.faults = 1
	return nil
}

// A broken brick is without power for a moment, and may be whole after it.
func TestPowerCycle(t *testing.T) { synctest.Test(t, testPowerCycle) }

func testPowerCycle(t *testing.T) {
	d := &design.Design{Spec: &spec.Spec{PDUs: []spec.PDU{{Name: "pdu-a"}, {Name: "pdu-b"}}}, Pairs: []design.Pair{{Servers: []string{"nfs1", "nfs2"}}}}
	in, op := &feeds{}, &mending{faults: 3}
	if err := powerCycle(t.Context(), fault.Env{Design: d, Injector: in, Operator: op}, Options{}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"standby nfs1 false", "standby nfs2 false"}, op.done); diff != "" || op.faults > 0 {
		t.Error(diff, op.faults)
	}
	in = &feeds{}
	if err := powerCycle(t.Context(), fault.Env{Design: d, Injector: in, Operator: neverWhole{asked: func() {}}}, Options{Rejoin: time.Minute}); err == nil {
		t.Error("the brick is whole although it is not")
	}
	if diff := cmp.Diff([]string{"feed-off pdu-a", "feed-off pdu-b", "heal feed-off pdu-a", "heal feed-off pdu-b"}, in.done); diff != "" {
		t.Error(diff)
	}
	in = &feeds{can: errors.New("pull it by hand")}
	if err := powerCycle(t.Context(), fault.Env{Design: d, Injector: in}, Options{}); err == nil || in.done != nil {
		t.Errorf("%v, done %q", err, in.done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in = &feeds{}
	if err := powerCycle(ctx, fault.Env{Design: d, Injector: in}, Options{}); err == nil || in.done != nil {
		t.Errorf("after an interrupt: %v, done %q", err, in.done)
	}
	d.Spec.PDUs = nil
	if err := powerCycle(t.Context(), fault.Env{Design: d, Injector: in}, Options{}); err == nil {
		t.Error("a brick without PDUs is whole at once")
	}
}

// Every step of every drill has a text, and every fault has an end.
func TestTableIsComplete(t *testing.T) {
	d := newPair(t).design()
	s := fault.Scene{Design: d, Service: d.Services()[0], Active: "nfs1", Passive: "nfs2"}
	for _, d := range Table {
		if d.Expect.Where == "" || d.Expect.Fencing == "" {
			t.Errorf("%s says not what must happen", d.Name)
		}
		for _, v := range d.Variants {
			steps, err := v.Steps(s)
			if err != nil {
				continue // impossible with this brick
			}
			began := false
			for _, x := range steps {
				_, injects := x.(Inject)
				began = began || injects
				if f, _ := actOf(x); f.Kind != "" && f.Words() == f.String() {
					t.Errorf("%s: %q is not said in words", d.Name, f)
				}
				if w, ok := x.(Wait); ok && time.Duration(w) > time.Minute {
					t.Errorf("%s waits %v", d.Name, w)
				}
			}
			if !began {
				t.Errorf("%s (%s) breaks nothing", d.Name, v.How)
			}
		}
	}
}

// Two drills at once share the table: none writes into it. Only the race detector can tell.
func TestTableIsOnlyRead(t *testing.T) {
	for range 2 {
		t.Run("drills", func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			for _, one := range []*design.Design{p.design(), loneDesign(p)} {
				for _, d := range Table {
					for _, v := range d.Variants {
						_ = Possible(fault.Env{Design: one, Injector: p}, d, v) // a refusal will do
					}
				}
			}
		})
	}
}

// Each row of the papers' tables of failures has a drill.
func TestPapersFailures(t *testing.T) {
	for _, f := range []spec.Flavour{spec.NFSHA, spec.Lustre} {
		for _, row := range paper.Failures(f).Rows {
			if !slices.ContainsFunc(Table, func(d Drill) bool { return slices.Contains(row.Drills, d.Name) }) {
				t.Errorf("%s: no drill of %v", row.What, row.Drills)
			}
		}
	}
}
