package hardware

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/test/example"
)

// A server's partner asks its BMC. Each disk is asked once. An agent runs these
// commands as queries.
func TestWhoAsksHardware(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	up := seen(d)
	argv, by := bmcCommand(d, up, "nfs1")
	if by != "nfs2" || !slices.Contains(argv, "lanplus") {
		t.Errorf("%s asks by %q", by, argv)
	}
	for _, q := range bmcQueries {
		if err := resource.ReadOnly(slices.Concat(argv, q)); err != nil {
			t.Error(err)
		}
	}
	disks := disksToAsk(d, up)
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
	for text, want := range map[string]Load{"25\n12\n16\n": {Amperes: 2.5, Near: 12, Over: 16}, "No Such Object available\n": {Err: "No Such Object available"}} {
		if got := parseLoad(gather.RunResult{Output: resource.Output{Stdout: text}}); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	delete(up, "nfs2")
	if _, by := bmcCommand(d, up, "nfs1"); by != "" {
		t.Errorf("%s asks, but the partner is off", by)
	}
	one := example.Design(t, "nfs.yaml")
	if argv, by := bmcCommand(one, seen(one), "nfs1"); by != "nfs1" || !slices.Equal(argv, []string{"ipmitool", "-c"}) {
		t.Errorf("a single server: %s asks by %q", by, argv)
	}
}

// Enclosures are found in /sys, with the disks in their slots; each is asked once, also
// if two I/O modules show it. The answers are pages in hexadecimal.
func TestShelves(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	up := seen(d)
	h := gather.Host{Files: map[string]string{}, Links: map[string]string{}}
	add := func(at, id, sg string, slots ...string) {
		dir := "/sys/class/enclosure/" + at
		h.Files[dir+"/id"] = id + "\n"
		h.Links[dir+"/device/scsi_generic/"+sg] = "/sys/devices/x/" + sg
		for i := 0; i+1 < len(slots); i += 2 {
			h.Links[dir+"/"+slots[i]+"/device/block/"+slots[i+1]] = "/sys/devices/x/" + slots[i+1]
		}
	}
	disks := up["nfs1"]
	first, last := disks[0], disks[len(disks)-1]
	add("2:0:6:0", "0x5000ccab05629d00", "sg7", "Slot  01 ", first.Paths[0], "Slot 02", disks[1].Paths[0])
	add("3:0:6:0", "0x5000ccab05629d00", "sg17", "Slot  01 ", first.Paths[1])
	add("2:0:7:0", "0x5000ccab05629d00", "sg8", "0", last.Paths[0]) // a maker's default
	add("0:0:9:0", "0x0", "sg2")                                    // a backplane without disks of the brick
	found := findShelves(h, disks)
	var got []string
	for _, x := range found {
		got = append(got, x.ID+" "+x.Device+" "+x.Name(d)+" "+x.Slots["Slot 01"])
	}
	want := []string{"0:0:9:0 sg2  ", "5000ccab05629d00 sg7 A " + first.Serial, "5000ccab05629d00 sg8 B ", "5000ccab05629d00 sg17 A " + first.Serial}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = nil
	asked := shelvesToAsk(d, up, map[string]gather.Host{"nfs1": h, "nfs2": h})
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
	var hw Report
	hw.readShelves(run, []Shelf{{ID: "x", Device: "sg7"}, {ID: "y", Device: "sg8"}})
	if x := hw.Shelves[0]; x.Err != "" || x.Report.Product != "ARC-802801.33.63" || len(x.Report.Elements) != 41 {
		t.Errorf("%+v", x)
	}
	if x := hw.Shelves[1]; x.Err == "" {
		t.Errorf("%+v", x)
	}
	run[strings.Join(sesCommands("sg8")[1], " ")] = gather.RunResult{Err: "sg_ses: not found"}
	hw = Report{}
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
		a := Asker{probes: c.probes}
		got := ""
		for _, x := range c.answers {
			e := ses.Element{Kind: "fan", Name: "1", Level: map[rune]health.Level{'b': health.Fault}[x]}
			a.got = map[string]Report{"nfs1": {Shelves: []Shelf{{ID: "x", Report: ses.Enclosure{Elements: []ses.Element{e}}}}}}
			a.steady()
			if (len(a.bad) > 0) != (x == 'b') {
				t.Errorf("%q: %v", c.answers, a.bad)
			}
			got += map[bool]string{true: "b", false: "-"}[a.got["nfs1"].Shelves[0].Report.Elements[0].Level > health.OK]
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
	answer := func(fan, inlet *ipmi.Sensor, shelf string) Report {
		h := Report{Sensors: []ipmi.Sensor{{Name: "Fan9", Silent: true}}}
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
	lost := func(h Report) (out []string) {
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
	dark := Report{BMCErr: "no session"}
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
	var h Report
	h.readDisks(run, disks)
	if h.DiskErr != "" || len(h.Disks) != 3 || h.Disks["S1"].Temperature != 30 || h.Disks["S2"].NoAnswer == "" || h.Disks["S3"].NoAnswer == "" {
		t.Errorf("%+v", h)
	}
	set("sda", "", "smartctl: not found")
	set("sdb", "", "smartctl: not found")
	h = Report{}
	if h.readDisks(run, disks); h.DiskErr == "" {
		t.Errorf("%+v", h)
	}
}

// What servers answer is kept as it came, also what is not understood, for a bug report.
func TestRaw(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	ask := func(_ context.Context, server string, r gather.Request) (gather.Host, error) {
		h := gather.Host{Run: map[string]gather.RunResult{}}
		for _, argv := range r.Run {
			h.Run[strings.Join(argv, " ")] = gather.RunResult{Output: resource.Output{Stdout: "said by " + server + " to " + argv[0] + ",y,z"}}
		}
		return h, nil
	}
	raw := map[string]int{}
	for _, h := range New().Collect(t.Context(), d, seen(d), time.Time{}, time.Second, ask) {
		for command, r := range h.Raw {
			raw[strings.Fields(command)[0]]++
			if !strings.HasSuffix(r.Stdout, ",y,z") {
				t.Errorf("%s: %+v", command, r)
			}
		}
	}
	if raw["ipmitool"] != 6 || raw["smartctl"] != len(d.Disks) || raw["/usr/bin/env"] != 2 {
		t.Errorf("%v", raw)
	}
}

// seen are the disks of a design, each by two paths from every server.
func seen(d *design.Design) Disks {
	out := Disks{}
	for _, s := range d.Servers() {
		for i, x := range d.Disks {
			out[s] = append(out[s], resource.DiskFact{Serial: x.Serial, Paths: []string{fmt.Sprintf("sd%c", 'a'+2*i), fmt.Sprintf("sd%c", 'b'+2*i)}})
		}
	}
	return out
}

// An agent refuses to read the hardware for a key that may only watch. Its refusal is no finding.
// Another failure is one.
func TestKeyThatMayOnlyWatch(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	for _, refuses := range []bool{true, false} {
		got := New().Collect(t.Context(), d, seen(d), time.Now(), time.Second, func(_ context.Context, _ string, r gather.Request) (gather.Host, error) {
			if len(r.Run) > 0 {
				return gather.Host{}, fmt.Errorf("nfs1: %w", &agent.Error{Message: "no", Refusal: refuses})
			}
			return gather.Host{}, nil
		})
		if (got == nil) != refuses {
			t.Errorf("refused: %v, and the reports are %v", refuses, got)
		}
	}
}
