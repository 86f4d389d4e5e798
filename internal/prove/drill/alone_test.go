package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// lone is a brick with one server: a part that goes down comes back after Heal.
type lone struct{ *pair }

func (l lone) Inject(_ context.Context, f fault.Fault) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.injected = append(l.injected, f.String())
	l.down[f.On] = true
	return nil
}

func loneDesign(p *pair) *design.Design {
	d := p.design()
	d.Pairs[0].Servers, d.Pairs[0].HA = []string{"nfs1"}, nil
	return d
}

// The drill restores the power of a server without a partner, which must then
// serve.
func TestRunAlone(t *testing.T) { synctest.Test(t, testRunAlone) }

func testRunAlone(t *testing.T) {
	hold := aloneHold
	aloneHold = 100 * time.Millisecond
	t.Cleanup(func() { aloneHold = hold })
	p := newPair(t)
	d, v, err := Find("server-crash", "power")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), fault.Env{Design: loneDesign(p), Dial: p.dial, Injector: lone{p}, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, d, v, p.options(t))
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Summary; s.Verdict != report.Pass || s.Target != "nfs1" || s.Survivor != "" || s.StallTargetSeconds != nil || s.VerifiedBytes == 0 {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(p.injected, []string{"power-off nfs1"}) || !slices.Contains(p.healed, "power-off nfs1") {
		t.Errorf("injected %q, healed %q", p.injected, p.healed)
	}
	p.leftNothing(t)
}

// No drill breaks disks or paths of a controller inside the server.
func TestAloneInside(t *testing.T) {
	p := newPair(t)
	d := loneDesign(p)
	d.Arrays = []design.Array{{Name: "perc1", Family: "perc", Servers: []string{"nfs1"}}}
	env := fault.Env{Design: d, Dial: p.dial, Injector: lone{p}}
	for name, possible := range map[string]bool{"path-one": false, "shared-disk": false, "local-disk": true, "full-fs": true} {
		x, v, err := Find(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := Possible(env, x, v); (err == nil) != possible || !possible && !strings.Contains(err.Error(), "perc1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A single server has the drills that need no partner, and no others.
func TestAloneTable(t *testing.T) {
	d := loneDesign(newPair(t))
	s := fault.Scene{Design: d, Service: d.Services()[0], Active: "nfs1"}
	known := map[string]bool{}
	for _, x := range Table {
		for _, v := range x.Variants {
			name := Choice{x, v}.Name()
			one, err := onOne(x, v)
			var refused *fault.Refused
			if _, known[name] = alone[name]; !known[name] {
				if !errors.As(err, &refused) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if e := x.Expected(one); err != nil || e.Where != judge.Stays && e.Where != judge.Returns || e.Fencing != judge.NoServer {
				t.Errorf("%s: %+v %v", name, e, err)
			}
			steps, err := one.Steps(s)
			if err != nil {
				continue // impossible with this brick
			}
			if slices.ContainsFunc(steps, func(x Step) bool { f, _ := actOf(x); return f.On == "nfs2" }) {
				t.Errorf("%s: %+v", name, steps)
			}
		}
	}
	for _, c := range Suits(mustChoose(t), d) {
		if !known[c.Name()] {
			t.Errorf("%s suits a single server", c.Name())
		}
	}
	for name := range alone {
		if !known[name] {
			t.Errorf("there is no drill %s", name)
		}
	}
}

func mustChoose(t *testing.T) []Choice {
	t.Helper()
	all, err := Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Run refuses a drill that needs a pair before it reaches a host.
func TestAloneRefused(t *testing.T) {
	p := newPair(t)
	for _, name := range []string{"failover", "fence-all", "both-rings"} {
		d, v, err := Find(name, "")
		if err != nil {
			t.Fatal(err)
		}
		env := fault.Env{Design: loneDesign(p), Dial: p.dial, Injector: lone{p}}
		var refused *fault.Refused
		if _, err := Run(t.Context(), env, d, v, p.options(t)); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
		if err := Possible(env, d, v); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
