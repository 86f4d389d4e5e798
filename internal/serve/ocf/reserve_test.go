package ocf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// reserved is a service on two LUNs with reservations, and whether it has a
// volume group.
func reserved(t *testing.T, on storageSpecimen) (*shared, *fakeHost, *service, *service) {
	t.Helper()
	sh, c := brick(t, on, serviceSpecimens[0])
	h := sh.hosts["nfs1"]
	return sh, h, h.service(c), sh.hosts["nfs2"].service(c)
}

// registered lists whose paths are registered with a LUN.
func registered(l *fakeLUN) string {
	count := map[pr.Key]int{}
	for _, k := range l.keys {
		count[k]++
	}
	return fmt.Sprintf("nfs1 %d nfs2 %d, held by %q", count[fakeKey("nfs1")], count[fakeKey("nfs2")], l.by())
}

const (
	allOf1   = `nfs1 4 nfs2 0, held by "nfs1"`
	allOf2   = `nfs1 0 nfs2 4, held by "nfs2"`
	ofNobody = `nfs1 0 nfs2 0, held by ""`
)

// Whatever a crash has left, a start has all LUNs, and no other host any.
func TestReservationsAreTaken(t *testing.T) {
	for name, before := range map[string]func(*shared){
		"nobody":             func(*shared) {},
		"the partner":        func(sh *shared) { heldBy(sh, "nfs2") },
		"the partner, half":  func(sh *shared) { sh.luns[0].take("nfs2") },
		"itself, crashed":    func(sh *shared) { heldBy(sh, "nfs1") },
		"either":             func(sh *shared) { sh.luns[0].take("nfs1"); sh.luns[1].take("nfs2") },
		"registered only":    func(sh *shared) { heldBy(sh, "nfs2"); sh.luns[0].holder = "" },
		"an old path's name": func(sh *shared) { heldBy(sh, "nfs1"); sh.luns[1].keys["nfs2 x"] = fakeKey("nfs2") },
	} {
		t.Run(name, func(t *testing.T) {
			sh, _, s, _ := reserved(t, storageSpecimens[onReserved])
			before(sh)
			mustState(t, s, unit.Stopped)
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, l := range sh.luns {
				// A path of before the crash may still be registered.
				if got := strings.Replace(registered(l), "nfs1 5", "nfs1 4", 1); got != allOf1 {
					t.Errorf("%s: %s", l.name, got)
				}
			}
			if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
				t.Error(st, err)
			}
			if err := s.stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, l := range sh.luns {
				if got := registered(l); got != ofNobody {
					t.Errorf("after the stop %s: %s", l.name, got)
				}
			}
		})
	}
}

// A start takes the LUNs before anything of the storage is opened; a stop gives
// them back when nothing of it is open any more.
func TestReservationsComeFirst(t *testing.T) {
	_, h, s, _ := reserved(t, storageSpecimens[onReserved])
	at := func(what string) int {
		return slices.IndexFunc(h.changes, func(c string) bool { return strings.Contains(c, what) })
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at("reserve /dev") < 0 || at("reserve /dev") > at("vgchange") {
		t.Errorf("%q", h.changes)
	}
	h.changes = nil
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at("unregister") < at("vgchange") || at("vgchange") < at("unmount") {
		t.Errorf("%q", h.changes)
	}
}

// What a monitor finds of the reservation of a service that runs, and does.
func TestReservationsAreKept(t *testing.T) {
	forget := func(sh *shared) {
		for _, l := range sh.luns {
			l.keys, l.holder, l.generation = nil, "", 0
		}
	}
	forgetOne := func(l *fakeLUN) { l.keys, l.holder, l.generation = nil, "", 0 }
	for name, c := range map[string]struct {
		then    func(*shared)
		reset   bool // of the server
		changes int
		want    string // of the first LUN
	}{
		"nothing":                {func(*shared) {}, false, 0, allOf1},
		"taken":                  {func(sh *shared) { sh.luns[1].take("nfs2") }, true, 2, allOf1},
		"taken by a stranger":    {func(sh *shared) { sh.luns[0].take("backup-host") }, true, 2, `nfs1 0 nfs2 0, held by "backup-host"`},
		"taken and left":         {func(sh *shared) { forget(sh); sh.luns[0].generation = 9 }, true, 2, ofNobody},
		"forgotten":              {forget, false, 12, allOf1},
		"one alone forgot":       {func(sh *shared) { forgetOne(sh.luns[1]) }, true, 2, allOf1},
		"forgotten, then taken":  {func(sh *shared) { forget(sh); heldBy(sh, "nfs2") }, true, 2, `nfs1 0 nfs2 1, held by "nfs2"`},
		"registered, not held":   {func(sh *shared) { sh.luns[0].holder = "" }, false, 1, allOf1},
		"a path not registered":  {func(sh *shared) { delete(sh.luns[0].keys, "nfs1 /dev/sd03") }, false, 4, allOf1},
		"the partner came back":  {func(sh *shared) { sh.luns[0].keys["nfs2 x"] = fakeKey("nfs2") }, false, 1, allOf1},
		"no path":                {func(sh *shared) { sh.luns[0].paths = 0 }, false, 0, allOf1},
		"forgotten, a LUN late":  {func(sh *shared) { forget(sh); sh.luns[1].paths = 0 }, false, 0, ofNobody},
		"volume group was taken": {func(sh *shared) { forget(sh); sh.owner = "nfs2" }, true, 2, ofNobody},
		"never reserved": {func(sh *shared) {
			forget(sh)
			sh.luns[0].generation = 9
			delete(sh.hosts["nfs1"].files, "/run/mortar/reserved-home")
		}, false, 11, allOf1},
		"another host registered": {func(sh *shared) { sh.luns[0].keys["backup-host x"] = fakeKey("backup-host") }, false, 0, allOf1},
	} {
		t.Run(name, func(t *testing.T) {
			sh, h, s, _ := reserved(t, storageSpecimens[onReserved])
			s.cfg.QueueSeconds = 150
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
				t.Fatal(st, err)
			}
			c.then(sh)
			n := len(h.changes)
			st, err := s.monitor(t.Context())
			if (err == nil) == c.reset || (st == unit.Running) == c.reset {
				t.Errorf("state %d, %v", st, err)
			}
			did := h.changes[n:]
			if len(did) != c.changes || c.reset != slices.Contains(did, "poke /proc/sysrq-trigger b") {
				t.Errorf("changes %q", did)
			}
			if got := registered(sh.luns[0]); got != c.want {
				t.Errorf("registered: %s, want %s", got, c.want)
			}
		})
	}
}

// One LUN alone that has no keys and generation 0 is another one, or its array has lost a
// part of its state: nothing is registered with it or written to it, and the error names it.
// Not so the LUNs of an array that was off while another array was on, nor a LUN by which the
// service has grown, nor what a monitor that was cut short has left.
func TestOneLUNForgets(t *testing.T) {
	forget := func(l *fakeLUN) { l.keys, l.holder, l.generation = nil, "", 0 }
	for name, c := range map[string]struct {
		config func(*Config)
		then   func(*testing.T, *shared, *fakeHost, *service)
		says   string
	}{
		"one of an array":       {func(*Config) {}, func(_ *testing.T, sh *shared, _ *fakeHost, _ *service) { forget(sh.luns[1]) }, "LUN array-l1 (WWID 3600c0ff000000001): it alone has forgotten its reservation"},
		"each has an array":     {func(c *Config) { c.LUNs[1].Array = "other" }, func(_ *testing.T, sh *shared, _ *fakeHost, _ *service) { forget(sh.luns[1]) }, ""},
		"of an earlier release": {func(c *Config) { c.LUNs[0].Array, c.LUNs[1].Array = "", "" }, func(_ *testing.T, sh *shared, _ *fakeHost, _ *service) { forget(sh.luns[1]) }, ""},
		"a new one": {func(*Config) {}, func(_ *testing.T, sh *shared, h *fakeHost, s *service) {
			forget(sh.luns[1])
			h.files["/run/mortar/reserved-home"] = s.cfg.LUNs[0].WWID + "\n"
		}, ""},
		"a new one that another brick had": {func(*Config) {}, func(_ *testing.T, sh *shared, h *fakeHost, s *service) {
			forget(sh.luns[1])
			sh.luns[1].generation = 9
			h.files["/run/mortar/reserved-home"] = s.cfg.LUNs[0].WWID + "\n"
		}, ""},
		"reserved again in part": {func(*Config) {}, func(t *testing.T, sh *shared, h *fakeHost, s *service) {
			forget(sh.luns[0])
			forget(sh.luns[1])
			h.failAt = len(h.changes) + 8 // at the second LUN
			if _, err := s.monitor(t.Context()); err == nil || registered(sh.luns[0]) != allOf1 || registered(sh.luns[1]) == allOf1 {
				t.Fatal(err, registered(sh.luns[0]), registered(sh.luns[1]))
			}
		}, ""},
		"it comes later than the other": {func(c *Config) { c.QueueSeconds = 0 }, func(t *testing.T, sh *shared, _ *fakeHost, s *service) {
			forget(sh.luns[0])
			forget(sh.luns[1])
			sh.luns[1].paths = 0
			if _, err := s.monitor(t.Context()); err != nil {
				t.Fatal(err)
			}
			sh.luns[1].paths = 4
		}, ""},
	} {
		for _, action := range []string{"monitor", "stop"} {
			t.Run(name+"/"+action, func(t *testing.T) {
				sh, h, s, _ := reserved(t, storageSpecimens[onReserved])
				c.config(s.cfg)
				if err := s.start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.then(t, sh, h, s)
				n := len(h.changes)
				var err error
				if action == "monitor" {
					_, err = s.monitor(t.Context())
				} else {
					err = s.stop(t.Context())
				}
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				if did := h.changes[n:]; c.says != "" && (len(did) != 2 || did[1] != "poke /proc/sysrq-trigger b") {
					t.Errorf("%q", did)
				}
				if c.says == "" && action == "monitor" && (registered(sh.luns[0]) != allOf1 || registered(sh.luns[1]) != allOf1) {
					t.Error(registered(sh.luns[0]), registered(sh.luns[1]))
				}
			})
		}
	}
}

// A server whose LUNs the partner took and gave up again resets itself when it
// wakes up: unmounting would write to LUNs that are not protected.
func TestStopAfterTheLUNsWereTaken(t *testing.T) {
	sh, h, s, so := reserved(t, storageSpecimens[onBareLUNs])
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.dead = true
	if err := so.start(t.Context()); err != nil || registered(sh.luns[0]) != allOf2 {
		t.Fatal(err, registered(sh.luns[0]))
	}
	if err := so.stop(t.Context()); err != nil || registered(sh.luns[0]) != ofNobody {
		t.Fatal(err, registered(sh.luns[0]))
	}
	h.dead = false
	n := len(h.changes)
	if err := s.stop(t.Context()); !strings.Contains(fmt.Sprint(err), "taken by") || h.changes[len(h.changes)-1] != "poke /proc/sysrq-trigger b" {
		t.Errorf("%v, %q", err, h.changes[n:])
	}
}

// The path that holds the reservation may be gone: a stop gives it up over
// another one. Without any path it stays, which keeps no host from taking it.
func TestReservationIsGivenUpWithoutItsPath(t *testing.T) {
	for _, paths := range []int{2, 0} {
		sh, _, s, so := reserved(t, storageSpecimens[onReserved])
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh.luns[0].holder, sh.luns[0].paths = "nfs1 /dev/sd03", paths
		if err := s.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustState(t, s, unit.Stopped)
		if got := registered(sh.luns[0]); (got == ofNobody) != (paths > 0) {
			t.Errorf("%d paths: %s", paths, got)
		}
		sh.luns[0].paths = 4
		if err := so.start(t.Context()); err != nil || registered(sh.luns[0]) != allOf2 {
			t.Errorf("%v, %s", err, registered(sh.luns[0]))
		}
	}
}

// deafPaths are paths of a host of which some have just died.
type deafPaths struct {
	*fakeHost
	dead []string
}

func (h *deafPaths) Path(dev string) pr.Path {
	if slices.Contains(h.dead, dev) {
		return deafPath{}
	}
	return h.fakeHost.Path(dev)
}

type deafPath struct{}

var errDeaf = fmt.Errorf("sd: %w", pr.ErrPath)

func (deafPath) Read() (pr.State, error)   { return pr.State{}, errDeaf }
func (deafPath) Register(pr.Key) error     { return errDeaf }
func (deafPath) Unregister() error         { return errDeaf }
func (deafPath) Reserve(pr.Key) error      { return errDeaf }
func (deafPath) Preempt(_, _ pr.Key) error { return errDeaf }

// A path that dies at the moment of a take-over does not end it; without any
// path the LUN is not taken.
func TestTakingOverWithDyingPaths(t *testing.T) {
	sh, h, s, _ := reserved(t, storageSpecimens[onReserved])
	heldBy(sh, "nfs2")
	s.K = &deafPaths{h, []string{"/dev/sd00", "/dev/sd12"}}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range sh.luns {
		if got := registered(l); got != `nfs1 3 nfs2 0, held by "nfs1"` {
			t.Error(got)
		}
	}
	sh, h, s, _ = reserved(t, storageSpecimens[onReserved])
	s.K = &deafPaths{h, []string{"/dev/sd00", "/dev/sd01", "/dev/sd02", "/dev/sd03"}}
	if err := s.start(t.Context()); !errors.Is(err, pr.ErrPath) || registered(sh.luns[1]) != ofNobody || h.active {
		t.Errorf("%v, %q, %s", err, h.changes, registered(sh.luns[1]))
	}
}
