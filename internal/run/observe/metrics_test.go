package observe

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a server that serves tells, and the other one.
func TestMetrics(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	text := map[string]string{}
	for _, s := range d.Servers() {
		b, err := json.Marshal(d.Measure(&d.Pairs[0], s))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ReadMeasured(b)
		if err != nil {
			t.Fatal(err)
		}
		h := f.Hosts[s].Host
		h.Files["/proc/diskstats"] = "   8       0 sda 100 0 800 400 50 0 400 600 1 0 0 0 0 0 0 0 0\n   8      16 sdb 10 0 80 1000 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
		text[s] = metrics(m, h).text()
	}
	golden(t, "metrics-nfs1.prom", text["nfs1"])
	golden(t, "metrics-nfs2.prom", text["nfs2"])
}

// A family that is used has its words, and words are of a family in use or of
// storage that the example does not have.
func TestExposition(t *testing.T) {
	e := &exposition{brick: "b\"1\\", lines: map[string][]string{}}
	e.add("mortar_lun_paths", 2, "lun", "a\nb")
	want := "# HELP mortar_lun_paths " + families["mortar_lun_paths"][1] + "\n# TYPE mortar_lun_paths gauge\n" +
		`mortar_lun_paths{brick="b\"1\\",lun="a\nb"} 2` + "\n"
	if got := e.text(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, f := range families {
		if f[1] == "" || (f[0] == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s: %v", name, f)
		}
	}
	if _, err := ReadMeasured([]byte(`{"a field of another build":1}`)); err != nil {
		t.Error(err)
	}
}
