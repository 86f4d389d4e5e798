package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/run/events"
)

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
