package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bench is a directory under test with the state that a coordinator keeps.
type bench struct {
	t       *testing.T
	dir     string
	regions map[string][]BenchRegion // by set
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), regions: map[string][]BenchRegion{}}
	if _, err := BenchPrepare(t.Context(), BenchParams{RunID: "run", Dir: b.dir}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) job(phase BenchPhase, change ...func(*BenchJob)) BenchJob {
	j := BenchJob{RunID: "run", Dir: b.dir, Phase: phase, Threads: 2, ProgressSeconds: 0.02, BucketSeconds: 0.01, Buffered: true}
	if phase.Metadata() {
		j.Branch, j.Items = 3, 5
	} else {
		j.FileBytes, j.RecordBytes = 256<<10, 16<<10
	}
	for _, f := range change {
		f(&j)
	}
	if j.Regions == nil {
		j.Regions = b.regions[setOf(j)]
	}
	return j
}

func setOf(j BenchJob) string {
	return cmp.Or(j.Set, map[bool]string{false: "data", true: "tree"}[j.Phase.Metadata()])
}

func (b *bench) try(j BenchJob) (*BenchResult, error) {
	b.t.Helper()
	r, err := Bench(b.t.Context(), j, nil, nil, nil)
	if err == nil {
		b.regions[setOf(j)] = MergeRegions(b.regions[setOf(j)], r.Regions)
	}
	return r, err
}

// do runs a phase that must succeed.
func (b *bench) do(j BenchJob) *BenchResult {
	b.t.Helper()
	r, err := b.try(j)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, th := range r.Threads {
		if th.Fault != "" {
			b.t.Fatalf("%s: thread %d: %s: %s", j.Phase, th.Rank, th.Fault, th.Error)
		}
	}
	return r
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, "run", name) }

func (b *bench) clean(r *BenchResult) {
	b.t.Helper()
	if r.Verified == nil || r.Verified.BadBytes != 0 || r.Verified.Bytes != r.Bytes || len(r.Verified.Findings) != 0 {
		b.t.Errorf("%d bytes, verified %+v", r.Bytes, r.Verified)
	}
}

func TestBenchData(t *testing.T) {
	for _, layout := range []BenchLayout{OwnFile, Segmented, Strided} {
		t.Run(string(layout), func(t *testing.T) {
			b := newBench(t)
			lay := func(j *BenchJob) { j.Layout, j.Clients = layout, 2 }
			client := func(n int) func(*BenchJob) { return func(j *BenchJob) { j.ClientIndex = n } }
			for n := range 2 {
				r := b.do(b.job(SeqWrite, lay, client(n)))
				if r.Bytes != 512<<10 || r.Ops != 32 || r.StoppedBy != "done" || r.Threads[0].Fault != "" || r.EndNs <= r.StartNs || r.Threads[1].Rank != 2*n+1 {
					t.Errorf("%+v", r)
				}
			}
			b.clean(b.do(b.job(SeqRead, lay)))
			// The other client's files, at random.
			b.clean(b.do(b.job(RandRead, lay, func(j *BenchJob) { j.ReadShift = 1 })))
			// All of it once more, in random order, and some of it twice.
			b.do(b.job(RandWrite, lay))
			b.clean(b.do(b.job(SeqRead, lay)))
			for range 2 {
				if r := b.do(b.job(RandRead, lay, func(j *BenchJob) { j.Limit = 3 })); r.Ops != 6 || r.Verified.BadBytes != 0 {
					t.Errorf("%d records of 6: %+v", r.Ops, r.Verified)
				}
			}
		})
	}
}

// A rewrite leaves the same file with other contents.
func TestBenchRewrite(t *testing.T) {
	b := newBench(t)
	look := func() (os.FileInfo, []byte) {
		st, err := os.Stat(b.file("data/r1.data"))
		text, rerr := os.ReadFile(b.file("data/r1.data"))
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		return st, text
	}
	b.do(b.job(SeqWrite))
	before, old := look()
	if r := b.do(b.job(SeqRewrite)); r.Bytes != 512<<10 || r.Regions != nil || r.Verified != nil {
		t.Errorf("%+v", r)
	}
	after, now := look()
	if !os.SameFile(before, after) || after.Size() != before.Size() || slices.Equal(old, now) {
		t.Errorf("%v, then %v; the same contents: %t", before, after, slices.Equal(old, now))
	}
	b.clean(b.do(b.job(SeqRead)))
}

// In a mixture odd ranks have small records. None is done before the time is over.
func TestBenchMixture(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	mixed := func(j *BenchJob) { j.SmallBytes, j.DurationSeconds = 4096, 0.5 }
	for _, p := range []BenchPhase{SeqRewrite, SeqRead} {
		r := b.do(b.job(p, mixed))
		if s := r.Beside; len(r.Threads) != 1 || r.Threads[0].Rank != 0 || len(s.Threads) != 1 || s.Threads[0].Rank != 1 || s.Threads[0].Fault != "" {
			t.Fatalf("%s: %+v beside %+v", p, r, s)
		}
		for size, x := range map[int64]*BenchResult{16 << 10: r, 4096: r.Beside} {
			if x.StoppedBy != "duration" || x.Bytes <= 256<<10 || x.Bytes != x.Ops*size || len(x.Buckets) < 10 {
				t.Errorf("%s of %d bytes: %d operations, %d bytes, %s, %d buckets", p, size, x.Ops, x.Bytes, x.StoppedBy, len(x.Buckets))
			}
			if p == SeqRead {
				b.clean(x)
			}
		}
	}
	b.clean(b.do(b.job(SeqRead)))
	for name, j := range map[string]BenchJob{"first write": b.job(SeqWrite, mixed), "no end": b.job(SeqRead, func(j *BenchJob) { j.SmallBytes = 4096 })} {
		if _, err := b.try(j); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A phase that reads tells of each block that is not what was written there.
func TestBenchVerifyFinds(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	path := b.file("data/r0.data")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int) []byte { return whole[n*verifyBytes : (n+1)*verifyBytes] }
	bit := slices.Clone(at(5))
	bit[2000] ^= 1
	for name, data := range map[string][]byte{"zero": make([]byte, verifyBytes), "misplaced": at(6), "a bit": bit} {
		spoiled := slices.Clone(whole)
		copy(spoiled[5*verifyBytes:], data)
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []BenchPhase{SeqRead, RandRead} {
			r := b.do(b.job(p))
			if r.Bytes != 512<<10 || r.Verified.BadBytes != verifyBytes || len(r.Verified.Findings) != 1 || !strings.HasPrefix(r.Verified.Findings[0], path+": ") || !strings.Contains(r.Verified.Findings[0], " 20480 ") {
				t.Errorf("%s, %s: %d bytes, %+v", name, p, r.Bytes, r.Verified)
			}
		}
	}
}

// A truncated file ends the reading of its own thread only.
func TestBenchShortFile(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	if err := os.Truncate(b.file("data/r0.data"), 100<<10); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(SeqRead))
	if err != nil {
		t.Fatal(err)
	}
	if th := r.Threads[0]; th.Fault == "" || th.Bytes >= 256<<10 {
		t.Errorf("%+v", th)
	}
	if th := r.Threads[1]; th.Fault != "" || th.Bytes != 256<<10 {
		t.Errorf("the other thread: %+v", th)
	}
	if st, err := os.Stat(b.file("data/r0.data")); err != nil || st.Size() != 100<<10 {
		t.Errorf("reading has changed the file: %v", err)
	}
}

// A phase that ends by time leaves a partly written set. Later phases use only
// that part.
func TestBenchEndsByTime(t *testing.T) {
	b := newBench(t)
	short := func(j *BenchJob) { j.FileBytes, j.RecordBytes, j.DurationSeconds = 1<<40, 4096, 0.3 }
	w := b.do(b.job(SeqWrite, short))
	if w.StoppedBy != "duration" || w.Bytes == 0 || w.Bytes >= 1<<40 {
		t.Errorf("stopped by %s, %d bytes", w.StoppedBy, w.Bytes)
	}
	r := b.do(b.job(SeqRead, func(j *BenchJob) { j.FileBytes, j.RecordBytes = 1<<40, 4096 }))
	if b.clean(r); r.Bytes != w.Bytes || r.StoppedBy != "done" {
		t.Errorf("%d bytes read of %d", r.Bytes, w.Bytes)
	}
	for i := range b.regions["data"] {
		b.regions["data"][i].Bytes = 0
	}
	if _, err := b.try(b.job(SeqRead)); err == nil {
		t.Errorf("reading what nobody has written: %v", err)
	}
	many := func(j *BenchJob) { j.Items, j.DurationSeconds = 100000, 0.2 }
	c := b.do(b.job(MDCreate, many))
	if c.StoppedBy != "duration" || c.Ops == 0 || c.Ops >= 600000 {
		t.Errorf("%+v", c)
	}
	for _, p := range []BenchPhase{MDStat, MDRemove} {
		if r := b.do(b.job(p)); r.Ops != c.Ops {
			t.Errorf("%s: %d files of %d", p, r.Ops, c.Ops)
		}
	}
}

func TestBenchMetadata(t *testing.T) {
	b := newBench(t)
	r := b.do(b.job(MDCreate))
	if r.Ops != 30 || len(r.Regions) != 2 || counted(r) != 30 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"r0.tree/r0.0", "r1.tree/r1.14"} {
		if st, err := os.Stat(b.file("tree/" + name)); err != nil || st.Size() != 0 {
			t.Error(name, err)
		}
	}
	if r := b.do(b.job(MDStat)); r.Ops != 30 {
		t.Errorf("%d statted", r.Ops)
	}
	if st, err := os.Stat(b.file("tree/r0.tree/r0.7")); err != nil || st.Size() != 0 {
		t.Errorf("a stat has changed the file: %v", err)
	}
	// A missing tree costs only the figures of its own thread.
	if err := os.RemoveAll(b.file("tree/r1.tree")); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(MDRemove))
	if err != nil || r.Ops != 15 || r.Threads[1].Fault != FaultVanished || r.Threads[0].Fault != "" {
		t.Errorf("%v, %+v", err, r)
	}
	if left, _ := filepath.Glob(b.file("tree/r0.tree/*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Records of the size of IOR hard are checked, too, though they are no multiple
// of the block that has a checksum.
func TestBenchOddRecords(t *testing.T) {
	b := newBench(t)
	odd := func(client int) func(*BenchJob) {
		return func(j *BenchJob) {
			j.Layout, j.Clients, j.ClientIndex, j.ReadShift, j.RecordBytes, j.FileBytes = Strided, 2, client, 1, 47008, 20*47008
		}
	}
	for n := range 2 {
		if r := b.do(b.job(SeqWrite, odd(n))); r.Bytes != 40*47008 {
			t.Errorf("%d bytes", r.Bytes)
		}
	}
	if st, err := os.Stat(b.file("data/shared.data")); err != nil || st.Size() != 80*47008 {
		t.Error(err)
	}
	for n := range 2 {
		b.clean(b.do(b.job(SeqRead, odd(n))))
	}
	f, err := os.OpenFile(b.file("data/shared.data"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Record 41 of the file is the tenth (from 0) of rank 1, which client 1 reads.
	if _, err := f.WriteAt([]byte{1, 2, 3}, 41*47008+999); err != nil {
		t.Fatal(err)
	}
	if r := b.do(b.job(SeqRead, odd(1))); r.Verified.BadBytes != 47008 || !strings.Contains(r.Verified.Findings[0], " 1927328 ") {
		t.Errorf("%+v", r.Verified)
	}
}

// Files of all threads in one directory are read back, found and removed.
func TestBenchShared(t *testing.T) {
	b := newBench(t)
	// Two clients of two threads, 150 files each: 0 ... 149.
	shared := func(client int) func(*BenchJob) {
		return func(j *BenchJob) {
			j.Clients, j.ClientIndex, j.ReadShift = 2, client, 1
			j.Branch, j.Items, j.ItemBytes, j.Shared, j.Set = 1, 150, 3901, true, "hard"
		}
	}
	all := func(phase BenchPhase) (ops, bytes, bad int64) {
		t.Helper()
		for n := range 2 {
			r := b.do(b.job(phase, shared(n)))
			ops += r.Ops
			if r.Verified != nil {
				bytes, bad = bytes+r.Verified.Bytes, bad+r.Verified.BadBytes
			}
		}
		return ops, bytes, bad
	}
	if ops, _, _ := all(MDCreate); ops != 600 {
		t.Errorf("%d created", ops)
	}
	// Find walks the other set too, of which no file matches.
	b.do(b.job(MDCreate))
	for _, name := range []string{"hard/r0.0", "hard/r3.149"} {
		if st, err := os.Stat(b.file(name)); err != nil || st.Size() != 3901 {
			t.Error(name, err)
		}
	}
	// Of 0 to 149 only 101 has 01 in it: four files.
	if ops, bytes, bad := all(Find); ops != 630 || bytes != 4*3901 || bad != 0 {
		t.Errorf("find: %d entries, %d bytes matched, %d bad", ops, bytes, bad)
	}
	if ops, _, _ := all(MDStat); ops != 600 {
		t.Errorf("stat: %d", ops)
	}
	if ops, bytes, bad := all(MDRead); ops != 600 || bytes != 600*3901 || bad != 0 {
		t.Errorf("read: %d files, %d bytes, %d bad", ops, bytes, bad)
	}
	if err := os.WriteFile(b.file("hard/r0.2"), make([]byte, 3901), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, bytes, bad := all(MDRead); bytes != 600*3901 || bad != 3901 {
		t.Errorf("%d of %d bytes were found to be wrong", bad, bytes)
	}
	if err := os.Rename(b.file("hard/r2.101"), b.file("hard/x")); err != nil {
		t.Fatal(err)
	}
	if _, _, bad := all(Find); bad != 3901 {
		t.Errorf("find missed nothing: %d", bad)
	}
	if err := os.Rename(b.file("hard/x"), b.file("hard/r2.101")); err != nil {
		t.Fatal(err)
	}
	if ops, _, _ := all(MDRemove); ops != 600 {
		t.Errorf("%d removed", ops)
	}
	if left, _ := filepath.Glob(b.file("hard/*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A phase does not wait for a thread that hangs; the others' figures count.
func TestBenchStuck(t *testing.T) {
	b := newBench(t)
	if err := os.MkdirAll(b.file("data"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Opening a FIFO for writing waits for a reader.
	if err := unix.Mkfifo(b.file("data/r1.data"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(SeqWrite, func(j *BenchJob) { j.GiveUpSeconds = 2 }))
	if err != nil {
		t.Fatal(err)
	}
	if th := r.Threads[1]; th.Fault == "" {
		t.Errorf("%+v", th)
	}
	if th := r.Threads[0]; th.Fault != "" || th.Bytes != 256<<10 {
		t.Errorf("the other: %+v", th)
	}
}

func TestBenchFaults(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{unix.ENOSPC, FaultNoSpace}, {unix.EDQUOT, FaultNoSpace}, {unix.EROFS, FaultReadOnly}, {unix.ESTALE, FaultVanished}, {unix.EIO, FaultIO},
	} {
		err := fmt.Errorf("at 5: %w", pathError("write", "/x", tc.err))
		if got := benchFault(err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
		if s := explain(err); !strings.Contains(s, "write /x") {
			t.Errorf("%q", s)
		}
	}
}

func TestBenchHoldAndStop(t *testing.T) {
	b := newBench(t)
	j := b.job(SeqWrite, func(j *BenchJob) { j.FileBytes, j.RecordBytes = 1<<40, 4096 })
	start, stop := make(chan int64, 1), make(chan struct{})
	waiting, running, begin := 0, 0, int64(0)
	r, err := Bench(t.Context(), j, start, stop, func(p BenchProgress) {
		switch p.State {
		case "waiting":
			if waiting++; waiting == 1 {
				begin = time.Now().Add(50 * time.Millisecond).UnixNano()
				start <- begin
			}
		case "running":
			if p.Bytes > 0 && p.TotalBytes == 2<<40 {
				if running++; running == 2 {
					close(stop)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.StoppedBy != "stop" || r.StartNs < begin || r.Threads[0].StartNs < r.StartNs || r.Bytes == 0 || r.Threads[0].Fault != "" {
		t.Errorf("asked for %d: %+v", begin, r)
	}
	if waiting == 0 || running < 2 {
		t.Errorf("%d waiting, %d running", waiting, running)
	}
	// A stop arrives before the start.
	stop = make(chan struct{})
	close(stop)
	r, err = Bench(t.Context(), j, nil, stop, nil)
	if err != nil || r.StoppedBy != "stop" || r.Ops != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if r, err = Bench(ctx, j, nil, nil, nil); err == nil && r.StoppedBy != "cancelled" {
		t.Errorf("%v, %+v", err, r)
	}
}

// counted is the number of operations in a result's buckets.
func counted(r *BenchResult) (n int64) {
	for _, b := range r.Buckets {
		n += b.Ops()
	}
	return n
}

// The timeline, the threads' timelines and the histograms count the same
// operations.
func TestBenchTimeline(t *testing.T) {
	b := newBench(t)
	r := b.do(b.job(SeqWrite, func(j *BenchJob) { j.FileBytes, j.RecordBytes, j.DurationSeconds = 1<<40, 4096, 0.3 }))
	if n := len(r.Buckets); n < 30 || r.BucketSeconds != 0.01 {
		t.Errorf("%d buckets of %g s", n, r.BucketSeconds)
	}
	perThread := int64(0)
	for i := range r.Buckets {
		for _, th := range r.Threads {
			perThread += th.TimelineOps[i]
		}
	}
	if counted(r) != r.Ops || perThread != r.Ops {
		t.Errorf("ops %d, buckets %d, threads %d", r.Ops, counted(r), perThread)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// A long phase gets wider buckets, and none of its operations is lost.
func TestLongTimeline(t *testing.T) {
	res := &BenchResult{EndNs: 3 * maxTimeline * 1e9, Threads: make([]BenchThread, 1)}
	var all []spell
	for i := range 3 * maxTimeline {
		all = append(all, spell{int64(i+1) * 1e9, Bins{1000: 1}})
	}
	res.fillTimeline(&BenchJob{Phase: SeqRead, BucketSeconds: 1, RecordBytes: 10}, [][]spell{all})
	if res.BucketSeconds != 4 || counted(res) != 3*maxTimeline || res.Buckets[0].Ops() != 4 {
		t.Errorf("%d operations in %d buckets of %g s", counted(res), len(res.Buckets), res.BucketSeconds)
	}
}

func TestBenchCleanup(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	b.do(b.job(MDCreate))
	params := BenchParams{RunID: "run", Dir: b.dir, Set: "tree"}
	if _, err := BenchCleanup(t.Context(), params); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.file("tree")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
	if _, err := os.Stat(b.file("data/r0.data")); err != nil {
		t.Error(err)
	}
	params.Set = ""
	if _, err := BenchCleanup(t.Context(), params); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.file("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	if _, err := BenchCleanup(t.Context(), params); err != nil {
		t.Errorf("again: %v", err)
	}
	// Cleanup refuses directories that no run made.
	other := filepath.Join(b.dir, "home")
	if err := os.MkdirAll(filepath.Join(other, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := BenchCleanup(t.Context(), BenchParams{RunID: "home", Dir: b.dir}); err == nil {
		t.Errorf("%v", err)
	}
	if _, err := b.try(b.job(SeqWrite, func(j *BenchJob) { j.RunID = "home" })); err == nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(other, "data")); len(left) != 0 {
		t.Errorf("written into: %v", left)
	}
}

// A fio that does not tell its version is not one that is missing.
func TestBenchPrepareFio(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if f, err := BenchPrepare(t.Context(), BenchParams{RunID: "run", Dir: t.TempDir()}); err != nil || f.Fio != "" {
		t.Errorf("without fio: %+v, %v", f, err)
	}
	if err := os.WriteFile(filepath.Join(bin, "fio"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if f, err := BenchPrepare(t.Context(), BenchParams{RunID: "run", Dir: t.TempDir()}); err == nil {
		t.Errorf("a fio that fails: %+v, %v", f, err)
	}
}

func TestBenchPrepare(t *testing.T) {
	dir := t.TempDir()
	f, err := BenchPrepare(t.Context(), BenchParams{RunID: "run", Dir: dir})
	if err != nil || f.CPUs < 1 || f.MemBytes <= 0 || f.FSType == "" || f.MountOptions == "" || f.FreeBytes <= 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := BenchPrepare(t.Context(), BenchParams{RunID: "run", Dir: dir}); err != nil {
		t.Errorf("the second client: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if f, err := BenchPrepare(t.Context(), BenchParams{RunID: "next", Dir: dir}); err != nil || len(f.Others) != 1 || f.Others[0] != "run" {
		t.Errorf("what another run has left: %v, %v", f, err)
	}
	t.Chdir(dir)
	for _, p := range []BenchParams{{RunID: "run", Dir: filepath.Join(dir, "none")}, {RunID: "run", Dir: "."}, {RunID: "a/b", Dir: dir}} {
		if f, err := BenchPrepare(t.Context(), p); err == nil {
			t.Errorf("%+v: %+v", p, f)
		}
	}
}
