package array

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

var update = flag.Bool("update", false, "rewrite golden files")

func example(t *testing.T, name string, edits ...string) *design.Design {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(edits...).Replace(string(src))
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The scripts, in full: read their diff after -update.
func TestScripts(t *testing.T) {
	for _, c := range []struct{ example, array, tool string }{
		{"lustre-brick", "md3200-1", ""},
		{"lustre-brick", "md3220", ""},
		{"nss4-ha-288", "nss4", ""},
		{"nfs-dfc", "perc1", "omconfig"},
		{"nss5.5", "perc2", ""},
		{"nss7.4-ha", "nss7", ""},
	} {
		got, err := Script(example(t, c.example), c.array, c.tool)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", strings.Trim(c.example+"-"+c.array+"-"+c.tool, "-")+".txt")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	}
}

// In each script every disk of the array has one use, member or spare, and
// each command has the disks of its LUN's groups: all of them, span by span.
func TestEveryDiskOnce(t *testing.T) {
	forms := map[string]*regexp.Regexp{
		"SMcli":    regexp.MustCompile(`\b(\d+),(\d+)\b`),
		"me4":      regexp.MustCompile(`\b(\d+)\.(\d+)\b`),
		"perccli":  regexp.MustCompile(`\$E(\d+):(\d+)|\$E(\d+)/s(\d+)`),
		"omconfig": regexp.MustCompile(`\b0:(\d+):(\d+)`),
	}
	makes := map[string]string{"SMcli": "create virtualDisk physicalDisks", "me4": "add disk-group", "perccli": "add vd", "omconfig": "action=createvdisk"}
	spares := map[string]string{"SMcli": "hotSpare=TRUE", "me4": "add spares", "perccli": "add hotsparedrive", "omconfig": "assignglobalhotspare"}
	span := regexp.MustCompile(`(?:spanlength|pdperarray)=(\d+)`)
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	check := func(name string, d *design.Design) {
		for _, a := range d.Arrays {
			for _, tool := range Tools(a.Family) {
				n++
				text, err := Script(d, a.Name, tool)
				if err != nil {
					t.Fatal(err)
				}
				// place is where the script has a disk, as its form says it.
				place := map[string]string{}
				for _, k := range d.Disks {
					if k.Array == a.Name {
						place[fmt.Sprint(slices.Index(a.Enclosures, k.Enclosure), "/", k.Bay-1)] = k.Serial
					}
				}
				groups := map[string]design.Group{}
				for _, g := range d.Groups {
					groups[g.Name] = g
				}
				var want [][]string // serials of each command that makes something
				made := map[string]bool{}
				for _, l := range a.LUNs {
					if made[l.Groups[0]] {
						continue
					}
					made[l.Groups[0]] = true
					var serials []string
					for _, g := range l.Groups {
						for _, k := range groups[g].Members {
							serials = append(serials, k.Serial)
						}
					}
					want = append(want, serials)
				}
				var got [][]string
				seen := map[string]int{}
				for line := range strings.Lines(text) {
					if !strings.Contains(line, makes[tool]) && !strings.Contains(line, spares[tool]) {
						continue
					}
					var serials []string
					for _, m := range forms[tool].FindAllStringSubmatch(line, -1) {
						serial := place[m[1]+"/"+m[2]]
						if m[1] == "" {
							serial = place[m[3]+"/"+m[4]]
						}
						serials = append(serials, serial)
						seen[serial]++
					}
					if strings.Contains(line, makes[tool]) {
						got = append(got, serials)
						if m := span.FindStringSubmatch(line); m != nil {
							per, _ := strconv.Atoi(m[1]) // digits
							if per == 0 || len(serials)%per != 0 || d.Groups[0].Level == 60 && per != d.Groups[0].Data+d.Groups[0].Parity {
								t.Errorf("%s, array %s, %s: spans of %d for %d disks", name, a.Name, tool, per, len(serials))
							}
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, array %s, %s: disks of the commands (-design +script):\n%s", name, a.Name, tool, diff)
				}
				if len(seen) != len(place) {
					t.Errorf("%s, array %s, %s: %d disks of %d", name, a.Name, tool, len(seen), len(place))
				}
				for k, times := range seen {
					if times != 1 || k == "" {
						t.Errorf("%s, array %s, %s: disk %q is used %d times", name, a.Name, tool, k, times)
					}
				}
			}
		}
	}
	for _, f := range files {
		check(f, example(t, strings.TrimSuffix(f, ".yaml")))
	}
	check("mirrors on an ME4084", example(t, "nss7.4-ha", "level: 6, data: 8", "level: 10, data: 4"))
	check("mirrors on a PERC", example(t, "nss5.5", "level: 60, data: 10", "level: 10, data: 6"))
	check("spares on a PERC", example(t, "nss5.5", "level: 60, data: 10", "level: 60, data: 9, spares: 4"))
	if n < 12 {
		t.Errorf("only %d scripts", n)
	}
}

// A PERC takes 15 characters: those that differ stay.
func TestPercNames(t *testing.T) {
	d := example(t, "nss5.5", "name: nss5\n", "name: storage-of-home\n")
	names := map[string]bool{}
	for _, a := range d.Arrays {
		for _, l := range a.LUNs {
			n := percName(l)
			names[n] = true
			text, err := Script(d, a.Name, "")
			if err != nil || len(n) > 15 || !strings.Contains(text, "name="+n+" ") {
				t.Errorf("%s: %v\n%s", n, err, text)
			}
		}
	}
	if len(names) != 2 {
		t.Errorf("%v", names)
	}
}

// Mirrors of an ME4084 are named pair by pair.
func TestMe4Mirrors(t *testing.T) {
	text, err := Script(example(t, "nss7.4-ha", "level: 6, data: 8", "level: 10, data: 4"), "nss7", "")
	if err != nil || !strings.Contains(text, "disks 0.0,0.10:0.20,0.30:0.40,0.50:0.60,0.70 level raid10 chunk-size 128k assigned-to a nss7-r0\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The paper's omconfig line, but for the order of disks: there each span of 12
// in a row is one enclosure, here a span is spread over all four.
func TestOmconfigOfThePaper(t *testing.T) {
	text, err := Script(example(t, "nfs-dfc"), "perc1", "omconfig")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"controller=1", "action=createvdisk", "raid=r60", "size=max", "stripesize=512kb", "spanlength=12", "120001386250240"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}
}

func TestScriptRefuses(t *testing.T) {
	for _, c := range []struct {
		d           *design.Design
		array, tool string
		want        string
	}{
		{example(t, "nfs-ha"), "x", "", "no array: its disks are JBODs"},
		{example(t, "nss4-ha-144"), "nss5", "", "the arrays are: nss4"},
		{example(t, "nss4-ha-144"), "nss4", "perccli", "configured with SMcli"},
		{example(t, "nss4-ha-144", `    sas_ports: ["500605b000010000", "500605b000010001", "500605b000010002", "500605b000010003"]`+"\n", ""), "nss4", "", "brick.yaml:17:5: array nss4 knows servers by the SAS addresses"},
	} {
		_, err := Script(c.d, c.array, c.tool)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// whatIsThere is what servers see if the array is as designed.
func whatIsThere(d *design.Design) map[string][]Seen {
	make := map[string]string{"md3": "DELL MD32xx", "me4": "DellEMC ME4", "perc": "DELL PERC H810"}
	out := map[string][]Seen{}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		for _, s := range a.Servers {
			out[s] = append(out[s], Seen{Device: "/dev/sda", WWN: "55cd2e404b6f0000", Model: "ATA INTEL SSD", Size: 480 * spec.GB, Paths: 1})
			for _, l := range a.LUNs {
				out[s] = append(out[s], Seen{
					Device: "/dev/mapper/" + l.Name, WWN: fmt.Sprintf("600a0b80%04x%020x", i, l.Number), Model: make[a.Family],
					Size: l.Size - l.Size/500, Paths: d.PathsTo(a, s), Chunk: l.Chunk, FullStripe: l.FullStripe,
				})
			}
		}
	}
	return out
}

func TestVerifyClean(t *testing.T) {
	for _, name := range []string{"nss4-ha-144", "nss4-ha-288", "nss5.5", "nfs-dfc", "nss7.4-ha", "lustre-brick", "lustre-rack", "nss-ha-xl"} {
		d := example(t, name)
		r := Verify(d, whatIsThere(d))
		if len(r.Findings) != 0 || len(r.Matches) != r.Expected || r.Expected == 0 {
			t.Errorf("%s: %d of %d, %v", name, len(r.Matches), r.Expected, r.Findings)
		}
		if len(r.Unproven) == 0 {
			t.Errorf("%s: nothing is said of missing WWNs", name)
		}
	}
}

// Each difference is found, and is found alone.
func TestVerifyFindings(t *testing.T) {
	wwns := `model: MD3200, wwns: ["600a0b80000000000000000000000000", "600a0b80000000000000000000000001", "600a0b80000000000000000000000002", "600a0b80000000000000000000000003"], management`
	for _, c := range []struct {
		name  string
		wwns  bool
		spoil func(seen map[string][]Seen)
		want  []string
	}{
		{"a LUN is missing", false, func(s map[string][]Seen) { s["nss2"] = s["nss2"][:4] }, []string{"nss2 nss4-lun3: not there: LUN 3", "nss2 : does not see the LUN with WWN 600a0b80000000000000000000000003 that nss1 sees"}},
		{"a WWN is missing", true, func(s map[string][]Seen) { s["nss1"][2].WWN = "600a0b8000000000000000000000ffff" }, []string{"nss1 nss4-lun1: not there: LUN 1", "nss1 : /dev/mapper/nss4-lun1 (DELL MD32xx, 27.23 TiB, WWN 600a0b8000000000000000000000ffff) is no LUN"}},
		{"another size", true, func(s map[string][]Seen) { s["nss1"][1].Size /= 2 }, []string{"nss1 nss4-lun0: has 13.6"}},
		{"a path is missing", false, func(s map[string][]Seen) { s["nss2"][1].Paths = 3 }, []string{"nss2 nss4-lun0: has 3 of 4 paths"}},
		{"another chunk", false, func(s map[string][]Seen) { s["nss1"][1].Chunk = 128 * spec.KiB }, []string{"nss1 nss4-lun0: tells of a chunk of 128KiB"}},
		{"another width", false, func(s map[string][]Seen) { s["nss1"][1].FullStripe = 4 * spec.MiB }, []string{"nss1 nss4-lun0: tells of a full stripe of 4MiB"}},
		{"one too many", false, func(s map[string][]Seen) {
			s["nss1"] = append(s["nss1"], Seen{Device: "/dev/sdz", WWN: "600a0b80000000000000000000000009", Model: "DELL MD32xx", Size: spec.TB, Paths: 4})
		}, []string{"nss1 : /dev/sdz (DELL MD32xx, 931.32 GiB, WWN 600a0b80000000000000000000000009) is no LUN"}},
		{"other LUNs on the other server", false, func(s map[string][]Seen) { s["nss2"][1].WWN = "600a0b80000000000000000000000007" }, []string{"nss2 : does not see the LUN with WWN 600a0b80000000000000000000000000"}},
	} {
		edits := []string{}
		if c.wwns {
			edits = []string{"model: MD3200, management", wwns}
		}
		d := example(t, "nss4-ha-144", edits...)
		seen := whatIsThere(d)
		if r := Verify(d, seen); len(r.Findings) != 0 {
			t.Fatalf("%s: not clean to begin with: %v", c.name, r.Findings)
		}
		c.spoil(seen)
		var got []string
		for _, f := range Verify(d, seen).Findings {
			got = append(got, f.Host+" "+f.LUN+": "+f.Text)
		}
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
