package workload

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every parser reads what the real program has printed (testdata: fio 3.33,
// iozone 3.471, mdtest and IOR 4.1.0+dev).
func TestForeignOutputs(t *testing.T) {
	const mib = 1 << 20
	data := func(p BenchPhase, threads int, file, record int64) BenchJob {
		return BenchJob{Phase: p, Threads: threads, FileBytes: file, RecordBytes: record}
	}
	md := func(p BenchPhase) BenchJob { return BenchJob{Phase: p, Threads: 1, Branch: 10, Items: 100} }
	for _, tc := range []struct {
		file    string
		engine  BenchEngine
		job     BenchJob
		version string
		ops     int64
		bytes   int64
		rate    float64 // of all: bytes/s, or ops/s where there are no bytes
	}{
		{"fio-seq-write.json", EngineFio, data(SeqWrite, 2, 64*mib, mib), "fio-3.33", 128, 128 * mib, 0},
		{"fio-rand-read.json", EngineFio, data(RandRead, 2, 64*mib, 4096), "fio-3.33", 32768, 128 * mib, 0},
		{"iozone-seq-write.txt", EngineIozone, data(SeqWrite, 2, 64*mib, mib), "iozone 3.471", 128, 128 * mib, 3426373.75 * 1024},
		{"iozone-seq-read.txt", EngineIozone, data(SeqRead, 2, 64*mib, mib), "iozone 3.471", 128, 128 * mib, 4329102.38 * 1024},
		{"iozone-random.txt", EngineIozone, data(RandRead, 2, 64*mib, 4096), "iozone 3.471", 32768, 128 * mib, 1407327.12 * 4096},
		{"iozone-random.txt", EngineIozone, data(RandWrite, 2, 64*mib, 4096), "iozone 3.471", 32768, 128 * mib, 895528.56 * 4096},
		{"mdtest-create.txt", EngineMdtest, md(MDCreate), "mdtest 4.1.0+dev", 1000, 0, 330676.758},
		{"mdtest-stat.txt", EngineMdtest, md(MDStat), "mdtest 4.1.0+dev", 1000, 0, 390640.216},
		{"mdtest-remove.txt", EngineMdtest, md(MDRemove), "mdtest 4.1.0+dev", 1000, 0, 238828.379},
		{"ior-seq-write.json", EngineIOR, data(SeqWrite, 2, 64*mib, mib), "IOR 4.1.0+dev", 128, 128 * mib, 532.5815 * mib},
		{"ior-rand-read.json", EngineIOR, data(RandRead, 2, 16*mib, 4096), "IOR 4.1.0+dev", 8192, 32 * mib, 0},
	} {
		t.Run(tc.file, func(t *testing.T) {
			out, err := os.ReadFile(filepath.Join("testdata", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			r, err := foreignEngines[tc.engine].read(&tc.job, out)
			if err != nil {
				t.Fatal(err)
			}
			var ops, bytes int64
			slowest := 0.0
			for _, th := range r.threads {
				ops += th.ops
				bytes += th.bytes
				slowest = max(slowest, th.seconds)
				if th.err != nil || th.seconds <= 0 {
					t.Errorf("%+v", th)
				}
			}
			if r.version != tc.version || ops != tc.ops || bytes != tc.bytes {
				t.Errorf("%s, %d ops, %d bytes", r.version, ops, bytes)
			}
			amount := float64(bytes)
			if bytes == 0 {
				amount = float64(ops)
			}
			if got := amount / slowest; tc.rate > 0 && math.Abs(got/tc.rate-1) > 1e-6 {
				t.Errorf("rate %g, want %g", got, tc.rate)
			}
			// Nothing of it is understood by halves.
			if _, err := foreignEngines[tc.engine].read(&tc.job, out[:len(out)/3]); err == nil {
				t.Error("a third of the output passed")
			}
		})
	}
}

func TestFioLatency(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-rand-read.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: RandRead}, out)
	if err != nil || len(r.threads) != 2 {
		t.Fatal(err, r)
	}
	l := r.threads[0].latency
	// fio's own percentiles of that job: 50th 2.256 us, 99th 8.16 us in its coarser bins.
	if l.Count != 16384 || l.Histogram == "" || l.P50 <= l.Min || l.P50 >= l.P99 || l.P99 >= l.Max || l.Min < 700e-9 || l.Min > 900e-9 {
		t.Errorf("%+v", l)
	}
	if r.all.Count != 32768 {
		t.Errorf("%+v", r.all)
	}
}

// fio on a full file system: the error is told with its number.
func TestFioNoSpace(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-no-space.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite}, append([]byte("fio: a message before it\n"), out...))
	if err != nil || len(r.threads) != 1 || benchFault(r.threads[0].err) != FaultNoSpace {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestForeignCommands(t *testing.T) {
	j := BenchJob{RunID: "r", Dir: "/mnt", Phase: SeqRead, Threads: 2, FileBytes: 1 << 20, RecordBytes: 64 << 10}
	for _, tc := range []struct {
		engine BenchEngine
		change func(*BenchJob)
		want   string // in the command, in order
	}{
		{EngineFio, func(j *BenchJob) {}, "--rw=read --bs=65536 --size=1048576 --numjobs=2 --direct=0 --fadvise_hint=0 --filename_format=c003-t$jobnum.data --allow_file_create=0"},
		{EngineFio, func(j *BenchJob) { j.Phase = RandWrite; j.DurationSeconds = 1.5 }, "--rw=randwrite --direct=1 --end_fsync=1 --runtime=1500ms"},
		{EngineFio, func(j *BenchJob) { j.Layout = Segmented }, "--filename=shared.data --offset=6291456 --offset_increment=1048576"},
		{EngineIozone, func(j *BenchJob) { j.Phase = SeqWrite }, "-i 0 -c -e -w -+n -r 64k -s 1024k -t 2 -F /d/c003-t000.data /d/c003-t001.data"},
		{EngineIozone, func(j *BenchJob) { j.Phase = RandRead }, "-i 2 -O -I -w -+n"},
		{EngineMdtest, func(j *BenchJob) { j.Phase = MDCreate; j.Branch, j.Items = 320, 3000 }, "-d /d/c003 -b 320 -z 1 -L -I 3000 -u -t -F -C"},
		{EngineMdtest, func(j *BenchJob) { j.Phase = MDStat; j.Branch, j.Items = 320, 3000 }, "-T -R"},
		{EngineIOR, func(j *BenchJob) { j.Layout = Strided }, "-o /d/c003 -t 65536 -b 65536 -s 16 -r -E"},
		{EngineIOR, func(j *BenchJob) { j.Phase = SeqWrite; j.DurationSeconds = 1.5 }, "-b 1048576 -F -w -e -D 2"},
	} {
		k := j
		tc.change(&k)
		if err := k.fill(); err != nil {
			t.Fatal(err)
		}
		argv := foreignEngines[tc.engine].command(&k, "/d", "/rep", 3)
		left := argv
		for _, w := range strings.Fields(tc.want) {
			i := 0
			for i < len(left) && left[i] != w {
				i++
			}
			if i == len(left) {
				t.Errorf("%s: no %q after what came before in %q", tc.engine, w, argv)
				break
			}
			left = left[i+1:]
		}
	}
	for _, tc := range []struct {
		engine BenchEngine
		change func(*BenchJob)
	}{
		{EngineFio, func(j *BenchJob) { j.Phase = MDCreate }},
		{EngineFio, func(j *BenchJob) { j.Layout = Strided }},
		{EngineMdtest, func(j *BenchJob) {}},
		{EngineIozone, func(j *BenchJob) { j.DurationSeconds = 3 }},
	} {
		k := j
		k.Engine = tc.engine
		tc.change(&k)
		if _, err := Bench(t.Context(), k, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "cannot") {
			t.Errorf("%+v: %v", k, err)
		}
	}
}

// The installed fio, or the refusal where there is none.
func TestForeignRun(t *testing.T) {
	b := newBench(t)
	fio := func(j *BenchJob) { j.Engine, j.FileBytes, j.RecordBytes = EngineFio, 64<<20, 64<<10 }
	r, err := b.try(b.job(SeqWrite, fio))
	if _, missing := exec.LookPath("fio"); missing != nil {
		if err == nil || !strings.Contains(err.Error(), "not installed") {
			t.Errorf("%v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Threads) != 2 || r.Bytes != 128<<20 || r.Ops != 2048 || r.Threads[0].Fault != "" || r.EndNs <= r.StartNs || r.StoppedBy != "done" || len(r.Regions) != 2 {
		t.Errorf("%+v", r)
	}
	if r.Latency.Histogram == "" || r.UserCPUSeconds+r.SysCPUSeconds <= 0 || !strings.HasPrefix(r.EngineVersion, "fio-") {
		t.Errorf("%+v", r)
	}
	if r := b.do(b.job(SeqRead, fio)); r.Bytes != 128<<20 || r.Verified != nil {
		t.Errorf("%+v", r)
	}
	// Files that are not there.
	r, err = b.try(b.job(SeqRead, fio, func(j *BenchJob) { j.Set = "none"; j.Regions = b.regions["data"] }))
	if err != nil || r.Threads[0].Fault == "" || !strings.Contains(r.Threads[0].Error, "fio") {
		t.Errorf("%v, %+v", err, r)
	}
	// Ended from outside.
	stop := make(chan struct{})
	j := b.job(RandRead, fio, func(j *BenchJob) { j.RecordBytes = 4096; j.FileBytes = 64 << 20; j.Threads = 2 })
	r, err = Bench(t.Context(), j, nil, stop, func(p BenchProgress) {
		if p.State == "running" {
			select {
			case <-stop:
			default:
				close(stop)
			}
		}
	})
	if err != nil || r.StoppedBy != "stop" && r.StoppedBy != "done" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestForeignFailure(t *testing.T) {
	p := &program{argv: []string{"ior"}, err: &exec.ExitError{ProcessState: &os.ProcessState{}}}
	p.errOut.WriteString("one\ntwo\nthree\nERROR: write() failed, No space left on device\n")
	err := p.failure(nil)
	if benchFault(err) != FaultNoSpace || !strings.Contains(err.Error(), "write() failed") || strings.Contains(err.Error(), "one") || errno(err) != unix.ErrnoName(unix.ENOSPC) {
		t.Error(err)
	}
}

// A program that does nothing any more is ended, and says so.
func TestForeignHangs(t *testing.T) {
	p := &program{argv: []string{"sleep", "3600"}, clock: newClock(), emit: func(string, float64) {}, every: 20 * time.Millisecond, giveUp: 300 * time.Millisecond}
	res := &BenchResult{}
	p.run(t.Context(), nil, res)
	err := p.failure(nil)
	if benchFault(err) != FaultStuck || !strings.Contains(err.Error(), "did nothing") || res.StoppedBy != "" {
		t.Errorf("%v, stopped by %q", err, res.StoppedBy)
	}
}

// Whatever a program prints, its parser answers with figures that make sense
// or with an error.
func FuzzForeignOutputs(f *testing.F) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		for e, engine := range foreignEngines {
			for _, p := range BenchPhases {
				j := BenchJob{Phase: p, Engine: e, Threads: 2, FileBytes: 1 << 20, RecordBytes: 4096, Branch: 10, Items: 100}
				r, err := engine.read(&j, out)
				if err != nil {
					continue
				}
				for _, th := range r.threads {
					if th.err == nil && (th.ops < 0 || th.bytes < 0 || th.seconds < 0 || math.IsNaN(th.seconds) || math.IsInf(th.seconds, 0)) {
						t.Errorf("%s: %+v of %q", e, th, out)
					}
				}
			}
		}
	})
}
