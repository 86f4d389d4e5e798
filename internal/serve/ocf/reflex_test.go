package ocf

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A row looks, waits, acts and rests as its columns say.
func TestReflex(t *testing.T) {
	for name, c := range map[string]struct {
		row  reflex
		sees string // at each second: whether there is something to do
		want string // what it did
	}{
		"at each look":        {reflex{}, "yynny", "aa..a"},
		"it must last":        {reflex{lasts: 2 * time.Second}, "yynyyyy", ".....aa"},
		"looks are spaced":    {reflex{every: 3 * time.Second}, "nyyyyyy", "...a..a"},
		"acts are spaced":     {reflex{every: time.Second, again: 3 * time.Second}, "nyyyyyy", ".a..a.."},
		"it lasts over looks": {reflex{every: 2 * time.Second, lasts: 2 * time.Second}, "yyyynyy", "..a...."},
	} {
		h := newShared(t).hosts["nfs1"]
		s := h.service(testConfig())
		w := h.watcher(s)
		did, r := false, c.row
		got := ""
		for _, y := range c.sees {
			r.sees = func(context.Context) action {
				if y != 'y' {
					return nil
				}
				return func(context.Context) { did = true }
			}
			did = false
			w.react(t.Context(), s, []*reflex{&r})
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
			return nil, errBusy
		}
		held++
		return func() { held-- }, nil
	}
	seen := 2 // so many looks see something
	locked := &reflex{locked: true, beside: true, sees: func(context.Context) action {
		if seen--; seen < 0 {
			return nil
		}
		return func(context.Context) { did = append(did, fmt.Sprintf("locked %d", held)) }
	}}
	locked.busy = &s.storage.(*mdKind).busy
	other := &reflex{busy: locked.busy, sees: always(func(context.Context) { did = append(did, "other") })}
	look := func(want string) {
		t.Helper()
		did = nil
		w.react(t.Context(), s, []*reflex{locked, other})
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
	locked.instead = true
	seen = 2
	look("")
	if len(later) != 1 || held != 0 {
		t.Errorf("%d acts, the lock is held %d times", len(later), held)
	}
}

func TestLimit(t *testing.T) {
	var l limit
	at := time.Unix(1000, 0)
	for i, want := range []bool{true, true, false, false, true, true, false} {
		if got := l.allows("x", at.Add(time.Duration(i)*time.Second), 2, 4*time.Second); got != want {
			t.Errorf("at %d s: %v", i, got)
		}
	}
	if !l.allows("y", at, 2, 4*time.Second) {
		t.Error("something else counts")
	}
}
