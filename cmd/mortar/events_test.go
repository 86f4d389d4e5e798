package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/run/events"
)

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	for s, want := range map[string]time.Time{
		"7d": now.AddDate(0, 0, -7), "90m": now.Add(-90 * time.Minute), "2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local),
		"2026-11-20 18:00": time.Date(2026, 11, 20, 18, 0, 0, 0, time.Local), "2026-11-20T18:00:00Z": time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC),
	} {
		if got, err := events.PointInTime(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-3d", "-1h", "tomorrow", "7"} {
		if _, err := events.PointInTime(s, now); err == nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A host that does not answer fails alone: events names it in text and JSON, and the exit code
// is 1.
func TestEventsOfNobody(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // without known hosts no connection is made
	file := specFile(t, "nfs-ha")
	code, out, _ := mortar(t, "events", file, "--timeout", "2s", "--json")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		var n events.Note
		if err := json.Unmarshal([]byte(line), &n); err != nil || n.Error == "" {
			t.Fatalf("%s: %v", line, err)
		}
		seen[n.Host] = true
	}
	if !seen["nfs1"] || !seen["nfs2"] || !seen["c1"] {
		t.Errorf("%s", out)
	}
	if code, out, _ := mortar(t, "events", file, "--timeout", "2s"); code != exitFailed || !strings.Contains(out, "nfs2: no history: ") {
		t.Errorf("%d %s", code, out)
	}
	if code, _, stderr := mortar(t, "events", file, "--since", "yesterday"); code != exitBadInput {
		t.Errorf("%d %s", code, stderr)
	}
}
