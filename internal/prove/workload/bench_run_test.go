package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/test/ownprocess"
)

// bench is a directory under test with the state that a coordinator keeps.
type bench struct {
	t       *testing.T
	dir     string
	regions map[string][]BenchRegion // by set
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir(), regions: map[string][]BenchRegion{}}
	if _, err := BenchPrepare(t.Context(), BenchPrepareParams{RunID: "run", Dir: b.dir}); err != nil {
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
		set := j.Set
		if set == "" {
			set = map[bool]string{false: "data", true: "tree"}[phase.Metadata()]
		}
		j.Regions = b.regions[set]
	}
	return j
}

func (b *bench) try(j BenchJob) (*BenchResult, error) {
	b.t.Helper()
	r, err := Bench(b.t.Context(), j, nil, nil, nil)
	if err == nil {
		b.regions[r.Set] = MergeRegions(b.regions[r.Set], r.Regions)
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
			b.t.Fatalf("%s: thread %d: %s: %s", j.Phase, th.Thread, th.Fault, th.Error)
		}
	}
	return r
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, "run", name) }

func (b *bench) clean(r *BenchResult) {
	b.t.Helper()
	if r.Verified == nil || r.Verified.BadBytes != 0 || r.Verified.Bytes != r.Bytes || len(r.Verified.Findings) != 0 {
		b.t.Errorf("%s: %d bytes, verified %+v", r.Phase, r.Bytes, r.Verified)
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
				if r.Bytes != 512<<10 || r.Ops != 32 || r.StoppedBy != "done" || !r.Threads[0].Finished || r.EndNs <= r.StartNs {
					t.Errorf("%+v", r)
				}
				if r.Threads[1].Rank != 2*n+1 {
					t.Errorf("rank %d", r.Threads[1].Rank)
				}
			}
			b.clean(b.do(b.job(SeqRead, lay)))
			// The other client's files, at random.
			r := b.do(b.job(RandRead, lay, func(j *BenchJob) { j.ReadShift = 1 }))
			b.clean(r)
			if layout == OwnFile && !strings.HasSuffix(r.Threads[0].Path, "c001-t000.data") {
				t.Errorf("read %s", r.Threads[0].Path)
			}
			// All of it once more, in random order: generation 2.
			b.do(b.job(RandWrite, lay))
			b.clean(b.do(b.job(SeqRead, lay)))
			// Verification finds data that differs from the coordinator's regions.
			stale := b.regions["data"][0].Passes
			b.regions["data"][0].Passes = append(stale[:len(stale):len(stale)], BenchPass{RecordBytes: 16 << 10, Issued: 16, Acked: 16})
			b.regions["data"][1].Passes = append([]BenchPass{}, b.regions["data"][1].Passes[0])
			r = b.do(b.job(SeqRead, lay))
			if r.Verified.BadBytes != 512<<10 || len(r.Verified.Findings) != 2*MaxFindings || !strings.Contains(r.Verified.Findings[0], "stale") ||
				!strings.Contains(r.Verified.Findings[MaxFindings], "impossible") {
				t.Errorf("%+v", r.Verified)
			}
		})
	}
}

func TestBenchDirect(t *testing.T) {
	b := newBench(t)
	direct := func(j *BenchJob) { j.Direct, j.Buffered = true, false }
	r, err := b.try(b.job(SeqWrite, direct))
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Threads[0].Fault; f != "" {
		// Some file systems have no O_DIRECT; then the error names a remedy.
		if !strings.Contains(r.Threads[0].Error, "use buffered I/O") {
			t.Errorf("%+v", r.Threads[0])
		}
		return
	}
	small := func(j *BenchJob) { j.RecordBytes = 4096 }
	b.clean(b.do(b.job(RandRead, direct, small)))
	b.do(b.job(RandWrite, direct, small))
	b.clean(b.do(b.job(SeqRead, direct)))
}

// A reading phase names the kind of damage.
func TestBenchVerifyFinds(t *testing.T) {
	block := func(s stream.Stream, n uint64, gen uint32) []byte {
		b := make([]byte, stream.BlockSize)
		s.Encode(b, n, gen, 1, 0)
		return b
	}
	own := func(set string, id uint32) stream.Stream { return stream.NewStream(stream.NewRunID("run/"+set), id) }
	for _, tc := range []struct {
		name string
		data []byte // in place of block 5
		want string
	}{
		{"zero", make([]byte, stream.BlockSize), "zero, 4096 bytes at 20480"},
		{"misplaced", block(own("data", 1), 6, 1), "misplaced"},
		{"of another file", block(own("data", 2), 5, 1), "misplaced"},
		{"of another set", block(own("other", 1), 5, 1), "foreign"},
		{"newer", block(own("data", 1), 5, 2), "impossible"},
		{"a bit", append([]byte{'N'}, block(own("data", 1), 5, 1)[1:]...), "corrupt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.do(b.job(SeqWrite))
			path := b.file("data/c000-t000.data")
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(tc.data, 5*stream.BlockSize); err != nil {
				t.Fatal(err)
			}
			for _, p := range []BenchPhase{SeqRead, RandRead} {
				r := b.do(b.job(p))
				if r.Verified.BadBytes != stream.BlockSize || len(r.Verified.Findings) != 1 || !strings.Contains(r.Verified.Findings[0], tc.want) {
					t.Errorf("%s: %+v", p, r.Verified)
				}
			}
			if r := b.do(b.job(SeqRead, func(j *BenchJob) { j.Unverified = true })); r.Verified != nil || r.Bytes != 512<<10 {
				t.Errorf("unverified: %+v", r.Verified)
			}
		})
	}
}

// A truncated file ends the reading of its own thread only, and counts as bad.
func TestBenchShortFile(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	if err := os.Truncate(b.file("data/c000-t000.data"), 100<<10); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(SeqRead))
	if err != nil {
		t.Fatal(err)
	}
	if th := r.Threads[0]; th.Fault != FaultIO || !strings.Contains(th.Error, "was longer") || th.Bytes != 100<<10 {
		t.Errorf("%+v", th)
	}
	if th := r.Threads[1]; th.Fault != "" || th.Bytes != 256<<10 {
		t.Errorf("the other thread: %+v", th)
	}
	if r.Verified.BadBytes != 12<<10 || !strings.Contains(r.Verified.Findings[0], "short, 12288 bytes missing from 102400 on") {
		t.Errorf("%+v", r.Verified)
	}
}

// A stonewall leaves a partly written set; reading phases read only that part.
func TestBenchStonewall(t *testing.T) {
	b := newBench(t)
	big := func(j *BenchJob) {
		j.FileBytes = 1 << 40
		j.RecordBytes = 4096
		j.DurationSeconds = 0.1
		j.NoFsync = true
	}
	w := b.do(b.job(SeqWrite, big))
	if w.StoppedBy != "duration" || w.Threads[0].Finished || w.Bytes == 0 {
		t.Errorf("stopped by %s, %d bytes", w.StoppedBy, w.Bytes)
	}
	// The counts alone say which records an interrupted random pass wrote.
	part := func(j *BenchJob) { j.FileBytes = 256 << 10; j.RecordBytes = 4096; j.Set = "part" }
	b.do(b.job(SeqWrite, part))
	b.do(b.job(RandWrite, part))
	reg := b.regions["part"]
	for i := range reg {
		p := &reg[i].Passes[1]
		p.Acked, p.Issued = 10, 12
	}
	r := b.do(b.job(SeqRead, part))
	// 12 of 64 records rightly have generation 2; for the other 52 the regions
	// allow only generation 1.
	if want := int64(2 * 52 * 4096); r.Verified.BadBytes != want || !strings.Contains(r.Verified.Findings[0], "impossible") {
		t.Errorf("%d bad bytes, want %d: %v", r.Verified.BadBytes, want, r.Verified.Findings[:1])
	}
	for i := range reg {
		reg[i].Passes = reg[i].Passes[:1]
		reg[i].Passes[0].Acked, reg[i].Passes[0].Issued = 32, 32
	}
	short := b.do(b.job(SeqRead, part))
	if short.Bytes != 2*32*4096 {
		t.Errorf("read %d bytes of a set half written", short.Bytes)
	}
	for i := range reg {
		reg[i].Passes[0].Acked = 0
	}
	if _, err := b.try(b.job(SeqRead, part)); err == nil || !strings.Contains(err.Error(), "nothing that could be read") {
		t.Errorf("reading what nobody has written: %v", err)
	}
}

func TestBenchMetadata(t *testing.T) {
	b := newBench(t)
	r := b.do(b.job(MDCreate))
	if r.Ops != 30 || r.TreeMakeSeconds <= 0 || len(r.Regions) != 2 {
		t.Errorf("%+v", r)
	}
	// The names of mdtest: -b 3 -z 1 -L -I 5 -u with two tasks.
	for _, name := range []string{"mdtest_tree.0.0/mdtest_tree.0.1/file.mdtest.0.5", "mdtest_tree.1.0/mdtest_tree.1.3/file.mdtest.1.19"} {
		if _, err := os.Stat(b.file("tree/" + name)); err != nil {
			t.Error(err)
		}
	}
	if r := b.do(b.job(MDStat)); r.Ops != 30 || r.Verified != nil {
		t.Errorf("%d statted, %+v", r.Ops, r.Verified)
	}
	if r := b.do(b.job(MDStat, func(j *BenchJob) { j.ItemBytes = 100 })); r.Verified == nil || r.Verified.BadBytes != 3000 {
		t.Errorf("files of the wrong size: %+v", r.Verified)
	}
	if r := b.do(b.job(MDRemove)); r.Ops != 30 {
		t.Errorf("%d removed", r.Ops)
	}
	if left, _ := filepath.Glob(b.file("tree/*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	sized := func(j *BenchJob) { j.ItemBytes, j.ItemSync, j.Set = 3901, true, "sized" }
	b.do(b.job(MDCreate, sized))
	if r := b.do(b.job(MDStat, sized)); r.Verified == nil || r.Verified.BadBytes != 0 || r.Verified.Bytes != 30*3901 {
		t.Errorf("%+v", r.Verified)
	}
	// A missing tree costs only the figures of its own thread.
	if err := os.RemoveAll(b.file("sized/mdtest_tree.1.0")); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(MDRemove, sized))
	if err != nil || r.Ops != 15 || r.Threads[1].Fault != FaultVanished || r.Threads[0].Fault != "" {
		t.Errorf("%v, %+v", err, r)
	}
}

// Records of the size of IOR hard are verified too, though it is no multiple of
// the block size of package stream.
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
	if r := b.do(b.job(SeqRead, odd(1))); r.Verified.BadBytes != 47008 || !strings.Contains(r.Verified.Findings[0], "47008 bytes from 1927328 on are not what was written") {
		t.Errorf("%+v", r.Verified)
	}
	if _, err := b.try(b.job(SeqWrite, odd(0))); err == nil || !strings.Contains(err.Error(), "written once") {
		t.Errorf("written twice: %v", err)
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
	for _, name := range []string{"hard/file.mdtest.0.0", "hard/file.mdtest.3.149"} {
		if st, err := os.Stat(b.file(name)); err != nil || st.Size() != 3901 {
			t.Error(name, err)
		}
	}
	// By hand: 1, 101 and 10 to 19 have no 01 but in "101"; of 0 to 149 that
	// is 101 alone: four files.
	if ops, bytes, bad := all(Find); ops != 630 || bytes != 4*3901 || bad != 0 {
		t.Errorf("find: %d entries, %d bytes matched, %d bad", ops, bytes, bad)
	}
	if ops, _, bad := all(MDStat); ops != 600 || bad != 0 {
		t.Errorf("stat: %d, %d bad", ops, bad)
	}
	if ops, bytes, bad := all(MDRead); ops != 600 || bytes != 600*3901 || bad != 0 {
		t.Errorf("read: %d files, %d bytes, %d bad", ops, bytes, bad)
	}
	// One file with another's data, one longer, one gone that find looks for.
	data, err := os.ReadFile(b.file("hard/file.mdtest.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string][]byte{"hard/file.mdtest.0.2": data, "hard/file.mdtest.1.7": append(data, 0)} {
		if err := os.WriteFile(b.file(name), d, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, bytes, bad := all(MDRead); bytes != 600*3901 || bad != 2*3901 {
		t.Errorf("%d of %d bytes were found to be wrong", bad, bytes)
	}
	if err := os.Rename(b.file("hard/file.mdtest.2.101"), b.file("hard/x")); err != nil {
		t.Fatal(err)
	}
	if _, _, bad := all(Find); bad != 3901 {
		t.Errorf("find missed nothing: %d", bad)
	}
	if err := os.Rename(b.file("hard/x"), b.file("hard/file.mdtest.2.101")); err != nil {
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
	if err := unix.Mkfifo(b.file("data/c000-t001.data"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(SeqWrite, func(j *BenchJob) { j.GiveUpSeconds = 0.2 }))
	if err != nil {
		t.Fatal(err)
	}
	if th := r.Threads[1]; th.Fault != FaultStuck || th.Ops != 0 {
		t.Errorf("%+v", th)
	}
	if th := r.Threads[0]; th.Fault != "" || !th.Finished || th.Bytes != 256<<10 {
		t.Errorf("the other: %+v", th)
	}
	// Release the goroutine: after its open it must see that the run is over.
	f, err := os.OpenFile(b.file("data/c000-t001.data"), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestBenchFaults(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
		mend string
	}{
		{unix.ENOSPC, FaultNoSpace, "make room"}, {unix.EDQUOT, FaultNoSpace, "make room"}, {unix.EROFS, FaultReadOnly, "read-write"},
		{unix.ESTALE, FaultVanished, "mounted"}, {unix.EIO, FaultIO, ""},
	} {
		err := fmt.Errorf("at 5: %w", pathError("write", "/x", tc.err))
		if got := benchFault(err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
		if s := explain(err); !strings.Contains(s, tc.mend) || !strings.Contains(s, "write /x") {
			t.Errorf("%q", s)
		}
	}
}

// A phase that runs out of space keeps its measurements, and later phases can
// read the flushed records.
func TestBenchNoSpace(t *testing.T) {
	if ownprocess.Repeated(t) {
		return
	}
	b := newBench(t)
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_FSIZE, &lim)
	// The limit on file sizes gives EFBIG. ENOSPC needs a file system of its
	// own and was tried by hand (lab/engine.md).
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 128 << 10, Max: lim.Max}); err != nil {
		t.Fatal(err)
	}
	r, err := b.try(b.job(SeqWrite))
	_ = unix.Setrlimit(unix.RLIMIT_FSIZE, &lim)
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range r.Threads {
		if th.Fault != FaultIO || th.Errno != "EFBIG" || th.Bytes != 128<<10 || th.Finished {
			t.Errorf("%+v", th)
		}
	}
	if p := r.Regions[0].Passes[0]; p.Acked != 8 || p.Issued != 9 {
		t.Errorf("%+v", p)
	}
	b.clean(b.do(b.job(SeqRead)))
}

func TestBenchHoldAndStop(t *testing.T) {
	b := newBench(t)
	j := b.job(SeqWrite, func(j *BenchJob) { j.FileBytes = 1 << 40; j.Hold = true; j.NoFsync = true })
	start, stop := make(chan int64, 1), make(chan struct{})
	var waiting, running atomic.Int64
	begin := int64(0)
	r, err := Bench(t.Context(), j, start, stop, func(p BenchProgress) {
		switch p.State {
		case "waiting":
			if waiting.Add(1) == 1 {
				begin = time.Now().Add(50 * time.Millisecond).UnixNano()
				start <- begin
			}
		case "running":
			if p.Ops > 0 && running.Add(1) == 2 {
				close(stop)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.StoppedBy != "stop" || r.StartNs < begin || r.Threads[0].StartNs < r.StartNs || r.Bytes == 0 {
		t.Errorf("asked for %d: %+v", begin, r)
	}
	if waiting.Load() == 0 || running.Load() < 2 {
		t.Errorf("%d waiting, %d running", waiting.Load(), running.Load())
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
	if r, err = Bench(ctx, j, nil, nil, nil); err != nil || r.StoppedBy != "cancelled" {
		t.Errorf("%v, %+v", err, r)
	}
}

// The timeline, the threads' timelines and the histograms count the same
// operations, for any width of the buckets.
func TestBenchTimeline(t *testing.T) {
	old := maxTimeline
	maxTimeline = 16
	defer func() { maxTimeline = old }()
	b := newBench(t)
	r := b.do(b.job(SeqWrite, func(j *BenchJob) {
		j.FileBytes, j.RecordBytes, j.BucketSeconds, j.NoFsync, j.DurationSeconds = 1<<40, 4096, 0.001, true, 0.1
	}))
	tl := r.Timeline
	if n := len(tl.Buckets); n > 16 || n < 2 || tl.BucketSeconds < 0.006 {
		t.Errorf("%d buckets of %g s", n, tl.BucketSeconds)
	}
	var ops, bytes, hist, perThread int64
	for i, bu := range tl.Buckets {
		ops += bu.Ops
		bytes += bu.Bytes
		for _, th := range r.Threads {
			perThread += th.TimelineOps[i]
		}
		if bu.Ops == 0 {
			continue
		}
		h, err := hdrhistogram.Decode([]byte(bu.Histogram))
		if err != nil {
			t.Fatal(err)
		}
		hist += h.TotalCount()
		if bu.P50 <= 0 || bu.P50 > bu.P99 || bu.P99 > bu.Max {
			t.Errorf("%+v", bu)
		}
	}
	if ops != r.Ops || bytes != r.Bytes || hist != r.Ops || perThread != r.Ops || r.Latency.Count != r.Ops {
		t.Errorf("ops %d, timeline %d, histograms %d, threads %d, latency %d; bytes %d, timeline %d", r.Ops, ops, hist, perThread, r.Latency.Count, r.Bytes, bytes)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestPermutation(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 5, 16, 17, 1000, 4096} {
		p := newPermutation("x", n)
		seen := make([]bool, n)
		fixed := 0
		for i := range n {
			k := p.at(i)
			if k < 0 || k >= n || seen[k] {
				t.Fatalf("%d of %d: %d", i, n, k)
			}
			seen[k] = true
			if k == i {
				fixed++
			}
		}
		if n >= 1000 && fixed > 10 {
			t.Errorf("%d of %d things stay where they are", fixed, n)
		}
	}
}

func TestBenchCleanup(t *testing.T) {
	b := newBench(t)
	b.do(b.job(SeqWrite))
	b.do(b.job(MDCreate))
	params := BenchCleanupParams{RunID: "run", Dir: b.dir, Set: "tree"}
	if r, err := BenchCleanup(t.Context(), params, nil); err != nil || r.Removed != 30+2*4+1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(b.file("data/c000-t000.data")); err != nil {
		t.Error(err)
	}
	params.Set = ""
	if _, err := BenchCleanup(t.Context(), params, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.file("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	if r, err := BenchCleanup(t.Context(), params, nil); err != nil || r.Removed != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	// Cleanup refuses directories that no run made.
	other := filepath.Join(b.dir, "home")
	if err := os.MkdirAll(filepath.Join(other, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := BenchCleanup(t.Context(), BenchCleanupParams{RunID: "home", Dir: b.dir}, nil); err == nil || !strings.Contains(err.Error(), "nothing in it is touched") {
		t.Errorf("%v", err)
	}
	r, err := b.try(b.job(SeqWrite, func(j *BenchJob) { j.RunID = "home" }))
	if err != nil || r.Threads[0].Fault == "" || !strings.Contains(r.Threads[0].Error, "nothing in it is touched") {
		t.Errorf("%v, %+v", err, r)
	}
	if left, _ := os.ReadDir(filepath.Join(other, "data")); len(left) != 0 {
		t.Errorf("written into: %v", left)
	}
}

func TestBenchPrepare(t *testing.T) {
	dir := t.TempDir()
	f, err := BenchPrepare(t.Context(), BenchPrepareParams{RunID: "run", Dir: dir})
	if err != nil || f.CPUs < 1 || f.MemBytes <= 0 || f.FSType == "" || f.MountOptions == "" || f.FreeBytes <= 0 || f.NowNs == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := BenchPrepare(t.Context(), BenchPrepareParams{RunID: "run", Dir: dir}); err != nil {
		t.Errorf("the second client: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if f, err := BenchPrepare(t.Context(), BenchPrepareParams{RunID: "next", Dir: dir}); err != nil || len(f.Others) != 1 || f.Others[0] != "run" {
		t.Errorf("what another run has left: %v, %v", f, err)
	}
	for _, tc := range []struct {
		p    BenchPrepareParams
		want string
	}{
		{BenchPrepareParams{RunID: "run", Dir: dir, NeedBytes: 1 << 60}, "make room"},
		{BenchPrepareParams{RunID: "run", Dir: filepath.Join(dir, "none")}, "is it still mounted"},
		{BenchPrepareParams{RunID: "run", Dir: "none"}, "absolute"},
		{BenchPrepareParams{RunID: "a/b", Dir: dir}, "run_id"},
	} {
		if _, err := BenchPrepare(t.Context(), tc.p); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.p, err)
		}
	}
}

// A device is read in as many parts as there are threads.
func TestBenchDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []BenchPhase{SeqRead, RandRead} {
		r, err := Bench(t.Context(), BenchJob{RunID: "run", Device: path, Phase: p, Threads: 4, RecordBytes: 4096}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Threads[0].Fault; f != "" {
			if !strings.Contains(r.Threads[0].Error, "O_DIRECT") {
				t.Errorf("%+v", r.Threads[0])
			}
			continue
		}
		if r.Bytes != 1<<20 || r.Verified != nil {
			t.Errorf("%d bytes, %+v", r.Bytes, r.Verified)
		}
	}
	// Two parts with three threads in turn in each: every record is read once.
	job := BenchJob{RunID: "run", Device: path, Phase: SeqRead, Threads: 6, RegionThreads: 3, RecordBytes: 4096}
	if err := job.fill(); err != nil {
		t.Fatal(err)
	}
	run := &benchRun{job: job, clock: newClock()}
	if err := run.makeThreads(); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]int{}
	for n, th := range run.threads {
		w, ok := th.work.(*dataWork)
		if !ok {
			t.Fatal("no data work")
		}
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.fd = fd
		if err := w.part(); err != nil {
			t.Fatal(err)
		}
		for i := range w.records.Load() {
			off := w.offset(w.place(i))
			seen[off]++
			if half := off / (126 * 4096); half != int64(n/3) {
				t.Errorf("thread %d reads at %d", n, off)
			}
		}
		w.close()
	}
	if len(seen) != 2*126 {
		t.Errorf("%d records of 252 are read", len(seen))
	}
}
