package metrics

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// The metrics of the serving server, and of the other one.
func TestMetrics(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("nfs-ha.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile("testdata/facts.json"); err != nil { // of a brick that is well
		t.Fatal(err)
	}
	var hosts map[string]*gather.Host
	if err := json.Unmarshal(b, &hosts); err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, s := range d.Servers() {
		b, err := json.Marshal(d.Measure(&d.Pairs[0], s))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Read(b)
		if err != nil {
			t.Fatal(err)
		}
		h := hosts[s]
		h.Files["/proc/diskstats"] = "   8       0 sda 100 0 800 400 50 0 400 600 1 0 0 0 0 0 0 0 0\n   8      16 sdb 10 0 80 1000 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
		text[s] = metrics(m, h).text()
	}
	golden(t, "nfs1.prom", text["nfs1"])
	golden(t, "nfs2.prom", text["nfs2"])
}

// Of the cluster, metrics need the state and the proofs of fencing, which are in its configuration.
func TestClusterRequest(t *testing.T) {
	for _, clustered := range []bool{true, false} {
		r := request(design.Measured{Cluster: clustered})
		asks := func(command string) bool {
			return slices.ContainsFunc(r.Run, func(argv []string) bool { return strings.Join(argv, " ") == command })
		}
		if asks(gather.CmdCRM) != clustered || r.CIB != clustered || asks(gather.CmdWaits) {
			t.Errorf("cluster %v: %+v", clustered, r)
		}
	}
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
	if _, err := Read([]byte(`{"a field of another build":1}`)); err != nil {
		t.Error(err)
	}
}

// The metrics say the same of the system as status does.
func TestSystemMetrics(t *testing.T) {
	e := &exposition{brick: "b1", lines: map[string][]string{}}
	e.system(&gather.Host{
		FS: map[string]gather.FS{"/": {Size: 20 << 30, Avail: 5 << 20, Files: 1000, FilesFree: 900}, "/var": {Size: 20 << 30}, "/boot": {TimedOut: true}},
		Files: map[string]string{"/proc/self/mounts": "/dev/sda1 / ext4 ro 0 0\n/dev/sda2 /boot ext4 rw 0 0\n",
			"/sys/fs/ext4/sda1/errors_count": "3\n", "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
			"/proc/pressure/memory": "full avg10=0.00 avg60=0.50 avg300=22.25 total=4500000\n", "/proc/vmstat": "oom_kill 3\n"},
	})
	var got []string
	for line := range strings.Lines(e.text()) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(line, "mortar_"), `brick="b1"`, "")))
		}
	}
	want := []string{`system_readonly{,path="/"} 1`, `system_readonly{,path="/boot"} 0`, `system_answers{,path="/"} 1`, `system_answers{,path="/boot"} 0`,
		`system_size_bytes{,path="/"} 2.147483648e+10`, `system_avail_bytes{,path="/"} 5.24288e+06`,
		`system_inodes{,path="/"} 1000`, `system_inodes_free{,path="/"} 900`, `system_full{,path="/"} 1`, `system_errors{,device="sda1"} 3`,
		`memory_bytes{} 1.024e+06`, `memory_available_bytes{} 409600`, `memory_stalled_seconds_total{} 4.5`, `memory_kills_total{} 3`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

var update = flag.Bool("update", false, "rewrite testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is otherwise: %v\n%s", path, err, got)
	}
}
