package agent

import (
	"strings"
	"testing"
)

func TestFenceInput(t *testing.T) {
	got, err := FenceInput("status", map[string]string{"ip": "10.0.0.1", "community": "s3 cret=", "pcmk_host_map": "a:1", "port": "2"})
	if want := "community=s3 cret=\nip=10.0.0.1\nport=2\naction=status\n"; err != nil || string(got) != want {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []map[string]string{{"action": "off"}, {"option": "off"}, {"ip": "1\naction=off"}, {"a\naction": "off"}} {
		if got, err := FenceInput("status", bad); err == nil {
			t.Errorf("%v is passed on: %q", bad, got)
		}
	}
}

// Nothing but a fence agent is asked.
func TestFenceStatusRefuses(t *testing.T) {
	for _, name := range []string{"sh", "/usr/sbin/fence_x", "", "fence_/../sh"} {
		if _, err := FenceStatus(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), "no fence agent") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
