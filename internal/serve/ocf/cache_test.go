package ocf

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// notingStack is a cache whose mirror has other SSDs in sync than it has written down.
type notingStack struct {
	*fakeStack
	changed bool
	noted   int
	err     error
}

func (s *notingStack) SyncChanged() bool { return s.changed }

func (s *notingStack) NoteSync() error {
	s.noted++
	s.changed = s.err != nil
	return s.err
}

// cachedService is a service with a cache, that does not run.
func cachedService(t *testing.T) (*fakeHost, *service) {
	h := newShared(t).hosts["nfs1"]
	c := testConfig()
	c.Cache = "/etc/mortar/cache-home.json"
	h.fs = "dm-9"
	return h, h.service(c)
}

// The watcher writes down at its next look that an SSD has left the mirror, under the lock,
// and only on the server that owns the volume.
func TestWatcherNotesSSDs(t *testing.T) {
	h, s := cachedService(t)
	h.cabled(true)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stack := &notingStack{fakeStack: &fakeStack{h}}
	s.cache = stack
	var log []string
	w := h.watcher(s)
	w.log = func(format string, a ...any) { log = append(log, format) }
	var lockErr error
	held := 0
	w.lock = func(string) (func(), error) {
		if lockErr != nil {
			return nil, lockErr
		}
		held++
		return func() { held-- }, nil
	}
	look := func(what string, noted int) {
		t.Helper()
		stack.noted, stack.changed = 0, true
		w.look(t.Context())
		if stack.noted != noted || held != 0 {
			t.Errorf("%s: noted %d times, want %d; the lock is held %d times", what, stack.noted, noted, held)
		}
	}
	stack.changed = false
	if w.look(t.Context()); stack.noted != 0 {
		t.Error("nothing has changed, and the label is written")
	}
	look("an SSD has left", 1)
	stack.err = errors.New("no header")
	look("an error", 1)
	if !strings.Contains(strings.Join(log, "\n"), "is not written down") {
		t.Errorf("%q", log)
	}
	stack.err = nil
	look("once more", 1)
	lockErr = unit.ErrBusy
	look("the service is being stopped", 0)
	lockErr = nil
	w.watched(s).reached[0].Busy.Store(true)
	look("it is under way", 0)
	w.watched(s).reached[0].Busy.Store(false)
	h.owner = "nfs2"
	look("the other server has taken the volume", 0)
	h.owner = "nfs1"
	h.cabled(false)
	w.look(t.Context())
	h.clock = h.clock.Add(storageLostAfter)
	look("the disks are out of reach", 0)
}

// A monitor writes it down too, under the lock, and leaves it while an action runs.
func TestMonitorNotesSSDs(t *testing.T) {
	h, s := cachedService(t)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stack := &notingStack{fakeStack: &fakeStack{h}}
	s.cache = stack
	monitor := func(what string, noted int) {
		t.Helper()
		stack.noted = 0
		if st, err := s.monitor(t.Context()); st != unit.Running || err != nil || stack.noted != noted {
			t.Errorf("%s: %v, %v, noted %d times, want %d", what, st, err, stack.noted, noted)
		}
	}
	monitor("all is well", 1)
	free := s.hold
	s.hold = func(context.Context) (*Config, func(), error) { return nil, nil, unit.ErrBusy }
	monitor("a command changes the cache", 0)
	s.hold = free
	stack.err = errors.New("no header")
	if st, err := s.monitor(t.Context()); st != unit.Broken || !errors.Is(err, stack.err) {
		t.Errorf("%v, %v", st, err)
	}
}

// A change of the cache may write to the volume on the server that owns it, and where apply
// builds it.
func TestMineToChange(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]string{"nfs1": "", BuildingID("at-rest"): "", "nfs2": "nfs2", "at-rest": "at-rest", "stranger": "stranger"} {
		h.owner = owner
		if err := s.mineToChange(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("owner %s: %v", owner, err)
		}
	}
	h.owner = "nfs1"
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.mineToChange(t.Context()); err == nil {
		t.Error("the service is stopped here")
	}
	if err := mayChange(t.Context(), t.TempDir()+"/service-home.json"); err != nil {
		t.Errorf("a server without a cluster: %v", err)
	}
}

// labelledStack is a cache whose label may know SSDs.
type labelledStack struct {
	*fakeStack
	layers error
}

func (s *labelledStack) OnDisks() error { return s.layers }

// A service that runs gets a cache: it goes on without it, its monitor finds no fault, and a stop
// leaves nothing. The next start brings the cache up.
func TestCacheForARunningService(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	if err := h.service(testConfig()).start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := testConfig()
	c.Cache = "/etc/mortar/cache-home.json"
	s := h.service(c)
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil || h.cached {
		t.Errorf("monitor: %v, %v, cached %v", st, err, h.cached)
	}
	// Data on SSDs is never passed by.
	s.cache = &labelledStack{&fakeStack{h}, errors.New("it has a cache")}
	if st, err := s.monitor(t.Context()); st != unit.Broken || err == nil {
		t.Errorf("the label knows SSDs: %v, %v", st, err)
	}
	s.cache = &fakeStack{h}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Check(); st != unit.Stopped || err != nil || h.active {
		t.Errorf("after the stop: %v, %v, active %v", st, err, h.active)
	}
	h.fs = "dm-9"
	if err := s.start(t.Context()); err != nil || !h.cached {
		t.Errorf("%v, cached %v", err, h.cached)
	}
}
