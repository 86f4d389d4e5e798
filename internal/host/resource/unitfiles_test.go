package resource

import (
	"slices"
	"testing"
)

// Apply writes the files and has systemd reload them. An apply that was killed between the two
// is followed by one that reloads; after that apply changes nothing.
func TestUnitFiles(t *testing.T) {
	const ask = "systemctl show --property=NeedDaemonReload --value pacemaker.service"
	h := &Paper{Files: map[string]string{}, Outputs: map[string]Output{ask: {Stdout: "no\n"}}}
	s := &UnitFiles{Unit: "pacemaker.service", Files: []TextFile{
		{Path: "/etc/systemd/system/cluster.slice", Content: []byte("[Slice]\n")},
		{Path: "/etc/systemd/system/pacemaker.service.d/mortar.conf", Content: []byte("[Service]\n")},
	}}
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
	if len(h.Files) != len(s.Files) {
		t.Error(h.Files)
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
