package workload

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

func TestFioLatency(t *testing.T) {
	report, err := os.ReadFile("testdata/fio-seq-write.json")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile("testdata/fio-seq-write.log")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, threadWork{}, output{report: report, log: log})
	if err != nil {
		t.Fatal(err)
	}
	// The log has the same operations in the same bins as the report.
	whole, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, threadWork{}, output{report: report})
	if err != nil || len(whole.spells) != 1 || whole.spells[0].bins.Ops() != 64 {
		t.Fatal(err, whole)
	}
	got, last := Bins{}, int64(0)
	for _, s := range r.spells {
		got.Add(s.bins)
		if s.at < last {
			t.Errorf("%d ns after %d", s.at, last)
		}
		last = s.at
	}
	if d := cmp.Diff(whole.spells[0].bins, got); d != "" || len(r.spells) < 3 {
		t.Errorf("%d spells: %s", len(r.spells), d)
	}
	if _, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, threadWork{}, output{report: report, log: append(log, log...)}); err == nil {
		t.Error("a log with twice the operations passes")
	}
}

// On a full file system the error of fio has its errno.
func TestFioNoSpace(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-no-space.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, threadWork{}, output{report: append([]byte("fio: a message before it\n"), out...)})
	if err != nil || benchFault(r.err) != FaultNoSpace {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestProgramFails(t *testing.T) {
	p := &program{argv: []string{"fio"}, err: &exec.ExitError{ProcessState: &os.ProcessState{}}}
	p.errOut.WriteString("one\ntwo\nthree\nERROR: write() failed, No space left on device\n")
	err := p.failure(nil)
	if benchFault(err) != FaultNoSpace || !strings.Contains(err.Error(), "write() failed") || strings.Contains(err.Error(), "one") || errno(err) != unix.ErrnoName(unix.ENOSPC) {
		t.Error(err)
	}
}

// A program that uses no CPU is ended, and the error says so.
func TestProgramHangs(t *testing.T) {
	p := &program{argv: []string{"sleep", "3600"}, dir: t.TempDir(), giveUp: 300 * time.Millisecond}
	begin := make(chan struct{})
	close(begin)
	p.run(func() {}, begin, nil)
	if err := p.failure(nil); benchFault(err) != FaultStuck {
		t.Error(err)
	}
}

// For any output of a program, its parser returns plausible figures or an error.
func FuzzOutputs(f *testing.F) {
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
		for _, p := range BenchPhases {
			j := BenchJob{Phase: p, Threads: 2, FileBytes: 1 << 20, RecordBytes: 4096, Branch: 10, Items: 100}
			r, err := parseOutput(&j, threadWork{files: 10}, output{report: out, log: out, said: string(out)})
			if err == nil && r.err == nil && (r.ops < 0 || r.bytes < 0 || r.seconds < 0 || math.IsNaN(r.seconds) || math.IsInf(r.seconds, 0)) {
				t.Errorf("%s: %+v of %q", p, r, out)
			}
		}
	})
}

// allJobs has a job of every phase and layout.
func allJobs() (out []BenchJob) {
	for _, p := range BenchPhases {
		for _, l := range BenchLayouts {
			if p.Metadata() && l != OwnFile {
				continue
			}
			j := BenchJob{RunID: "run", Dir: "/mnt", Phase: p, Layout: l, Threads: 2, Buffered: true}
			if p.Metadata() {
				j.Branch, j.Items, j.ItemBytes = 3, 100, 1000
			} else {
				j.FileBytes, j.RecordBytes = 32*mib, 16<<10
			}
			out = append(out, j)
		}
	}
	return out
}

// three is what rank 3 does.
var three = threadWork{rank: 3, owner: 3, dir: "/d", bytes: mib, files: 50}

// The command names the program, its options and the files of the right rank,
// and differs from phase to phase.
func TestCommand(t *testing.T) {
	seen := map[string]BenchPhase{}
	for _, j := range allJobs() {
		if err := j.fill(); err != nil {
			t.Fatal(err)
		}
		argv := fioCommand(&j, three)
		text := strings.Join(argv, " ")
		exe := fio
		if j.Phase == Find {
			exe = "find"
		}
		if argv[0] != exe || slices.Contains(argv, "") || !strings.Contains(text, "/d") && j.Phase != Find || j.Layout == OwnFile && !strings.Contains(text, "r3.") {
			t.Errorf("%s %s: %q", j.Phase, j.Layout, argv)
		}
		if p, twice := seen[text]; twice {
			t.Errorf("%s and %s: the same command %q", p, j.Phase, argv)
		}
		seen[text] = j.Phase
		if j.DurationSeconds = 2; j.Phase != Find && slices.Equal(fioCommand(&j, three), argv) {
			t.Errorf("%s: its command does not tell when to end", j.Phase)
		}
	}
	for _, x := range []struct {
		change func(*BenchJob) // applied to a sequential read
		want   string          // words that the command has, in that order
	}{
		{func(j *BenchJob) {}, "--name=r3 --create_on_open=1 --fadvise_hint=0 --allow_file_create=0 --rw=read --bs=65536 --filename=/d/r3.data --offset=0 --size=1048576 --direct=0 --verify=crc32c --verify_interval=4096"},
		{func(j *BenchJob) { j.Phase = RandWrite; j.DurationSeconds = 1.5 }, "--runtime=1500ms --rw=randwrite --direct=1 --end_fsync=1"},
		{func(j *BenchJob) { j.Phase = SeqRewrite }, "--name=r3 --create_on_open=1 --rw=write --bs=65536 --filename=/d/r3.data --direct=0 --end_fsync=1"},
		{func(j *BenchJob) { j.SmallBytes, j.DurationSeconds = 4096, 2 }, "--runtime=2000ms --time_based=1 --allow_file_create=0 --rw=randread --bs=4096 --filename=/d/r3.data --direct=1"},
		{func(j *BenchJob) { j.Layout = Segmented }, "--filename=/d/shared.data --offset=3145728 --size=1048576"},
		{func(j *BenchJob) { j.Layout = Strided }, "--rw=read:65536 --filename=/d/shared.data --offset=196608 --size=2031616 --io_size=1048576"},
		{func(j *BenchJob) { j.Phase, j.Branch, j.Items = MDStat, 1, 50 }, "--ioengine=filestat --directory=/d/r3.tree --filename_format=r3.$filenum --nrfiles=50 --file_service_type=random"},
		{func(j *BenchJob) { j.Phase, j.ItemBytes, j.ItemSync = MDCreate, 3901, true }, "--ioengine=psync --filesize=3901 --bs=3901 --rw=write --verify=crc32c --fsync_on_close=1"},
		{func(j *BenchJob) { j.Phase, j.Set = Find, "hard" }, "find / -mindepth 2 -type d ! -name r3.* -prune -name *01* -newer -path */hard/*"},
		{func(j *BenchJob) { j.Phase, j.Branch, j.Items = MDMkdir, 1, 50 }, "--ioengine=dircreate --directory=/d/r3.tree --filename_format=r3.$filenum --nrfiles=50 --file_service_type=sequential"},
	} {
		j := BenchJob{RunID: "r", Dir: "/mnt", Phase: SeqRead, Threads: 2, FileBytes: 1 << 20, RecordBytes: 64 << 10}
		x.change(&j)
		if err := j.fill(); err != nil {
			t.Fatal(err)
		}
		argv := fioCommand(j.of(three.rank), three)
		left := argv
		for _, w := range strings.Fields(x.want) {
			i := slices.Index(left, w)
			if i < 0 {
				t.Errorf("no %q after what came before in %q", w, argv)
				break
			}
			left = left[i+1:]
		}
	}
}

// The parser reads fio's output (testdata: fio 3.33), and refuses truncated
// output.
func TestOutput(t *testing.T) {
	for _, x := range []struct {
		file       string
		job        BenchJob
		ops, bytes int64
	}{
		{"fio-seq-write.json", BenchJob{Phase: SeqWrite, FileBytes: 64 * mib, RecordBytes: mib}, 64, 64 * mib},
		{"fio-md-stat.json", BenchJob{Phase: MDStat, Branch: 10, Items: 100}, 1000, 0},
	} {
		out, err := os.ReadFile(filepath.Join("testdata", x.file))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := parseOutput(&x.job, threadWork{}, output{report: out}); err != nil || r.ops != x.ops || r.bytes != x.bytes || r.err != nil || r.seconds <= 0 {
			t.Errorf("%s: %v, %+v", x.file, err, r)
		}
		for what, part := range map[string][]byte{"a third": out[:len(out)/3], "nothing": nil, "other words": []byte("command not found\n")} {
			if _, err := parseOutput(&x.job, threadWork{}, output{report: part}); err == nil {
				t.Errorf("%s: %s of the output passes", x.file, what)
			}
		}
	}
}

// fio does every job, directories from 3.37 on.
func TestEveryJob(t *testing.T) {
	version, err := fioVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	directories := DoesDirectories(version)
	for _, l := range BenchLayouts {
		b := newBench(t)
		for _, j := range allJobs() {
			if j.Layout != l || j.Phase == Find || j.Phase.Directories() && !directories {
				continue // Find looks at other sets; TestBenchShared runs it
			}
			j.Dir = b.dir
			j = b.job(j.Phase, func(k *BenchJob) { *k = j })
			r, err := b.try(j)
			if err != nil {
				t.Fatalf("%s %s: %v", j.Phase, l, err)
			}
			ops := int64(2 * 32 * mib / (16 << 10))
			if j.Phase.Metadata() {
				ops = 2 * 3 * 100
			}
			if r.Ops != ops || r.StoppedBy != "done" || r.EndNs <= r.StartNs || r.Threads[0].Fault != "" || r.CPUSeconds <= 0 {
				t.Errorf("%s %s: %+v", j.Phase, l, r)
			}
		}
	}
}

func TestDoesDirectories(t *testing.T) {
	for version, want := range map[string]bool{"fio-3.33": false, "fio-3.36-12-gabc": false, "fio-3.37": true, "fio-3.39": true, "fio-4.0": true, "": false, "fio": false} {
		if DoesDirectories(version) != want {
			t.Errorf("%q", version)
		}
	}
}

// Without its files, fio's error is the thread's.
func TestMissingFiles(t *testing.T) {
	b := newBench(t)
	r, err := b.try(b.job(SeqRead, func(j *BenchJob) { j.Regions = []BenchRegion{{Rank: 0, Bytes: 256 << 10}, {Rank: 1, Bytes: 256 << 10}} }))
	if err != nil || r.Threads[0].Fault == "" || !strings.Contains(r.Threads[0].Error, fio) {
		t.Errorf("%v, %+v", err, r)
	}
}
