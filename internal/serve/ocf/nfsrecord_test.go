package ocf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Between two monitors the watcher writes the locks to the volume when they have changed.
func TestRecordBetween(t *testing.T) { flavours(t, testRecordBetweenIn) }

func testRecordBetweenIn(t *testing.T, testConfig func() *Config) {
	g, h, s := holding(t, testConfig(), 1)
	w := h.watcher(s)
	look := func(wait time.Duration, want int) {
		t.Helper()
		h.clock = h.clock.Add(wait)
		w.reacts(t.Context(), s, "nfs")
		g.saved(s, want, false)
	}
	look(0, 1)
	g.locked(h, s, after, 2)
	look(unit.WatchTick, 2)
	g.locked(h, s, after, 3)
	look(time.Second, 2) // so soon after the last one
	look(time.Second, 3)
	g.locked(h, s, during, 0)
	look(unit.WatchTick, 3) // the clients have not reclaimed yet
	g.locked(h, s, after, 2)
	w.watched(s).gone = h.clock
	look(unit.WatchTick, 3) // the disks do not answer
	w.watched(s).gone = time.Time{}

	// A monitor or a stop writes: later.
	free := s.lists
	s.lists = func(context.Context) (func(), error) { return nil, unit.ErrBusy }
	look(unit.WatchTick, 3)
	// Without the lock rather than not at all.
	s.lists = func(context.Context) (func(), error) { return nil, errors.New("no room in /run") }
	look(unit.WatchTick, 2)
	s.lists = free

	// Nothing has changed: nothing is written.
	n := len(h.changes)
	look(time.Minute, 2)
	if len(h.changes) != n {
		t.Errorf("written: %q", h.changes[n:])
	}
	// The one before goes on.
	g.locked(h, s, after, 4)
	var later func()
	w.background = func(f func()) { later = f }
	look(unit.WatchTick, 2)
	w.background = func(f func()) { t.Error("two at once") }
	look(unit.WatchTick, 2)
	later()
	g.saved(s, 4, false)
	// A stop that was faster has the last word.
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.nfsOf(s).Recorder.Record(t.Context(), false); err != nil || !strings.HasPrefix(g.volume["/.nfs/mortar/locks"], `{"exact":true,`) {
		t.Errorf("%q %v", g.volume["/.nfs/mortar/locks"], err)
	}
}

// A server that was frozen, and whose partner serves, writes nothing when it goes on.
func TestRecordsOnlyItsOwn(t *testing.T) {
	g, h, s := holding(t, testConfig(), 1)
	g.owner = "nfs2"
	g.locked(h, s, after, 2)
	n := len(h.changes)
	if err := g.nfsOf(s).Recorder.Record(t.Context(), false); err == nil || !strings.Contains(err.Error(), `"nfs2"`) {
		t.Error(err)
	}
	if i := slices.IndexFunc(h.changes[n:], func(c string) bool { return strings.HasPrefix(c, "save") }); i >= 0 {
		t.Errorf("written: %q", h.changes[n:])
	}
}

// With too many locks there is no list, and looking for one is not repeated.
func TestRecordTooMany(t *testing.T) {
	g, h, s := holding(t, testConfig(), 1)
	g.locked(h, s, after, 40_000+1)
	if err := g.nfsOf(s).Recorder.Record(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, ok := g.volume["/.nfs/mortar/locks"]; ok {
		t.Error("an old list is left")
	}
	n := len(h.changes)
	if err := g.nfsOf(s).Recorder.Record(t.Context(), false); err != nil || len(h.changes) != n {
		t.Errorf("%v %q", err, h.changes[n:])
	}
	// A look that takes long is not repeated each 2 s.
	w := h.watcher(s)
	g.nfsOf(s).Recorder.Took = time.Second
	g.nfsOf(s).Recorder.At = h.clock
	w.background = func(func()) { t.Error("so soon") }
	h.clock = h.clock.Add(19 * time.Second)
	w.reacts(t.Context(), s, "nfs: lists")
}

// A monitor does not pass while a record hangs: its disk may never answer.
func TestMonitorWaitsForRecord(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.lists = func(ctx context.Context) (func(), error) {
		if ctx.Err() != nil {
			t.Error("the monitor does not wait")
		}
		return nil, unit.ErrBusy
	}
	if _, err := s.monitor(t.Context()); err == nil {
		t.Error("the monitor passed")
	}
}

// A stop waits for a record before it lists anything, and keeps others out until it ends; one
// that hangs costs it six seconds.
func TestStopWaitsForRecord(t *testing.T) {
	for _, err := range []error{nil, unit.ErrBusy} {
		h := newShared(t).hosts["nfs1"]
		s := h.service(testConfig())
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.monitor(t.Context()); err != nil { // it takes the start's marks away
			t.Fatal(err)
		}
		n, asked := len(h.changes), 0
		s.lists = func(ctx context.Context) (func(), error) {
			asked++
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 6*time.Second || len(h.changes) != n {
				t.Errorf("asked for the lock without an end, or after %q", h.changes[n:])
			}
			return func() { t.Error("the lock was given back") }, err
		}
		if err := s.stop(t.Context()); err != nil || asked != 1 {
			t.Error(err, asked)
		}
	}
}

// The lock of a service's lists is not that of its actions.
func TestListsLock(t *testing.T) {
	c := testConfig()
	c.Service = fmt.Sprintf("test%d", time.Now().UnixNano())
	s, err := newService(c, newShared(t).hosts["nfs1"], "nfs1")
	if err != nil {
		t.Fatal(err)
	}
	act, err := lock(t.Context(), c.Service)
	if err != nil {
		t.Fatal(err)
	}
	defer act()
	t.Cleanup(func() {
		for _, f := range []string{c.Service, c.Service + ".lists"} {
			os.Remove(unit.RunDir + "/ocf-" + f + ".lock")
		}
	})
	release, err := s.lists(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := unit.AtOnce(t.Context())
	if _, err := s.lists(now); !errors.Is(err, unit.ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	release()
	if release, err = s.lists(now); err != nil {
		t.Fatal(err)
	}
	release()
}

// The watcher is known by its command.
func TestWatches(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.files["/proc/71/cmdline"] = "/usr/local/sbin/mortar\x00ocf\x00_watch\x00/etc/mortar/service-home.json\x00"
	h.files["/proc/72/cmdline"] = "vi\x00_watch.txt\x00"
	s := h.service(testConfig())
	for pid, want := range map[int]bool{71: true, 72: false, 73: false} {
		if s.Watches(pid) != want {
			t.Errorf("%d: %v", pid, !want)
		}
	}
}

// A monitor lists the clients that are gone, the watcher drops those that come back, and the
// next start has nfsdcld forget the others.
func TestGoneClients(t *testing.T) { flavours(t, testGoneClientsIn) }

func testGoneClientsIn(t *testing.T, testConfig func() *Config) {
	g, h, s := holding(t, testConfig(), 1)
	const list = "/.nfs/mortar/gone"
	client := func(id, status string) {
		h.files[g.nfsOf(s).NfsdDir()+"/clients/"+id+"/info"] = "status: " + status + "\nseconds from last renew: 1000\nname: \"c" + id + "\"\n"
	}
	client("7", "courtesy")
	client("8", "confirmed")
	client("9", "courtesy")
	record := func(monitor bool, want string) {
		t.Helper()
		if err := g.nfsOf(s).Recorder.Record(t.Context(), monitor); err != nil || g.volume[list] != want {
			t.Errorf("%q %v, want %q", g.volume[list], err, want)
		}
	}
	record(false, "") // the watcher adds none
	// By nfs4_show_open and nfs4_show_lock of the kernel.
	h.files[g.nfsOf(s).NfsdDir()+"/clients/7/states"] = `- 0x01: { type: open, access: rw, deny: --, superblock: "fd:06:130", filename: "/f", owner: "open id:1" }
- 0x02: { type: lock, superblock: "fd:06:131", filename: "/g", owner: "lock id:1" }
`
	record(true, "7 6337 131\n9 6339\n")
	client("9", "confirmed")
	client("8", "courtesy")
	record(false, "7 6337 131\n")
	g.saved(s, 1, false)
	g.volume["/.nfs/nfsdcld/main.sqlite"] = ""
	h.crash()
	b := g.hosts["nfs2"]
	b.clock = h.clock
	s = b.service(testConfig())
	g.start(b, s)
	if _, ok := g.volume[list]; ok {
		t.Error("the list is left")
	}
	g.saved(s, 0, false) // the lock of a client that is gone is not waited for
	asked := slices.IndexFunc(b.changes, func(c string) bool { return strings.HasPrefix(c, "sqlite3 ") })
	began := slices.IndexFunc(b.changes, func(c string) bool { return strings.Contains(c, " ocf _cld ") })
	if asked < 0 || began < asked {
		t.Errorf("%q", b.changes)
	}
}
