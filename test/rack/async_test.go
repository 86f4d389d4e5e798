//go:build rack

package rack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAsync is the negative control of the drills' checker. One server exports async, so it acknowledges what
// is only in its memory, and loses its power: the drill must find that acknowledged data is lost. So ends the
// corrupted run in appendix A.3 of NSS4-HA.
func TestAsync(t *testing.T) {
	spec := deploy(t, rackBrick{example: "nfs", edit: func(text string) string {
		return strings.Replace(text, "options: [rw, sync,", "options: [rw, async,", 1)
	}})
	run := filepath.Join(filepath.Dir(spec), "run")
	_, code := mortar(t, "drill", "run", spec, "server-crash", "--how", "power", "--seconds", "45", "--after", "3", "--out", run)
	b, err := os.ReadFile(filepath.Join(run, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Verdict string
		Lost    *int64 `json:"lost_bytes"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if code != 1 || s.Verdict != "fail" || s.Lost == nil || *s.Lost == 0 {
		t.Errorf("exit %d: %s", code, b)
	}
}
