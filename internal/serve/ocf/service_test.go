package ocf

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

func mustState(t *testing.T, s *service, want unit.State) {
	t.Helper()
	st, err := s.Check()
	if st != want {
		t.Fatalf("state %d, want %d: %v", st, want, err)
	}
}

func TestStartStop(t *testing.T) { flavours(t, testStartStopIn) }

func testStartStopIn(t *testing.T, cfg func() *Config) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(cfg())
	ctx := context.Background()
	mustState(t, s, unit.Stopped)
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	mustState(t, s, unit.Running)
	if h.held || h.slow {
		t.Error("udev or resync is still held")
	}
	if sh.owner != "nfs1" {
		t.Errorf("owner %q", sh.owner)
	}
	if h.nfsd != 256 {
		t.Errorf("%d threads", h.nfsd)
	}
	h.nfsd = 16 // a start that was cut short
	sh.volume["/.nfs/sm/10.0.0.9"] = "a client with a lock"
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	if h.nfsd != 256 {
		t.Errorf("%d threads after a monitor", h.nfsd)
	}
	if got, want := sh.volume["/.nfs/mortar/connections"], "10.0.0.9:2049 10.0.0.5:898\n10.0.0.9:21 10.0.0.5:800\n"; got != want {
		t.Errorf("connections %q, want %q", got, want)
	}
	if _, ok := h.files["/run/mortar/held-home"]; ok {
		t.Error("the monitor left the mark of what is held")
	}
	// All of it again changes nothing.
	n := len(h.changes)
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	if len(h.changes) != n {
		t.Errorf("second start or monitor changed: %q", h.changes[n:])
	}
	if err := s.stop(ctx); err != nil {
		t.Fatal(err)
	}
	mustState(t, s, unit.Stopped)
	if l := h.left(); l != "" {
		t.Errorf("left after stop: %s", l)
	}
	if sh.owner != "at-rest" {
		t.Errorf("owner after stop %q", sh.owner)
	}
	if sh.volume["/.nfs/notify/sm.bak/10.0.0.9"] == "" {
		t.Error("the client with a lock will not be told to reclaim it")
	}
	first := slices.IndexFunc(h.changes[n:], func(c string) bool { return strings.HasPrefix(c, "address -") })
	if first != 0 {
		t.Errorf("the address was not the first to go: %q", h.changes[n:])
	}
	n = len(h.changes)
	if err := s.stop(ctx); err != nil {
		t.Fatal(err)
	}
	if len(h.changes) != n {
		t.Errorf("second stop changed: %q", h.changes[n:])
	}
}

// An agent that was killed has left udev and resync held: the next action lets it go.
func TestReleased(t *testing.T) {
	for name, act := range map[string]func(*service) error{
		"stop":    func(s *service) error { return s.stop(context.Background()) },
		"monitor": func(s *service) error { _, err := s.monitor(context.Background()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			h := newShared(t).hosts["nfs1"]
			s := h.service(testConfig())
			for _, start := range []func(context.Context) error{s.parts()[0].Start, s.parts()[1].Start} {
				if err := start(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if !h.held || !h.slow {
				t.Fatal("udev or resync was not held")
			}
			act(s) // half there: a monitor fails, as it should
			if h.held || h.slow {
				t.Error("udev or resync is still held")
			}
		})
	}
}

// An nfsd that ended by itself has had statd forget who held locks.
func TestLocksOfAnNFSDThatEnded(t *testing.T) { flavours(t, testLocksOfAnNFSDThatEndedIn) }

func testLocksOfAnNFSDThatEndedIn(t *testing.T, cfg func() *Config) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(cfg())
	ctx := context.Background()
	sh.volume["/.nfs/sm/10.0.0.7"] = "of a server that crashed"
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	if sh.volume["/.nfs/notify/sm.bak/10.0.0.7"] == "" || sh.volume["/.nfs/sm/10.0.0.7"] != "" {
		t.Error("sm-notify does not find the client of the server that crashed")
	}
	sh.volume["/.nfs/sm/10.0.0.9"] = "0a000009 000186b5\n"
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	if err := h.Poke(nfsOf(s).NfsdDir()+"/threads", "0\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := sh.volume["/.nfs/notify/sm.bak/10.0.0.9"]; got != "0a000009 000186b5\n" {
		t.Errorf("record %q", got)
	}
}

func TestFailover(t *testing.T) { flavours(t, testFailoverIn) }

func testFailoverIn(t *testing.T, cfg func() *Config) {
	sh := newShared(t)
	a, b := sh.hosts["nfs1"], sh.hosts["nfs2"]
	ctx := context.Background()
	sa, sb := a.service(cfg()), b.service(cfg())
	if err := sa.start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := sa.monitor(context.Background()); err != nil {
		t.Fatal(err)
	}
	// Not fenced: the partner must not touch anything.
	if err := sb.start(ctx); !says(err, "[elsewhere] address=10.0.0.9") {
		t.Fatalf("start beside a living service: %v", err)
	}
	if len(b.changes) > 0 {
		t.Errorf("changed before refusing: %q", b.changes)
	}
	a.crash()
	if err := sb.start(ctx); err != nil {
		t.Fatal(err)
	}
	mustState(t, sb, unit.Running)
	if sh.owner != "nfs2" {
		t.Errorf("owner %q", sh.owner)
	}
	if b.tickled != "10.0.0.9:2049 10.0.0.5:898\n10.0.0.9:21 10.0.0.5:800\n" {
		t.Errorf("tickled %q", b.tickled)
	}
	a.boot()
	mustState(t, sa, unit.Stopped)
	// And back, in order.
	if err := sb.stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := sa.start(ctx); err != nil {
		t.Fatal(err)
	}
	mustState(t, sa, unit.Running)
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		break_    func(*shared, *fakeHost, *Config)
		want      string
		untouched bool // nothing at all was changed
	}{
		"no member": {func(s *shared, _ *fakeHost, _ *Config) {
			for _, d := range s.disks {
				d.gone = true
			}
		}, "[no-member] array=r0 members=6", true},
		"two out of date, one missing": {func(s *shared, _ *fakeHost, _ *Config) {
			s.disks["/dev/mapper/d0"].gone = true
			s.disks["/dev/mapper/d1"].events = 50
			s.disks["/dev/mapper/d2"].events = 50
		}, "[too-few] array=r0 missing=3", true},
		"apply builds it":      {func(s *shared, _ *fakeHost, _ *Config) { s.owner = "at-rest-building" }, "[building] vg=vg-a", false},
		"another volume group": {func(s *shared, _ *fakeHost, _ *Config) { s.vg = "other" }, "[other-vg] vg=other want=vg-a", false},
		"not a node":           {func(_ *shared, h *fakeHost, c *Config) { delete(c.Nodes, h.name) }, "[not-a-node] host=nfs1", true},
		"no rpcbind":           {func(_ *shared, h *fakeHost, _ *Config) { delete(h.files, "/run/rpcbind.sock") }, "rpcbind does not run", false},
		"nfsdcld never ready":  {func(_ *shared, h *fakeHost, _ *Config) { h.cldLate = 100 }, "could not reclaim their locks", false},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			cfg := testConfig()
			tc.break_(sh, h, cfg)
			s := h.service(cfg)
			err := s.start(ctx)
			if !says(err, tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if n := h.touched(); tc.untouched && len(n) > 0 {
				t.Errorf("changed: %q", n)
			}
			if _, ok := h.addrs[netip.MustParsePrefix("10.0.0.9/24")]; ok {
				t.Error("the address is up")
			}
		})
	}
}

// An array that another program has assembled, of whatever members, is stopped
// and judged by its superblocks like any other.
func TestStrayArrayIsJudged(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		inert bool
		gone  int
		want  string
	}{
		"whole":                                {false, 0, ""},
		"half started":                         {true, 0, ""},
		"without superblocks that bear it out": {false, 3, "[too-few] array=r0 missing=3"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			h.md[arrayUUID], h.inert = "md127", c.inert // and sysfs says clean
			for i := range c.gone {
				sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].gone = true
			}
			s := h.service(testConfig())
			err := s.start(ctx)
			if (err == nil) != (c.want == "") || err != nil && !says(err, c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if !slices.Contains(h.changes, "mdadm --stop /dev/md127") {
				t.Errorf("not stopped: %q", h.changes)
			}
			if err != nil && len(h.md) > 0 {
				t.Error("an array that was refused is assembled")
			}
		})
	}
}

// While apply builds the storage on one server, the agent of the other looks
// and writes nothing.
func TestUnderConstruction(t *testing.T) {
	ctx := context.Background()
	sh := newShared(t)
	builder, h := sh.hosts["nfs1"], sh.hosts["nfs2"]
	builder.md[arrayUUID], builder.active, sh.owner = "md127", true, "at-rest-building"
	s := h.service(testConfig())
	if err := s.start(ctx); !says(err, "[building] vg=vg-a") {
		t.Fatal(err)
	}
	if err := s.stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.changes {
		if strings.HasPrefix(c, "mdadm --readwrite") || strings.HasPrefix(c, "lvm ") {
			t.Errorf("it ran %s", c)
		}
	}
	if l := h.left(); l != "" || sh.owner != "at-rest-building" {
		t.Errorf("left %q, owner %q", l, sh.owner)
	}
}

// A server whose arrays take writes, and has no volume on them, is in use: another server
// that has taken the volume group since means that this one counts as fenced. What a start
// or a stop of its own has left is cleaned up.
func TestOpenArraysWithoutVolume(t *testing.T) {
	const reset = "poke /proc/sysrq-trigger b"
	for name, c := range map[string]struct {
		begin func(t *testing.T, sh *shared, h *fakeHost, s *service)
		reset bool
	}{
		"the partner has it": {func(_ *testing.T, sh *shared, h *fakeHost, _ *service) {
			h.md[arrayUUID], sh.owner = "md127", "nfs2"
		}, true},
		"the partner has it, and they are read-only": {func(_ *testing.T, sh *shared, h *fakeHost, _ *service) {
			h.md[arrayUUID], h.ro, sh.owner = "md127", true, "nfs2"
		}, false},
		"the partner has it, and they are not started": {func(_ *testing.T, sh *shared, h *fakeHost, _ *service) {
			h.md[arrayUUID], h.inert, sh.owner = "md127", true, "nfs2"
		}, false},
		"somebody has assembled them at rest": {func(_ *testing.T, _ *shared, h *fakeHost, _ *service) {
			h.md[arrayUUID] = "md127"
		}, false},
		"a start was cut short": {func(t *testing.T, sh *shared, h *fakeHost, s *service) {
			sh.owner = "nfs2"
			cutShort(t, h, s)
		}, false},
		"a start was cut short, and the partner has had it since": {func(t *testing.T, sh *shared, h *fakeHost, s *service) {
			cutShort(t, h, s)
			sh.seqno += 2
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			s := h.service(testConfig())
			c.begin(t, sh, h, s)
			err := s.stop(t.Context())
			if did := slices.Contains(h.changes, reset); did != c.reset || did != (err != nil) {
				t.Errorf("reset %v, %v: %q", did, err, h.changes)
			}
			if err == nil && h.left() != "" {
				t.Errorf("left %s", h.left())
			}
		})
	}
}

// cutShort has a start end between the arrays and the volume group.
func cutShort(t *testing.T, h *fakeHost, s *service) {
	t.Helper()
	s.K = &failing{Host: h, bad: func(a []string) bool { return slices.Contains(a, "--systemid") }}
	if err := s.start(t.Context()); err == nil {
		t.Fatal("the start was not cut short")
	}
	s.K = h
	if !s.storage.Writable() || h.active {
		t.Fatal("the arrays are not open, or the volume is active")
	}
}

func TestDegradedStarts(t *testing.T) {
	ctx := context.Background()
	sh := newShared(t)
	sh.disks["/dev/mapper/d0"].gone = true
	sh.disks["/dev/mapper/d3"].gone = true
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	if h.degr != 2 {
		t.Errorf("degraded by %d", h.degr)
	}

	sh = newShared(t)
	for _, d := range sh.disks {
		d.dirty = true
	}
	sh.disks["/dev/mapper/d0"].gone = true
	h = sh.hosts["nfs1"]
	cfg := testConfig()
	cfg.DirtyDegraded = "start"
	if err := h.service(cfg).start(ctx); err != nil {
		t.Fatal(err)
	}
	if v := h.files["/sys/module/md_mod/parameters/start_dirty_degraded"]; v != "0\n" {
		t.Errorf("start_dirty_degraded is left at %q", v)
	}
}

type lateDisk struct {
	*fakeHost
	tick func()
}

func (l *lateDisk) Sleep(ctx context.Context, d time.Duration) error {
	err := l.fakeHost.Sleep(ctx, d)
	l.tick()
	return err
}

// TestLockGrace takes a service over after outages: a client of NFSv3 that has
// to find its way back after two minutes has more time for its locks.
func TestLockGrace(t *testing.T) {
	for name, tc := range map[string]struct {
		out  time.Duration
		lock bool
		want string
	}{
		"crash":            {15 * time.Second, true, "30\n"},
		"two minutes":      {2 * time.Minute, true, "125\n"},
		"a day":            {24 * time.Hour, true, "240\n"},
		"clock goes back":  {-time.Hour, true, "30\n"},
		"nobody had locks": {2 * time.Minute, false, "30\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			a, b := sh.hosts["nfs1"], sh.hosts["nfs2"]
			s := a.service(testConfig())
			if err := s.start(context.Background()); err != nil {
				t.Fatal(err)
			}
			delete(sh.volume, "/.nfs/sm/10.0.0.9")
			if tc.lock {
				sh.volume["/.nfs/sm/10.0.0.9"] = "0100007f 000186b5 00000003 00000010 0 10.0.0.9 nfs1\n"
			}
			if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
				t.Fatal(st, err)
			}
			b.clock = a.clock.Add(tc.out)
			if err := s.stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := b.service(testConfig()).start(context.Background()); err != nil {
				t.Fatal(err)
			}
			if got := b.files["/proc/sys/fs/nfs/nlm_grace_period"]; got != tc.want {
				t.Errorf("grace %q, want %q", got, tc.want)
			}
		})
	}
}

// A volume that clients have filled is served all the same, and can be stopped.
func TestFullVolume(t *testing.T) { flavours(t, testFullVolumeIn) }

func testFullVolumeIn(t *testing.T, testConfig func() *Config) {
	sh := newShared(t)
	s := sh.hosts["nfs1"].service(testConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	monitor := func(s *service) {
		t.Helper()
		sh.volume["/.nfs/sm/10.0.0.9"] += "x\n"
		if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
			t.Fatalf("room for %d: %v, %v", sh.room, st, err)
		}
	}
	kept := int64(4194304)
	if testConfig().StateImage != "" {
		kept = 0
	}
	monitor(s)
	if sh.kept != kept {
		t.Errorf("%d bytes are kept", sh.kept)
	}
	// It moves to and fro, and at each place clients take what room there is.
	for i := range 5 {
		sh.room = 0
		s.K.(*fakeHost).clock = s.K.(*fakeHost).clock.Add(time.Minute)
		monitor(s)
		if at, ok := nfsOf(s).NLM.Alive(); !ok || s.K.Now().Sub(at) > time.Second {
			t.Errorf("alive at %v, %v; it is %v", at, ok, s.K.Now())
		}
		if err := s.stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		s = sh.hosts[[]string{"nfs2", "nfs1"}[i%2]].service(testConfig())
		if err := s.start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if sh.kept < kept/64 {
			t.Fatalf("%d bytes are kept after start %d", sh.kept, i)
		}
	}
	sh.room = 1 << 30
	monitor(s)
	if sh.kept != kept {
		t.Errorf("%d bytes are kept once there is room again", sh.kept)
	}
	// Nothing was kept, as by an earlier release.
	sh.room, sh.kept = 0, 0
	delete(sh.volume, "/.nfs/mortar/reserve")
	if err := s.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestMonitorWaitsForTheWatcher kills a daemon that the watcher starts again a
// moment after a monitor has begun.
func TestMonitorWaitsForTheWatcher(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	var dead *fakeProc
	var was int
	for pid, p := range h.procs {
		if p.name == "rpc.mountd" {
			dead, was = p, pid
		}
	}
	delete(h.procs, was)
	begin := h.clock
	s.K = &lateDisk{h, func() {
		if h.clock.Sub(begin) >= 2*time.Second {
			h.procs[was] = dead
		}
	}}
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
		t.Errorf("state %d, error %v", st, err)
	}
	// What the watcher does not mend is told at once.
	delete(h.procs, was)
	h.nfsd = 0
	begin = h.clock
	if st, err := s.monitor(context.Background()); st != unit.Broken || err == nil || h.clock != begin {
		t.Errorf("state %d, error %v, after %s", st, err, h.clock.Sub(begin))
	}
}

func TestWarm(t *testing.T) {
	h := newShared(t).hosts["nfs2"]
	h.files["/sys/module/nfsd/refcnt"] = "0\n"
	s := h.service(testConfig())
	s.warm(context.Background())
	if want := []string{"start modprobe --quiet --all xfs tcp_diag raid456"}; !slices.Equal(h.changes, want) {
		t.Errorf("%q, want %q", h.changes, want)
	}
	mustState(t, s, unit.Stopped)
}

func TestForeignServer(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	h.mounts = append(h.mounts, linux.Mount{Dev: "0:9", Root: "/", Target: "/proc/fs/nfsd", Options: []string{"rw"}, Type: "nfsd", Source: "nfsd", Super: []string{"rw"}})
	h.nfsd = 8
	old := h.spawn(&fakeProc{name: "rpc.statd", cwd: "/"})
	s := h.service(testConfig())
	mustState(t, s, unit.Stopped) // a stray nfsd is not this service
	if err := s.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if h.nfsd != 8 {
		t.Error("stop of a stopped service stopped somebody else's nfsd")
	}
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.procs[old]; ok {
		t.Error("rpc.statd with the host's own state was kept")
	}
	mustState(t, s, unit.Running)
}

func TestNfsdcldLate(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.cldLate = 2
	s := h.service(testConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustState(t, s, unit.Running)
}

func TestBusy(t *testing.T) { flavours(t, testBusyIn) }

func testBusyIn(t *testing.T, cfg func() *Config) {
	for name, tc := range map[string]struct {
		proc fakeProc
		want string // error
		kill []string
	}{
		"polite":   {fakeProc{name: "vi", cwd: "/srv/home/u"}, "", []string{"kill 15 vi"}},
		"stubborn": {fakeProc{name: "cp", cwd: "/srv/home/u", stubborn: true}, "", []string{"kill 15 cp", "kill 9 cp"}},
		"immortal": {fakeProc{name: "dd", cwd: "/srv/home", immortal: true}, "used by 5000 (dd)", []string{"kill 15 dd", "kill 9 dd"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newShared(t).hosts["nfs1"]
			s := h.service(cfg())
			if err := s.start(context.Background()); err != nil {
				t.Fatal(err)
			}
			h.procs[5000] = &tc.proc
			h.procs[5001] = &fakeProc{name: "bash", cwd: "/home"}
			n := len(h.changes)
			err := s.stop(fakeDeadline{context.Background(), h.clock.Add(60 * time.Second)})
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, k := range tc.kill {
				if !slices.Contains(h.changes[n:], k) {
					t.Errorf("no %q in %q", k, h.changes[n:])
				}
			}
			if slices.ContainsFunc(h.changes[n:], func(c string) bool { return strings.Contains(c, "bash") }) {
				t.Error("killed a process that does not use the volume")
			}
			if tc.want != "" && h.mounted("/srv/home") == nil {
				t.Error("unmounted although it is in use")
			}
		})
	}
}

// fakeDeadline carries a deadline of the fake clock.
type fakeDeadline struct {
	context.Context
	end time.Time
}

func (d fakeDeadline) Deadline() (time.Time, bool) { return d.end, true }

func TestMonitorFinds(t *testing.T) { flavours(t, testMonitorFindsIn) }

func testMonitorFindsIn(t *testing.T, cfg func() *Config) {
	for name, tc := range map[string]struct {
		break_ func(*shared, *fakeHost)
		want   string
	}{
		"statd dead": {func(_ *shared, h *fakeHost) {
			for pid, p := range h.procs {
				if p.name == "rpc.statd" {
					delete(h.procs, pid)
				}
			}
		}, "rpc.statd does not run"},
		"rpcbind has forgotten": {func(_ *shared, h *fakeHost) { h.forgot = "mountd" }, "rpcbind does not know mountd"},
		"nfsd gone":             {func(_ *shared, h *fakeHost) { h.nfsd = 0 }, "nfsd does not run"},
		"address gone": {func(_ *shared, h *fakeHost) {
			delete(h.addrs, netip.MustParsePrefix("10.0.0.9/24"))
			delete(h.spaceAddrs, netip.MustParsePrefix("10.0.0.9/24"))
		}, "address is stopped"},
		"array failed":      {func(_ *shared, h *fakeHost) { h.degr = 3 }, "lacks 3 of 6 members"},
		"read-only":         {func(_ *shared, h *fakeHost) { h.readonly = true }, "read-only"},
		"taken by somebody": {func(s *shared, _ *fakeHost) { s.owner = "nfs2" }, `taken by "nfs2"`},
		"state unbound": {func(_ *shared, h *fakeHost) {
			h.mounts = slices.DeleteFunc(h.mounts, func(m linux.Mount) bool { return m.Target == "/var/lib/nfs" || unit.Below(unit.RunDir, m.Target) })
		}, "nfs-state is stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			s := h.service(cfg())
			if err := s.start(context.Background()); err != nil {
				t.Fatal(err)
			}
			tc.break_(sh, h)
			st, err := s.monitor(context.Background())
			if st != unit.Broken || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("state %d, error %v, want %q", st, err, tc.want)
			}
			// Pacemaker now stops and starts it.
			if name == "array failed" || name == "taken by somebody" {
				return
			}
			h.readonly, h.forgot = false, ""
			if err := s.stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if l := h.left(); l != "" {
				t.Fatalf("left after stop: %s", l)
			}
			if err := s.start(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// nfsd serves RDMA besides TCP from its start on. One that runs already takes the
// listener up with the next monitor, without a stop.
func TestRDMA(t *testing.T) { flavours(t, testRDMAIn) }

func testRDMAIn(t *testing.T, cfg func() *Config) {
	c := cfg()
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil || h.listens != "" {
		t.Fatal(st, err, h.listens)
	}
	c.NFS.RDMA = 20049
	s = h.service(c)
	n := len(h.changes)
	for range 2 { // the second one has nothing to do
		if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
			t.Fatal(st, err)
		}
	}
	if h.listens != "rdma 20049\n" || len(h.changes) != n+1 {
		t.Errorf("%q, %q", h.listens, h.changes[n:])
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context()); err != nil || h.listens != "rdma 20049\n" {
		t.Errorf("%q, %v", h.listens, err)
	}
}

// A member of a RAID 10 that was being rebuilt when its server died is rebuilt from the start.
func TestRebuildBeginsAnew(t *testing.T) {
	for _, raid10 := range []bool{true, false} {
		sh := newShared(t)
		sh.raid10 = raid10
		for _, d := range sh.disks {
			d.dirty = true
		}
		sh.disks["/dev/mapper/d2"].recovering = true
		h := sh.hosts["nfs1"]
		cfg := testConfig()
		cfg.DirtyDegraded = "start"
		if err := h.service(cfg).start(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(h.changes, "\n")
		i := slices.IndexFunc(h.changes, func(c string) bool { return strings.HasPrefix(c, "mdadm --assemble") })
		if i < 0 || strings.Contains(h.changes[i], "/dev/mapper/d2") == raid10 {
			t.Errorf("RAID 10 %v: assembled by %q", raid10, h.changes[max(i, 0)])
		}
		if anew := "mdadm --readwrite /dev/md127\nmdadm --zero-superblock /dev/mapper/d2\nmdadm --manage /dev/md/r0 --add /dev/mapper/d2\n"; strings.Contains(all, anew) != raid10 {
			t.Errorf("RAID 10 %v:\n%s", raid10, all)
		}
	}
}

// nfsd gets its limit of connections before its first thread, where the kernel has one.
func TestConnectionsOfNFSD(t *testing.T) {
	for there, want := range map[bool]string{true: "65536\n", false: ""} {
		h := newShared(t).hosts["nfs1"]
		cfg := testConfig()
		cfg.NFS.Connections = 65536
		file := nfs.NFSDDir(cfg.Namespace) + "/max_connections"
		if there {
			h.files[file] = "0\n"
		}
		if err := h.service(cfg).start(t.Context()); err != nil || h.files[file] != want {
			t.Errorf("%v: %q, %v", there, h.files[file], err)
		}
	}
}

// A host without nsswitch.conf has no place for that of rpc.statd, and serves without.
func TestNoNSSwitch(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.plain = true
	if err := h.service(testConfig()).start(t.Context()); err != nil {
		t.Error(err)
	}
}
