package ocf

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A row looks, waits, acts and rests as its columns say.
func TestReflex(t *testing.T) {
	for name, c := range map[string]struct {
		row  unit.Reflex
		sees string // at each second: whether there is something to do
		want string // what it did
	}{
		"at each look":        {unit.Reflex{}, "yynny", "aa..a"},
		"it must last":        {unit.Reflex{Lasts: 2 * time.Second}, "yynyyyy", ".....aa"},
		"looks are spaced":    {unit.Reflex{Every: 3 * time.Second}, "nyyyyyy", "...a..a"},
		"acts are spaced":     {unit.Reflex{Every: time.Second, Again: 3 * time.Second}, "nyyyyyy", ".a..a.."},
		"it lasts over looks": {unit.Reflex{Every: 2 * time.Second, Lasts: 2 * time.Second}, "yyyynyy", "..a...."},
	} {
		h := newShared(t).hosts["nfs1"]
		s := h.service(testConfig())
		w := h.watcher(s)
		did, r := false, c.row
		got := ""
		for _, y := range c.sees {
			r.Sees = func(context.Context) unit.Act {
				if y != 'y' {
					return nil
				}
				return func(context.Context) { did = true }
			}
			did = false
			w.react(t.Context(), s, []*unit.Reflex{&r})
			got += map[bool]string{true: "a", false: "."}[did]
			h.clock = h.clock.Add(time.Second)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A row with a lock looks again under it; one beside the loop acts once at a time, also with
// a row that shares its turn; one that acts instead of others keeps them from looking.
func TestReflexesTakeTurns(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	w := h.watcher(s)
	var did []string
	var later []func()
	w.background = func(f func()) { later = append(later, f) }
	held, free := 0, true
	w.lock = func(string) (func(), error) {
		if !free {
			return nil, unit.ErrBusy
		}
		held++
		return func() { held-- }, nil
	}
	seen := 2 // so many looks see something
	locked := &unit.Reflex{Locked: true, Beside: true, Sees: func(context.Context) unit.Act {
		if seen--; seen < 0 {
			return nil
		}
		return func(context.Context) { did = append(did, fmt.Sprintf("locked %d", held)) }
	}}
	locked.Busy = &s.storage.(*mdraid.Kind).Busy
	other := &unit.Reflex{Busy: locked.Busy, Sees: unit.Always(func(context.Context) { did = append(did, "other") })}
	look := func(want string) {
		t.Helper()
		did = nil
		w.react(t.Context(), s, []*unit.Reflex{locked, other})
		if got := strings.Join(did, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	look("")
	look("") // it goes on
	if len(later) != 1 || held != 1 {
		t.Fatalf("%d acts, the lock is held %d times", len(later), held)
	}
	later[0]()
	if held != 0 || strings.Join(did, " ") != "locked 1" {
		t.Errorf("%q, the lock is held %d times", did, held)
	}
	seen = 1 // gone when the lock is there
	look("other")
	free, seen = false, 2
	look("other")
	locked.Instead = true
	seen = 2
	look("")
	if len(later) != 1 || held != 0 {
		t.Errorf("%d acts, the lock is held %d times", len(later), held)
	}
}

func TestLimit(t *testing.T) {
	var l unit.Limit
	at := time.Unix(1000, 0)
	for i, want := range []bool{true, true, false, false, true, true, false} {
		if got := l.Allows("x", at.Add(time.Duration(i)*time.Second), 2, 4*time.Second); got != want {
			t.Errorf("at %d s: %v", i, got)
		}
	}
	if !l.Allows("y", at, 2, 4*time.Second) {
		t.Error("something else counts")
	}
}
