package ocf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// Between two monitors the watcher writes the locks to the volume when they have changed, and
// only then.
func TestRecordChange(t *testing.T) { flavours(t, testRecordChangeIn) }

func testRecordChangeIn(t *testing.T, testConfig func() *Config) {
	g := graceTest{t, newShared(t)}
	h := g.hosts["nfs1"]
	s := h.service(testConfig())
	g.start(h, s)
	g.locked(h, s, after, 1)
	g.count(s, 1)
	w := h.watcher(s)
	look := func(wait time.Duration, want int) {
		t.Helper()
		h.clock = h.clock.Add(wait)
		g.nfs(s).recordChange(t.Context(), w)
		g.saved(s, want, false)
	}
	look(0, 1)
	g.locked(h, s, after, 2)
	look(watchTick, 2)
	g.locked(h, s, after, 3)
	look(time.Second, 2) // so soon after the last one
	look(time.Second, 3)
	g.locked(h, s, during, 0)
	look(watchTick, 3) // the clients have not reclaimed yet
	g.locked(h, s, after, 2)
	w.gone["home"] = h.clock
	look(watchTick, 3) // the disks do not answer
	delete(w.gone, "home")

	// A monitor or a stop writes: later.
	free := g.nfs(s).lists
	s.lists = func(context.Context) (func(), error) { return nil, errBusy }
	look(watchTick, 3)
	s.lists = free
	look(watchTick, 2)

	// Nothing has changed: nothing is read on the volume.
	g.volume["/.nfs/mortar/locks"] = `{"exact":false,"locks":[]}`
	look(time.Minute, 0)
	// What failed is tried again.
	g.locked(h, s, after, 1)
	s.lists = func(context.Context) (func(), error) { return nil, errors.New("no room in /run") }
	look(watchTick, 0)
	s.lists = free
	look(watchTick, 1)
	// A stop that was faster has the last word.
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.nfs(s).recorder.seen = recordable{}
	if err := g.nfs(s).record(t.Context()); err != nil || !strings.HasPrefix(g.volume["/.nfs/mortar/locks"], `{"exact":true,`) {
		t.Errorf("%q %v", g.volume["/.nfs/mortar/locks"], err)
	}
}

// A record that hangs costs a stop five seconds, and the stop goes on.
func TestStopWaitsForRecord(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := false
	s.lists = func(ctx context.Context) (func(), error) {
		end, ok := ctx.Deadline()
		asked = ok && time.Until(end) <= recordTime
		return nil, errBusy
	}
	if err := s.stop(t.Context()); err != nil || !asked {
		t.Error(err, asked)
	}
}

// The lock of a service's lists is not that of its actions.
func TestListsLock(t *testing.T) {
	s, err := newService(testConfig(), newShared(t).hosts["nfs1"], "nfs1")
	if err != nil {
		t.Fatal(err)
	}
	act, err := lock(t.Context(), s.cfg.Service)
	if err != nil {
		t.Fatal(err)
	}
	defer act()
	release, err := s.lists(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.lists(now); !errors.Is(err, errBusy) {
		t.Errorf("a second one: %v", err)
	}
	release()
	if release, err = s.lists(now); err != nil {
		t.Fatal(err)
	}
	release()
}
