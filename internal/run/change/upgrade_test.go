package change

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/run/upgrade"
)

// An upgrade that stops at the last of several servers says how to go on with that one alone.
func TestUpgradeRest(t *testing.T) {
	planned := []upgrade.Server{{Name: "nfs2"}, {Name: "nfs1"}}
	f := Upgrade{RebootOnly: true}
	if got := f.rest("b.yaml", planned, 1); !strings.Contains(got, "`mortar upgrade b.yaml --node nfs1 --reboot-only`") {
		t.Errorf("%q", got)
	}
	if got := f.rest("b.yaml", planned, 0) + f.rest("b.yaml", planned[:1], 0); got != "" {
		t.Errorf("%q", got)
	}
}
