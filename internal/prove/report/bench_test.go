package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// syntheticBench is a benchmark with made-up numbers that never change, for the
// tests of the page. factor multiplies the figures.
func syntheticBench(factor float64) *Run {
	const t0 = 1_795_000_000_000_000_000
	b := &Bench{BenchSummary: BenchSummary{
		Schema: Schema, Kind: KindBench, Verdict: Complete, Reasons: []string{}, Suite: "paper", Engine: "mortar", Tuning: "tuned", Scale: 1.0 / 256,
		VerifiedBytes: 7 << 30, Started: time.Unix(0, t0).UTC(), DurationSeconds: 1804, Brick: "demo", Flavour: "nfs-ha", Virtual: true,
		SpecSHA256: strings.Repeat("ab", 32), MortarVersion: "test", RunID: "bench-1",
	}, ServerMemoryBytes: 1280 << 20, Clients: []string{"c1", "c2"}, Layers: []Layer{}}
	phase := func(test, op, title, unit string, record int64, base float64, up func(n float64) float64) {
		ph := BenchPhase{Name: test + "/" + op, Test: test, Op: op, Title: title, Unit: unit, RecordBytes: record, Method: "Each thread does its work.", Window: "exact"}
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			pt := BenchPoint{Threads: n, Hosts: min(n, 2), FileBytes: 2560 << 20 / int64(n), TotalBytes: 2560 << 20, Cold: "restart"}
			if record == 0 {
				pt.FileBytes, pt.TotalBytes, pt.Files = 0, 0, 960000
			}
			for rep := range 3 {
				v := factor * base * up(float64(n)) * (1 + 0.02*float64(rep-1))
				run := BenchRun{StartNS: t0, Value: v, WindowSeconds: 17, WholeValue: 0.93 * v, WholeSeconds: 20, StonewallSeconds: 18, StonewallShare: 0.94, Bytes: 1 << 30, Ops: 1 << 20,
					Latency: &Latency{Count: 1 << 20, P50: 0.4 * float64(n), P90: 2 * float64(n), P99: 9 * float64(n), P999: 30 * float64(n), Max: 100 * float64(n)},
					Errors:  []string{}, Notes: []string{}}
				tl := BenchTimeline{StartNS: t0, BucketSeconds: 1}
				for s := range 20 {
					x := v * (0.9 + 0.02*float64((s*7+rep)%9))
					if s == 12 {
						x /= 8
					}
					tl.Ops = append(tl.Ops, int64(x))
					tl.Bytes = append(tl.Bytes, int64(x*(1<<20)))
					tl.P50, tl.P99, tl.Max = append(tl.P50, 0.4), append(tl.P99, 9+float64(s%5)), append(tl.Max, 100)
				}
				run.Timeline = tl
				for c := range pt.Hosts {
					run.Clients = append(run.Clients, BenchClient{Name: b.Clients[c], Threads: n / pt.Hosts, Value: v / float64(pt.Hosts), Latency: run.Latency, CPUSeconds: 3.2})
				}
				for k := range n {
					run.Threads = append(run.Threads, BenchThread{Client: b.Clients[k%pt.Hosts], Thread: k, End: 18 + float64(k)/64, Bytes: 1 << 20, Ops: 1 << 10})
				}
				pt.Runs = append(pt.Runs, run)
			}
			ph.Points = append(ph.Points, pt)
		}
		b.Phases = append(b.Phases, ph)
	}
	sat := func(n float64) float64 { return n / (1 + n/4) }
	phase("sequential", "seq-write", "Sequential, N-to-N: write", "MiB/s", 1<<20, 400, sat)
	phase("sequential", "seq-read", "Sequential, N-to-N: read", "MiB/s", 1<<20, 700, sat)
	phase("random", "rand-read", "Random 4 KiB: read", "ops/s", 4096, 900, math.Sqrt)
	phase("metadata", "md-create", "Metadata: create", "ops/s", 0, 2000, sat)
	phase("metadata", "md-stat", "Metadata: stat", "ops/s", 0, 30000, sat)
	phase("mixed", "seq-read", "Streams and small records at once: read", "MiB/s", 1<<20, 300, sat)
	phase("mixed-small", "rand-read", "Streams and small records at once, small records: read", "ops/s", 4096, 400, math.Sqrt)
	b.Phases[4].Points[6].Failed = "2 threads of client c2 ran out of <space>"
	b.Phases[4].Points[6].Runs[0].Errors = []string{"c2, thread 3: write: no space left on device"}
	share := 0.81
	b.Layers = []Layer{
		{Name: "disks", Title: "6 raw disks together", Results: []LayerValue{{Load: "sequential read", Unit: "MiB/s", Best: 900, At: "1 region, 4 threads", Grid: []LayerPoint{{1, 1, 600, 2}, {1, 4, 900, 2}, {4, 1, 500, 2}}}}},
		{Name: "network", Title: "network", Error: "nc <refused>"},
		{Name: "nfs-many", Title: "NFS, 2 clients", Results: []LayerValue{{Load: "sequential read", Unit: "MiB/s", Best: 729, At: "8 threads", Below: "disks", Share: &share}}},
	}
	b.Bottleneck = "The network bounds it."
	b.Score = &Score{Bandwidth: 1.2, Metadata: 20, Total: 4.9, Phases: []ScorePhase{{"ior-easy-write", "GiB/s", 1.2}}, Missing: []string{"find"}}
	b.Peaks = b.PeakList()
	r := &Run{Bench: b, Events: []Event{}}
	r.Config = synthetic().Config
	return r
}

func TestBenchGolden(t *testing.T) {
	slow := syntheticBench(0.5)
	slow.Config.Settings = []Setting{{"server", "nfsd", "threads", "8", "x", ""}}
	a, b := syntheticBench(1), slow
	a.Dir, b.Dir = "out/tuned", "out/stock"
	c, err := CompareBench([]*Run{a, b})
	if err != nil {
		t.Fatal(err)
	}
	for name, render := range map[string]func(io.Writer) error{
		"bench": func(w io.Writer) error { return HTML(w, []*Run{syntheticBench(1)}) },
		"bench-empty": func(w io.Writer) error {
			return HTML(w, []*Run{{Bench: &Bench{BenchSummary: BenchSummary{Verdict: Partial}}}})
		},
		"compare": func(w io.Writer) error { return benchHTML(w, []*Run{a, b}, c) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("page differs from %s (rerun with -update if meant):\n%s", golden, d)
			}
			for _, s := range []string{"<script", "src=", "@import", "url(", "href=\"http", "NaN", "<space>", "nc <"} {
				if strings.Contains(got.String(), s) {
					t.Errorf("page contains %q", s)
				}
			}
			wellFormed(t, got.String())
		})
	}
}

// For a system of the papers the page shows the paper's figures in their order,
// with the paper's peaks, and draws no curve twice.
func TestPapersFigures(t *testing.T) {
	r := syntheticBench(1)
	r.Bench.System = "nss7.4-ha"
	var b bytes.Buffer
	if err := HTML(&b, []*Run{r}); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	wellFormed(t, got)
	at := 0
	for _, want := range []string{
		"The figures of NSS7.4-HA, in its paper’s order", "compare the shapes of curves",
		"<h3>Figure 2: Sequential, N-to-N</h3><figure>", `<td>sequential write</td><td class="n">4,834 MB/s</td>`,
		"<h3>Figure 3: Random 4 KiB</h3><figure>", `<td>random write</td><td class="n">7,290 1/s</td><td class="n">not measured</td><td class="n">–</td>`, "16,607 1/s at 64 clients",
		"<h3>Figure 4: Metadata: create</h3><figure>", "<h3>Figure 5: Metadata: stat</h3><figure>", "<h3>Figure 6: not measured</h3>\n<div",
		"<h2>Sequential, N-to-N</h2>\n\n<div",
	} {
		i := strings.Index(got[at:], want)
		if i < 0 {
			t.Fatalf("the page lacks, after %d bytes: %s", at, want)
		}
		at += i
	}
}

// Everything about a figure of the paper is in the paper's unit: table, curve and line; and the per cent is
// between them.
func TestPapersUnits(t *testing.T) {
	for _, c := range []struct {
		system, test, op string
		record           int64
		measured         float64
		unit             string
		want             []string
		not              string
	}{
		{"nss7.4-ha", "sequential", "seq-write", 1 << 20, 2305, "MiB/s", []string{"4,834 MB/s", "2 417 MB/s", "-50.0 %", "paper’s write 4,834"}, "MiB/s"},
		{"nfs-dfc", "rewrite", "seq-rewrite", 1 << 20, 375, "MiB/s", []string{"750 MiB/s", "375 MiB/s", "-50.0 %"}, "MB/s"},
		{"nss5.5", "sequential", "seq-write", 1 << 20, 2671, "MiB/s", []string{"2,671 MiB/s", "2 671 MiB/s", "0 %", "paper’s write 2,671"}, "MB/s"},
		{"lustre-brick", "small-4k", "seq-write", 4096, 250000, "ops/s", []string{"more than 500,000 1/s", "250 000 1/s", "-50.0 %"}, "iB/s"},
		{"nss7.4-ha", "random", "rand-read", 4096, 33214, "ops/s", []string{"16,607 1/s at 64 clients", "33 214 1/s", "+100 %"}, "ops/s"},
	} {
		b := &Bench{BenchSummary: BenchSummary{System: c.system, Suite: "paper"}, Phases: []BenchPhase{{Name: "x", Test: c.test, Op: c.op, Title: "Test: write", Unit: c.unit, RecordBytes: c.record,
			Points: []BenchPoint{{Threads: 64, Runs: []BenchRun{{Value: c.measured}}}}}}}
		p := papersFiguresOf(b)
		var page strings.Builder
		for _, f := range p.Drawn {
			for _, row := range f.Curves {
				if row.Test == c.test && row.Phase == c.op {
					if row.Here == nil {
						t.Fatalf("%s, %s: nothing is measured", c.system, c.op)
					}
					page.WriteString(row.Number() + " " + Rate(row.Here.Value, row.Here.Unit) + " " + row.PercentText() + " " + string(f.SVG))
				}
			}
		}
		plain := strings.NewReplacer("\u202f", " ", "\u00a0", " ", "\u2009", " ")
		for _, want := range c.want {
			if !strings.Contains(plain.Replace(page.String()), want) {
				t.Errorf("%s, %s lacks %q: %s", c.system, c.op, want, page.String())
			}
		}
		if strings.Contains(page.String(), c.not) {
			t.Errorf("%s, %s has %q", c.system, c.op, c.not)
		}
		var text strings.Builder
		if err := BenchText(&text, &Run{Bench: b}, strings.ToLower); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), c.want[2]) {
			t.Errorf("%s, %s: the text lacks the paper's:\n%s", c.system, c.op, text.String())
		}
	}
}

// A comparison has the paper's peak of the runs' system, in the unit of the runs.
func TestPaperInComparison(t *testing.T) {
	a, b := syntheticBench(1), syntheticBench(0.5)
	a.Bench.System, b.Bench.System = "nss7.4-ha", "nss7.4-ha"
	c, err := CompareBench([]*Run{a, b})
	if err != nil {
		t.Fatal(err)
	}
	row := c.Rows[0]
	if len(row.Paper) != 2 || math.Abs(row.Paper[0]-4834/1.048576) > 1e-6 || len(row.PaperPercent) != 2 || row.PaperPercent[0] == nil || math.Abs(row.Paper[0]*(1+*row.PaperPercent[0]/100)-row.Peaks[0].Value) > 1e-6 {
		t.Errorf("%+v", row)
	}
	var text, page strings.Builder
	if err := c.Text(&text); err != nil || !strings.Contains(text.String(), row.AgainstPaper(0)) {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := benchHTML(&page, []*Run{a, b}, c); err != nil || !strings.Contains(page.String(), "paper’s A 4,610") || strings.Contains(page.String(), "MB/s") {
		t.Errorf("%v: the page lacks the paper's peak, or has it in another unit", err)
	}
	// With a cache the paper has a curve for each mode.
	a.Bench.System, b.Bench.System, a.Bench.Cache, b.Bench.Cache = "nfs-dfc", "nfs-dfc", "none", "write-back"
	if c, err = CompareBench([]*Run{a, b}); err != nil || c.Rows[0].PaperText() != "for each mode" || !strings.HasSuffix(c.Rows[0].AgainstPaper(1), "% of 600 MiB/s") {
		t.Errorf("%v, %q, %q", err, c.Rows[0].PaperText(), c.Rows[0].AgainstPaper(1))
	}
	a.Bench.System, b.Bench.System = "nss7.4-ha", "nss7.3-ha"
	if c, err = CompareBench([]*Run{a, b}); err != nil || c.Rows[0].Paper != nil {
		t.Errorf("two systems have no paper in common: %v, %+v", err, c.Rows[0])
	}
}

// wellFormed parses every drawing of a page.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	for {
		i := strings.Index(page, "<svg")
		if i < 0 {
			return
		}
		j := strings.Index(page[i:], "</svg>") + i + len("</svg>")
		d := xml.NewDecoder(strings.NewReader(page[i:j]))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("drawing: %v", err)
			}
		}
		page = page[j:]
	}
}

func TestBenchSaveLoad(t *testing.T) {
	r := syntheticBench(1)
	r.Dir = filepath.Join(t.TempDir(), "a", "run")
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	got, err := Load(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Bench, r.Bench) {
		t.Errorf("differs after saving: %s", cmp.Diff(r.Bench, got.Bench))
	}
	if err := os.Remove(filepath.Join(r.Dir, BenchFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(r.Dir); err == nil {
		t.Error("a run without bench.json was read")
	}
}

func TestCompareBench(t *testing.T) {
	a, b := syntheticBench(1), syntheticBench(0.9)
	c, err := CompareBench([]*Run{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 9 || len(c.Rows[0].Points) != 7 { // seven phases, and the loads of two layers
		t.Fatalf("%d rows", len(c.Rows))
	}
	ch := c.Rows[0].Changes[0]
	if math.Abs(*ch.Percent+10) > 1e-9 || ch.P == nil || *ch.P > 0.05 {
		t.Errorf("%+v %s", ch, ch.Words())
	}
	// Equal runs have no difference and no significance.
	c, err = CompareBench([]*Run{a, syntheticBench(1)})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Rows[0].Changes[0].Words(); w != "no change, may be chance (p = 1)" {
		t.Error(w)
	}
	// The text of a large change names the factor, not a percentage.
	c, err = CompareBench([]*Run{a, syntheticBench(20)})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Rows[0].Changes[0].Words(); !strings.HasPrefix(w, "20.0 x, significant") {
		t.Error(w)
	}
	// One repetition gives no significance. A phase that one run lacks gives no
	// row of zeros.
	one := syntheticBench(2)
	one.Bench.Phases = one.Bench.Phases[:1]
	for i := range one.Bench.Phases[0].Points {
		one.Bench.Phases[0].Points[i].Runs = one.Bench.Phases[0].Points[i].Runs[:1]
	}
	c, err = CompareBench([]*Run{a, one, b})
	if err != nil {
		t.Fatal(err)
	}
	if ch := c.Rows[0].Changes[0]; ch.P != nil || ch.Percent == nil || c.Rows[1].Peaks[1] != nil || c.Rows[1].Changes[0].Percent != nil || len(c.Rows[1].Changes) != 2 {
		t.Errorf("%+v", c.Rows[:2])
	}
	var text bytes.Buffer
	if err := c.Text(&text); err != nil {
		t.Errorf("%v %s", err, text.String())
	}
	if _, err := CompareBench([]*Run{a, synthetic()}); err == nil {
		t.Error("a drill was compared with a benchmark")
	}
	if err := HTML(io.Discard, []*Run{a, synthetic()}); err == nil {
		t.Error("one page of a drill and a benchmark")
	}
}

// Welch's test against a worked example.
func TestWelch(t *testing.T) {
	mk := func(vs ...float64) *BenchPoint {
		p := &BenchPoint{}
		for _, v := range vs {
			p.Runs = append(p.Runs, BenchRun{Value: v})
		}
		return p
	}
	// By hand: means 10 and 14, variances 1 and 1, n 3 each: t = -4/sqrt(2/3) =
	// -4.898979, 4 degrees of freedom: p = 0.008049893.
	ch := changeOf(mk(9, 10, 11), mk(13, 14, 15))
	if ch.P == nil || math.Abs(*ch.P-0.008049893) > 1e-6 || math.Abs(*ch.Percent-40) > 1e-9 {
		t.Errorf("%v %v", *ch.P, *ch.Percent)
	}
	// A difference between values without scatter does not count as chance.
	if ch := changeOf(mk(1, 1), mk(2, 2)); ch.P != nil && *ch.P > 0.05 {
		t.Errorf("p = %v", *ch.P)
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{{0, "0.00 x"}, {3.14159, "3.14 x"}, {31.4159, "31.4 x"}, {314.159, "314 x"}, {31415.9, "31\u202f416 x"}} {
		if got := Rate(c.v, "x"); got != c.want {
			t.Errorf("%g: %q", c.v, got)
		}
	}
}

func TestRunNames(t *testing.T) {
	for _, tc := range [][2][]string{
		{{"out/a", "out/b"}, {"a", "b"}},
		{{"out/stock/run", "out/tuned/run"}, {"stock", "tuned"}},
		{{"mon/quick", "tue/quick", "tue/slow"}, {"mon/quick", "tue/quick", "tue/slow"}},
		{{"out/a", "out/a"}, {"out/a", "out/a"}},
		{{"run", "x/run"}, {"run", "x/run"}},
		{{".", "out/a"}, {".", "a"}},
	} {
		c := &BenchComparison{}
		for _, d := range tc[0] {
			c.Runs = append(c.Runs, RunLabel{Dir: d})
		}
		if got := runNames(c); !slices.Equal(got, tc[1]) {
			t.Errorf("%v: %v, not %v", tc[0], got, tc[1])
		}
	}
}

// Of an even number of repetitions a comparison takes the mean of the two in
// the middle.
func TestEvenMedian(t *testing.T) {
	p := BenchPoint{Threads: 1}
	if p.Value() != 0 {
		t.Error(p.Value())
	}
	for i, want := range []float64{9, 6, 7, 6} {
		p.Runs = append(p.Runs, BenchRun{Value: []float64{9, 3, 7, 5}[i]})
		if p.Value() != want {
			t.Errorf("of %v: %g, not %g", p.Values(), p.Value(), want)
		}
	}
}

// Blocks of several sizes are curves of one figure, writes and reads apart.
func TestBlockSizesInOneFigure(t *testing.T) {
	p := papersFiguresOf(&Bench{BenchSummary: BenchSummary{System: "lustre-brick", Suite: "paper"}})
	var got []string
	for _, f := range p.Drawn {
		if f.Where == "Figures 21, 22" {
			got = append(got, fmt.Sprintf("%d %s", len(f.Curves), f.Curves[len(f.Curves)-1].Verb()))
		}
	}
	if strings.Join(got, "; ") != "5 sequential write, 1.0 MiB; 5 sequential read, 1.0 MiB" {
		t.Errorf("%q", got)
	}
}
