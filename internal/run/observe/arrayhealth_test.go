package observe

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// Status shows an array's own report. An array that could not be asked is never ok.
func TestArrayHealth(t *testing.T) {
	percent := 12.0
	spares, none := 4, 3
	well := raid.Item{Kind: "controller", Name: "A", Level: OK, Text: "controller A is operational"}
	rebuild := raid.Item{Kind: "group", Name: "nss7-r0", Level: Warning, Text: "disk group nss7-r0 rebuilds", Percent: &percent}
	dead := raid.Item{Kind: "disk", Name: "0.3", Level: Fault, Text: "disk E1N04 in slot 0.3 is fault", Mend: "replace it"}
	for name, c := range map[string]struct {
		answer raid.Answer
		want   string
	}{
		"well":         {raid.Answer{Health: &raid.Health{How: "x", Items: []raid.Item{well}, Spares: &spares, Levels: map[string]int{"nss7-lun0": 6}}}, ""},
		"rebuilding":   {raid.Answer{Health: &raid.Health{Items: []raid.Item{well, rebuild}, Spares: &spares}}, "warning: disk group nss7-r0 rebuilds (12 % done)"},
		"a dead disk":  {raid.Answer{Health: &raid.Health{Items: []raid.Item{dead}}}, "fault: disk E1N04 in slot 0.3 is fault"},
		"fewer spares": {raid.Answer{Health: &raid.Health{Spares: &none}}, "warning: 3 of 4 spares wait"},
		"RAID level":   {raid.Answer{Health: &raid.Health{Levels: map[string]int{"nss7-lun0": 5}}}, "fault: nss7-lun0 has RAID level 5, and the design 6"},
		"no password":  {raid.Answer{NotAsked: "the spec has no user"}, "unknown: array nss7 was not asked how it is, because the spec has no user"},
		"no answer":    {raid.Answer{Err: "connection refused"}, "fault: the management of array nss7 does not answer: connection refused"},
	} {
		d := derived(t, "nss7.4-ha")
		p := newView(d, &d.Pairs[0], Facts{Time: noon, Arrays: map[string]raid.Answer{"nss7": c.answer}}).arrayHealth()
		p.settle()
		if got := texts(p); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	d := derived(t, "nss7.4-ha")
	if p := newView(d, &d.Pairs[0], Facts{}).arrayHealth(); p != nil {
		t.Errorf("%+v, and nobody was to ask", p)
	}
}

// The server of a PERC asks it, with the first installed tool.
func TestArrayHealthOnServer(t *testing.T) {
	d := derived(t, "nss5.5")
	gone := gather.RunResult{Output: resource.Output{Code: -1}, Err: `exec: "perccli64": executable file not found in $PATH`, Cause: resource.NotInstalled}
	ask := func(last gather.RunResult) string {
		h := &gather.Host{Hostname: "nss1", Run: map[string]gather.RunResult{}}
		for i, argv := range raid.PERC("PERC-H810") {
			h.Run[strings.Join(argv, " ")] = gone
			if i == 2 {
				h.Run[strings.Join(argv, " ")] = last
			}
		}
		f := Facts{Time: noon, Hosts: map[string]Answer{"nss1": {Host: h}}, Arrays: map[string]raid.Answer{"perc1": {NotAsked: "on its server"}, "perc2": {NotAsked: "on its server"}}}
		p := newView(d, &d.Pairs[0], f).arrayHealth()
		p.settle()
		return texts(p)
	}
	if got := ask(gone); strings.Count(got, "because neither perccli nor storcli is installed on nss1") != 2 || strings.Contains(got, "ok") {
		t.Error(got)
	}
	answer := `{"Controllers":[{"Command Status":{"Controller":1,"Status":"Success"},"Response Data":{"Status":{"Controller Status":"Optimal","BBU Status":0},
		"VD LIST":[{"DG/VD":"0/0","TYPE":"RAID60","State":"Optl","Cache":"RWTD","Name":"nss5-lun0"}],"BBU_Info":[{"Model":"BBU","State":"Optimal","Temp":"30C"}]}}]}`
	got := ask(gather.RunResult{Output: resource.Output{Stdout: answer}})
	if !strings.Contains(got, "virtual disk nss5-lun0: write-through (RWTD)") || !strings.Contains(got, "the server has no controller 2") {
		t.Error(got)
	}
}
