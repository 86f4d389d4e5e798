package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

func load(t *testing.T, name string, f spec.Flavour) *Suite {
	t.Helper()
	s, err := Load(name, f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBuiltinSuites(t *testing.T) {
	for _, f := range []spec.Flavour{spec.NFS, spec.NFSHA, spec.NFSHAXL, spec.Lustre} {
		for _, n := range Names() {
			s := load(t, n, f)
			if len(Sets(s, Sizing{Memory: 128 << 30, Lanes: 64})) == 0 {
				t.Errorf("%s for %s has no set", n, f)
			}
			for i := range s.Tests {
				for _, p := range s.Tests[i].phases() {
					if title, unit := s.Tests[i].title(p); title == "" || unit == "" || s.Tests[i].method(p) == "" {
						t.Errorf("%s %s %s: no title, unit or method", n, s.Tests[i].Name, p)
					}
				}
			}
		}
	}
}

// The random test has the files of the paper of the brick's system (NSS4-HA, 5 and A.1; NSS7.4-HA,
// performance summary); any other brick, and a test whose files a suite fixes, the suite's.
func TestRandomFiles(t *testing.T) {
	for _, y := range paper.Systems() {
		src, err := spec.Load("../../../examples/" + y.Name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(src)
		if err != nil {
			t.Fatal(err)
		}
		s := load(t, "paper", d.Flavour)
		p, err := planOf(d, s, Options{Scale: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, x := range p.Sets {
			if x.Name != "random" {
				continue
			}
			if n++; x.FileBytes != int64(y.RandomFile) {
				t.Errorf("%s: random files of %d bytes, published with %d", y.Name, x.FileBytes, y.RandomFile)
			}
		}
		if n == 0 && d.Lustre == nil {
			t.Errorf("%s: no random test", y.Name)
		}
	}
}

// The papers' sizes: NSS5.5's table 1 and NSS7.4-HA's text and table 5.
func TestPaperSizes(t *testing.T) {
	s := load(t, "paper", spec.NFSHA)
	sets := Sets(s, Sizing{Memory: 128 << 30, Lanes: 32})
	find := func(test string, n int) Set {
		for _, x := range sets {
			if x.Test.Name == test && x.Threads == n {
				return x
			}
		}
		t.Fatalf("no set %s at %d threads", test, n)
		return Set{}
	}
	// "1 client operated on a 256GB file, 2 clients on 128 GB files each, … 64 clients on a 4GB file each"
	for n, gib := range map[int]int64{1: 256, 2: 128, 64: 4} {
		if x := find("sequential", n); x.FileBytes != gib<<30 || x.TotalBytes != 256<<30 {
			t.Errorf("sequential, %d threads: %d bytes of %d", n, x.FileBytes, x.TotalBytes)
		}
	}
	for _, n := range []int{1, 64} {
		if x := find("random", n); x.FileBytes != 4<<30 {
			t.Errorf("random, %d threads: %d bytes each", n, x.FileBytes)
		}
	}
	// Table 5: threads, directories per thread, files in all. Its 128 threads
	// have a misprint: 128 x 4 x 3000 is 1,536,000.
	for _, x := range [][3]int{{1, 320, 960000}, {2, 160, 960000}, {4, 80, 960000}, {8, 40, 960000}, {16, 20, 960000}, {32, 10, 960000}, {64, 8, 1536000}, {128, 4, 1536000}, {256, 4, 3072000}, {512, 4, 6144000}} {
		if s := find("metadata", x[0]); s.Dirs != x[1] || s.Items != 3000 || s.Files != int64(x[2]) {
			t.Errorf("metadata, %d threads: %d directories of %d files, %d in all", x[0], s.Dirs, s.Items, s.Files)
		}
	}
	// "the 64-thread data point was obtained with 32 clients running 2 threads each"
	if x := find("random", 64); x.Lanes != 32 || x.PerLane != 2 {
		t.Errorf("64 threads on 32 clients: %d x %d", x.Lanes, x.PerLane)
	}
}

// In a mixture each thread has another beside it, with a file of its own: a total is shared out
// among both, and space is needed for both.
func TestMixedSizes(t *testing.T) {
	s := load(t, "paper", spec.NFS)
	n := 0
	for _, x := range Sets(s, Sizing{Memory: 128 << 30, Lanes: 2}) {
		if x.Test.Name != "mixed" {
			continue
		}
		if n++; x.FileBytes != 128<<30/int64(x.Threads) || x.TotalBytes != 256<<30 || x.Threads != x.Lanes*x.PerLane {
			t.Errorf("%+v", x)
		}
		if y := x.beside(); y.Test.Name != "mixed-small" || y.RecordBytes != 4096 || y.Threads != x.Threads || x.Test.Name != "mixed" {
			t.Errorf("%+v", y)
		}
	}
	if n != 7 {
		t.Errorf("%d sets", n)
	}
}

func TestScale(t *testing.T) {
	s := load(t, "paper", spec.NFSHA)
	for _, x := range Sets(s, Sizing{Memory: 1280 << 20, Lanes: 1, Scale: 1.0 / 256, Threads: []int{1, 2, 4, 8}}) {
		switch {
		case x.Test.Name == "sequential" && (x.TotalBytes < 10<<20 || x.TotalBytes > 32<<20):
			t.Errorf("%s: %d bytes", x.Name, x.TotalBytes)
		case x.Test.Name == "random" && x.FileBytes != 16<<20:
			t.Errorf("%s: %d bytes each", x.Name, x.FileBytes)
		case x.Test.Name == "metadata" && (x.Files < 3000 || x.Files > 5000 || x.Dirs < 2 || x.Items < 10):
			t.Errorf("%s: %d files, %d directories of %d", x.Name, x.Files, x.Dirs, x.Items)
		}
		if x.FileBytes%max(x.RecordBytes, 1) != 0 || x.Lanes != 1 || x.PerLane != x.Threads {
			t.Errorf("%+v", x)
		}
	}
	for _, c := range []struct {
		in  string
		out float64
		ok  bool
	}{{"1/256", 1.0 / 256, true}, {"0.5", 0.5, true}, {" 1 / 4 ", 0.25, true}, {"1", 1, true}, {"0", 0, false}, {"1/0", 0, false}, {"-1", 0, false}, {"x", 0, false}, {"NaN", 0, false}, {"1/2/3", 0, false}, {"", 0, false}, {"1e9", 0, false}} {
		f, err := ParseScale(c.in)
		if (err == nil) != c.ok || c.ok && f != c.out {
			t.Errorf("%q: %v, %v", c.in, f, err)
		}
	}
}

// Data and random orders follow from a set's name, so no two names are equal.
func TestSetNames(t *testing.T) {
	s := load(t, "paper", spec.NFSHA)
	s.Repeat = 3
	seen := map[string]bool{}
	for _, x := range Sets(s, Sizing{Memory: 1 << 30, Lanes: 2}) {
		if seen[x.Name] {
			t.Errorf("two sets are called %s", x.Name)
		}
		seen[x.Name] = true
	}
}

// At a scale below 1 the paper's suite is short: it has at most as many threads
// on a mount as the papers have on a client, and its phases end by time.
func TestScaledPaper(t *testing.T) {
	for _, c := range []struct {
		opt     Options
		mounts  int
		most    int // threads of any set
		seconds int
		left    []int
	}{
		{Options{Scale: 1}, 1, 512, 0, []int{}},
		{Options{Scale: 1.0 / 256}, 1, 8, 10, []int{16, 32, 64, 128, 256, 512}},
		{Options{Scale: 1.0 / 256}, 2, 16, 10, []int{32, 64, 128, 256, 512}},
		{Options{Scale: 1.0 / 256}, 64, 512, 10, []int{}},
		{Options{Scale: 1.0 / 256, Threads: []int{1, 32}}, 1, 32, 10, []int{}},
		{Options{Scale: 1.0 / 256, Seconds: 60}, 1, 8, 60, []int{16, 32, 64, 128, 256, 512}},
	} {
		p, err := Plan(load(t, "paper", spec.NFSHA), c.opt, 1280<<20, c.mounts)
		if err != nil {
			t.Fatal(err)
		}
		most, phases, cold := 0, 0, 0
		for _, s := range p.Sets {
			most = max(most, s.Threads)
			times := 1
			if c.opt.Scale == 1 && (s.Name == "metadata" || s.Name == "directories") {
				times = 6
			}
			if s.Repeat != times {
				t.Errorf("%+v: %s is done %d times", c.opt, s.Name, s.Repeat)
			}
			phases += times * len(s.Phases)
			cold += times * (len(s.Phases) - 1)
			if s.Phases[0] == string(workload.RandWrite) {
				cold++ // after the files were laid out
			}
			if s.Seconds != c.seconds {
				t.Errorf("%+v: %s ends after %d s", c.opt, s.Name, s.Seconds)
			}
		}
		if d := cmp.Diff(c.left, p.LeftOut); d != "" || most != c.most || p.Measurements != phases || p.ColdTimes != cold || p.MostSeconds != phases*c.seconds {
			t.Errorf("%+v on %d: %d threads at most, %d measurements, %d times cold, %d s: %s", c.opt, c.mounts, most, p.Measurements, p.ColdTimes, p.MostSeconds, d)
		}
	}
	one := &Suite{ScaledThreads: 8, Repeat: 1, Tests: []Test{{Name: "a", Phases: []string{"seq-write"}, Threads: []int{16, 32}, Record: 1 << 20, File: 1 << 20}}}
	if s := Sets(one, Sizing{Scale: 0.5, Lanes: 1}); len(s) != 1 || s[0].Threads != 16 {
		t.Errorf("the smallest count did not stay: %+v", s)
	}
}

func TestLanes(t *testing.T) {
	for _, c := range [][3]int{{1, 8, 1}, {8, 8, 8}, {8, 3, 2}, {64, 32, 32}, {9, 4, 3}, {7, 4, 1}, {4, 0, 1}} {
		if got := evenLanes(c[0], c[1]); got != c[2] {
			t.Errorf("%d threads, %d lanes: %d used, want %d", c[0], c[1], got, c[2])
		}
	}
}

// An error of a suite points at the place that is wrong, which has a ^ here.
func TestBadSuites(t *testing.T) {
	const head = "apiVersion: mortar/v1\nkind: suite\nname: x\ntests:\n"
	for _, marked := range []string{
		"^",
		"apiVersion: mortar/v1\nkind: suite\nname: ^a b\ntests: [{name: x, phases: [seq-write], threads: [1]}]\n",
		"apiVersion: mortar/v1\nkind: ^sweet\nname: x\ntests: [{name: x, phases: [seq-write], threads: [1]}]\n",
		head + "  - {name: a, phases: [seq-read, ^write], threads: [1]}\n",
		head + "  - {name: a, phases: [seq-read, ^seq-write], threads: [1]}\n",
		head + "  - {name: a, phases: [seq-write, ^seq-write], threads: [1]}\n",
		head + "  - {name: a, phases: [^md-stat], threads: [1]}\n",
		head + "  - {name: a, phases: ^[md-create, seq-read], threads: [1]}\n",
		head + "  - {name: a, phases: ^[md-create, md-remove, md-stat], threads: [1]}\n",
		"apiVersion: mortar/v1\nkind: suite\nname: x\nscaled_threads: ^-1\ntests: [{name: x, phases: [seq-write], threads: [1]}]\n",
		"apiVersion: mortar/v1\nkind: suite\nname: x\nscaled_seconds: ^90000\ntests: [{name: x, phases: [seq-write], threads: [1]}]\n",
		head + "  - {name: a, phases: [seq-write], threads: [^0]}\n",
		head + "  - {name: a, phases: [seq-write], threads: [2, ^2]}\n",
		head + "  - ^{name: a, phases: [seq-write]}\n",
		head + "  - {name: a, phases: [seq-write], ^thread: [1]}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], total: 1GiB, file: ^1GiB}\n",
		head + "  - {name: a, phases: [rand-write], threads: [1], record: ^5kB}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], record: ^100B}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], tree: ^shared}\n",
		head + "  - ^{name: a, phases: [md-create, md-read], threads: [1]}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1]}\norder: [^b/seq-write]\n",
		head + "  - {name: a, phases: [seq-write, seq-read], threads: [1]}\norder: [^a/seq-read]\n",
		head + "  - {name: a, phases: [seq-write, seq-read], threads: [1]}\norder: ^[a/seq-write]\n",
		head + "  - {name: a, phases: [seq-write], threads: [1]}\n  - {name: b, phases: [seq-write], threads: ^[2]}\norder: [a/seq-write, b/seq-write]\n",
		head + "  - {name: a, phases: [md-create], threads: [1, 2], dirs: ^[3]}\n",
		head + "  - {name: a, phases: [md-create], threads: [1], item_sync: ^\"yes\"}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], reread: ^5}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], disk_iops: ^-1}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], layout: ^n-to-1}\n",
		head + "  - {name: a, phases: [seq-read], threads: [1], seconds: 5, small: ^1MiB}\n",
		head + "  - {name: a, phases: [seq-read], threads: [1], seconds: 5, small: ^5kB}\n",
		head + "  - {name: a, phases: [seq-read], threads: [1], small: ^4KiB}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1], seconds: 5, small: ^4KiB}\n",
		head + "  - {name: a, phases: [md-create], threads: [1], seconds: 5, small: ^4KiB}\n",
		head + "  - {name: a-small, phases: [seq-write], threads: [1]}\n  - {name: ^a, phases: [seq-read], threads: [1], seconds: 5, small: 4KiB}\n",
		head + "  - {name: a, phases: [seq-write], threads: [1]}\n  - {name: ^a, phases: [seq-write], threads: [1]}\n",
		"apiVersion: mortar/v1\nkind: suite\nname: x\nrepeat: ^0\ntests:\n  - {name: a, phases: [seq-write], threads: [1]}\n",
		"apiVersion: mortar/v1\nkind: suite\nname: x\ncold: ^\"yes\"\ntests:\n  - {name: a, phases: [seq-write], threads: [1]}\n",
		"a: ^[\n",
	} {
		before, after, _ := strings.Cut(marked, "^")
		_, err := Parse("s.yaml", []byte(before+after))
		line, col := 1+strings.Count(before, "\n"), len(before)-strings.LastIndex(before, "\n")
		if errs, _ := err.(spec.Errors); len(errs) == 0 || errs[0].Line != line || errs[0].Col != col {
			t.Errorf("%s\n%d:%d: got %v", before+after, line, col, err)
		}
	}
	if _, err := Load("fast", spec.NFS); err == nil {
		t.Error("an unknown suite")
	}
	f := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(f, []byte(head+"  - {name: a, phases: [seq-write, rand-read], threads: [1, 2]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(f, spec.NFS)
	if err != nil {
		t.Fatal(err)
	}
	if x := s.Tests[0]; x.Record != 4096 || x.IO != "direct" || s.Cold != ColdRestart || s.Repeat != 1 || x.Title != "a" {
		t.Errorf("defaults: %+v", x)
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range []string{"quick", "io500", "cache"} {
		_, src, err := Source(n, spec.NFS)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("x", src)
		if err == nil && len(Sets(s, Sizing{Memory: 1 << 30, Lanes: 2, Scale: 1.0 / 1024})) == 0 {
			t.Error("a suite without sets")
		}
	})
}

func TestWindow(t *testing.T) {
	const s = int64(1e9)
	at := func(sec float64) int64 { return 1_000*s + int64(sec*1e9) }
	for _, c := range []struct {
		name      string
		ts        []thread
		even      bool
		rate      float64 // in the window
		whole     float64
		window    float64
		wallShare float64
	}{
		{name: "two alike", even: true, rate: 200, whole: 200, window: 10, wallShare: 1, ts: []thread{
			{start: at(0), end: at(10), amount: 1000}, {start: at(0), end: at(10), amount: 1000}}},
		// The slow thread works alone for ten seconds. In the common window both
		// work (100 + 50 a second); over the whole time the mean is lower.
		{name: "one is slow", even: true, rate: 150, whole: 100, window: 10, wallShare: 0.75, ts: []thread{
			{start: at(0), end: at(10), amount: 1000}, {start: at(0), end: at(20), amount: 1000}}},
		{name: "one is late", even: true, rate: 200, whole: 2000.0 / 12, window: 8, wallShare: 0.9, ts: []thread{
			{start: at(0), end: at(10), amount: 1000}, {start: at(2), end: at(12), amount: 1000}}},
		// With buckets: the second thread did all its work in two seconds.
		{name: "exact", rate: (1000 + 500) / 10.0, whole: 1500.0 / 20, window: 10, wallShare: 1, ts: []thread{
			{start: at(0), end: at(10), amount: 1000, origin: at(0), bucket: s, buckets: []int64{100, 100, 100, 100, 100, 100, 100, 100, 100, 100}},
			{start: at(0), end: at(20), amount: 500, origin: at(0), bucket: s, buckets: []int64{250, 250, 0}}}},
		// A thread that dies does not end the window, but its work counts.
		{name: "one dies", rate: (1000 + 200) / 10.0, whole: 120, window: 10, wallShare: 1, ts: []thread{
			{start: at(0), end: at(10), amount: 1000, origin: at(0), bucket: s, buckets: []int64{100, 100, 100, 100, 100, 100, 100, 100, 100, 100}},
			{start: at(0), end: at(2), amount: 200, faulty: true, origin: at(0), bucket: s, buckets: []int64{100, 100}}}},
		{name: "never together", even: true, rate: 100, whole: 100, window: 0, wallShare: 0.5, ts: []thread{
			{start: at(0), end: at(5), amount: 500}, {start: at(5), end: at(10), amount: 500}}},
		{name: "half a bucket", rate: 100, whole: 100, window: 1.5, wallShare: 1, ts: []thread{
			{start: at(0), end: at(1.5), amount: 150, origin: at(0), bucket: s, buckets: []int64{100, 50}}}},
		{name: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := window(c.ts, c.even)
			near := func(what string, got, want float64) {
				if math.Abs(got-want) > 1e-6*math.Max(1, want) {
					t.Errorf("%s: %g, want %g", what, got, want)
				}
			}
			near("rate", w.windowedRate, c.rate)
			near("whole", w.wholeRate, c.whole)
			near("window", seconds(w.to-w.from), c.window)
			near("share at the stonewall", w.wallShare, c.wallShare)
		})
	}
}

// For any threads, the window lies within the run and has at most their work.
func FuzzWindow(f *testing.F) {
	f.Add(int64(0), int64(10), int64(5), int64(7), int64(100), int64(3), true)
	f.Fuzz(func(t *testing.T, s1, d1, s2, d2, a1, a2 int64, even bool) {
		mk := func(s, d, a int64) thread {
			s, d, a = s&0xffffff, d&0xffffff, a&0xffff
			return thread{start: 1e9 + s, end: 1e9 + s + d, amount: a, origin: 1e9, bucket: 1 << 22, buckets: []int64{a / 2, a - a/2}}
		}
		w := window([]thread{mk(s1, d1, a1), mk(s2, d2, a2)}, even)
		if w.from > w.to || w.amount > float64(w.whole)+1e-6 || w.wallShare < 0 || w.wallShare > 1 || math.IsNaN(w.windowedRate) {
			t.Errorf("%+v", w)
		}
	})
}

func TestJoin(t *testing.T) {
	const t0 = int64(1_795_000_000e9)
	lane := func(client string, offset, took int64, ms ...int64) laneResult {
		n, bins := int64(len(ms)), workload.Bins{}
		for _, v := range ms {
			bins[v*1e6]++
		}
		return laneResult{client: client, offset: offset, result: &workload.BenchResult{
			StartNs: t0 + offset, EndNs: t0 + offset + 2e9, StoppedBy: "done", Ops: n, Bytes: n << 20,
			BucketSeconds: 1, Buckets: []workload.Bins{bins},
			Threads: []workload.BenchThread{{StartNs: t0 + offset, EndNs: t0 + offset + took, Ops: n, Bytes: n << 20,
				TimelineOps: []int64{n}}},
			Verified: &workload.BenchVerify{Bytes: n << 20},
		}}
	}
	// join corrects clocks that differ by an hour.
	r := join([]laneResult{lane("c1", 0, 1e9, 1, 1, 1, 1), lane("c2", 3600e9, 1e9, 9, 9, 9, 9)}, workload.SeqRead, "MiB/s", false)
	if r.StartNS != t0 || r.Ops != 8 || r.WindowSeconds != 1 || math.Abs(r.Value-8) > 1e-9 || r.VerifiedBytes != 8<<20 {
		t.Errorf("%+v", r)
	}
	if r.Latency.Count != 8 || math.Abs(r.Latency.P50-1) > 0.1 || math.Abs(r.Latency.P90-9) > 0.1 || r.Histogram == "" {
		t.Errorf("latency %+v", r.Latency)
	}
	if len(r.Timeline.Ops) != 1 || r.Timeline.Ops[0] != 8 || math.Abs(r.Timeline.P99[0]-9) > 0.1 {
		t.Errorf("timeline %+v", r.Timeline)
	}
	if len(r.Clients) != 2 || math.Abs(r.Clients[0].Value-4) > 1e-9 || len(r.Threads) != 2 {
		t.Errorf("clients %+v threads %+v", r.Clients, r.Threads)
	}
	// The same work as flushed writes, spread evenly over the time with the flush.
	if r := join([]laneResult{lane("c1", 0, 2e9, 1, 1, 1, 1)}, workload.SeqWrite, "MiB/s", true); math.Abs(r.Value-2) > 1e-9 {
		t.Errorf("with the flush: %g", r.Value)
	}
	if r := join([]laneResult{lane("c1", 0, 2e9, 1, 1, 1, 1)}, workload.SeqRewrite, "MiB/s", spreadEvenly(workload.SeqRewrite, false)); math.Abs(r.Value-2) > 1e-9 {
		t.Errorf("written again, with the flush: %g", r.Value)
	}
	// A client that vanishes has no figures; those of the other client stay.
	r = join([]laneResult{lane("c1", 0, 1e9, 1, 1, 1, 1), {client: "c2", err: errors.New("connection lost")}}, workload.SeqRead, "MiB/s", false)
	if r.Ops != 4 || r.WindowSeconds != 1 || math.Abs(r.Value-4) > 1e-9 || r.Clients[1].Error == "" || len(r.Threads) != 1 || len(r.Errors) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestScore(t *testing.T) {
	ph := func(name, unit string, v float64) report.BenchPhase {
		return report.BenchPhase{Name: name, Unit: unit, Points: []report.BenchPoint{{Threads: 1, Runs: []report.BenchRun{{Value: 1, WholeValue: v}}}}}
	}
	s := Score([]report.BenchPhase{
		ph("ior-easy/seq-write", "MiB/s", 4096), ph("ior-easy/seq-read", "MiB/s", 4096), ph("ior-hard/seq-write", "MiB/s", 1024), ph("ior-hard/seq-read", "MiB/s", 1024),
		ph("mdtest-easy/md-create", "ops/s", 10000), ph("mdtest-easy/md-stat", "ops/s", 80000), ph("mdtest-easy/md-remove", "ops/s", 10000),
	})
	// By hand: (4 x 4 x 1 x 1)^(1/4) = 2; (10 x 80 x 10)^(1/3) = 20; sqrt(40).
	if s == nil || math.Abs(s.Bandwidth-2) > 1e-9 || math.Abs(s.Metadata-20) > 1e-9 || math.Abs(s.Total-math.Sqrt(40)) > 1e-9 {
		t.Fatalf("%+v", s)
	}
	if d := cmp.Diff([]string{"mdtest-hard-write", "find", "mdtest-hard-stat", "mdtest-hard-read", "mdtest-hard-delete"}, s.Missing); d != "" {
		t.Error(d)
	}
	// The suite has every phase of the score, in the benchmark's own order.
	suite := load(t, "io500", spec.NFS)
	var want []string
	for _, x := range io500 {
		want = append(want, x.phase)
	}
	if d := cmp.Diff(want, suite.Order); d != "" {
		t.Error(d)
	}
	var all []report.BenchPhase
	for _, p := range suite.Order {
		all = append(all, ph(p, "", 1024))
	}
	// By hand: bandwidths of 1 GiB/s, rates of 1.024 thousand.
	if s := Score(all); len(s.Missing) != 0 || math.Abs(s.Total-math.Sqrt(1.024)) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if Score(nil) != nil {
		t.Error("a score of nothing")
	}
}

func TestBottleneck(t *testing.T) {
	mk := func(vals map[string]float64) []report.Layer {
		var out []report.Layer
		for _, n := range []string{"disks", "raid", "volume", "filesystem", "osts", "network", "lnet", "nfs-one", "nfs-many", "lustre-one"} {
			if v, ok := vals[n]; ok {
				out = append(out, report.Layer{Name: n, Title: "the " + n, Results: []report.LayerValue{{Load: loadRead, Unit: "MiB/s", Best: v}}})
			}
		}
		return out
	}
	for _, c := range []struct {
		name, want string
		vals       map[string]float64
	}{
		{"disks", "450 MiB/s, of the 500 MiB/s there) is the disks.", map[string]float64{"disks": 500, "raid": 490, "volume": 480, "filesystem": 470, "network": 9000, "nfs-one": 300, "nfs-many": 450}},
		{"raid", "is the raid.", map[string]float64{"disks": 900, "raid": 490, "volume": 480, "filesystem": 470, "network": 9000, "nfs-one": 400}},
		{"network", "105 MiB/s, of the 110 MiB/s there) is the network.", map[string]float64{"disks": 900, "raid": 890, "volume": 880, "filesystem": 870, "network": 110, "nfs-one": 105}},
		{"nfs", "200 MiB/s, 23 % of the 870 MiB/s ", map[string]float64{"disks": 900, "filesystem": 870, "network": 9000, "nfs-one": 190, "nfs-many": 200}},
		{"one client", "is NFS itself", map[string]float64{"disks": 900, "filesystem": 870, "network": 9000, "nfs-one": 200}},
		{"raid measured at a bad moment", "200 MiB/s, 25 % of the 800 MiB/s ", map[string]float64{"disks": 900, "raid": 500, "volume": 950, "filesystem": 800, "nfs-many": 200}},
		{"an OST", "is the osts.", map[string]float64{"disks": 900, "volume": 880, "osts": 400, "network": 9000, "lnet": 5000, "lustre-one": 380}},
		{"Lustre", "is Lustre itself", map[string]float64{"disks": 900, "osts": 800, "lnet": 5000, "lustre-one": 200}},
		{"nothing below", "", map[string]float64{"nfs-one": 200}},
		{"nothing", "", nil},
	} {
		got := Bottleneck(mk(c.vals))
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestDiffers(t *testing.T) {
	want := strings.Split("vers=4.1,proto=tcp,hard,rsize=1048576,wsize=1048576", ",")
	have := strings.Split("rw,relatime,vers=4.1,rsize=262144,wsize=1048576,hard,proto=tcp,timeo=150", ",")
	if got := differingOptions(want, have); got != "rsize=262144, not rsize=1048576" {
		t.Error(got)
	}
}

func TestArrayTroubles(t *testing.T) {
	got := arrayTroubles(`Personalities : [raid6] [raid5] [raid4]
md127 : active raid6 dm-0[0] dm-4[3] dm-3[2] dm-1[1]
      3901952 blocks super 1.2 level 6, 64k chunk, algorithm 2 [4/4] [UUUU]
      [==========>..........]  resync = 54.1% (1056128/1950976) finish=0.1min speed=88010K/sec

md126 : active raid6 dm-9[3] dm-8[2] dm-7[1]
      3901952 blocks super 1.2 level 6, 64k chunk, algorithm 2 [4/3] [_UUU]

md125 : active raid1 sda1[0] sdb1[1]
      1046528 blocks super 1.2 [2/2] [UU]

unused devices: <none>
`)
	want := []string{
		"array md127 is busy with resync (54.1% done): figures are lower until that ends (mortar status shows it)",
		"array md126 is degraded (3 of 4 disks): figures are lower for it",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// docs/bench.md names every key of a suite.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeOf(Suite{}), reflect.TypeOf(Test{})} {
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
			if !strings.Contains(string(doc), "`"+key+"`") {
				t.Errorf("docs/bench.md lacks `%s` (%s.%s)", key, typ.Name(), typ.Field(i).Name)
			}
		}
	}
	for _, p := range workload.BenchPhases {
		if !strings.Contains(string(doc), "`"+string(p)+"`") {
			t.Errorf("docs/bench.md lacks phase %s", p)
		}
	}
}

// Options replace values of a copy of the suite.
func TestOptionsOf(t *testing.T) {
	suite := &Suite{Name: "s", Cold: ColdRestart, Repeat: 1, Tests: []Test{{Name: "a"}, {Name: "b", Seconds: 5}, {Name: "c", Seconds: 60}}}
	got, err := (&Options{Seconds: 10, Repeat: 3, Cold: ColdNone, Tests: []string{"a", "b", "c"}}).of(suite)
	if err != nil || got.Repeat != 3 || got.Cold != ColdNone || got.Tests[0].Seconds != 10 || got.Tests[1].Seconds != 5 || got.Tests[2].Seconds != 10 {
		t.Errorf("%v %+v", err, got)
	}
	if suite.Tests[0].Seconds != 0 || suite.Repeat != 1 || suite.Cold != ColdRestart {
		t.Errorf("changed: %+v", suite)
	}
}

// Each service of a client is a lane of its own.
func TestEachLane(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	err := eachLane(context.Background(), []lane{
		{client: "c1", service: "home", runID: "r-home"}, {client: "c1", service: "scratch", runID: "r-scratch"},
	}, func(_ context.Context, l lane) error {
		mu.Lock()
		defer mu.Unlock()
		seen[l.runID]++
		return nil
	})
	if err != nil || len(seen) != 2 {
		t.Errorf("%v %v", err, seen)
	}
}

// A Lustre file system is not restarted to empty caches.
func TestColdOf(t *testing.T) {
	brick := func(s design.Service) *design.Design {
		return &design.Design{Pairs: []design.Pair{{Services: []design.Service{s}}}}
	}
	lustre, nfs := brick(design.Service{}), brick(design.Service{NFS: &design.NFS{}})
	suite := &Suite{Cold: ColdRestart}
	for _, c := range []struct {
		d           *design.Design
		asked, want string
		refused     bool
	}{
		{nfs, "", ColdRestart, false}, {nfs, ColdNone, ColdNone, false},
		{lustre, "", ColdDrop, false}, {lustre, ColdNone, ColdNone, false}, {lustre, ColdRestart, "", true},
	} {
		if got, err := coldOf(c.d, suite, c.asked); got != c.want || (err != nil) != c.refused {
			t.Errorf("%v %q: %q, %v", c.d == lustre, c.asked, got, err)
		}
	}
}
