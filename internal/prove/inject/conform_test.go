package inject

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/fault"
)

// rig is an Injector with an independent way to see its effects.
type rig struct {
	fault.Injector
	// tries are faults whose effect the rig can see, at least one of each kind.
	tries []fault.Fault
	// there reports whether exactly the effect of a fault is present now.
	there func(f fault.Fault) bool
	// limit bounds the time until a change is visible. 0: at once, and then the
	// suite checks the other faults too.
	limit time.Duration
	// step is called after each change, if the rig can tell; the suite sets it.
	step *func()
}

// conform is the suite that every injector passes.
func conform(t *testing.T, r rig) {
	see := func(t *testing.T, f fault.Fault, want bool) {
		t.Helper()
		if !r.becomes(f, want) {
			t.Fatalf("%s: it is there: %v, want %v", f, !want, want)
		}
	}
	heal := func(t *testing.T, f fault.Fault) {
		t.Helper()
		if err := r.Heal(t.Context(), f); err != nil {
			t.Fatalf("heal %s: %v", f, err)
		}
		see(t, f, false)
	}
	for _, f := range r.tries {
		t.Run(f.String(), func(t *testing.T) {
			if err := r.Can(f); err != nil {
				t.Fatal(err)
			}
			see(t, f, false)
			heal(t, f) // of whole hardware
			if err := r.Inject(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			see(t, f, true)
			// A second Inject does nothing or returns an error.
			others := r.others(f)
			_ = r.Inject(t.Context(), f)
			see(t, f, true)
			if got := r.others(f); !slices.Equal(got, others) {
				t.Errorf("twice breaks more: %v, once %v", got, others)
			}
			heal(t, f)
			heal(t, f)

			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Inject(ended, f); err == nil && !r.becomes(f, true) {
				t.Error("cancelled, it says that it broke what is whole")
			}
			heal(t, f)
			if r.step == nil {
				return
			}
			halfway, cancel := context.WithCancel(t.Context())
			*r.step = cancel
			err := r.Inject(halfway, f)
			*r.step = nil
			if halfway.Err() == nil {
				t.Error("it changed nothing")
			}
			if err == nil {
				see(t, f, true) // the fault has only one step
			}
			heal(t, f)
		})
	}
	t.Run("what it cannot do", func(t *testing.T) {
		for _, k := range append(hardwareKinds(), "sing") {
			f := fault.Fault{Kind: k, On: "nfs1", Args: []string{"a", "b", "c"}}
			if slices.ContainsFunc(r.tries, func(x fault.Fault) bool { return x.Kind == k }) || r.Can(f) == nil {
				continue
			}
			if err := r.Inject(t.Context(), f); err == nil || err.Error() != r.Can(f).Error() {
				t.Errorf("%s is refused with %v, and injected with %v", k, r.Can(f), err)
			}
			if err := r.Heal(t.Context(), f); err == nil && k == "sing" {
				t.Error("what nobody knows is healed")
			}
		}
		if r.Can(fault.Fault{Kind: "sing"}) == nil {
			t.Error("it can sing")
		}
	})
}

// becomes waits until the effect of a fault is present, or until it is gone.
func (r rig) becomes(f fault.Fault, want bool) bool {
	for end := time.Now().Add(r.limit); ; time.Sleep(500 * time.Millisecond) {
		if r.there(f) == want {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// others are the other faults of the rig that are present.
func (r rig) others(f fault.Fault) []string {
	var out []string
	for _, o := range r.tries {
		if r.limit == 0 && o.String() != f.String() && r.there(o) {
			out = append(out, o.String())
		}
	}
	return out
}

// hardwareKinds are the kinds that an Injector injects.
func hardwareKinds() (out []fault.Kind) {
	for k, how := range fault.Kinds {
		if how.Rack != nil {
			out = append(out, k)
		}
	}
	return out
}

// Each Injector knows each kind of hardware fault: it injects the fault, or Can
// returns why it cannot.
func TestEveryKindIsAnswered(t *testing.T) {
	for k, how := range hardwareFaults {
		if row := fault.Kinds[k]; row.Rack == nil || row.ByHand != "" || how.inject == nil || how.heal == nil {
			t.Errorf("%s: done or refused, and healed if it is done", k)
		}
	}
}
