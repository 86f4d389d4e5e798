package workload

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mib = 1 << 20

// engineCase is one engine's data for the conformance suite.
type engineCase struct {
	// outputs are recorded outputs of the real program (testdata: fio 3.33,
	// iozone 3.471, mdtest and IOR 4.1.0+dev).
	outputs []engineOutput
	// argv are words that a job's command must contain, in that order.
	argv []engineArgv
}

type engineOutput struct {
	file  string
	job   BenchJob
	ops   int64
	bytes int64
	rate  float64 // of all threads: bytes/s, or ops/s of a phase without bytes; 0: not compared
}

type engineArgv struct {
	change func(*BenchJob) // applied to a sequential read
	want   string
}

func dataJob(p BenchPhase, file, record int64) BenchJob {
	return BenchJob{Phase: p, Threads: 2, FileBytes: file, RecordBytes: record}
}

func treeJob(p BenchPhase) BenchJob {
	return BenchJob{Phase: p, Threads: 1, Branch: 10, Items: 100}
}

var engineCases = map[BenchEngine]engineCase{
	"fio": {
		outputs: []engineOutput{
			{"fio-seq-write.json", dataJob(SeqWrite, 64*mib, mib), 64, 64 * mib, 0},
			{"fio-md-stat.json", treeJob(MDStat), 1000, 0, 0},
		},
		argv: []engineArgv{
			{func(j *BenchJob) {}, "--name=r3 --create_on_open=1 --fadvise_hint=0 --allow_file_create=0 --rw=read --bs=65536 --filename=/d/r3.data --offset=0 --size=1048576 --direct=0 --verify=crc32c --verify_interval=4096"},
			{func(j *BenchJob) { j.Phase = RandWrite; j.DurationSeconds = 1.5 }, "--runtime=1500ms --rw=randwrite --direct=1 --end_fsync=1"},
			{func(j *BenchJob) { j.Layout = Segmented }, "--filename=/d/shared.data --offset=3145728 --size=1048576"},
			{func(j *BenchJob) { j.Layout = Strided }, "--rw=read:65536 --filename=/d/shared.data --offset=196608 --size=2031616 --io_size=1048576"},
			{func(j *BenchJob) { j.Phase, j.Branch, j.Items = MDStat, 1, 50 }, "--ioengine=filestat --directory=/d/r3.tree --filename_format=r3.$filenum --nrfiles=50 --file_service_type=random"},
			{func(j *BenchJob) { j.Phase, j.ItemBytes, j.ItemSync = MDCreate, 3901, true }, "--ioengine=psync --filesize=3901 --bs=3901 --rw=write --verify=crc32c --fsync_on_close=1"},
			{func(j *BenchJob) { j.Phase, j.Set = Find, "hard" }, "find / -mindepth 2 -type d ! -name r3.* -prune -name *01* -newer -path */hard/*"},
		},
	},
	"iozone": {
		outputs: []engineOutput{
			{"iozone-seq-write.txt", dataJob(SeqWrite, 64*mib, mib), 128, 128 * mib, 3426373.75 * 1024},
			{"iozone-seq-read.txt", dataJob(SeqRead, 64*mib, mib), 128, 128 * mib, 4329102.38 * 1024},
			{"iozone-random.txt", dataJob(RandRead, 64*mib, 4096), 32768, 128 * mib, 1407327.12 * 4096},
			{"iozone-random.txt", dataJob(RandWrite, 64*mib, 4096), 32768, 128 * mib, 895528.56 * 4096},
		},
		argv: []engineArgv{
			{func(j *BenchJob) { j.Phase = SeqWrite }, "-i 0 -c -e -w -+n -r 64k -s 1024k -t 2 -F /d/c003-t000.data /d/c003-t001.data"},
			{func(j *BenchJob) { j.Phase = RandRead }, "-i 2 -O -I -w -+n"},
		},
	},
	"mdtest": {
		outputs: []engineOutput{
			{"mdtest-create.txt", treeJob(MDCreate), 1000, 0, 330676.758},
			{"mdtest-stat.txt", treeJob(MDStat), 1000, 0, 390640.216},
			{"mdtest-remove.txt", treeJob(MDRemove), 1000, 0, 238828.379},
		},
		argv: []engineArgv{
			{func(j *BenchJob) { j.Phase = MDCreate; j.Branch, j.Items = 320, 3000 }, "-d /d/c003 -b 320 -z 1 -L -I 3000 -u -t -F -C"},
			{func(j *BenchJob) { j.Phase = MDStat; j.Branch, j.Items = 320, 3000 }, "-T -R"},
		},
	},
	"ior": {
		outputs: []engineOutput{
			{"ior-seq-write.json", dataJob(SeqWrite, 64*mib, mib), 128, 128 * mib, 532.5815 * mib},
			{"ior-rand-read.json", dataJob(RandRead, 16*mib, 4096), 8192, 32 * mib, 0},
		},
		argv: []engineArgv{
			{func(j *BenchJob) { j.Layout = Strided }, "-o /d/c003 -t 65536 -b 65536 -s 16 -r -E"},
			{func(j *BenchJob) { j.Phase = SeqWrite; j.DurationSeconds = 1.5 }, "-b 1048576 -F -w -e -D 2"},
		},
	},
}

// Every engine passes the same cases.
func TestEngines(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e.name), func(t *testing.T) {
			c, ok := engineCases[e.name]
			if !ok {
				t.Fatal("no case in engineCases")
			}
			t.Run("capabilities", func(t *testing.T) { engineIsAble(t, e) })
			t.Run("command", func(t *testing.T) { engineCommand(t, e, c) })
			t.Run("output", func(t *testing.T) { engineOutputs(t, e, c) })
			t.Run("run", func(t *testing.T) { engineRuns(t, e) })
		})
	}
}

// engineJobs returns a job of every kind that the engine can do, and of every
// kind that it cannot.
func engineJobs(e *engine) (able, unable []BenchJob) {
	for _, p := range BenchPhases {
		for _, l := range BenchLayouts {
			if p.Metadata() && l != OwnFile {
				continue
			}
			j := BenchJob{RunID: "run", Dir: "/mnt", Engine: e.name, Phase: p, Layout: l, Threads: 2, Buffered: true}
			if p.Metadata() {
				j.Branch, j.Items, j.ItemBytes = 3, 100, 1000
			} else {
				j.FileBytes, j.RecordBytes = 32*mib, 16<<10
			}
			if slices.Contains(e.phases, p) && slices.Contains(e.layouts, l) {
				able = append(able, j)
			} else {
				unable = append(unable, j)
			}
		}
	}
	return able, unable
}

// Able accepts exactly the jobs that the engine declares. Bench refuses any
// other job before it touches a file.
func engineIsAble(t *testing.T, e *engine) {
	able, unable := engineJobs(e)
	if len(able) == 0 {
		t.Fatal("it can do nothing")
	}
	for _, j := range able {
		if err := j.Able(); err != nil {
			t.Errorf("%s %s: %v", j.Phase, j.Layout, err)
		}
		for what, change := range map[string]func(*BenchJob){
			"a time":                  func(j *BenchJob) { j.DurationSeconds = 3 },
			"a shared directory":      func(j *BenchJob) { j.Shared = true },
			"a part of the records":   func(j *BenchJob) { j.Limit = 3 },
			"a layout nobody knows":   func(j *BenchJob) { j.Layout = "round" },
			"a phase that nobody has": func(j *BenchJob) { j.Phase = "sing" },
		} {
			k := j
			change(&k)
			may := e.perThread && what != "a layout nobody knows" && what != "a phase that nobody has" || what == "a time" && e.endsByTime
			if err := k.Able(); (err == nil) != may {
				t.Errorf("%s %s with %s: %v", j.Phase, j.Layout, what, err)
			}
		}
	}
	for _, j := range unable {
		b := newBench(t)
		j.Dir = b.dir
		if _, err := b.try(j); err == nil || !strings.Contains(err.Error(), "cannot") {
			t.Errorf("%s %s: %v", j.Phase, j.Layout, err)
		}
		if left, _ := os.ReadDir(filepath.Join(b.dir, "run")); len(left) > 1 { // the marker
			t.Errorf("%s %s is refused, and left %v", j.Phase, j.Layout, left)
		}
	}
}

// three is what rank 3 or client 3 does.
var three = work{thread: 1, rank: 3, owner: 3, dir: "/d", bytes: mib, files: 50}

// The command names the program, its options and the files of the right client,
// and differs from phase to phase.
func engineCommand(t *testing.T, e *engine, c engineCase) {
	able, _ := engineJobs(e)
	seen := map[string]BenchPhase{}
	for _, j := range able {
		if err := j.fill(); err != nil {
			t.Fatal(err)
		}
		argv := e.command(&j, three)
		text := strings.Join(argv, " ")
		exe, file := string(e.name), "c003"
		if e.perThread {
			file = "r3."
		}
		if j.Phase == Find {
			exe = "find"
		}
		if argv[0] != exe || slices.Contains(argv, "") || !strings.Contains(text, "/d") && j.Phase != Find || j.Layout == OwnFile && !strings.Contains(text, file) {
			t.Errorf("%s %s: %q", j.Phase, j.Layout, argv)
		}
		// One iozone command does the random writes and reads.
		if p, twice := seen[text]; twice && e.name != "iozone" {
			t.Errorf("%s and %s: the same command %q", p, j.Phase, argv)
		}
		seen[text] = j.Phase
		if e.endsByTime && j.Phase != Find {
			j.DurationSeconds = 2
			if slices.Equal(e.command(&j, three), argv) {
				t.Errorf("%s: its command does not tell when to end", j.Phase)
			}
		}
	}
	if len(c.argv) == 0 {
		t.Error("no example of a command")
	}
	for _, x := range c.argv {
		j := BenchJob{RunID: "r", Dir: "/mnt", Phase: SeqRead, Threads: 2, FileBytes: 1 << 20, RecordBytes: 64 << 10}
		x.change(&j)
		if err := j.fill(); err != nil {
			t.Fatal(err)
		}
		argv := e.command(&j, three)
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

// The parser reads the real program's output, and refuses truncated output.
func engineOutputs(t *testing.T, e *engine, c engineCase) {
	if len(c.outputs) < 2 {
		t.Error("fewer than two recorded outputs")
	}
	for _, x := range c.outputs {
		out, err := os.ReadFile(filepath.Join("testdata", x.file))
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.read(&x.job, work{}, output{report: out})
		if err != nil {
			t.Fatalf("%s: %v", x.file, err)
		}
		var ops, bytes int64
		slowest := 0.0
		for _, th := range r.threads {
			ops, bytes, slowest = ops+th.ops, bytes+th.bytes, max(slowest, th.seconds)
			if th.err != nil || th.seconds <= 0 {
				t.Errorf("%s: %+v", x.file, th)
			}
		}
		if ops != x.ops || bytes != x.bytes {
			t.Errorf("%s: %d ops, %d bytes", x.file, ops, bytes)
		}
		amount := float64(bytes)
		if bytes == 0 {
			amount = float64(ops)
		}
		if got := amount / slowest; x.rate > 0 && math.Abs(got/x.rate-1) > 1e-6 {
			t.Errorf("%s: rate %g, want %g", x.file, got, x.rate)
		}
		for what, part := range map[string][]byte{"a third": out[:len(out)/3], "nothing": nil, "other words": []byte("command not found\n")} {
			if _, err := e.read(&x.job, work{}, output{report: part}); err == nil {
				t.Errorf("%s: %s of the output passes", x.file, what)
			}
		}
	}
}

// The real program does every job that the engine declares. If the program is
// not installed (scripts/deps.sh installs fio), the error says so.
func engineRuns(t *testing.T, e *engine) {
	_, missing := exec.LookPath(string(e.name))
	able, _ := engineJobs(e)
	for _, l := range e.layouts {
		b := newBench(t)
		for _, j := range able {
			if j.Layout != l || j.Phase == Find {
				continue // Find looks at other sets; TestBenchShared runs it
			}
			j.Dir = b.dir
			j = b.job(j.Phase, func(k *BenchJob) { *k = j })
			r, err := b.try(j)
			if missing != nil {
				if err == nil || !strings.Contains(err.Error(), "not installed") {
					t.Errorf("%s: %v", j.Phase, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s %s: %v", j.Phase, l, err)
			}
			ops := int64(2 * 32 * mib / (16 << 10))
			if j.Phase.Metadata() {
				ops = 2 * 3 * 100
			}
			if r.Ops != ops || r.StoppedBy != "done" || r.EndNs <= r.StartNs || r.Threads[0].Fault != "" {
				t.Errorf("%s %s: %+v", j.Phase, l, r)
			}
			if r.CPUSeconds <= 0 {
				t.Errorf("%s %s: %+v", j.Phase, l, r)
			}
		}
	}
	if missing != nil || !slices.Contains(e.phases, SeqRead) {
		return
	}
	// The files do not exist.
	b := newBench(t)
	r, err := b.try(b.job(SeqRead, func(j *BenchJob) {
		j.Engine, j.Regions = e.name, []BenchRegion{{Rank: 0, Bytes: 256 << 10}, {Rank: 1, Bytes: 256 << 10}}
	}))
	if err != nil || r.Threads[0].Fault == "" || !strings.Contains(r.Threads[0].Error, string(e.name)) {
		t.Errorf("%v, %+v", err, r)
	}
	// A stop ends the program.
	size := func(j *BenchJob) { j.Engine, j.FileBytes, j.RecordBytes = e.name, 64*mib, 4096 }
	b.do(b.job(SeqWrite, size))
	stop := make(chan struct{})
	r, err = Bench(t.Context(), b.job(RandRead, size), nil, stop, func(p BenchProgress) {
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

func TestUnknownEngine(t *testing.T) {
	for _, err := range []error{BenchEngine("dd").Check(), (&BenchJob{Engine: "dd", Phase: SeqRead}).Able()} {
		if err == nil || !strings.Contains(err.Error(), `engine "dd": use fio, iozone, mdtest or ior`) {
			t.Error(err)
		}
	}
	for e, want := range map[BenchEngine]string{"fio": "apt-get install fio", "ior": "build it from source"} {
		if got := e.Install(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", e, got)
		}
	}
}
