package observe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// The metrics of the serving server, and of the other one.
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

// The server with the cache has metrics of the mirror and the SSDs; the other server
// has none.
func TestCacheMetrics(t *testing.T) {
	m := design.Measured{Brick: "b1", Cache: "home"}
	for stats, want := range map[string]string{
		`{"up":true,"mirror":{"members":2,"in_sync":["A"]},"ssds":[{"serial":"A","life_left_percent":90},{"serial":"B","life_left_percent":-1,"failure_predicted":true}]}`: "" +
			`members{brick="b1",service="home"} 2|members_in_sync{brick="b1",service="home"} 1|` +
			`failing{brick="b1",service="home",serial="A"} 0|failing{brick="b1",service="home",serial="B"} 1|life_left_percent{brick="b1",service="home",serial="A"} 90`,
		`{"up":false,"mirror":{"members":2}}`: "",
		"":                                    "",
	} {
		e := &exposition{brick: "b1", lines: map[string][]string{}}
		e.cache(m, &gather.Host{Run: map[string]gather.RunResult{strings.Join(gather.CacheCommand("home"), " "): {Output: resource.Output{Stdout: stats}}}})
		var got []string
		for line := range strings.Lines(e.text()) {
			if !strings.HasPrefix(line, "#") {
				line, _ = strings.CutPrefix(strings.TrimSpace(line), "mortar_cache_")
				line = strings.TrimPrefix(strings.TrimPrefix(line, "mirror_"), "ssd_")
				got = append(got, line)
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: got %q", stats, got)
		}
	}
}

// Every family in use has a help text. Every help text is of a family in use, or of
// storage that the example lacks.
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
