package configure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// printed is a script that mortar array script prints, with changes: a golden file of
// package brick/array.
func printed(t *testing.T, name string, oldNew ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "brick", "array", "testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("the script %s has no %q", name, oldNew[i])
		}
		text = strings.Replace(text, oldNew[i], oldNew[i+1], 1)
	}
	return text
}

func example(t *testing.T, name string, oldNew ...string) *spec.Spec {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.NewReplacer(oldNew...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// arrays have their printed scripts, and who is cabled to them.
var arrays = map[string]struct {
	example string
	cabled  hw.Storage
	oldNew  []string // changes of the example, as in the tests of package brick/array
}{
	"nss7.4-ha-nss7":      {"nss7.4-ha", hw.Storage{Name: "nss7", Servers: []string{"nss1", "nss2"}, Paths: 4}, nil},
	"lustre-brick-md3220": {"lustre-brick", hw.Storage{Name: "md3220", Servers: []string{"mds01", "mds02"}, Paths: 4}, nil},
	"nss2-ha-nss2":        {"nss2-ha", hw.Storage{Name: "nss2", Servers: []string{"nss1", "nss2"}, Paths: 2}, nil},
	"nss5.5-perc2":        {"nss5.5", hw.Storage{Name: "perc2", Servers: []string{"nss1"}, Paths: 1}, nil},
	"me5084-nss7":         {"nss7.4-ha", hw.Storage{Name: "nss7", Servers: []string{"nss1", "nss2"}, Paths: 4}, []string{"model: ME4084", "model: ME5084"}},
	"h965e-perc2":         {"nss5.5", hw.Storage{Name: "perc2", Servers: []string{"nss1"}, Paths: 1}, []string{"PERC-H810", "PERC-H965e", "chunk: 512KiB", "chunk: 256KiB"}},
	"e5760-nss7": {"nss7.4-ha", hw.Storage{Name: "nss7", Servers: []string{"nss1", "nss2"}, Paths: 4}, []string{"model: ME4084", "model: E5760",
		", user: monitor, password_file: secrets/array-nss7", "", `{name: E1, bays: 84, model: ME4084, disks: [{serial: "E1N[01-84]"`,
		`{name: E1, bays: 60, disks: [{serial: "E1N[01-60]"`, "data: 8, spares: 4", "data: 8, spares: 10"}},
	"nfs-dfc-perc1-omconfig": {"nfs-dfc", hw.Storage{Name: "perc1", Servers: []string{"nss1"}, Paths: 1}, nil},
}

func run(t *testing.T, name string, scripts ...string) (hw.Storage, string, error) {
	t.Helper()
	a, known := arrays[name]
	if !known {
		t.Fatal(name)
	}
	return Array(context.Background(), example(t, a.example, a.oldNew...), a.cabled, scripts...)
}

// A LUN whose write cache the script does not mirror has it in one controller.
func TestUnmirrored(t *testing.T) {
	got, _, err := run(t, "nss2-ha-nss2", printed(t, "nss2-ha-nss2", "mirrorEnabled=true", "mirrorEnabled=false"))
	if err != nil || len(got.LUNs) != 4 || !got.LUNs[0].Unmirrored || got.LUNs[1].Unmirrored {
		t.Errorf("%+v, %v", got.LUNs, err)
	}
}

// Each language refuses what its manual says, and says where. TestTwice has the scripts without a change.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ script, old, now string }{
		{"nss7.4-ha-nss7", "disks 0.0,", "disks 0.84,"},
		{"nss7.4-ha-nss7", "disks 0.1,", "disks 0.0,"},
		{"nss7.4-ha-nss7", "disks 0.0,0.8,", "disks 0.0,0.0,"},
		{"nss7.4-ha-nss7", "add spares 0.80,", "add spares 0.0,"},
		{"nss7.4-ha-nss7", "chunk-size 128k", "chunk-size 96k"},
		{"nss7.4-ha-nss7", "level raid6", "level raid7"},
		{"nss7.4-ha-nss7", "type linear", "type linaer"},
		{"nss7.4-ha-nss7", "size 89334GiB", "size 89534GiB"},
		{"nss7.4-ha-nss7", "size 89334GiB", "size many"},
		{"nss7.4-ha-nss7", "vdisk nss7-r0", "vdisk nss7-r9"},
		{"nss7.4-ha-nss7", "initiator nss1_nss2.*.* nss7-lun1", "initiator nss1.*.* nss7-lun1"},
		{"nss7.4-ha-nss7", "lun 1 ", "lun 0 "},
		{"nss7.4-ha-nss7", "nickname nss1P1", "nickname nss1P0"},
		{"nss7.4-ha-nss7", "id 500605b000010000", "id 500605b00001000"},
		{"nss7.4-ha-nss7", "set system name nss7", "set system nmae nss7"},
		{"nss7.4-ha-nss7", "set system name nss7", "sett system name nss7"},
		{"nss7.4-ha-nss7", "create host-group hosts nss1,nss2 ", "create host-group hosts nss1,nss3 "},

		{"nss2-ha-nss2", "physicalDisks=(0,0", "physicalDisks=(0,12"},
		{"nss2-ha-nss2", "(0,0 1,0", "(0,0 0,0"},
		{"nss2-ha-nss2", "(0,1 ", "(0,0 "},
		{"nss2-ha-nss2", "raidLevel=6", "raidLevel=7"},
		{"nss2-ha-nss2", "segmentSize=512", "segmentSize=511"},
		{"nss2-ha-nss2", "segmentSize=512", "segmentsSize=512"},
		{"nss2-ha-nss2", `userLabel="nss2-lun0"`, `userLabel="a-name-of-thirty-one-characters"`},
		{"nss2-ha-nss2", `set virtualDisk ["nss2-lun1"] cacheFlush`, `set virtualDisk ["nss2-lun9"] cacheFlush`},
		{"nss2-ha-nss2", "logicalUnitNumber=1", "logicalUnitNumber=0"},
		{"nss2-ha-nss2", "mediaScanRate=15;", "mediaScanRate=15"},
		{"nss2-ha-nss2", "mediaScanRate=15", "mediaScanRate=31"},
		{"nss2-ha-nss2", "create hostGroup", "make hostGroup"},
		{"nss2-ha-nss2", `hostType=1 hostGroup="nss1_nss2"`, `hostType=1 hostGroup="nss1"`},
		{"nss2-ha-nss2", `identifier="500605b000010001"`, `identifier="500605b000010000"`},
		{"lustre-brick-md3220", `diskGroup="lbrick-r0"`, `diskGroup="lbrick-r1"`},
		{"lustre-brick-md3220", "capacity=10737418240 Bytes", "capacity=9000 GB"},

		{"nss5.5-perc2", "/c2 add vd", "/c3 add vd"},
		{"nss5.5-perc2", `drives="$E0:0,`, `drives="$E0:12,`},
		{"nss5.5-perc2", `drives="$E0:0,$E1:0`, `drives="$E0:0,$E0:0`},
		{"nss5.5-perc2", `drives="$E0:0,`, `drives="9$E0:0,`},
		{"nss5.5-perc2", "pdperarray=12", "pdperarray=7"},
		{"nss5.5-perc2", "strip=512", "strip=500"},
		{"nss5.5-perc2", "wb ra", "bw ra"},
		{"nss5.5-perc2", "type=raid60", "type=raid66"},
		{"nss5.5-perc2", "name=nss5-lun1", "name=a-name-of-sixteen"},
		{"nss5.5-perc2", "grep -q H810", "grep -q H730"},
		{"nss5.5-perc2", "EID of enclosure E3}\"", "EID of enclosure E3}"},

		{"me5084-nss7", "create volume pool nss7-r0", "create volume pool a"},
		{"h965e-perc2", "add vd r60", "add vd type=raid60"},
		{"h965e-perc2", "wb ra", "wb ra direct"},
		{"h965e-perc2", "perccli2 /c2 show", "perccli64 /c2 show"},
		{"e5760-nss7", "drives=(99,1,0", "drives=(99,6,0"},
		{"e5760-nss7", "drives=(99,1,0", "drives=(99,0"},
		{"e5760-nss7", "drives=(99,1,0", "drives=(0,1,0"},
		{"e5760-nss7", "owner=a", "owner=0"},
		{"e5760-nss7", `mapping volume="nss7-lun1"`, `mapping volume="nss7-lun9"`},
		{"e5760-nss7", "create volumeGroup", "create diskGroup"},

		{"nfs-dfc-perc1-omconfig", "pdisk=0:0:0,", "pdisk=0:0:12,"},
		{"nfs-dfc-perc1-omconfig", "pdisk=0:0:0,0:1:0", "pdisk=0:0:0,0:0:0"},
		{"nfs-dfc-perc1-omconfig", "spanlength=12", "spanlength=11"},
		{"nfs-dfc-perc1-omconfig", "readpolicy=ara", "readpolicy=are"},
		{"nfs-dfc-perc1-omconfig", "controller=1 action", "controller=2 action"},
	} {
		before, _, _ := strings.Cut(printed(t, c.script), c.old)
		now, _, err := run(t, c.script, printed(t, c.script, c.old, c.now))
		if err == nil || now.LUNs != nil {
			t.Errorf("%s with %q: %v %+v", c.script, c.now, err, now.LUNs)
			continue
		}
		// The commands for a PERC are a shell's, which has no numbers of lines.
		where := fmt.Sprintf(`\bline %d\b`, 1+strings.Count(before, "\n"))
		if ok, _ := regexp.MatchString(where, err.Error()); !ok && arrays[c.script].cabled.Paths > 1 {
			t.Errorf("%s with %q: %v, want %s", c.script, c.now, err, where)
		}
	}
}

// A script on an array that has been configured by it is refused: nothing is made twice, and
// what is there stays.
func TestTwice(t *testing.T) {
	for name := range arrays {
		text := printed(t, name)
		once, said, err := run(t, name, text)
		if err != nil || len(once.LUNs) == 0 || said == "" {
			t.Errorf("%s: %v %+v\n%s", name, err, once, said)
		}
		if now, _, err := run(t, name, text, text); err == nil || now.LUNs != nil {
			t.Errorf("%s twice: %v", name, err)
		}
	}
}

// What the printed scripts do not have: ranges of slots, defaults, hosts alone, spares.
func TestOtherForms(t *testing.T) {
	me4 := `add disk-group type linear disks 0.0-9 level r6 one
create volume pool one size 1TB v
set initiator id 500605b000010000 nickname a
create host initiators a alone
map volume lun 7 initiator alone.* v
show volumes details
`
	got, said, err := run(t, "nss7.4-ha-nss7", me4)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.LUNs[0]; l.Number != 7 || len(l.Servers) != 1 || l.Servers[0] != "nss1" || l.Bytes != 1e12 || l.Chunk != 512<<10 || !strings.Contains(said, "1000000000000") {
		t.Errorf("%+v\n%s", l, said)
	}
	md3 := `create hostGroup userLabel="g"; create host userLabel="h" hostGroup="g";
create hostPort host="h" userLabel="p" identifier="500605b000020000" interfaceType=SAS;
create virtualDisk physicalDisks=(0,0 0,1 0,2 0,3 0,4) raidLevel=6 userLabel="v" capacity=10 GB owner=1;
set virtualDisk ["v"] logicalUnitNumber=3 host="h";
set physicalDisk [0,5] hotSpare=TRUE; // and a comment
`
	got, _, err = run(t, "nss2-ha-nss2", md3)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.LUNs[0]; l.Number != 3 || l.Controller != 1 || l.Bytes != 10<<30 || l.Chunk != 128<<10 || len(l.Servers) != 1 || l.Servers[0] != "nss2" || len(got.Spares) != 1 {
		t.Errorf("%+v %v", l, got.Spares)
	}
	perc := `perccli64 /c2 add vd type=raid6 size=all name=one drives=$E0:0,$E0:1,$E0:2,$E0:3 && perccli64 "/c2/e$E1/s0" add hotsparedrive
perccli64 /c2/eall show; perccli64 /c2/vall show all`
	if got, said, err = run(t, "nss5.5-perc2", perc); err != nil || got.LUNs[0].Chunk != 64<<10 || len(got.Spares) != 1 || !strings.Contains(said, "RAID6 Optl") {
		t.Errorf("%v %+v\n%s", err, got, said)
	}
}

// A script ends with the time that it may take, and a shell that prints much does not
// stand in the way.
func TestShell(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	a := arrays["nss5.5-perc2"]
	if _, _, err := Array(ctx, example(t, a.example, a.oldNew...), a.cabled, "perccli64 /c2 show"); err == nil {
		t.Error("it ran after its time")
	}
	if _, said, err := run(t, "nss5.5-perc2", "i=0; while [ $i -lt 60 ]; do perccli64 /c2 show | grep -q Product; echo line $i of the script; i=$((i+1)); done"); err != nil || strings.Count(said, "\n") != 60 {
		t.Errorf("%v %d lines", err, strings.Count(said, "\n"))
	}
}

// FuzzLanguages: whatever a script says, the array refuses it or has disks each once.
func FuzzLanguages(f *testing.F) {
	for _, text := range []string{
		"add disk-group type linear disks 0.0-9 level raid6 x\ncreate volume vdisk x size 1GiB v\n",
		`create virtualDisk physicalDisks=(0,0 0,1 0,2 0,3 0,4) raidLevel=6 userLabel="v" capacity=1 GB;`,
		"set virtualDisk [\"a\"] x=(", "[=];", "map volume lun x",
	} {
		f.Add(text)
	}
	src, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "nss7.4-ha.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", src)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, language := range []func(*box, context.Context, string) error{(*box).me4, (*box).smcli} {
			b, err := newBox(s, arrays["nss7.4-ha-nss7"].cabled)
			if err != nil {
				t.Fatal(err)
			}
			_ = language(b, context.Background(), text) // a refusal is fine
			seen := map[*disk]bool{}
			for _, g := range b.groups {
				if g.used > g.size {
					t.Errorf("group %s has %d of %d bytes", g.name, g.used, g.size)
				}
				for _, d := range g.disks {
					if seen[d] || d.spare {
						t.Errorf("disk %s is used twice", d.serial)
					}
					seen[d] = true
				}
			}
		}
	})
}
