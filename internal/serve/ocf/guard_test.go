package ocf

import (
	"context"
	"errors"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// look asks one device, and waits for it.
func (g *guard) look(ctx context.Context) {
	if device := g.pick(); device != "" {
		g.glance(ctx, device)
	}
}

// eventful is a host on which something happens when a path is read first.
type eventful struct {
	*fakeHost
	then func(pr.Path) (pr.State, error)
}

func (h *eventful) Path(dev string) pr.Path { return &eventfulPath{h.fakeHost.Path(dev), h} }

type eventfulPath struct {
	pr.Path
	h *eventful
}

func (p *eventfulPath) Read() (pr.State, error) {
	then := p.h.then
	if p.h.then = nil; then == nil {
		return p.Path.Read()
	}
	return then(p.Path)
}

// A stop that gives the devices up while the guard looks is no reason to reset the server, and
// neither is a start after it.
func TestGuardBesideAStop(t *testing.T) {
	for name, again := range map[string]bool{"stop": false, "stop and start": true} {
		for _, on := range []int{onReserved, onBareLUNs, onResDisks} {
			_, h, s, _ := reserved(t, storageSpecimens[on])
			other := h.service(s.cfg)
			if err := other.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.K = &eventful{h, func(p pr.Path) (pr.State, error) {
				if err := other.stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				st, err := p.Read()
				if again {
					err = errors.Join(err, other.start(t.Context()))
				}
				return st, err
			}}
			g := h.watcher(s).guardOf(s)
			for range 3 {
				g.look(t.Context())
			}
			if st, err := other.Check(); h.dead || again && st != unit.Running {
				t.Errorf("%s, %s: reset: %v, state %d, %v", storageSpecimens[on].name, name, h.dead, st, err)
			}
		}
	}
}

// A disk that hangs keeps the guard from no other one, and is asked once at a time.
func TestGuardWithAHungDisk(t *testing.T) {
	sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hangs, answer, ended := make(chan bool), make(chan bool), make(chan bool)
	s.K = &eventful{h, func(p pr.Path) (pr.State, error) {
		close(hangs)
		<-answer
		return pr.State{}, pr.ErrPath
	}}
	g := h.watcher(s).guardOf(s)
	first := g.pick()
	go func() { g.glance(t.Context(), first); close(ended) }()
	<-hangs
	for range 12 {
		device := g.pick()
		if device == first || device == "" {
			t.Errorf("%q is asked while %s hangs", device, first)
		}
		g.glance(t.Context(), device)
	}
	if h.dead {
		t.Fatal("reset for nothing")
	}
	heldBy(sh, "nfs2")
	g.look(t.Context())
	if !h.dead {
		t.Error("the partner has all disks, and this server goes on")
	}
	close(answer)
	<-ended
}

// A server that was frozen in the middle of an action of the service still has its lock.
func TestGuardHeedsNoLock(t *testing.T) {
	sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	heldBy(sh, "nfs2")
	w := h.watcher(s)
	w.lock = func(string) (func(), error) { return nil, unit.ErrBusy }
	if w.guardOf(s).look(t.Context()); !h.dead {
		t.Error("it waits for the action")
	}
}

// A disk that has left the service may get another server's key, or none: neither the watcher,
// which may still have the old config, nor a monitor takes that for a take-over.
func TestDiskThatHasLeftTheService(t *testing.T) {
	for name, then := range map[string]func(*fakeLUN){
		"cleared":                        func(l *fakeLUN) { l.keys, l.holder, l.generation = nil, "", 9 },
		"another service of the partner": func(l *fakeLUN) { l.take("nfs2") },
	} {
		sh, h, old, _ := reserved(t, storageSpecimens[onResDisks])
		if err := old.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, c := brick(t, storageSpecimens[onResDisks], serviceSpecimens[0])
		c.Arrays[0].Members = c.Arrays[0].Members[:5]
		s := h.service(c)
		then(sh.disk(5))
		look := func(s *service) {
			t.Helper()
			g := h.watcher(s).guardOf(s)
			for i := 0; i < 6 && !h.dead; i++ {
				g.look(t.Context())
			}
			if h.dead {
				t.Fatalf("%s: the server is reset", name)
			}
		}
		look(s)
		if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
			t.Fatal(name, st, err)
		}
		look(old)
	}
}

// What a stop that failed has noted is no reservation any more when the service starts again: the
// partner may have had the disk since.
func TestStartWithAnOldNote(t *testing.T) {
	for _, by := range []string{"monitor", "watcher"} {
		sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
		h.files["/run/mortar/reserved-home"] = "/dev/mapper/d0\n"
		heldBy(sh, "nfs2")
		h.hung = map[string]bool{"/dev/mapper/d0": true}
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		clear(h.hung)
		if by == "watcher" {
			g := h.watcher(s).guardOf(s)
			for i := 0; i < 6 && !h.dead; i++ {
				g.look(t.Context())
			}
		} else if _, err := s.monitor(t.Context()); err != nil || registered(sh.disk(0)) != diskOf1 {
			t.Error(err, registered(sh.disk(0)))
		}
		if h.dead {
			t.Errorf("%s: the server is reset", by)
		}
	}
}

// A LUN by which the service has grown is not guarded before it is reserved.
func TestNewLUNIsNotGuarded(t *testing.T) {
	sh, h, s, _ := reserved(t, storageSpecimens[onReserved])
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := sh.luns[1]
	l.keys, l.holder, l.generation = nil, "", 9
	h.files["/run/mortar/reserved-home"] = s.cfg.LUNs[0].WWID + "\n"
	g := h.watcher(s).guardOf(s)
	for i := 0; i < 4 && !h.dead; i++ {
		g.look(t.Context())
	}
	if h.dead {
		t.Error("the server is reset")
	}
}
