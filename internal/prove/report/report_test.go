package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/prove/stream"
)

var update = flag.Bool("update", false, "rewrite golden files")

func fp(f float64) *float64 { return &f }

// synthetic is a drill's run with made-up numbers that never change, for the tests
// of the page.
func synthetic() *Run {
	const t0 = 1_795_000_000_000_000_000
	fault := int64(t0 + 15e9)
	m := Marks{Detected: fp(0.71), Fenced: fp(4.93), Started: fp(8.2), FirstIO: fp(8.64), AllIO: fp(9.47), FirstLock: fp(9.12), AllLocks: fp(9.44)}
	r := &Run{}
	r.Summary = Summary{
		Schema: Schema, Drill: "server-crash", How: "freeze", Verdict: Pass, LongestStallSeconds: 9.47, Marks: m, Phases: PhasesOf(m),
		Checks: []Check{
			{"nothing lost", true, "0 B of 412.5 MiB acknowledged were lost"},
			{"service moved", true, "nfs runs on nfs2"},
			{"never mounted twice", true, "58 looks at both servers' mounts"},
		},
		Totals: stream.Totals{AcknowledgedBytes: 432537600, VerifiedBytes: 432537600, InDoubtBytes: 8192},
		Clients: []Client{
			{Name: "c1", LongestStallSeconds: 9.47, FirstIO: fp(8.64), Operations: 4210, AcknowledgedBytes: 216268800, VerifiedBytes: 216268800, Workers: 6},
		},
		Started: time.Unix(0, t0).UTC(), DurationSeconds: 66.2, SteadySeconds: 15, Brick: "demo", Service: "home", Target: "nfs1", Survivor: "nfs2",
		Virtual: true, SpecSHA256: strings.Repeat("ab", 32), MortarVersion: "test", RunID: "6a3c",
	}
	r.Timeline = Timeline{Schema: Schema, StartNS: t0, FaultNS: fault, BucketMS: 100}
	for i, w := range []Worker{
		{Name: "v4-osync", Kind: "writer", Version: "4.1", Mode: "osync", Pattern: "random-overwrite"},
		{Name: "v4-fsync", Kind: "writer", Version: "4.1", Mode: "fsync", Pattern: "seq"},
		{Name: "v3-osync", Kind: "writer", Version: "3", Mode: "osync", Pattern: "random-overwrite"},
		{Name: "v3-fsync", Kind: "writer", Version: "3", Mode: "fsync", Pattern: "seq"},
		{Name: "v4-lock", Kind: "lock-prober", Version: "4.1"},
		{Name: "v4-held", Kind: "lock-holder", Version: "4.1"},
	} {
		w.Client = "c1"
		back := 8.64 + 0.2*float64(i)
		for b := range 400 {
			sec := float64(b)/10 - 15
			ops := int64(20 + (b*7+i*13)%9)
			if sec > 0 && sec < back {
				ops = 0
			}
			if w.Kind == "lock-prober" {
				ops /= 10
			}
			if w.Kind == "lock-holder" {
				ops = 0
			}
			w.Ops = append(w.Ops, ops)
			w.Bytes = append(w.Bytes, ops*4096)
		}
		if w.Kind != "lock-holder" {
			w.Stalls = []Stall{{StartNS: fault, Seconds: back}}
			w.Latency = &Latency{Count: 900, P50: 2.1 + float64(i), P90: 9.5, P99: 31, P999: 800, Max: back * 1000}
		}
		if w.Mode == "fsync" {
			w.FsyncLatency = &Latency{Count: 220, P50: 21, P90: 80, P99: 310, P999: back * 1000, Max: back * 1000}
		}
		r.Timeline.Workers = append(r.Timeline.Workers, w)
	}
	for _, e := range []struct {
		sec              float64
		host, src, k, tx string
	}{
		{0, "nfs1", "drill", EventFault, "freeze"},
		{0.71, "nfs2", "corosync", EventDetected, "[TOTEM ] A processor failed, forming new configuration"},
		{4.93, "nfs2", "pacemaker", EventFenced, "Peer nfs1 was terminated (off)"},
		{5.1, "nfs2", "ocf", EventStarting, "start"},
		{8.2, "nfs2", "pacemaker", EventStarted, "Result of start operation for home on nfs2: ok"},
		{8.64, "c1", "load", EventFirstIO, "v4-osync"},
		{9.12, "c1", "load", EventFirstLock, "v4-lock"},
		{9.47, "c1", "load", EventAllIO, "v3-fsync <last> & \"quoted\""},
	} {
		r.Events = append(r.Events, Event{NS: fault + int64(e.sec*1e9), Seconds: e.sec, Host: e.host, Source: e.src, Kind: e.k, Text: e.tx})
	}
	r.Verify = Verify{Totals: stream.Totals{AcknowledgedBytes: 432537600, VerifiedBytes: 432537600, AcknowledgedBeforeFaultBytes: 1 << 20, VerifiedBeforeFaultBytes: 1 << 20, InDoubtBytes: 8192}, Seconds: 11,
		Method:  "Read back with O_DIRECT from a fresh NFSv4.1 mount.",
		Classes: map[string]Class{"ok": {9, 432537600}, "in-doubt": {2, 8192}, "stale": {}},
		Extents: []Extent{{"c1", "v4-osync.dat", 40960, 4096, "in-doubt", "generation 7 (acknowledged 6)"}}}
	r.Config = Config{
		Hardware: []Row{{"nfs1, nfs2", "1.5 GiB memory, BMC and two PDU outlets"}, {"enclosure e1", "6 x 1 GB NL-SAS"}},
		Software: []Row{{"kernel", "6.12.48"}, {"pacemaker", "3.0.0-5"}},
		Mounts:   []Row{{"c1 /mnt/home", "10.10.0.9:/srv/home, NFSv4.1, hard, timeo=600"}},
		Settings: []Setting{{"server", "cluster", "token", "1000 ms", "detects a frozen server within a second, and still rides out a busy moment", "corosync.conf(5)"}},
		Method:   []string{"Load runs for 15 s before the fault."},
		Caveats:  []string{"Servers are emulated: only ratios within one run mean anything."},
	}
	fillEmpty(r)
	return r
}

// The page of several drills of a pair has the paper's table of failures: each
// row with the drills that were done, or as not run.
func TestPapersTable(t *testing.T) {
	runs := []*Run{synthetic(), synthetic()}
	runs[1].Summary.Drill, runs[1].Summary.How, runs[1].Summary.LongestStallSeconds = "path-one", "hba", 0.4
	page := func(flavour string) string {
		for _, r := range runs {
			r.Config.Design = json.RawMessage(`{"Flavour": "` + flavour + `"}`)
		}
		var b bytes.Buffer
		if err := HTML(&b, runs); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	got := page("nfs-ha")
	for _, want := range []string{
		"Table 10 of NSS-HA, row by row",
		`<td>one server</td><td>the passive server fences it and takes over</td><td>30 to 60 s</td><td><a href="#run1">server-crash (freeze)</a> <span class="verdict pass">✓ pass</span>, longest stall 9.47 s, 0 B lost<br></td>`,
		`<td>one SAS cable or port</td><td>multipath goes on over the others</td><td></td><td><a href="#run2">path-one (hba)</a>`,
		"<td>not run (drill power-bus)</td>",
		"<td>not run (drill controller-out or controller)</td>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page("nfs"), "row by row") {
		t.Error("a table for a single server, of which no paper has one")
	}
}

func TestHTMLGolden(t *testing.T) {
	bad := synthetic()
	bad.Summary.Verdict, bad.Summary.Reasons, bad.Summary.LostBytes = Fail, []string{"4.0 KiB acknowledged were lost"}, 4096
	bad.Summary.Marks.FirstLock = nil
	bad.Summary.Phases = PhasesOf(bad.Summary.Marks)
	bad.Verify.Classes["stale"] = Class{1, 4096}
	for name, runs := range map[string][]*Run{"pass": {synthetic()}, "two": {synthetic(), bad}, "empty": {{Summary: Summary{Drill: "x", Verdict: Fail}}}} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := HTML(&b, runs); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("page differs from %s (rerun with -update if meant):\n%s", golden, d)
			}
			for _, s := range []string{"<script", "src=", "@import", "url(", "href=\"http"} {
				if strings.Contains(b.String(), s) {
					t.Errorf("page has %q: it must open offline", s)
				}
			}
		})
	}
}

// Lines of journals are marks in words, each once; details are none. What came after the load is
// set apart, and a write before the end of the start is explained.
func TestMarks(t *testing.T) {
	r := synthetic()
	r.Config.Design = json.RawMessage(`{"Pairs":[{"ha":{"nodes":[{"id":1,"name":"nfs1"},{"id":2,"name":"nfs2"}]}}]}`)
	for _, e := range []Event{
		{Seconds: 0.5, Host: "nfs2", Source: "corosync", Kind: EventLink, Text: "[KNET  ] host: host: 1 has no active links"},
		{Seconds: 0.6, Host: "nfs2", Source: "corosync", Kind: EventLink, Text: "[KNET  ] host: host: 1 has no active links"},
		{Seconds: 30, Host: "nfs1", Source: "multipathd", Kind: EventMultipath, Text: "sdb [8:16]: path added to devmap 35000c5e4e31c21ee"},
		{Seconds: 31, Host: "nfs1", Source: "corosync", Kind: EventLink, Text: "[KNET  ] rx: host: 2 link: 0 is up"},
	} {
		e.NS = r.Timeline.FaultNS + int64(e.Seconds*1e9)
		r.Events = append(r.Events, e)
	}
	var links, after []string
	p := newRunPage(r, 0)
	for _, m := range p.Marks {
		if m.Kind == EventLink {
			links = append(links, m.Label)
		}
	}
	for _, m := range p.Healing {
		after = append(after, fmt.Sprint(m.N, " ", m.Label))
	}
	if diff := cmp.Diff([][]string{{"cluster link: no ring reaches nfs1"}, {"10 cluster link: ring 0 to nfs2 is up"}}, [][]string{links, after}); diff != "" {
		t.Error(diff)
	}
	s := &r.Summary
	s.Marks.FirstIO = fp(8.1)
	s.LongestLockStallSeconds = 18.4
	if got := phasesOf(s)[3].Meaning; locks(*s) != "; of locks 18.4 s" {
		t.Errorf("%s%s", got, locks(*s))
	}
}

func TestTextIsEscaped(t *testing.T) {
	r := synthetic()
	evil := `"><script>alert(1)</script>`
	r.Summary.Brick, r.Summary.Target, r.Timeline.Workers[0].Name, r.Events[1].Text, r.Verify.Extents[0].File = evil, evil, evil, evil, evil
	var b bytes.Buffer
	if err := HTML(&b, []*Run{r}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script") {
		t.Error("a name reached the page unescaped")
	}
}

// The list of a matrix is whole for a drill that never ran, too.
func TestListed(t *testing.T) {
	b, err := json.Marshal(Listed([]Entry{{Summary: Summary{Verdict: Refused}}}))
	if err != nil || strings.Contains(string(b), `"checks":null`) || !strings.Contains(string(b), `"schema":"`+Schema+`"`) {
		t.Errorf("%s, %v", b, err)
	}
	if b, err = json.Marshal(Listed(nil)); err != nil || string(b) != "[]" {
		t.Errorf("%s, %v", b, err)
	}
}

func TestSaveLoad(t *testing.T) {
	r := synthetic()
	r.Dir = filepath.Join(t.TempDir(), "out", "demo")
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	got, err := Load(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, got); d != "" {
		t.Errorf("loaded run differs:\n%s", d)
	}
	if _, err := Load(filepath.Join(r.Dir, SummaryFile)); err != nil {
		t.Errorf("a run is also named by its summary: %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Errorf("an empty directory gives %v", err)
	}
	for _, text := range []string{"[]", "{", `{"schema":"mortar"}`} {
		if err := os.WriteFile(filepath.Join(r.Dir, SummaryFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(r.Dir); err == nil {
			t.Errorf("%s gives %+v", text, got)
		}
	}
}

func TestSummaryFields(t *testing.T) {
	r := synthetic()
	r.Summary.Marks = Marks{}
	r.Summary.Phases = Phases{}
	b, err := marshal(&r.Summary)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{`"drill": "`, `"verdict": "pass"`, `"longest_stall_seconds": 9.47`, `"detect_seconds": null`, `"fence_seconds": null`, `"start_seconds": null`,
		`"first_io_seconds": null`, `"first_lock_seconds": null`, `"acknowledged_bytes": `, `"verified_bytes": `, `"acknowledged_before_fault_bytes": `, `"verified_before_fault_bytes": `, `"lost_bytes": 0`, `"clients": [`, `"started": "20`, `"spec_sha256": "`, `"mortar_version": "`} {
		if !bytes.Contains(b, []byte(f)) {
			t.Errorf("summary.json lacks %s:\n%s", f, b)
		}
	}
}

func TestPhasesOf(t *testing.T) {
	for name, c := range map[string]struct {
		m    Marks
		want Phases
	}{
		"all":               {Marks{Detected: fp(1), Fenced: fp(4), Started: fp(6.5), FirstIO: fp(7), FirstLock: fp(8)}, Phases{fp(1), fp(3), fp(2.5), fp(0.5), fp(1.5)}},
		"none":              {Marks{}, Phases{}},
		"never fenced":      {Marks{Detected: fp(1), FirstIO: fp(3)}, Phases{Detect: fp(1)}},
		"served before end": {Marks{Detected: fp(1), Fenced: fp(2), Started: fp(5), FirstIO: fp(4.5), FirstLock: fp(6)}, Phases{fp(1), fp(1), fp(3), fp(0), fp(1)}},
	} {
		if d := cmp.Diff(c.want, PhasesOf(c.m)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

func TestFormat(t *testing.T) {
	for in, want := range map[float64]string{0: "0 s", 0.0004: "400 µs", 0.043: "43 ms", 0.71: "0.71 s", 9.994: "9.99 s", 12.34: "12.3 s", 125: "2 min 05 s", -1: "-1.00 s"} {
		if got := Seconds(in); got != want {
			t.Errorf("Seconds(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0 B", 1023: "1023 B", 4096: "4.0 KiB", 1 << 20: "1.0 MiB", 1<<50 - 1: "1.0 PiB", -4096: "-4.0 KiB"} {
		if got := Bytes(in); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", in, got, want)
		}
	}
	if got := Count(-1234567); got != "-1\u202f234\u202f567" {
		t.Errorf("Count = %q", got)
	}
}

// TestDocsNameEveryField keeps the pages of JSON complete.
func TestDocsNameEveryField(t *testing.T) {
	var doc []byte
	for _, page := range []string{"json-drill.md", "json-bench.md"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, b...)
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(ty reflect.Type) {
		switch ty.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(ty.Elem())
		case reflect.Struct:
			if seen[ty] || ty.PkgPath() != reflect.TypeFor[Run]().PkgPath() {
				return
			}
			seen[ty] = true
			for f := range ty.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name != "" && !bytes.Contains(doc, []byte("`"+name+"`")) {
					t.Errorf("docs/json-drill.md and json-bench.md lack `%s` (%s.%s)", name, ty.Name(), f.Name)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Run]())
	walk(reflect.TypeFor[Comparison]())
}

func TestCompare(t *testing.T) {
	a, b := synthetic(), synthetic()
	a.Dir, b.Dir = "out/a", "out/b"
	b.Summary.LongestStallSeconds = 2 * a.Summary.LongestStallSeconds
	b.Summary.Phases.FirstLock, b.Summary.How = nil, "power"
	c := Compare(a, b)
	rows := map[string]ComparedBy{}
	for _, r := range c.Rows {
		rows[r.Name] = r
	}
	if r := rows["longest stall"].Ratio; r == nil || *r != 2 {
		t.Errorf("ratio of stalls: %v", r)
	}
	if r := rows["first lock"]; r.B != nil || r.Ratio != nil {
		t.Errorf("a phase that one run lacks: %+v", r)
	}
	if r := rows["lost"]; r.Ratio != nil {
		t.Errorf("a ratio to nothing: %+v", r)
	}
	if r := rows["c1 NFSv3 osync p50"]; r.Ratio == nil || *r.Ratio != 1 {
		t.Errorf("latency: %+v", r)
	}
	if len(c.Notes) != 1 {
		t.Errorf("notes %q", c.Notes)
	}
	var out bytes.Buffer
	if err := c.Text(&out); err != nil || !strings.Contains(out.String(), "18.9 s") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Aside moves an old run away, and leaves a directory without a run as it is.
func TestAside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bench")
	for n := range 3 {
		if old, err := Aside(dir); err != nil || old != "" {
			t.Fatalf("nothing is there: %q %v", old, err)
		}
		if err := (&Run{Dir: dir, Summary: Summary{Drill: fmt.Sprint(n)}}).Save(); err != nil {
			t.Fatal(err)
		}
		old, err := Aside(dir + "/")
		if err != nil || old != fmt.Sprintf("%s.%d", dir, n+1) {
			t.Fatalf("%q %v", old, err)
		}
		if r, err := Load(old); err != nil || r.Summary.Drill != fmt.Sprint(n) {
			t.Errorf("%+v %v", r, err)
		}
	}
}
