package ocf

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// watchService is a service that runs, and a function that lets its watcher look for some seconds.
func watchService(t *testing.T, c *Config) (h *fakeHost, s *service, look func(seconds int)) {
	t.Helper()
	h = newShared(t).hosts["nfs1"]
	s = h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	look = func(seconds int) {
		t.Helper()
		for range seconds {
			h.clock = h.clock.Add(time.Second)
			w.reacts(t.Context(), s, "nfs")
		}
	}
	look(30)
	return h, s, look
}

// only is the only process of a program.
func (h *fakeHost) only(program string) (pid int) {
	for id, p := range h.procs {
		if p.name == program {
			pid = id
		}
	}
	return pid
}

func (h *fakeHost) reported() bool {
	return slices.ContainsFunc(h.changes, func(c string) bool { return strings.HasPrefix(c, "crm_resource --fail") })
}

// A daemon that hangs is killed and started again. The service moves if that does not help.
func TestHungDaemonIsReplaced(t *testing.T) {
	flavours(t, func(t *testing.T, cfg func() *Config) {
		v4 := func() *Config {
			c := cfg()
			c.NFS.Versions = []string{"4.1", "4.2"}
			return c
		}
		deaf := func(h *fakeHost, program string) { h.mute[program] = true } // but for a signal
		for name, c := range map[string]struct {
			config func() *Config
			daemon string
			hang   func(*fakeHost, *fakeProc)
		}{
			"mountd stopped":        {cfg, "rpc.mountd", func(_ *fakeHost, p *fakeProc) { p.state = "T" }},
			"statd stopped":         {cfg, "rpc.statd", func(_ *fakeHost, p *fakeProc) { p.state = "T" }},
			"nfsdcld stopped":       {cfg, "nfsdcld", func(_ *fakeHost, p *fakeProc) { p.state = "T" }},
			"mountd stopped, NFSv4": {v4, "rpc.mountd", func(_ *fakeHost, p *fakeProc) { p.state = "T" }},
			"mountd waits for ever": {cfg, "rpc.mountd", func(h *fakeHost, _ *fakeProc) { deaf(h, "mountd") }},
			"statd waits for ever":  {cfg, "rpc.statd", func(h *fakeHost, _ *fakeProc) { deaf(h, "status") }},
		} {
			t.Run(name, func(t *testing.T) {
				h, s, look := watchService(t, c.config())
				h.mute = map[string]bool{}
				was := h.only(c.daemon)
				c.hang(h, h.procs[was])
				look(20)
				if now := h.only(c.daemon); now == was || now == 0 {
					t.Fatalf("process %d is now %d: %q", was, now, h.changes)
				}
				if !slices.Contains(h.changes, "kill 9 "+c.daemon) && !slices.Contains(h.changes, "kill "+unix.SIGKILL.String()+" "+c.daemon) {
					t.Errorf("%q", h.changes)
				}
				if h.reported() {
					t.Error("the service moves before the restart can help")
				}
				mustState(t, s, unit.Running)
				// It helps.
				h.mute = map[string]bool{}
				n := len(h.changes)
				look(60)
				if now := h.changes[n:]; slices.ContainsFunc(now, func(c string) bool { return strings.HasPrefix(c, "kill") }) || h.reported() {
					t.Errorf("a daemon that answers: %q", now)
				}
				// It does not.
				c.hang(h, h.procs[h.only(c.daemon)])
				look(20)
				if !h.reported() {
					t.Errorf("the service stays: %q", h.changes[n:])
				}
			})
		}
	})
}

// nfsd and lockd are the kernel's: the service moves.
func TestHungNFSD(t *testing.T) {
	for name, program := range map[string]string{"nfsd": "nfs", "lockd": "nlockmgr"} {
		t.Run(name, func(t *testing.T) {
			h, s, look := watchService(t, testConfig())
			h.spawn(&fakeProc{name: "lockd"})
			look(20)
			h.mute = map[string]bool{program: true}
			for !nfsOf(s).Asker.Last[name].Silent {
				look(1)
			}
			h.mute = nil
			look(20)
			if h.reported() {
				t.Fatal("one look is enough")
			}
			h.mute = map[string]bool{program: true}
			look(20)
			if !h.reported() {
				t.Error("it stays")
			}
		})
	}
}

// A busy server stays, and so do its daemons, however long clients wait for an answer.
func TestBusyDaemonsStay(t *testing.T) {
	all := map[string]bool{"nfs": true, "nlockmgr": true, "mountd": true, "status": true}
	for name, busy := range map[string]func(*service, *fakeHost, *fakeProc){
		"the daemons run":      func(_ *service, _ *fakeHost, p *fakeProc) { p.ran++ },
		"the daemons want to":  func(_ *service, _ *fakeHost, p *fakeProc) { p.state = "R" },
		"they wait for a disk": func(_ *service, _ *fakeHost, p *fakeProc) { p.state = "D" },
		"silent in one look": func(s *service, h *fakeHost, _ *fakeProc) {
			if nfsOf(s).Asker.Last["rpc.mountd"].Silent {
				h.mute = nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s, look := watchService(t, testConfig())
			h.spawn(&fakeProc{name: "lockd", state: "D"}) // it asks rpc.statd
			h.nobody = true
			n := len(h.changes)
			for i := range 300 {
				if h.mute = all; i%3 == 0 || name == "silent in one look" {
					for _, p := range h.procs {
						busy(s, h, p)
					}
				}
				look(1)
			}
			if did := h.changes[n:]; slices.ContainsFunc(did, func(c string) bool { return strings.HasPrefix(c, "kill") }) || h.reported() {
				t.Errorf("%q", did)
			}
			mustState(t, s, unit.Running)
		})
	}
}

// What keeps a daemon's answers away may be the same on both servers, such as a rule of the
// firewall. The service does not move for it, nor does a daemon start again and again.
func TestDaemonThatNeverAnswers(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	h.mute = map[string]bool{"nfs": true, "mountd": true}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	for range 100 {
		h.clock = h.clock.Add(time.Second)
		w.reacts(t.Context(), s, "nfs")
	}
	kills := 0
	for _, c := range h.changes {
		if strings.HasPrefix(c, "kill") {
			kills++
		}
	}
	if h.reported() || kills > 1 {
		t.Errorf("%d kills, moved %v", kills, h.reported())
	}
}

// An address that is not here answers nothing, which is no daemon's fault.
func TestDaemonsWithoutAnAddress(t *testing.T) {
	h, s, look := watchService(t, testConfig())
	delete(h.addrs, s.cfg.Prefix())
	h.procs[h.only("rpc.mountd")].state = "T"
	n := len(h.changes)
	look(60)
	if len(h.changes) > n {
		t.Errorf("%q", h.changes[n:])
	}
}
