package resource

import (
	"slices"
	"strings"
	"testing"
)

// Apply writes the slice and has systemd reload its files. An apply that was killed between the two
// is followed by one that reloads; after that apply changes nothing.
func TestClusterSlice(t *testing.T) {
	const ask = "systemctl show --property=NeedDaemonReload --value pacemaker.service"
	h := &Paper{Files: map[string]string{}, Outputs: map[string]Output{ask: {Stdout: "no\n"}}}
	s := &ClusterSlice{Weight: Setting{Name: "CPUWeight", Value: "3000", Reason: "why"}}
	reload := func(as []Action) bool {
		return len(as) > 0 && slices.Equal(as[len(as)-1].Cmd, []string{"systemctl", "daemon-reload"})
	}
	as := diff(t, s, h)
	if !reload(as) {
		t.Error(show(as))
	}
	for _, a := range as {
		if a.File != nil && !a.File.Mkdir {
			h.Files[a.File.Path] = string(a.File.Content)
		}
	}
	if got := h.Files["/etc/systemd/system/cluster.slice"]; !strings.HasSuffix(got, "[Slice]\nCPUWeight=3000\n") {
		t.Error(got)
	}
	if got := h.Files["/etc/systemd/system/pacemaker.service.d/mortar.conf"]; !strings.HasSuffix(got, "[Service]\nSlice=cluster.slice\n") {
		t.Error(got)
	}
	h.Outputs[ask] = Output{Stdout: "yes\n"}
	if as := diff(t, s, h); len(as) != 1 || !reload(as) {
		t.Error(show(as))
	}
	h.Outputs[ask] = Output{Stdout: "no\n"}
	if as := diff(t, s, h); len(as) != 0 {
		t.Error(show(as))
	}
}
