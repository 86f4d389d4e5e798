package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/test/example"
)

// Every drill in which the service stays has a condition by which the servers prove
// that the fault took place.
func TestStayingIsWitnessed(t *testing.T) {
	done := map[string]bool{}
	for _, file := range []string{"nfs-ha.yaml", "nss7.4-ha.yaml", "nfs-dfc.yaml", "nfs-ha-xl.yaml", "lustre-small.yaml"} {
		d := example.Design(t, file)
		s := fault.Scene{Design: d, Service: d.Services()[0], Active: d.Pairs[0].Servers[0], Group: d.Groups[0]}
		if d.Clustered() {
			s.Passive = d.Pairs[0].Servers[1]
		}
		for _, m := range s.Group.Members {
			s.Members = append(s.Members, m.Serial)
		}
		for _, x := range Table {
			for _, v := range x.Variants {
				name := Choice{x, v}.Name()
				if !d.Clustered() {
					var err error
					if v, err = onOne(x, v); err != nil {
						continue
					}
				}
				if w := x.Expected(v).Where; w != judge.Stays && w != judge.Returns || strings.HasPrefix(name, "change-") {
					continue // a change is a command that succeeds or not
				}
				steps, err := v.Steps(s)
				if err != nil {
					continue // impossible with this brick
				}
				done[name] = true
				// These end with what a command, a client or the cluster's log says.
				others := []string{"bit-rot", "full-fs", "ost-full", "client-crash", "service-kill", "cache-full", "unfenced", "lun-missing", "lun-hung", "server-crash"}
				if !slices.ContainsFunc(steps, func(st Step) bool {
					u, ok := st.(Until)
					return ok && u.Condition != nil && (u.Sign || slices.Contains(others, x.Name))
				}) {
					t.Errorf("%s of %s (%s): no condition proves that the fault took place", name, file, kind.Of(d).Label(d.Mounts[0]))
				}
			}
		}
	}
	for _, name := range []string{"power-bus-feed", "path-one-hba", "array-power-short", "lun-slow-delay", "public-switch-switch", "ssd-fail-first"} {
		if !done[name] {
			t.Errorf("%s was not looked at", name)
		}
	}
}

// A brick that shows the sign of a fault before the fault is refused; one busy moment
// of a server is no sign.
func TestSignBeforeTheFault(t *testing.T) { synctest.Test(t, testSignBeforeTheFault) }

func testSignBeforeTheFault(t *testing.T) {
	for _, c := range []struct {
		name    string
		sign    bool
		seen    []bool
		refused bool
		looks   int
	}{
		{"never", true, []bool{false}, false, 1},
		{"once", true, []bool{true, false}, false, 2},
		{"always", true, []bool{true, true}, true, 2},
		{"no sign", false, []bool{true}, false, 0},
	} {
		looks := 0
		cond := &fault.Condition{What: "x", Sign: c.sign, Look: func(context.Context, *fault.Site) (bool, string) {
			looks++
			return c.seen[looks-1], "nfs1 has lost a power feed"
		}}
		e := &engine{drill: Drill{Name: "power-bus"}, Site: fault.Site{Watch: fault.NewWatcher(func(string) {}, nil)}, steps: []Step{Inject{Kind: fault.FeedOff}, Until{cond}, Until{}}}
		err := e.unsigned(t.Context())
		if u := (*fault.Unhealthy)(nil); errors.As(err, &u) != c.refused || looks != c.looks {
			t.Errorf("%s: %v after %d looks", c.name, err, looks)
		}
	}
}

// A drill with a sign looks for it before the load starts, and waits for it after the fault.
func TestRunWithASign(t *testing.T) { synctest.Test(t, testRunWithASign) }

func testRunWithASign(t *testing.T) {
	p := newPair(t)
	d, v, err := Find("server-crash", "freeze")
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []bool{false, true} {
		v.Steps = func(s fault.Scene) ([]Step, error) {
			c := &fault.Condition{What: "frozen", Limit: time.Minute, Sign: true, Look: func(_ context.Context, v *fault.Site) (bool, string) {
				return before || v.Watch.FaultNS() != 0, "it is frozen"
			}}
			return []Step{Inject{Kind: fault.Freeze, On: s.Active}, Until{c}}, nil
		}
		_, err := Run(t.Context(), fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, d, v, p.options(t))
		if u := (*fault.Unhealthy)(nil); errors.As(err, &u) != before || !before && err != nil || len(p.injected) != 1 {
			t.Errorf("seen before: %v: %v, injected %q", before, err, p.injected)
		}
	}
}
