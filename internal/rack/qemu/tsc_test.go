package qemu

import (
	"runtime"
	"strings"
	"testing"
)

func TestClockArgs(t *testing.T) {
	if got := clockArgs("kvm"); got != "" {
		t.Errorf("kvm: %q; KVM tells its guests the rate", got)
	}
	got := clockArgs("tcg")
	if runtime.GOARCH == "amd64" && !strings.HasPrefix(got, " tsc_early_khz=") {
		t.Errorf("tcg: %q", got)
	}
	// Processors run at 0.1 to 20 GHz.
	if khz := TSCkHz(); khz != 0 && (khz < 100_000 || khz > 20_000_000) {
		t.Errorf("%d kHz", khz)
	}
}
