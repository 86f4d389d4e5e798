package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// Disks are added behind those that are there, in enclosures that exist and in new
// ones, and nothing else of the text changes.
func TestGrow(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("x.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	added := []Added{{Enclosure: "A", Serial: "MA[04-05]"}, {Enclosure: "B", Serial: "MB04", Size: 3 * GB}, {Enclosure: "C", Serial: "MC01", Size: 3 * GB}}
	for i := range added {
		added[i].Size = 3 * GB
	}
	text, err := s.Grow(added)
	if err != nil {
		t.Fatal(err)
	}
	const a, rest = `      - {serial: "MA[01-03]", size: 2GB, type: nl-sas}`, ` # MA01, MA02, MA03; on real hardware e.g. size: 12TB` + "\n"
	const eb = `      - {serial: "MB[01-03]", size: 2GB, type: nl-sas}` + "\n"
	want := strings.Replace(string(b), a+rest, a+"\n      - {serial: \"MA[04-05]\", size: 3GB, type: nl-sas, growth: 1}"+rest, 1)
	want = strings.Replace(want, eb, eb+"      - {serial: \"MB04\", size: 3GB, type: nl-sas, growth: 1}\n  - name: C\n    disks:\n      - {serial: \"MC01\", size: 3GB, type: nl-sas, growth: 1}\n", 1)
	if string(text) != want {
		t.Errorf("%s", text)
	}
	grown, err := Parse("x.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if !grown.HasGrown(added) || s.HasGrown(added) || grown.HasGrown(added[:1]) || grown.Growth() != 1 {
		t.Error("the growth is not known again")
	}
	if text, err = grown.Grow([]Added{{Enclosure: "C", Serial: "MC[02-05]"}}); err != nil || !strings.Contains(string(text), `{serial: "MC[02-05]", size: 3GB, type: nl-sas, growth: 2}`) {
		t.Errorf("%v\n%s", err, text)
	}
	for _, c := range []struct {
		added []Added
		want  string
	}{
		{[]Added{{Enclosure: "A", Serial: "MA[04-06]"}}, "growth 1 of service home has 3 disks, too few for one group of RAID 6 2+2 (4 disks)"},
		{[]Added{{Enclosure: "A", Serial: "MA[02-05]"}}, "already listed"},
		{[]Added{{Enclosure: "A", Serial: "MA[04-06]"}, {Enclosure: "B", Serial: "MB04", Size: 4 * TB}}, "would share RAID groups"},
		{[]Added{{Enclosure: "A", Serial: "MA[06-04]"}}, "MA[06-04]"},
		{[]Added{{Enclosure: "A", Serial: "MA[04-07]", Service: "work"}}, "for service home, not work"},
	} {
		if _, err := s.Grow(c.added); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.added, err)
		}
	}
}

// What cannot grow is refused at the place of the growth.
func TestGrowthRefused(t *testing.T) {
	for example, want := range map[string]string{
		"nss5.5": "a LUN of RAID 60 takes in no more spans", "lustre-small": "the targets of a Lustre module do not grow", "nvme-ha": "growth is -1",
	} {
		b, err := examples.FS.ReadFile(example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		growth := "growth: 1, size:"
		if example == "nvme-ha" {
			growth = "growth: -1, size:"
		}
		src := strings.Replace(string(b), "size:", growth, 1)
		if _, err := Parse("x.yaml", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", example, err)
		}
	}
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("x.yaml", append(b, "cache:\n  ssds:\n    - {serial: \"NV[01-02]\", size: 1GB}\n"...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Grow([]Added{{Enclosure: "A", Serial: "MA[04-07]"}}); err != nil {
		t.Errorf("with a cache: %v", err)
	}
}
