package agent

import (
	"strings"
	"testing"
)

// Nothing but a fence agent is asked.
func TestFenceStatusRefuses(t *testing.T) {
	for _, name := range []string{"sh", "/usr/sbin/fence_x", "", "fence_/../sh"} {
		if _, err := FenceStatus(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), "no fence agent") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
