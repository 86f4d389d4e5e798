package ocf

import (
	"strings"
	"testing"
	"time"
)

func TestReclaimDone(t *testing.T) {
	note := reclaim{Clients: map[string]string{"10.0.0.8": "", "10.0.0.9": ""}, Locks: 3}
	for name, c := range map[string]struct {
		note reclaim
		seen reclaiming
		want bool
	}{
		"all have reclaimed":        {note, reclaiming{true, true, 3, reclaimQuiet}, true},
		"more locks than before":    {note, reclaiming{true, true, 4, reclaimQuiet}, true},
		"a client has not answered": {note, reclaiming{false, true, 3, reclaimQuiet}, false},
		"a client has not asked":    {note, reclaiming{true, false, 3, reclaimQuiet}, false},
		"a lock is missing":         {note, reclaiming{true, true, 2, reclaimQuiet}, false},
		"a lock came a moment ago":  {note, reclaiming{true, true, 3, reclaimQuiet - time.Second}, false},
		"no record of clients":      {reclaim{}, reclaiming{true, true, 3, reclaimQuiet}, false},
	} {
		if got := c.note.done(c.seen); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCountLocks(t *testing.T) {
	// Recorded on a server of a rack (Debian 13), with a waiter added.
	text := `1: POSIX  ADVISORY  WRITE 771 fd:00:131 0 EOF
1: -> POSIX  ADVISORY  WRITE 771 fd:00:131 0 EOF
2: POSIX  ADVISORY  READ 812 fd:00:140 100 199
3: FLOCK  ADVISORY  WRITE 400 00:19:12 0 EOF
4: POSIX  ADVISORY  WRITE 400 fd:10:131 0 EOF
5: DELEG  ACTIVE    READ 820 fd:00:133 0 EOF
`
	for dev, want := range map[string]int{"253:0": 2, "253:16": 1, "253:1": 0, "": 0} {
		if got := countLocks(text, dev); got != want {
			t.Errorf("%s: %d locks, want %d", dev, got, want)
		}
	}
}

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

func (t graceTest) nfs(s *service) *nfsKind { return s.kind.(*nfsKind) }

// locked sets what a server's kernel says of its locks and of lockd's grace period.
func (t graceTest) locked(h *fakeHost, s *service, grace string, n int) {
	t.Helper()
	h.files[endGraceFile] = grace
	_, devno, err := t.nfs(s).mounted()
	if err != nil {
		t.Fatal(err)
	}
	h.files["/proc/locks"] = strings.Repeat("1: POSIX  ADVISORY  WRITE 771 "+hexDevice(t.T, devno)+":131 0 EOF\n", n)
}

func (t graceTest) start(h *fakeHost, s *service) {
	t.Helper()
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.files[endGraceFile] = after
}

// count has a monitor see the service after some time, and compares the saved number.
func (t graceTest) count(h *fakeHost, s *service, wait time.Duration, want string) {
	t.Helper()
	h.clock = h.clock.Add(wait)
	if st, err := s.monitor(t.Context()); st != running || err != nil {
		t.Fatal(st, err)
	}
	if got, _, _ := strings.Cut(t.volume["/.nfs/mortar/locks"], " "); got != want {
		t.Errorf("locks on the volume: %q, want %s", t.volume["/.nfs/mortar/locks"], want)
	}
}

// The watcher ends lockd's grace period of a service that has moved when its client has
// reclaimed, and not before.
func TestEndGrace(t *testing.T) { flavours(t, testEndGraceIn) }

func testEndGraceIn(t *testing.T, testConfig func() *Config) {
	g := graceTest{t, newShared(t)}
	a, b := g.hosts["nfs1"], g.hosts["nfs2"]
	s := a.service(testConfig())
	g.start(a, s)
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.locked(a, s, after, 3)
	g.count(a, s, 0, "3")
	g.locked(a, s, after, 2)
	g.count(a, s, 10*time.Second, "3") // the larger one of the last minute
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.volume["/.nfs/mortar/locks"]; !strings.HasPrefix(got, "2 ") {
		t.Errorf("a stop counts %q", got)
	}
	b.clock = a.clock.Add(10 * time.Second)
	s = b.service(testConfig())
	g.start(b, s)
	g.locked(b, s, during, 0)
	w := b.watcher(s)
	look := func(wait time.Duration, want string) {
		t.Helper()
		b.clock = b.clock.Add(wait)
		g.nfs(s).endGrace(w)
		if got := b.files[endGraceFile]; got != want {
			t.Fatalf("after %v more: %q, want %q", wait, got, want)
		}
	}
	look(0, during)
	look(20*time.Second, during) // the client has not answered
	delete(g.volume, "/.nfs/notify/sm.bak/10.0.0.9")
	g.locked(b, s, during, 2) // somebody else's
	look(time.Second, during)
	look(20*time.Second, during) // the client has asked for no lock
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.locked(b, s, during, 1)
	look(time.Second, during)
	g.count(b, s, 0, "2")       // the former number stays during the period
	look(20*time.Second, during) // it had two
	g.locked(b, s, during, 2)
	look(time.Second, during)
	look(reclaimQuiet-time.Second, during)
	look(time.Second, "Y\n") // written
}

// A stop in the middle of the grace period forgets no client that has yet to reclaim.
func TestStopDuringGrace(t *testing.T) { flavours(t, testStopDuringGraceIn) }

func testStopDuringGraceIn(t *testing.T, testConfig func() *Config) {
	g := graceTest{t, newShared(t)}
	a := g.hosts["nfs1"]
	s := a.service(testConfig())
	g.volume["/.nfs/sm/10.0.0.9"] = lockRecord
	g.volume["/.nfs/mortar/locks"] = "5 1\n"
	g.start(a, s)
	g.locked(a, s, during, 1)
	delete(g.volume, "/.nfs/notify/sm.bak/10.0.0.9") // it has answered
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.volume["/.nfs/notify/sm.bak/10.0.0.9"]; got != lockRecord {
		t.Errorf("the client's record: %q", got)
	}
	if got := g.volume["/.nfs/mortar/locks"]; got != "5 1\n" {
		t.Errorf("the number of locks: %q", got)
	}
}

// A larger number counts for a minute, and none is kept that could not be written.
func TestSavedLocks(t *testing.T) {
	g := graceTest{t, newShared(t)}
	a := g.hosts["nfs1"]
	s := a.service(testConfig())
	g.start(a, s)
	g.locked(a, s, after, 4)
	g.count(a, s, 0, "4")
	g.locked(a, s, after, 1)
	g.count(a, s, locksKept-time.Second, "4")
	g.count(a, s, time.Second, "1")
	a.files[endGraceFile] = during
	g.locked(a, s, during, 0)
	g.count(a, s, time.Hour, "1")
}

// hexDevice spells major:minor as /proc/locks does.
func hexDevice(t *testing.T, devno string) string {
	t.Helper()
	for _, on := range []string{"fd:00", "fd:01", "fd:02", "fd:03", "fd:04", "fd:05", "fd:06", "fd:07", "fd:08", "fd:09", "fd:0a", "fd:14"} {
		if countLocks("1: POSIX  ADVISORY  WRITE 1 "+on+":1 0 EOF", devno) == 1 {
			return on
		}
	}
	t.Fatal("device ", devno)
	return ""
}
