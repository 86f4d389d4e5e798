package inject

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/drill"
)

// rig is an injector, and a way to see without it what it did.
type rig struct {
	drill.Injector
	// tries are the faults that can be seen here, one of a kind at least.
	tries []drill.Fault
	// there says whether a fault is there now, all of it and nothing more.
	there func(f drill.Fault) bool
	// limit is how long a change may take to be seen; 0: none, and the other
	// faults can be looked at as well.
	limit time.Duration
	// step is called after each change, if the rig can tell; the suite sets it.
	step *func()
}

// conform is the suite that every injector passes.
func conform(t *testing.T, r rig) {
	see := func(t *testing.T, f drill.Fault, want bool) {
		t.Helper()
		if !r.becomes(f, want) {
			t.Fatalf("%s: it is there: %v, want %v", f, !want, want)
		}
	}
	heal := func(t *testing.T, f drill.Fault) {
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
			heal(t, f) // what is whole
			if err := r.Inject(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			see(t, f, true)
			// Again breaks nothing else: it does nothing, or is refused.
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
				see(t, f, true) // it had one thing to do
			}
			heal(t, f)
		})
	}
	t.Run("what it cannot do", func(t *testing.T) {
		for _, k := range append(drill.HardwareKinds(), "sing") {
			f := drill.Fault{Kind: k, On: "nfs1", Args: []string{"a", "b", "c"}}
			if slices.ContainsFunc(r.tries, func(x drill.Fault) bool { return x.Kind == k }) || r.Can(f) == nil {
				continue
			}
			if err := r.Inject(t.Context(), f); err == nil || err.Error() != r.Can(f).Error() {
				t.Errorf("%s is refused with %v, and injected with %v", k, r.Can(f), err)
			}
			if err := r.Heal(t.Context(), f); err == nil && k == "sing" {
				t.Error("what nobody knows is healed")
			}
		}
		if r.Can(drill.Fault{Kind: "sing"}) == nil {
			t.Error("it can sing")
		}
	})
}

// becomes waits until a fault is there, or is not.
func (r rig) becomes(f drill.Fault, want bool) bool {
	for end := time.Now().Add(r.limit); ; time.Sleep(500 * time.Millisecond) {
		if r.there(f) == want {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// others are the other faults of the rig that are there.
func (r rig) others(f drill.Fault) []string {
	var out []string
	for _, o := range r.tries {
		if r.limit == 0 && o.String() != f.String() && r.there(o) {
			out = append(out, o.String())
		}
	}
	return out
}

// Each injector knows each kind of fault that is the hardware's: it does it,
// or says why not.
func TestEveryKindIsAnswered(t *testing.T) {
	for _, k := range drill.HardwareKinds() {
		if _, ok := rackFaults[k]; !ok {
			t.Errorf("a rack cannot do %s, so no drill can be tried", k)
		}
	}
	for k, how := range hardwareFaults {
		if !slices.Contains(drill.HardwareKinds(), k) || (how.inject == nil) != (how.never != "") || (how.heal == nil) != (how.never != "") {
			t.Errorf("%s: done or refused, and healed if it is done", k)
		}
	}
}
