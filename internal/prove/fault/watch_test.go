package fault

import (
	"testing"
	"testing/synctest"
	"time"
)

// An event has the time of its host's clock, before or after a jump.
func TestWhen(t *testing.T) { synctest.Test(t, testWhen) }

func testWhen(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		w := NewWatcher(func(string) {}, nil)
		check := func(what string, at time.Time, ahead time.Duration) {
			t.Helper()
			if got := w.when("nfs1", at.Add(ahead).UnixNano()); got != at.UnixNano() {
				t.Errorf("by %v, %s: %v late", by, what, time.Duration(got-at.UnixNano()))
			}
		}
		before := time.Now()
		check("without a jump", before, 0)
		time.Sleep(10 * time.Second)
		w.shift("nfs1", by)
		if w.moved("nfs1") != by.Nanoseconds() {
			t.Error("where the clock is")
		}
		time.Sleep(10 * time.Second)
		meanwhile := time.Now()
		check("before the jump, read later", before, 0)
		check("meanwhile", meanwhile, by)
		w.shift("nfs1", 0)
		time.Sleep(10 * time.Second)
		check("after it was mended", time.Now(), 0)
		check("meanwhile, read later", meanwhile, by)
		check("long ago", before.Add(-2*time.Hour), 0)
		if w.moved("nfs1") != 0 {
			t.Error("where the clock is, mended")
		}
	}
}
