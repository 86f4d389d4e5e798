package observe

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/host/gather"
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
		h.Shelves = []Shelf{{ID: "5000a", Device: "sg8", Slots: map[string]string{"Slot 01": d.Disks[0].Serial}, Report: ses.Enclosure{Elements: []ses.Element{
			{Kind: "slot", Name: "Slot 01"}, {Kind: "fan", Name: "Fan 1", Text: "7500 rpm"}, {Kind: "fan", Name: "Fan 2", Silent: true}, {Kind: "enclosure", Name: "Box"}}}},
			{ID: "5000b", Device: "sg9", Slots: map[string]string{"0": d.Disks[len(d.Disks)-1].Serial}}}
		return map[string]Hardware{"nfs1": h, "nfs2": {By: "nfs1", Disks: map[string]smart.Report{}}}
	}
	first := d.Disks[0].Serial
	for name, tc := range map[string]struct {
		change func(h *Hardware)
		want   string // beginning
	}{
		"nothing":          {func(*Hardware) {}, ""},
		"a power supply":   {func(h *Hardware) { h.Sensors[0] = ipmi.Sensor{Name: "PS1", Level: Fault, Text: "AC lost"} }, "fault: PS1 of nfs1: AC lost"},
		"a full event log": {func(h *Hardware) { h.Log.Used = 97 }, "warning: event log of nfs1's BMC is full (3 entries, 97 % full)"},
		"a dead BMC":       {func(h *Hardware) { h.BMCErr = "no session" }, "unknown: BMC of nfs1 was not read: no session"},
		"no smartctl":      {func(h *Hardware) { h.DiskErr = "not found" }, "unknown: SMART data was not read: not found"},
		"a failing disk": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Failing: true, Why: "x"} },
			"fault: disk " + first + " (enclosure A bay 1) predicts its failure: x"},
		"defects": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Defects: []string{"3 pending sectors"}} },
			"warning: disk " + first + " (enclosure A bay 1) has lost or doubtful data: 3 pending sectors"},
		"a worn SSD":           {func(h *Hardware) { h.Disks["SSD7"] = smart.Report{Left: 4} }, "warning: disk SSD7 has 4 % of its life left"},
		"a loaded PDU":         {func(h *Hardware) { h.PDUs["pdu-a"] = PDULoad{Load: 12.5, Near: 12, Over: 16} }, "warning: load 12.5 A of 16 A"},
		"an overload":          {func(h *Hardware) { h.PDUs["pdu-a"] = PDULoad{Load: 16.2, Near: 12, Over: 16} }, "fault: load 16.2 A of 16 A"},
		"a PDU without a load": {func(h *Hardware) { h.PDUs["pdu-a"] = PDULoad{Err: "No Such Object"} }, "unknown: the load of pdu-a was not read: No Such Object"},
		"no second feed": {func(h *Hardware) {
			h.PDUs = map[string]PDULoad{"pdu-a": {Load: 11, Near: 12, Over: 16}, "pdu-b": {Load: 8, Near: 12, Over: 20}}
		},
			"warning: pdu-a carries 11.0 A of 16 A, and all PDUs 19.0 A"},
		"a fan of an enclosure": {func(h *Hardware) {
			h.Shelves[0].Report.Elements[1] = ses.Element{Kind: "fan", Name: "Fan 1", Level: Fault, Text: "0 rpm, it has failed"}
			h.Shelves[0].Report.Elements[3].Level = Fault // its light says so too
		}, "fault: enclosure A: fan Fan 1: 0 rpm, it has failed"},
		"the light of an enclosure": {func(h *Hardware) {
			h.Shelves[0].Report.Elements[3] = ses.Element{Kind: "enclosure", Name: "Box", Level: Warning, Text: "it indicates a warning"}
		}, "warning: enclosure A: enclosure Box: it indicates a warning"},
		"a slot": {func(h *Hardware) {
			h.Shelves[0].Report.Elements[0] = ses.Element{Kind: "slot", Name: "Slot 01", Level: Fault, Text: "the enclosure senses a fault of its disk"}
		}, "fault: enclosure A: slot Slot 01: the enclosure senses a fault of its disk; in it is disk " + first + " (enclosure A bay 1)"},
		"a silent enclosure":   {func(h *Hardware) { h.Shelves[1].Err = "no such file" }, "unknown: enclosure B was not read: no such file"},
		"one without services": {func(h *Hardware) { h.Shelves = h.Shelves[:1] }, "unknown: no enclosure services of B: nothing is known of power supplies, fans and temperatures there"},
		"no enclosure services": {func(h *Hardware) { h.Shelves = nil },
			"unknown: no enclosure services of A and B: nothing is known of power supplies, fans and temperatures there"},
		"an enclosure of nobody": {func(h *Hardware) {
			h.Shelves = append(h.Shelves, Shelf{ID: "5000c", Report: ses.Enclosure{Vendor: "AREC", Product: "X1", Elements: []ses.Element{{Kind: "power supply", Name: "1", Level: Warning, Text: "it predicts its failure"}}}})
		}, "warning: enclosure 5000c AREC X1: power supply 1: it predicts its failure"},
		"a disk that says it is hot": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Temperature: 84, Hot: true} },
			"warning: disk " + first + " (enclosure A bay 1) says that it is too hot (84 °C)"},
		"a disk that warns": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Warns: []string{"POWER LOSS EXPECTED"}} },
			"warning: disk " + first + " (enclosure A bay 1) warns: POWER LOSS EXPECTED"},
		"a disk without an answer": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Unread: health.Unread{"no JSON"}} },
			"unknown: SMART data of disk " + first + " (enclosure A bay 1): 1 record is not understood: \"no JSON\""},
		"an odd sensor": {func(h *Hardware) { h.Sensors[0] = ipmi.Sensor{Name: "X", Level: Unknown, Text: "X,1,y,z"} },
			"unknown: X of nfs1 is not understood: X,1,y,z"},
		"a lost sensor": {func(h *Hardware) {
			h.Sensors[0] = ipmi.Sensor{Name: "X", Level: Unknown, Lost: true, Text: "30 degrees C"}
		},
			"unknown: X of nfs1 has no reading any more; the last: 30 degrees C"},
		"a bad event": {func(h *Hardware) { h.Last = &ipmi.Event{Text: "CPU0: IERR, Asserted", Level: Fault} },
			"warning: event log of nfs1's BMC: 3 entries, 4 % full; the last: CPU0: IERR, Asserted"},
		"an event of nobody": {func(h *Hardware) { h.Last = &ipmi.Event{Text: "OEM record dd", Level: Unknown} },
			"unknown: event log of nfs1's BMC: 3 entries, 4 % full; the last: OEM record dd"},
		"an odd log": {func(h *Hardware) { h.Log.Unread = health.Unread{"Overflow : maybe"} },
			"unknown: event log of nfs1's BMC: 1 record is not understood"},
		"a lost fan": {func(h *Hardware) {
			h.Shelves[0].Report.Elements[1] = ses.Element{Kind: "fan", Name: "Fan 1", Level: Unknown, Lost: true, Text: "7500 rpm"}
		}, "unknown: enclosure A: fan Fan 1 gives no status any more; the last: 7500 rpm"},
		"a hot disk": {func(h *Hardware) { h.Disks[first] = smart.Report{Left: -1, Temperature: 57, Trip: 60} },
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
		if got := parsePDULoad(gather.RunResult{Output: resource.Output{Stdout: text}}); got != want {
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

// Enclosures are found in /sys, with the disks in their slots; each is asked once, also
// if two I/O modules show it. The answers are pages in hexadecimal.
func TestShelves(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	h := gather.Host{Files: map[string]string{}, Links: map[string]string{}}
	add := func(at, id, sg string, slots ...string) {
		dir := "/sys/class/enclosure/" + at
		h.Files[dir+"/id"] = id + "\n"
		h.Links[dir+"/device/scsi_generic/"+sg] = "/sys/devices/x/" + sg
		for i := 0; i+1 < len(slots); i += 2 {
			h.Links[dir+"/"+slots[i]+"/device/block/"+slots[i+1]] = "/sys/devices/x/" + slots[i+1]
		}
	}
	disks := f.Hosts["nfs1"].Host.Disks
	first, last := disks[0], disks[len(disks)-1]
	add("2:0:6:0", "0x5000ccab05629d00", "sg7", "Slot  01 ", first.Paths[0], "Slot 02", disks[1].Paths[0])
	add("3:0:6:0", "0x5000ccab05629d00", "sg17", "Slot  01 ", first.Paths[1])
	add("2:0:7:0", "0x5000ccab05629d00", "sg8", "0", last.Paths[0]) // a maker's default
	add("0:0:9:0", "0x0", "sg2")                                    // a backplane without disks of the brick
	found := findShelves(h, disks)
	var got []string
	for _, x := range found {
		got = append(got, x.ID+" "+x.Device+" "+x.name(d)+" "+x.Slots["Slot 01"])
	}
	want := []string{"0:0:9:0 sg2  ", "5000ccab05629d00 sg7 A " + first.Serial, "5000ccab05629d00 sg8 B ", "5000ccab05629d00 sg17 A " + first.Serial}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = nil
	asked := eachShelf(d, f, map[string]gather.Host{"nfs1": h, "nfs2": h})
	for _, x := range asked["nfs1"] {
		got = append(got, x.Device)
	}
	if want := []string{"sg2", "sg7", "sg8"}; !slices.Equal(got, want) || len(asked["nfs2"]) > 0 {
		t.Errorf("%q, %v", got, asked["nfs2"])
	}
	run := map[string]gather.RunResult{}
	for i, argv := range sesCommands("sg7") {
		if err := resource.ReadOnly(argv); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile("../../base/ses/testdata/areca-8028.hex")
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			run[strings.Join(argv, " ")] = gather.RunResult{Output: resource.Output{Stdout: string(b)}}
		} else {
			run[strings.Join(argv, " ")] = gather.RunResult{}
		}
	}
	for _, argv := range [][]string{{"sg_ses", "--control", "/dev/sg7"}, {"sg_ses", "--readonly", "--page=es", "-HHH", "/dev/sg7", "--set=fault"}, {"sg_ses", "--set=ident", "--page=es", "-HHH", "/dev/sg7"}} {
		if resource.ReadOnly(argv) == nil {
			t.Errorf("%q only reads", argv)
		}
	}
	var hw Hardware
	hw.readShelves(run, []Shelf{{ID: "x", Device: "sg7"}, {ID: "y", Device: "sg8"}})
	if x := hw.Shelves[0]; x.Err != "" || x.Report.Product != "ARC-802801.33.63" || len(x.Report.Elements) != 41 {
		t.Errorf("%+v", x)
	}
	if x := hw.Shelves[1]; !strings.Contains(x.Err, "configuration page of the enclosure is missing") {
		t.Errorf("%+v", x)
	}
	run[strings.Join(sesCommands("sg8")[1], " ")] = gather.RunResult{Err: "sg_ses: not found"}
	hw = Hardware{}
	if hw.readShelves(run, []Shelf{{ID: "y", Device: "sg8"}}); hw.Shelves[0].Err != "sg_ses: not found" {
		t.Errorf("%+v", hw.Shelves)
	}
}

// Watched, an element of an enclosure is bad when five answers in a row say so, and good
// at the first that does not. Asked once, it is bad at once.
func TestSteadyShelves(t *testing.T) {
	for _, c := range []struct {
		probes          int
		answers, levels string // b: bad
	}{{1, "b-b", "b-b"}, {shelfProbes, "bbbb-bbbbbb-", "---------bb-"}} {
		a := hardwareAnswers{probes: c.probes}
		got := ""
		for _, x := range c.answers {
			e := ses.Element{Kind: "fan", Name: "1", Level: map[rune]Level{'b': Fault}[x]}
			a.got = map[string]Hardware{"nfs1": {Shelves: []Shelf{{ID: "x", Report: ses.Enclosure{Elements: []ses.Element{e}}}}}}
			a.steady()
			if (len(a.bad) > 0) != (x == 'b') {
				t.Errorf("%q: %v", c.answers, a.bad)
			}
			got += map[bool]string{true: "b", false: "-"}[a.got["nfs1"].Shelves[0].Report.Elements[0].Level > OK]
		}
		if got != c.levels {
			t.Errorf("%q gives %q, want %q", c.answers, got, c.levels)
		}
	}
}

// A sensor or an element that had an answer once stays, also if it has no reading, its
// line is gone, or its BMC does not answer for a while. What was silent from the begin is
// no finding.
func TestRemember(t *testing.T) {
	answer := func(fan, inlet *ipmi.Sensor, shelf string) Hardware {
		h := Hardware{Sensors: []ipmi.Sensor{{Name: "Fan9", Silent: true}}}
		for _, s := range []*ipmi.Sensor{fan, inlet} {
			if s != nil {
				h.Sensors = append(h.Sensors, *s)
			}
		}
		x := Shelf{ID: "5000a", Device: "sg8"}
		if shelf != "" {
			x.Report.Elements = []ses.Element{{Kind: "fan", Name: "1", Text: shelf, Silent: shelf == "-"}}
		}
		h.Shelves = []Shelf{x}
		return h
	}
	good := answer(&ipmi.Sensor{Name: "Fan1", Text: "5400 RPM"}, &ipmi.Sensor{Name: "Inlet", Text: "22 degrees C"}, "7500 rpm")
	lost := func(h Hardware) (out []string) {
		for _, s := range h.Sensors {
			if s.Lost {
				out = append(out, s.Name+" "+s.Text+" "+s.Level.String())
			}
		}
		for _, e := range h.Shelves[0].Report.Elements {
			if e.Lost {
				out = append(out, e.Kind+" "+e.Text+" "+e.Level.String())
			}
		}
		return out
	}
	h := answer(&ipmi.Sensor{Name: "Fan1", Silent: true}, nil, "-")
	h.remember(good)
	want := []string{"Fan1 5400 RPM unknown", "Inlet 22 degrees C unknown", "fan 7500 rpm unknown"}
	if got := lost(h); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	dark := Hardware{BMCErr: "no session"}
	if dark.remember(h); len(dark.Shelves) != 1 || dark.Shelves[0].Err == "" {
		t.Errorf("%+v", dark)
	}
	again := answer(nil, &ipmi.Sensor{Name: "Inlet", Text: "23 degrees C"}, "7400 rpm")
	again.remember(dark)
	if got := lost(again); !slices.Equal(got, want[:1]) {
		t.Errorf("%q", got)
	}
}

// Each disk that was asked has an answer: one without JSON, or whose command failed, is
// unknown and costs no other disk. If no disk's command can run, that is one finding.
func TestReadDisks(t *testing.T) {
	disks := map[string]string{"S1": "sda", "S2": "sdb", "S3": "sdc"}
	run := map[string]gather.RunResult{}
	set := func(dev, text, err string) {
		run[strings.Join(smartCommand(dev), " ")] = gather.RunResult{Output: resource.Output{Stdout: text}, Err: err}
	}
	set("sda", `{"serial_number":"S1","smart_status":{"passed":true},"temperature":{"current":30}}`, "")
	set("sdb", "Segmentation fault", "")
	set("sdc", "", "not done after 1m0s, killed")
	var h Hardware
	h.readDisks(run, disks)
	if h.DiskErr != "" || len(h.Disks) != 3 || h.Disks["S1"].Temperature != 30 || len(h.Disks["S2"].Unread) != 1 || !strings.Contains(h.Disks["S3"].Unread.String(), "killed") {
		t.Errorf("%+v", h)
	}
	set("sda", "", "smartctl: not found")
	set("sdb", "", "smartctl: not found")
	h = Hardware{}
	if h.readDisks(run, disks); !strings.Contains(h.DiskErr, "not found") && !strings.Contains(h.DiskErr, "killed") {
		t.Errorf("%+v", h)
	}
}
