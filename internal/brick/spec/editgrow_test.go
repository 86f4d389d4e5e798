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
	if _, err := s.Grow([]Added{{Enclosure: "A", Serial: "MA[04-07]", Service: "home"}}); err != nil {
		t.Error(err)
	}
	for why, added := range map[string][]Added{
		"too few disks":   {{Enclosure: "A", Serial: "MA[04-06]"}},
		"a disk twice":    {{Enclosure: "A", Serial: "MA[02-05]"}},
		"two sizes":       {{Enclosure: "A", Serial: "MA[04-06]"}, {Enclosure: "B", Serial: "MB04", Size: 4 * TB}},
		"a range":         {{Enclosure: "A", Serial: "MA[07-04]"}},
		"another service": {{Enclosure: "A", Serial: "MA[04-07]", Service: "work"}},
	} {
		if _, err := s.Grow(added); err == nil {
			t.Errorf("%s: taken", why)
		}
	}
}

// What cannot grow is refused at the place of the growth.
func TestGrowthRefused(t *testing.T) {
	for example, growth := range map[string]string{"nss5.5": "growth: 1", "lustre-small": "growth: 1", "nvme-ha": "growth: -1"} {
		b, err := examples.FS.ReadFile(example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		src := strings.Replace(string(b), "size:", growth+", size:", 1)
		before, _, _ := strings.Cut(src, growth)
		_, err = Parse("x.yaml", []byte(src))
		if errs, _ := err.(Errors); len(errs) == 0 || errs[0].Line != 1+strings.Count(before, "\n") {
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
