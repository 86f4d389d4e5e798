package forecast

import (
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
)

// simulate and check count with one speed of a rebuild.
func TestRebuildRate(t *testing.T) {
	for _, typ := range []string{"nl-sas", "sas", "ssd", "nvme"} {
		if got, want := Defaults().Get(rebuildRate(typ)), design.RebuildMBps(typ); got != want {
			t.Errorf("%s disks: simulate counts with %g MB/s, check with %g", typ, got, want)
		}
	}
}
