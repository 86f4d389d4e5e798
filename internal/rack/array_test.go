package rack

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/configure"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
)

// arrayConfig is the rack of nss7.4-ha with disks of a thousandth of their size: 84
// disks, eight groups of 8+2 with one LUN each.
func arrayConfig(t *testing.T, wwns ...string) hw.Config {
	t.Helper()
	s := parsed(t, "nss7.4-ha")
	if err := s.Scale(1000); err != nil {
		t.Fatal(err)
	}
	a := hw.Storage{Name: "nss7", Family: "me4", Servers: []string{"nss1", "nss2"}, Paths: 4, Spares: []string{"E1N81", "E1N82", "E1N83", "E1N84"}}
	for g := range 8 {
		name := fmt.Sprintf("nss7-r%d", g)
		group := hw.StorageGroup{Name: name, Level: 6, Chunk: 128 << 10}
		for m := range 10 {
			group.Serials = append(group.Serials, fmt.Sprintf("E1N%02d", 1+g+8*m))
		}
		a.Groups = append(a.Groups, group)
		l := hw.StorageLUN{Name: fmt.Sprintf("nss7-LUN%d", g), Group: name, Number: g, Controller: g % 2, Bytes: 89 << 30}
		if g < len(wwns) {
			l.WWN = wwns[g]
		}
		a.LUNs = append(a.LUNs, l)
	}
	c, err := hw.FromSpec(s, a)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// paths lists the ends of a server's paths to LUNs of arrays, as they are plugged.
func paths(t *testing.T, c *hw.Config, server string, h *hw.Hardware) []string {
	t.Helper()
	var out []string
	seen := map[string]bool{}
	for _, d := range c.SharedDisks() {
		for path := range d.Paths {
			if d.Array == nil || h.PathGone(server, d, path) {
				continue
			}
			p := qemu.PathDevice(d, path)
			s := qemu.PathBlock(d, c, server, path)
			for _, k := range []string{fmt.Sprint(p["id"]), fmt.Sprint(p["bus"], p["scsi-id"], " ", p["lun"]), fmt.Sprint(s["portal"], s["initiator-name"])} {
				if seen[k] {
					t.Errorf("%s: two paths with %s", server, k)
				}
				seen[k] = true
			}
			out = append(out, fmt.Sprintf("%s %v", s["portal"], p["lun"]))
		}
	}
	return out
}

func TestArrayPaths(t *testing.T) {
	c := arrayConfig(t)
	lun := c.Arrays()[0].Disks[0].Name
	for _, v := range []struct {
		what string
		h    hw.Hardware
		a, b int
	}{
		{"whole", hw.Hardware{}, 32, 32},
		{"a controller is out", hw.Hardware{ModulesOut: map[string]bool{"enc-nss7/0": true}}, 16, 16},
		{"an HBA of nss2 does not reach LUN 0", hw.Hardware{PathsOut: map[string]bool{"nss2/" + lun + "/1": true}}, 32, 30},
		{"LUN 0 is gone", hw.Hardware{DisksOut: map[string]bool{lun: true}}, 28, 28},
		{"a disk of a group is out", hw.Hardware{DisksOut: map[string]bool{"e1-01": true}}, 32, 32},
		{"the array has no power", hw.Hardware{ArraysOff: map[string]bool{"enc-nss7": true}}, 0, 0},
	} {
		if a, b := len(paths(t, &c, "nss1", &v.h)), len(paths(t, &c, "nss2", &v.h)); a != v.a || b != v.b {
			t.Errorf("%s: %d and %d paths, want %d and %d", v.what, a, b, v.a, v.b)
		}
	}
	// A server starts stopped and without its LUNs, which the rack plugs later.
	args, err := qemu.NodeArgs(&c, "/rack", 0, &nodeimage.Image{}, "tcg", &hw.Hardware{}, 0)
	if text := strings.Join(args, " "); err != nil || !strings.Contains(text, " -S ") || strings.Contains(text, "scsi-hd") {
		t.Errorf("%v %s", err, text)
	}
	// A WWN of the spec is the LUN's.
	wwn := "600C0FF00053DC2A5000000001000000"
	c = arrayConfig(t, wwn)
	if d := c.Arrays()[0].Disks; d[0].WWN != strings.ToLower(wwn) || d[1].WWN == "" || d[1].WWN == d[2].WWN {
		t.Errorf("%s %s %s", d[0].WWN, d[1].WWN, d[2].WWN)
	}
}

// Of a PERC the rack has only the LUNs, as plain disks with one path.
func TestPERC(t *testing.T) {
	s := parsed(t, "nss5.5")
	l := hw.StorageLUN{Name: "nss5-LUN0", Bytes: 2 << 30, Chunk: 512 << 10, FullStripe: 5 << 20}
	a := hw.Storage{Name: "perc1", Family: "perc", Servers: []string{"nss1"}, Paths: 1, LUNs: []hw.StorageLUN{l}}
	c, err := hw.FromSpec(s, a)
	if err != nil || len(c.Arrays()) != 0 || len(c.SharedDisks()) != 1 {
		t.Fatal(err, c.Enclosures)
	}
	if d := c.SharedDisks()[0]; d.Paths != 1 || len(d.WWN) != 16 || d.Product != "PERC" || d.Array != nil || d.FullStripe != 5<<20 {
		t.Errorf("%+v", d)
	}
	a.LUNs[0].WWN = "600a0b80000000000000000000000001"
	if _, err := hw.FromSpec(s, a); err == nil {
		t.Error("a WWN no virtual disk can have")
	}
	a.LUNs[0].WWN, a.Family = "", "ds4000"
	if _, err := hw.FromSpec(s, a); err == nil {
		t.Error("an unknown family")
	}
}

// The array's machine has each disk in its slot, and its firmware is a program.
func TestArrayMachine(t *testing.T) {
	c := arrayConfig(t)
	e := c.Arrays()[0]
	args, err := qemu.ArrayArgs(&c, "/rack", e, &nodeimage.Image{}, "tcg", &hw.Hardware{DisksOut: map[string]bool{"e1-07": true}})
	if err != nil {
		t.Fatal(err)
	}
	disks := 0
	for _, a := range args {
		var p struct {
			Driver string
			ScsiID int `json:"scsi-id"`
			Serial string
		}
		if json.Unmarshal([]byte(a), &p) != nil || p.Driver != "scsi-hd" {
			continue
		}
		disks++
		if want := fmt.Sprintf("E1N%02d", p.ScsiID+1); p.Serial != want {
			t.Errorf("slot %d has %s, want %s", p.ScsiID, p.Serial, want)
		}
	}
	if disks != 83 || !strings.Contains(strings.Join(args, " "), "mortar.disks=83") {
		t.Errorf("%d disks: %s", disks, args)
	}
	text := array.Firmware(&c, e)
	sh := exec.Command("busybox", "sh", "-n")
	sh.Stdin = strings.NewReader("b=\n" + text)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
	for _, want := range []string{
		"group 0 6 10 128 ", "lun 7 7 0 ", "vendor=DellEMC product=ME4 ",
		"map 1 7 7 iqn.2026-11.rack:nss1.hba0.lun7 iqn.2026-11.rack:nss1.hba1.lun7 iqn.2026-11.rack:nss2.hba0.lun7 ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the firmware:\n%s", want, text)
		}
	}
}

// An unmirrored write cache is lost with its controller, and written to the disks before its LUN
// moves by command. The functions run with their programs printed.
func TestUnmirrored(t *testing.T) {
	c := arrayConfig(t)
	e := c.Arrays()[0]
	e.Disks[3].LUN.Unmirrored = true
	text := array.Firmware(&c, e)
	if !strings.Contains(text, "\nunmirrored 3 || fail unmirrored\nexpose 3 ") || strings.Contains(text, "unmirrored 2") {
		t.Errorf("the firmware makes another cache:\n%s", text)
	}
	functions, _, _ := strings.Cut(text, "\ncore=")
	sh := exec.Command("busybox", "sh")
	sh.Stdin = strings.NewReader("b=echo\n" + functions + `
r() { echo "$@" | busybox sed 's,^/sbin/dmsetup ,,'; }
lun3='1 2048 4096'
for x in "0 flush" "0 lose" "1 lose" "0 flush"; do echo "== $x"; own 3 $x || echo failed; done
`)
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	const swap, cached = "suspend --noflush --nolockfs lun3\nresume --noudevsync lun3\n", "load lun3 --table 0 4096 writecache s /dev/dm-67 /dev/ram3 4096 0\n"
	const anew = "load lun3 --table 0 4096 linear /dev/md1 2048\n" + swap + "dd if=/dev/zero of=/dev/ram3 bs=4096 count=1\n" + cached + swap
	want := "== 0 flush\n== 0 lose\n== 1 lose\n" + anew + "== 0 flush\nmessage lun3 0 flush\n" + anew
	if d := cmp.Diff(want, string(out)); d != "" {
		t.Error(d)
	}
}

// The owner of a LUN, and the ALUA states of its paths.
func TestALUA(t *testing.T) {
	e := &hw.Enclosure{Name: "a"}
	on := func(keys ...string) map[string]bool {
		m := map[string]bool{}
		for _, k := range keys {
			m[k] = true
		}
		return m
	}
	for _, v := range []struct {
		what   string
		h      hw.Hardware
		owned0 [2]int // states at either controller of a LUN of controller 0
		owned1 [2]int
	}{
		{"whole", hw.Hardware{}, [2]int{0, 1}, [2]int{1, 0}},
		{"controller 0 is out", hw.Hardware{ModulesOut: on("a/0")}, [2]int{3, 0}, [2]int{3, 0}},
		{"controller 1 is out", hw.Hardware{ModulesOut: on("a/1")}, [2]int{0, 3}, [2]int{0, 3}},
		{"both are out", hw.Hardware{ModulesOut: on("a/0", "a/1")}, [2]int{3, 3}, [2]int{3, 3}},
		{"LUNs of controller 0 were moved", hw.Hardware{LUNsMoved: on("a/0")}, [2]int{1, 0}, [2]int{1, 0}},
		{"and then controller 1 goes", hw.Hardware{LUNsMoved: on("a/0"), ModulesOut: on("a/1")}, [2]int{0, 3}, [2]int{0, 3}},
		{"another array", hw.Hardware{ModulesOut: on("b/0"), LUNsMoved: on("b/1")}, [2]int{0, 1}, [2]int{1, 0}},
	} {
		for owner, want := range map[int][2]int{0: v.owned0, 1: v.owned1} {
			l := &hw.LUNPlace{Controller: owner}
			if got := [2]int{v.h.ALUA(e, l, 0), v.h.ALUA(e, l, 1)}; got != want {
				t.Errorf("%s: a LUN of controller %d: %v, want %v", v.what, owner, got, want)
			}
		}
	}
}

// The array's answer ends at the command's own mark, even if an earlier client left
// text unread.
func TestExchange(t *testing.T) {
	here, there := net.Pipe()
	go func() {
		b := make([]byte, 100)
		n, _ := there.Read(b)
		mark, _, _ := strings.Cut(string(b[:n]), " ")
		for _, s := range []string{"old answer\ndone-old 0\n", "two\r\nlines\n" + mark, " 3", "\n"} {
			fmt.Fprint(there, s)
		}
	}()
	out, code, err := exchange(here, "done-new", "state")
	if err != nil || code != 3 || !strings.HasSuffix(out, "two\nlines\n") {
		t.Errorf("%q %d %v", out, code, err)
	}
	there.Close()
	if _, _, err := exchange(here, "done-x", "state"); err == nil {
		t.Error("a closed line is no error")
	}
}

func TestGroupsOf(t *testing.T) {
	six := hw.RAIDGroup{Level: 6, Members: make([]string, 10)}
	groups := []hw.RAIDGroup{six, six, six, six, {Level: 10, Members: make([]string, 4)}, six}
	box := &hw.Array{Groups: groups, Disks: []hw.Disk{{Serial: "A"}, {Serial: "B"}, {Serial: "C"}}}
	got := array.Groups(box, "in 0 2 0 7 x\nin 9 0\nnoise\ngroup 0 clean 0 idle none\ngroup 1 active 1 recover 50 / 200\ngroup 2 clean 2 idle none\n"+
		"group 3 clean 3 idle none\ndiffer 2 8\ndiffer 9 8\ngroup 4 broken 2 idle none\ngroup 9 clean 0 idle none\ngroup x clean 0 idle none\ngroup 5 active 0 check 30 / 120\ndiffer 5 16\n")
	want := []array.GroupStatus{{State: "optimal", Members: []string{"C", "A"}}, {State: "rebuilding", Missing: 1, Percent: 25}, {State: "degraded", Missing: 2, Mismatches: 8},
		{State: "failed", Missing: 3}, {State: "failed", Missing: 2}, {State: "optimal", Comparing: true, Percent: 25, Mismatches: 16}}
	for i := range want {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("group %d: %s", i, diff)
		}
	}
}

// A script that is executed on an array in use adds lines to its firmware: new groups and
// LUNs, which servers that the LUN is mapped to see.
func TestConfiguredArray(t *testing.T) {
	s := parsed(t, "nss7.4-ha")
	cabled := hw.Storage{Name: "nss7", Servers: []string{"nss1", "nss2"}, Paths: 4}
	at := func(scripts ...string) hw.Storage {
		t.Helper()
		a, _, err := configure.Array(t.Context(), s, cabled, scripts...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	c, err := hw.FromSpec(s, at())
	if err != nil || !c.ArraysEmpty() || len(c.Arrays()[0].Disks) != 0 || len(c.Arrays()[0].Array.Disks) != 84 {
		t.Fatalf("%v %+v", err, c.Arrays())
	}
	empty := c
	empty.Enclosures = slices.Clone(c.Enclosures)
	const one = `set initiator id 500605b000010000 nickname a
set initiator id 500605b000020000 nickname b
create host initiators a nss1
create host initiators b nss2
create host-group hosts nss1,nss2 both
add disk-group type linear disks 0.0-9 level raid6 chunk-size 128k assigned-to b one
create volume vdisk one size 10GiB v1
create volume vdisk one size 20GiB v2
map volume lun 5 initiator both.*.* v1
map volume lun 4 initiator nss2.* v2
add spares 0.83
`
	const two = "add disk-group type linear disks 0.10-19 level raid6 two\ncreate volume vdisk two size 1GiB v3\nmap volume lun 6 initiator both.*.* v3\n"
	if err := c.SetArray(s, at(one)); err != nil {
		t.Fatal(err)
	}
	e := c.Arrays()[0]
	first := c.SharedDisks()[0].BlockID()
	if err := c.SetArray(s, at(one, two)); err != nil {
		t.Fatal(err)
	}
	if c.ArraysEmpty() || !c.SameButArrays(&empty) || len(e.Array.Scripts) != 2 || c.SharedDisks()[0].BlockID() != first || len(c.WWNs["nss7"]) != 3 || c.WWNs["nss7"][0] != e.Disks[1].WWN {
		t.Errorf("%+v %+v", c.WWNs, e)
	}
	if e.Disks[1].LUN.Offset != 10<<30 || e.Disks[1].LUN.Controller != 1 {
		t.Errorf("%+v", e.Disks[1].LUN)
	}
	if a, b := len(paths(t, &c, "nss1", &hw.Hardware{})), len(paths(t, &c, "nss2", &hw.Hardware{})); a != 8 || b != 12 {
		t.Errorf("%d and %d paths, want 8 and 12", a, b)
	}
	more := strings.Join(array.Configuration(&c, e, 1, 2), "\n")
	for _, want := range []string{"group 1 6 10 512 ", " 10 11 12 13 14 15 16 17 18 19\n", "sparelist='0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 83' grouplist='0 1'\n", "lun 2 1 0 2097152\n", "map 1 2 6 iqn"} {
		if !strings.Contains(more, want) {
			t.Errorf("no %q in\n%s", want, more)
		}
	}
	if strings.ContainsAny(more, "\"$`\\") || strings.Contains(more, "group 0") || strings.Contains(more, "lun 1 ") {
		t.Errorf("%s", more)
	}
	if whole := array.Firmware(&c, e); !strings.Contains(whole, "map 0 1 4 iqn.2026-11.rack:nss2.hba0.lun4 iqn.2026-11.rack:nss2.hba1.lun4\n") {
		t.Errorf("LUN 4 is mapped otherwise:\n%s", whole)
	}
}
