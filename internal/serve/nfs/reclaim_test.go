package nfs

import (
	"strings"
	"testing"
	"time"
)

func TestReclaimDone(t *testing.T) {
	clients := map[string]string{"10.0.0.8": "", "10.0.0.9": ""}
	list := func(l ...string) lockList { return lockList{Locks: l} }
	note := reclaim{Clients: clients, Locks: list("READ 140 0 9", "READ 140 0 9", "WRITE 131 0 EOF")}
	exact := note
	exact.Locks.Exact = true
	all := list("READ 140 0 9", "READ 140 0 9", "WRITE 131 0 EOF")
	for name, c := range map[string]struct {
		note reclaim
		seen reclaiming
		want bool
	}{
		"all have reclaimed":        {note, reclaiming{true, true, all, reclaimQuiet}, true},
		"more locks than before":    {note, reclaiming{true, true, list("READ 130 0 9", "READ 140 0 9", "READ 140 0 9", "WRITE 131 0 EOF", "WRITE 132 0 1"), reclaimQuiet}, true},
		"a client has not answered": {note, reclaiming{false, true, all, reclaimQuiet}, false},
		"a client has not asked":    {note, reclaiming{true, false, all, reclaimQuiet}, false},
		"a lock is missing":         {note, reclaiming{true, true, list("READ 140 0 9", "WRITE 131 0 EOF"), reclaimQuiet}, false},
		"others are there instead":  {note, reclaiming{true, true, list("READ 140 0 9", "WRITE 131 0 EOF", "WRITE 132 0 EOF"), reclaimQuiet}, false},
		"a lock came a moment ago":  {note, reclaiming{true, true, all, reclaimQuiet - time.Second}, false},
		"after a stop":              {exact, reclaiming{true, true, all, 0}, true},
		"no record of clients":      {reclaim{}, reclaiming{true, true, all, reclaimQuiet}, false},
	} {
		if got := c.note.lacks(c.seen); (got == "") != c.want || name == "a lock is missing" && !strings.Contains(got, "(READ 140 0 9)") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestLocksOn(t *testing.T) {
	// Recorded on a server of a rack (Debian 13), with a waiter added.
	text := `1: POSIX  ADVISORY  WRITE 771 fd:00:131 0 EOF
1: -> POSIX  ADVISORY  WRITE 771 fd:00:131 0 EOF
2: POSIX  ADVISORY  READ 812 fd:00:140 100 199
3: FLOCK  ADVISORY  WRITE 400 00:19:12 0 EOF
4: POSIX  ADVISORY  WRITE 400 fd:10:131 0 EOF
5: DELEG  ACTIVE    READ 820 fd:00:133 0 EOF
`
	for dev, want := range map[string]string{"253:0": "READ 140 100 199, WRITE 131 0 EOF", "253:16": "WRITE 131 0 EOF", "253:1": "", "": ""} {
		if got := strings.Join(LocksOn(text, dev), ", "); got != want {
			t.Errorf("%s: %s, want %s", dev, got, want)
		}
	}
}
