package ocf

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// What nlm_end_grace reads, as seen on a rack (Debian 13).
const (
	during = "N\n\x00"
	after  = "Y\n\x00"
)

// graceTest is a pair whose service has NFSv3 locks.
type graceTest struct {
	*testing.T
	*shared
}

const lockRecord = "0100007f 000186b5 00000003 00000010 0 10.0.0.9 nfs1\n"

// holding is a pair whose service runs on the first server; a monitor has seen n locks there.
func holding(t *testing.T, c *Config, n int) (g graceTest, h *fakeHost, s *service) {
	t.Helper()
	g = graceTest{t, newShared(t)}
	h = g.hosts["nfs1"]
	s = h.service(c)
	g.start(h, s)
	g.locked(h, s, after, n)
	g.count(s, n)
	return g, h, s
}

func (t graceTest) nfsOf(s *service) *nfs.Kind { return s.kind.(*nfs.Kind) }

// locked sets what a server's kernel says of its locks and of lockd's grace period.
func (t graceTest) locked(h *fakeHost, s *service, grace string, n int) {
	t.Helper()
	h.files["/proc/fs/lockd/nlm_end_grace"] = grace
	_, devno, err := t.nfsOf(s).Mounted()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	dev := hexDevice(t.T, devno)
	for i := range n {
		fmt.Fprintf(&text, "1: POSIX  ADVISORY  WRITE 771 %s:%d 0 EOF\n", dev, 131+i)
	}
	h.files["/proc/locks"] = text.String()
}

func (t graceTest) start(h *fakeHost, s *service) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.files["/proc/fs/lockd/nlm_end_grace"] = after
}

// count has a monitor see the service, and compares the number of locks on the volume.
func (t graceTest) count(s *service, want int) {
	t.Helper()
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	t.saved(s, want, false)
}

func (t graceTest) saved(s *service, want int, exact bool) {
	t.Helper()
	if l, err := t.nfsOf(s).NLM.SavedLocks(); err != nil || len(l.Locks) != want || l.Exact != exact {
		t.Errorf("locks on the volume: %q, %v, want %d", t.volume["/.nfs/mortar/locks"], err, want)
	}
}

// The watcher ends lockd's grace period of a service that has moved when its client has
// reclaimed, and not before.
func TestEndGrace(t *testing.T) {
	flavours(t, func(t *testing.T, c func() *Config) { testEndGraceIn(t, c, false) })
	flavours(t, func(t *testing.T, c func() *Config) { testEndGraceIn(t, c, true) })
}

func testEndGraceIn(t *testing.T, testConfig func() *Config, crash bool) {
	g := graceTest{t, newShared(t)}
	a, b := g.hosts["nfs1"], g.hosts["nfs2"]
	s := a.service(testConfig())
	g.start(a, s)
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.locked(a, s, after, 3)
	g.count(s, 3)
	g.locked(a, s, after, 2)
	g.count(s, 2)
	if crash {
		a.crash()
	} else if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	} else if got := g.volume["/.nfs/mortar/locks"]; !strings.HasPrefix(got, `{"exact":true,`) {
		t.Errorf("a stop leaves %q", got)
	}
	b.clock = a.clock.Add(10 * time.Second)
	s = b.service(testConfig())
	g.start(b, s)
	g.locked(b, s, during, 0)
	w := b.watcher(s)
	look := func(wait time.Duration, want string) {
		t.Helper()
		b.clock = b.clock.Add(wait)
		g.nfsOf(s).NLM.EndGrace(serviceWatch{w, s})
		if got := b.files["/proc/fs/lockd/nlm_end_grace"]; got != want {
			t.Fatalf("after %v more: %q, want %q", wait, got, want)
		}
		if next := w.next(); (next == graceTick) != (want == during) {
			t.Errorf("after %v more: the next look in %v", wait, next)
		}
		w.reclaiming = false
	}
	look(0, during)
	look(20*time.Second, during) // the client has not answered
	delete(g.volume, "/.nfs/notify/sm.bak/10.0.0.9")
	g.locked(b, s, during, 2) // another client's
	look(time.Second, during)
	look(20*time.Second, during) // the client has asked for no lock
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.locked(b, s, during, 1)
	look(time.Second, during)
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	g.saved(s, 2, false) // the former locks stay during the period; for the next start they are a monitor's
	if note, err := g.nfsOf(s).NLM.ToReclaim(); err != nil || note.Locks.Exact == crash {
		t.Errorf("the note: %+v %v", note, err)
	}
	look(20*time.Second, during) // it had two
	g.locked(b, s, during, 2)
	if crash {
		look(time.Second, during)
		look(5*time.Second-time.Second, during)
	}
	look(time.Second, "Y\n") // written
	said := w.listen()
	g.nfsOf(s).NLM.EndGrace(serviceWatch{w, s})
	if len(*said) > 0 {
		t.Errorf("said after an early end: %q", *said)
	}
}

// answered is a service in its grace period, with the record of the former server's locks
// and so many that are held. Its client has answered sm-notify.
func answered(t *testing.T, c *Config, former string, held int) (graceTest, *fakeHost, *service) {
	g := graceTest{t, newShared(t)}
	a := g.hosts["nfs1"]
	s := a.service(c)
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.volume["/.nfs/mortar/locks"] = former
	g.start(a, s)
	g.locked(a, s, during, held)
	delete(g.volume, "/.nfs/notify/sm.bak/10.0.0.9")
	return g, a, s
}

// listen returns what the watcher logs from now on.
func (w *watcher) listen() *[]string {
	said := new([]string)
	w.log = func(format string, args ...any) { *said = append(*said, fmt.Sprintf(format, args...)) }
	return said
}

// The watcher says why the grace period lasted to its end.
func TestGraceLasts(t *testing.T) { flavours(t, testGraceLastsIn) }

func testGraceLastsIn(t *testing.T, testConfig func() *Config) {
	g, a, s := answered(t, testConfig(), `{"exact":false,"locks":["WRITE 131 0 EOF"]}`, 0)
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord // the client has asked for a lock
	w := a.watcher(s)
	said := w.listen()
	g.nfsOf(s).NLM.EndGrace(serviceWatch{w, s})
	g.locked(a, s, after, 0)
	g.nfsOf(s).NLM.EndGrace(serviceWatch{w, s})
	g.nfsOf(s).NLM.EndGrace(serviceWatch{w, s})
	if len(*said) != 1 || !strings.Contains((*said)[0], "lasted to its end: a lock of the former server is not held (WRITE 131 0 EOF)") {
		t.Errorf("%q", *said)
	}
}

// A stop in the middle of the grace period forgets no client that has yet to reclaim.
func TestStopDuringGrace(t *testing.T) { flavours(t, testStopDuringGraceIn) }

func testStopDuringGraceIn(t *testing.T, testConfig func() *Config) {
	const five = `{"exact":false,"locks":["1","2","3","4","5"]}`
	g, _, s := answered(t, testConfig(), five, 1)
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.volume["/.nfs/notify/sm.bak/10.0.0.9"]; got != lockRecord {
		t.Errorf("the client's record: %q", got)
	}
	if got := g.volume["/.nfs/mortar/locks"]; got != five {
		t.Errorf("the locks: %q", got)
	}
}

// Locks are written as they are, not during the grace period, and not if there are too many.
func TestSavedLocks(t *testing.T) {
	g, a, s := holding(t, testConfig(), 4)
	g.locked(a, s, during, 0)
	g.count(s, 4)
	g.locked(a, s, after, 4096)
	g.count(s, 4096)
	g.locked(a, s, after, 40_000+1)
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
		t.Fatal(st, err)
	}
	if got, ok := g.volume["/.nfs/mortar/locks"]; ok {
		t.Errorf("too many locks: %d bytes are written", len(got))
	}
}

// hexDevice spells major:minor as /proc/locks does.
func hexDevice(t *testing.T, devno string) string {
	t.Helper()
	for _, on := range []string{"fd:00", "fd:01", "fd:02", "fd:03", "fd:04", "fd:05", "fd:06", "fd:07", "fd:08", "fd:09", "fd:0a", "fd:14"} {
		if len(nfs.LocksOn("1: POSIX  ADVISORY  WRITE 1 "+on+":1 0 EOF", devno)) == 1 {
			return on
		}
	}
	t.Fatal("device ", devno)
	return ""
}
