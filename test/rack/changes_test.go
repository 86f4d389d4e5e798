//go:build rack

package rack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/test/racktest"
)

// TestChanges drills every change of day 2 on one brick, one after the other: each passes, and
// leaves a brick where an apply changes nothing. Before the last two the brick gets its first
// cache.
func TestChanges(t *testing.T) {
	dir := racktest.Dir(t)
	small := strings.Replace(must(t, "init", "nfs-ha"), "name: brick1", "name: changes", 1)
	large := strings.NewReplacer("MA[01-03]", "MA[01-05]", "MB[01-03]", "MB[01-05]").Replace(small) + // see docs/rack.md
		"\ncache:\n  mode: write-back\n  ssds:\n    - {serial: \"NV[01-02]\", size: 1GB}\n"
	spec := filepath.Join(dir, "brick.yaml")
	for name, text := range map[string]string{"large.yaml": large, "brick.yaml": small} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	takeDown(t, dir, spec)
	must(t, "rack", "up", filepath.Join(dir, "large.yaml"))
	must(t, "apply", spec, "--yes", "--skip-fence-test")
	drills := func(number int, only, out string) {
		var entries []report.Entry
		lastJSON(t, must(t, "drill", "all", spec, "--only", only, "--out", out, "--json"), &entries)
		if len(entries) != number {
			t.Errorf("%s: %d drills, want %d", only, len(entries), number)
		}
		for i := range entries {
			if e := &entries[i]; e.Verdict != report.Pass || e.LostBytes != 0 || e.VerifiedBytes == 0 {
				t.Errorf("%s: %s, %d bytes lost of %d: %v", e.Name(), e.Verdict, e.LostBytes, e.VerifiedBytes, e.Reasons)
			}
		}
	}
	drills(3, "change-upgrade,change-disk,change-server", "../../out/changes")
	must(t, "cache", "add", spec, "NV01", "NV02", "--size", "1GB", "--mode", "write-back", "--yes")
	must(t, "failover", spec)
	must(t, "apply", spec, "--yes", "--skip-fence-test")
	must(t, "failback", spec)
	drills(3, "change-cache,change-grow", "../../out/changes-cache")
	must(t, "status", spec)
	unchanged(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
}
