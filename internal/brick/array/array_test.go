package array

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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

// The write cache of an MD3 is mirrored unless its storage says otherwise: then the script does what
// the Lustre paper's does (appendix B), for that module only.
func TestWriteCacheMirroring(t *testing.T) {
	at := "        model: MD3200\n"
	for _, c := range []struct{ key, array, want string }{
		{"", "md3200-1", "true"},
		{"        write_cache_mirroring: on\n", "md3200-1", "true"},
		{"        write_cache_mirroring: off\n", "md3200-1", "false"},
		{"        write_cache_mirroring: off\n", "md3220", "true"},
	} {
		text, err := Script(example(t, "lustre-brick", at, at+c.key), c.array, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		all, want := strings.Count(text, "mirrorEnabled="), strings.Count(text, "mirrorEnabled="+c.want+";")
		if all == 0 || all != want {
			t.Errorf("%s with %q: %d of %d virtual disks have mirrorEnabled=%s", c.array, c.key, want, all, c.want)
		}
	}
}

// current is an example, or one whose array is of a model that is made today: h965e.
func current(t *testing.T, name string) *design.Design {
	t.Helper()
	switch name {
	case "me5084":
		return example(t, "nss7.4-ha", "model: ME4084", "model: ME5084")
	case "h965e":
		return example(t, "nss5.5", "PERC-H810", "PERC-H965e", "chunk: 512KiB", "chunk: 256KiB")
	case "e5760": // three trays of 60 disks would be more than the example has: two of 42
		return example(t, "nss7.4-ha", "model: ME4084", "model: E5760", ", user: monitor, password_file: secrets/array-nss7", "",
			`{name: E1, bays: 84, model: ME4084, disks: [{serial: "E1N[01-84]"`, `{name: E1, bays: 60, disks: [{serial: "E1N[01-60]"`, "data: 8, spares: 4", "data: 8, spares: 10")
	}
	return example(t, name)
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
		{"nss2-ha", "nss2", ""},
		{"nss3-ha", "nss3", ""},
		{"nss4-ha-144", "nss4", ""},
		{"nss7.3-ha", "nss7", ""},
		{"nss-ha-xl", "array-b", ""},
		{"lustre-rack", "md3200-3", ""},
		{"me5084", "nss7", ""},
		{"h965e", "perc2", ""},
		{"e5760", "nss7", ""},
	} {
		got, err := Script(current(t, c.example), c.array, c.tool, 0)
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
			for _, tool := range Tools(&a) {
				n++
				text, err := Script(d, a.Name, tool, 0)
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
			text, err := Script(d, a.Name, "", 0)
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
	text, err := Script(example(t, "nss7.4-ha", "level: 6, data: 8", "level: 10, data: 4"), "nss7", "", 0)
	if err != nil || !strings.Contains(text, "disks 0.0,0.10:0.20,0.30:0.40,0.50:0.60,0.70 level raid10 chunk-size 128k assigned-to a nss7-r0\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The paper's omconfig line, but for the order of disks: there each span of 12
// in a row is one enclosure, here a span is spread over all four.
func TestOmconfigOfThePaper(t *testing.T) {
	text, err := Script(example(t, "nfs-dfc"), "perc1", "omconfig", 0)
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
		{example(t, "nfs-ha"), "x", "", "storage.kind"},
		{example(t, "nss4-ha-144"), "nss5", "", "nss4"},
		{example(t, "nss4-ha-144"), "nss4", "perccli", "SMcli"},
		{example(t, "nss4-ha-144", `    sas_ports: ["500605b000010000", "500605b000010001", "500605b000010002", "500605b000010003"]`+"\n", ""), "nss4", "", "brick.yaml:17:5: "},
	} {
		_, err := Script(c.d, c.array, c.tool, 0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// The script for a PERC does nothing to another controller.
func TestWrongModel(t *testing.T) {
	for _, tool := range []string{"perccli", "omconfig"} {
		text, err := Script(example(t, "nss5.5"), "perc2", tool, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, name := range []string{"perccli64", "omreport", "omconfig"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$0 $*\" >> "+dir+"/log\necho Product Name = PERC H730\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "-eu", "-c", text)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "E0=32", "E1=33"}
		out, err := cmd.CombinedOutput()
		if err == nil || string(out) != "controller 2 is no PERC-H810, for which this script is: nothing was changed\n" {
			t.Errorf("%s: %v %s", tool, err, out)
		}
		if log, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || strings.Count(string(log), "\n") != 1 || strings.Contains(string(log), "vd") || strings.Contains(string(log), "omconfig") {
			t.Errorf("%s: it went on: %v %s", tool, err, log)
		}
	}
}

// The script of a growth has the new groups, LUNs and spares, and nothing that is there.
func TestGrowthScript(t *testing.T) {
	for name, tc := range map[string]struct{ array, more, want, never string }{
		"nss2-ha":   {"nss2", `  - {name: E5, bays: 12, model: MD1200, disks: [{serial: "E5N[01-12]", size: 2TB, type: nl-sas, rpm: 7200, growth: 1}]}`, `set virtualDisk ["nss2-g1-lun0"] logicalUnitNumber=4`, "create host"},
		"nss7.4-ha": {"nss7", `  - {name: E2, bays: 84, model: ME484, disks: [{serial: "E2N[01-84]", size: 12TB, type: nl-sas, rpm: 7200, growth: 1}]}`, "map volume access read-write lun 15 initiator nss1_nss2.*.* nss7-g1-lun7\n", "initiator id"},
	} {
		d := example(t, name, "\nstorage:", "\n"+tc.more+"\nstorage:")
		text, err := Script(d, tc.array, "", 1)
		if err != nil || !strings.Contains(text, tc.want) || strings.Contains(text, tc.never) || strings.Contains(text, "nss2-lun0") || strings.Contains(text, "nss7-lun0") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		if _, err := Script(d, tc.array, "", 2); err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
