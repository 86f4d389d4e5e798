package ocf

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestReclaimDone(t *testing.T) {
	now := time.Unix(1000, 0)
	note := reclaim{Clients: []string{"10.0.0.8", "10.0.0.9"}, Locks: 3, Connected: now.Add(time.Second)}
	for name, c := range map[string]struct {
		note reclaim
		seen reclaiming
		want bool
	}{
		"all have reclaimed":        {note, reclaiming{true, true, 3, reclaimQuiet}, true},
		"more locks than before":    {note, reclaiming{true, true, 4, reclaimQuiet}, true},
		"a client has not answered": {note, reclaiming{false, true, 3, reclaimQuiet}, false},
		"a client is not connected": {note, reclaiming{true, false, 3, reclaimQuiet}, false},
		"it had the time to":        {reclaim{note.Clients, 3, now}, reclaiming{true, false, 3, reclaimQuiet}, true},
		"a lock is missing":         {note, reclaiming{true, true, 2, reclaimQuiet}, false},
		"a lock came a moment ago":  {note, reclaiming{true, true, 3, reclaimQuiet - time.Second}, false},
		"no record of clients":      {reclaim{Connected: now}, reclaiming{true, true, 3, reclaimQuiet}, false},
	} {
		if got := c.note.done(now, c.seen); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A client counts as connected by its name, its address, or its address in IPv6's form.
func TestConnectedToLockd(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	nfs := s.kind.(*nfsKind)
	for clients, want := range map[string]bool{"10.0.0.5": true, "c1": true, "10.0.0.8": false, "c1 10.0.0.8": false, "nobody": false} {
		if got, err := nfs.connected(t.Context(), strings.Fields(clients)); got != want || err != nil {
			t.Errorf("%s: %v, %v", clients, got, err)
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

// The watcher ends lockd's grace period of a service that has moved when its client has
// reclaimed, and not before.
func TestEndGrace(t *testing.T) { flavours(t, testEndGraceIn) }

func testEndGraceIn(t *testing.T, testConfig func() *Config) {
	sh := newShared(t)
	a, b := sh.hosts["nfs1"], sh.hosts["nfs2"]
	s := a.service(testConfig())
	ctx := context.Background()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	nfs := func(s *service) *nfsKind { return s.kind.(*nfsKind) }
	locked := func(h *fakeHost, s *service, grace string, n int) {
		h.files[endGraceFile] = grace
		_, devno, err := nfs(s).mounted()
		if err != nil {
			t.Fatal(err)
		}
		h.files["/proc/locks"] = strings.Repeat("1: POSIX  ADVISORY  WRITE 771 "+hexDevice(t, devno)+":131 0 EOF\n", n)
	}
	sh.volume["/.nfs/sm/10.0.0.9"] = "0100007f 000186b5 00000003 00000010 0 10.0.0.9 nfs1\n"
	locked(a, s, "Y\n", 2)
	if st, err := s.monitor(ctx); st != running || err != nil {
		t.Fatal(st, err)
	}
	if got := sh.volume["/.nfs/mortar/locks"]; got != "2\n" {
		t.Fatalf("locks on the volume: %q", got)
	}
	if err := s.stop(ctx); err != nil {
		t.Fatal(err)
	}
	b.clock = a.clock.Add(10 * time.Second)
	s = b.service(testConfig())
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	locked(b, s, "N\n", 0)
	w := b.watcher(s)
	look := func(after time.Duration, want string) {
		t.Helper()
		b.clock = b.clock.Add(after)
		nfs(s).endGrace(ctx, w)
		if got := b.files[endGraceFile]; got != want {
			t.Fatalf("after %v more: %q, want %q", after, got, want)
		}
	}
	look(0, "N\n")
	look(20*time.Second, "N\n") // the client has not answered
	delete(sh.volume, "/.nfs/notify/sm.bak/10.0.0.9")
	locked(b, s, "N\n", 1)
	look(time.Second, "N\n")
	if st, err := s.monitor(ctx); st != running || err != nil {
		t.Fatal(st, err)
	}
	if got := sh.volume["/.nfs/mortar/locks"]; got != "2\n" {
		t.Errorf("during the period the number on the volume became %q", got)
	}
	look(20*time.Second, "N\n") // it had two
	locked(b, s, "N\n", 2)
	look(time.Second, "N\n")
	look(reclaimQuiet-time.Second, "N\n")
	look(time.Second, "Y\n")
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
