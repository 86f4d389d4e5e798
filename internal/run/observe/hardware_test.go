package observe

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Judge names the part, the server and the bay of each fault that hardware reports.
func TestHardware(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	good := func() map[string]Hardware {
		h := Hardware{By: "nfs2", Sensors: []ipmi.Sensor{{Name: "Fan1", Text: "5400 RPM"}, {Name: "Fan9", Silent: true}},
			Log: &ipmi.Log{Entries: 3, Used: 4}, Disks: map[string]smart.Report{}, PDUs: map[string]PDULoad{"pdu-a": {Load: 2, Near: 12, Over: 16}}}
		for i := range d.Disks {
			h.Disks[d.Disks[i].Serial] = smart.Report{Left: -1, Temperature: 30 + i, Trip: 60}
		}
		return map[string]Hardware{"nfs1": h, "nfs2": {By: "nfs1", Disks: map[string]smart.Report{}}}
	}
	first := d.Disks[0].Serial
	for name, tc := range map[string]struct {
		change func(h *Hardware)
		want   string // beginning
	}{
		"nothing":          {func(*Hardware) {}, ""},
		"a power supply":   {func(h *Hardware) { h.Sensors[0] = ipmi.Sensor{Name: "PS1", Level: ipmi.Critical, Text: "AC lost"} }, "fault: PS1 of nfs1: AC lost"},
		"a full event log": {func(h *Hardware) { h.Log.Used = 97 }, "warning: event log of nfs1's BMC is full (3 entries, 97 % full)"},
		"a dead BMC":       {func(h *Hardware) { h.BMCErr = "no session" }, "unknown: BMC of nfs1 was not read: no session"},
		"no smartctl":      {func(h *Hardware) { h.DiskErr = "not found" }, "unknown: SMART data was not read: not found"},
		"a failing disk": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Failing: true, Why: "x"} },
			"fault: disk " + first + " (enclosure A, bay 1) predicts its failure: x"},
		"defects": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Defects: []string{"3 pending sectors"}} },
			"warning: disk " + first + " (enclosure A, bay 1) has lost or doubtful data: 3 pending sectors"},
		"a worn SSD":   {func(h *Hardware) { h.Disks["SSD7"] = smart.Report{Left: 4} }, "warning: disk SSD7 has 4 % of its life left"},
		"a loaded PDU": {func(h *Hardware) { h.PDUs["pdu-a"] = PDULoad{Load: 12.5, Near: 12, Over: 16} }, "warning: load 12.5 A of 16 A"},
		"an overload":  {func(h *Hardware) { h.PDUs["pdu-a"] = PDULoad{Load: 16.2, Near: 12, Over: 16} }, "fault: load 16.2 A of 16 A"},
		"no second feed": {func(h *Hardware) {
			h.PDUs = map[string]PDULoad{"pdu-a": {Load: 11, Near: 12, Over: 16}, "pdu-b": {Load: 8, Near: 12, Over: 20}}
		},
			"warning: pdu-a carries 11.0 A of 16 A, and all PDUs 19.0 A"},
		"a hot disk": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Temperature: 57, Trip: 60} },
			"warning: disk " + first + " (enclosure A, bay 1) is at 57 °C"},
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

// A server's partner asks its BMC. Each disk is asked once. An agent runs these
// commands as queries.
func TestWhoAsksHardware(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	argv, by := bmcCommand(d, f, "nfs1")
	if by != "nfs2" || !slices.Contains(argv, "lanplus") {
		t.Errorf("%s asks by %q", by, argv)
	}
	for _, q := range bmcQueries {
		if err := resource.ReadOnly(slices.Concat(argv, q)); err != nil {
			t.Error(err)
		}
	}
	disks := disksToAsk(d, f)
	if len(disks["nfs1"]) != len(d.Disks) || len(disks["nfs2"]) != 0 {
		t.Errorf("%v", disks)
	}
	for _, dev := range disks["nfs1"] {
		if err := resource.ReadOnly(smartCommand(dev)); err != nil {
			t.Error(err)
		}
	}
	pdus := pduCommands(d, &d.Pairs[0])
	if len(pdus) != 2 {
		t.Errorf("%v", pdus)
	}
	for _, argv := range pdus {
		if err := resource.ReadOnly(argv); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]PDULoad{"25\n12\n16\n": {Load: 2.5, Near: 12, Over: 16}, "No Such Object available\n": {Err: "No Such Object available"}} {
		if got := parsePDULoad(RunResult{Output: resource.Output{Stdout: text}}); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	f.Hosts["nfs2"] = Answer{Err: "off"}
	if _, by := bmcCommand(d, f, "nfs1"); by != "" {
		t.Errorf("%s asks, but the partner is off", by)
	}
	one := designOf(t, "nfs")
	if argv, by := bmcCommand(one, healthy(t, one), "nfs1"); by != "nfs1" || !slices.Equal(argv, []string{"ipmitool", "-c"}) {
		t.Errorf("a single server: %s asks by %q", by, argv)
	}
}
