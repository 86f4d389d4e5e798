package observe

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

// Judge names the part, the server and the bay of each fault that hardware reports.
func TestHardware(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	good := func() map[string]hardware.Report {
		h := hardware.Report{By: "nfs2", Sensors: []ipmi.Sensor{{Name: "Fan1", Text: "5400 RPM"}, {Name: "Fan9", Silent: true}},
			Log: &ipmi.Log{Entries: 3, Used: 4}, Disks: map[string]smart.Report{}, PDUs: map[string]hardware.Load{"pdu-a": {Amperes: 2, Near: 12, Over: 16}}}
		for i := range d.Disks {
			h.Disks[d.Disks[i].Serial] = smart.Report{Left: -1, Temperature: 30 + i, Trip: 60}
		}
		h.Shelves = []hardware.Shelf{{ID: "5000a", Device: "sg8", Slots: map[string]string{"Slot 01": d.Disks[0].Serial}, Report: ses.Enclosure{Elements: []ses.Element{
			{Kind: "slot", Name: "Slot 01"}, {Kind: "fan", Name: "Fan 1", Text: "7500 rpm"}, {Kind: "fan", Name: "Fan 2", Silent: true}, {Kind: "enclosure", Name: "Box"}}}},
			{ID: "5000b", Device: "sg9", Slots: map[string]string{"0": d.Disks[len(d.Disks)-1].Serial}}}
		return map[string]hardware.Report{"nfs1": h, "nfs2": {By: "nfs1", Disks: map[string]smart.Report{}}}
	}
	first := d.Disks[0].Serial
	for name, tc := range map[string]struct {
		change func(h *hardware.Report)
		want   string // beginning
	}{
		"nothing":          {func(*hardware.Report) {}, ""},
		"a power supply":   {func(h *hardware.Report) { h.Sensors[0] = ipmi.Sensor{Name: "PS1", Level: Fault, Text: "AC lost"} }, "fault: PS1 of nfs1: AC lost"},
		"a full event log": {func(h *hardware.Report) { h.Log.Used = 97 }, "warning: event log of nfs1's BMC is full (3 entries, 97 % full)"},
		"a dead BMC":       {func(h *hardware.Report) { h.BMCErr = "no session" }, "unknown: BMC of nfs1 was not read: no session"},
		"no smartctl":      {func(h *hardware.Report) { h.DiskErr = "not found" }, "unknown: SMART data was not read: not found"},
		"a failing disk": {func(h *hardware.Report) { h.Disks[first] = smart.Report{Left: -1, Failing: true, Why: "x"} },
			"fault: disk " + first + " (enclosure A bay 1) predicts its failure: x"},
		"defects": {func(h *hardware.Report) {
			h.Disks[first] = smart.Report{Left: -1, Defects: []string{"3 pending sectors"}}
		},
			"warning: disk " + first + " (enclosure A bay 1) has lost or doubtful data: 3 pending sectors"},
		"a worn SSD":           {func(h *hardware.Report) { h.Disks["SSD7"] = smart.Report{Left: 4} }, "warning: disk SSD7 has 4 % of its life left"},
		"a loaded PDU":         {func(h *hardware.Report) { h.PDUs["pdu-a"] = hardware.Load{Amperes: 12.5, Near: 12, Over: 16} }, "warning: load 12.5 A of 16 A"},
		"an overload":          {func(h *hardware.Report) { h.PDUs["pdu-a"] = hardware.Load{Amperes: 16.2, Near: 12, Over: 16} }, "fault: load 16.2 A of 16 A"},
		"a PDU without a load": {func(h *hardware.Report) { h.PDUs["pdu-a"] = hardware.Load{Err: "No Such Object"} }, "unknown: the load of pdu-a was not read: No Such Object"},
		"no second feed": {func(h *hardware.Report) {
			h.PDUs = map[string]hardware.Load{"pdu-a": {Amperes: 11, Near: 12, Over: 16}, "pdu-b": {Amperes: 8, Near: 12, Over: 20}}
		},
			"warning: pdu-a carries 11.0 A of 16 A, and all PDUs 19.0 A"},
		"a fan of an enclosure": {func(h *hardware.Report) {
			h.Shelves[0].Report.Elements[1] = ses.Element{Kind: "fan", Name: "Fan 1", Level: Fault, Text: "0 rpm, it has failed"}
			h.Shelves[0].Report.Elements[3].Level = Fault // its light says so too
		}, "fault: enclosure A: fan Fan 1: 0 rpm, it has failed"},
		"the light of an enclosure": {func(h *hardware.Report) {
			h.Shelves[0].Report.Elements[3] = ses.Element{Kind: "enclosure", Name: "Box", Level: Warning, Text: "it indicates a warning"}
		}, "warning: enclosure A: enclosure Box: it indicates a warning"},
		"a slot": {func(h *hardware.Report) {
			h.Shelves[0].Report.Elements[0] = ses.Element{Kind: "slot", Name: "Slot 01", Level: Fault, Text: "the enclosure senses a fault of its disk"}
		}, "fault: enclosure A: slot Slot 01: the enclosure senses a fault of its disk; in it is disk " + first + " (enclosure A bay 1)"},
		"a silent enclosure":   {func(h *hardware.Report) { h.Shelves[1].Err = "no such file" }, "unknown: enclosure B was not read: no such file"},
		"one without services": {func(h *hardware.Report) { h.Shelves = h.Shelves[:1] }, "unknown: no enclosure services of B: nothing is known of power supplies, fans and temperatures there"},
		"no enclosure services": {func(h *hardware.Report) { h.Shelves = nil },
			"unknown: no enclosure services of A and B: nothing is known of power supplies, fans and temperatures there"},
		"an enclosure of nobody": {func(h *hardware.Report) {
			h.Shelves = append(h.Shelves, hardware.Shelf{ID: "5000c", Report: ses.Enclosure{Vendor: "AREC", Product: "X1", Elements: []ses.Element{{Kind: "power supply", Name: "1", Level: Warning, Text: "it predicts its failure"}}}})
		}, "warning: enclosure 5000c AREC X1: power supply 1: it predicts its failure"},
		"a disk that says it is hot": {func(h *hardware.Report) { h.Disks[first] = smart.Report{Left: -1, Temperature: 84, Hot: true} },
			"warning: disk " + first + " (enclosure A bay 1) says that it is too hot (84 °C)"},
		"a disk that warns": {func(h *hardware.Report) {
			h.Disks[first] = smart.Report{Left: -1, Warns: []string{"POWER LOSS EXPECTED"}}
		},
			"warning: disk " + first + " (enclosure A bay 1) warns: POWER LOSS EXPECTED"},
		"a disk without an answer": {func(h *hardware.Report) { h.Disks[first] = smart.Report{Left: -1, Unread: health.Unread{"no JSON"}} },
			"unknown: SMART data of disk " + first + " (enclosure A bay 1): 1 record is not understood: \"no JSON\""},
		"a disk that smartctl cannot ask": {func(h *hardware.Report) {
			h.Disks[first] = smart.Report{Left: -1, NoAnswer: "/dev/vdb: Unable to detect device type"}
		}, "unknown: the health of disk " + first + " (enclosure A bay 1) cannot be read: /dev/vdb: Unable to detect device type"},
		"an odd sensor": {func(h *hardware.Report) { h.Sensors[0] = ipmi.Sensor{Name: "X", Level: Unknown, Text: "X,1,y,z"} },
			"unknown: X of nfs1 is not understood: X,1,y,z"},
		"a lost sensor": {func(h *hardware.Report) {
			h.Sensors[0] = ipmi.Sensor{Name: "X", Level: Unknown, Lost: true, Text: "30 degrees C"}
		},
			"unknown: X of nfs1 has no reading any more; the last: 30 degrees C"},
		"a bad event": {func(h *hardware.Report) { h.Last = &ipmi.Event{Text: "CPU0: IERR, Asserted", Level: Fault} },
			"warning: event log of nfs1's BMC: 3 entries, 4 % full; the last: CPU0: IERR, Asserted"},
		"an event of nobody": {func(h *hardware.Report) { h.Last = &ipmi.Event{Text: "OEM record dd", Level: Unknown} },
			"unknown: event log of nfs1's BMC: 3 entries, 4 % full; the last: OEM record dd"},
		"an odd log": {func(h *hardware.Report) { h.Log.Unread = health.Unread{"Overflow : maybe"} },
			"unknown: event log of nfs1's BMC: 1 record is not understood"},
		"a lost fan": {func(h *hardware.Report) {
			h.Shelves[0].Report.Elements[1] = ses.Element{Kind: "fan", Name: "Fan 1", Level: Unknown, Lost: true, Text: "7500 rpm"}
		}, "unknown: enclosure A: fan Fan 1 gives no status any more; the last: 7500 rpm"},
		"a hot disk": {func(h *hardware.Report) { h.Disks[first] = smart.Report{Left: -1, Temperature: 57, Trip: 60} },
			"warning: disk " + first + " (enclosure A bay 1) is at 57 °C"},
	} {
		f.Hardware = good()
		h := f.Hardware["nfs1"]
		tc.change(&h)
		f.Hardware["nfs1"] = h
		got := slices.DeleteFunc(complaints(Judge(d, f)), func(s string) bool { return s == neverProven1 || s == neverProven2 })
		switch {
		case tc.want == "" && len(got) > 0:
			t.Errorf("%s: %q", name, got)
		case tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want)):
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
