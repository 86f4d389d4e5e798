package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// The test binary is also the worker process that tests kill: with a job in its
// environment it runs the job until a test kills it.
func TestMain(m *testing.M) {
	if raw := os.Getenv("MORTAR_TEST_JOB"); raw != "" {
		var job Job
		if err := json.Unmarshal([]byte(raw), &job); err != nil {
			panic(err)
		}
		_, err := Run(context.Background(), job, Control{}, func(p Progress) { fmt.Println(p.Workers[0].Ops) })
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// scratch makes a directory on the machine's disk and one on tmpfs.
func scratch(t *testing.T) map[string]string {
	t.Helper()
	shm, err := os.MkdirTemp("/dev/shm", "mortar-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	return map[string]string{"disk": t.TempDir(), "tmpfs": shm}
}

// until ends a run when every worker satisfies enough, so that no test depends
// on the machine's speed.
func until(t *testing.T, job Job, enough func(WorkerProgress) bool) *Result {
	t.Helper()
	job.ProgressSeconds = 0.02
	stop := make(chan struct{})
	var closed atomic.Bool
	res, err := Run(t.Context(), job, Control{Stop: stop}, func(p Progress) {
		if !slices.ContainsFunc(p.Workers, func(w WorkerProgress) bool { return !enough(w) }) && !closed.Swap(true) {
			close(stop)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func verify(t *testing.T, p VerifyParams) *stream.Report {
	t.Helper()
	v, err := Verify(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func fsyncs(w WorkerResult) int64 {
	if w.FsyncLatency == nil {
		return 0
	}
	return w.FsyncLatency.Count
}

func TestEveryModeVerifies(t *testing.T) {
	for fs, dir := range scratch(t) {
		t.Run(fs, func(t *testing.T) {
			job := Job{RunID: "modes", LedgerDir: t.TempDir()}
			for _, p := range []Pattern{Seq, Random, Append} {
				for _, m := range []Mode{OSync, Fsync} {
					w := Writer{Name: string(p) + "-" + string(m), Dir: dir, Pattern: p, Mode: m, BlockBytes: 8192, FileBytes: 40 * 8192, FsyncEvery: 7, OpsPerSecond: 2000}
					if p == Append {
						w.FileBytes = 0
					}
					job.Writers = append(job.Writers, w)
				}
			}
			res := until(t, job, func(w WorkerProgress) bool { return w.Ops >= 90 })
			if res.ErrorCount != 0 || res.Violations != 0 || len(res.Stuck) != 0 || res.StoppedBy != "stop" {
				t.Fatalf("%+v", res)
			}
			var acked int64
			for _, w := range res.Workers {
				acked += w.AckedBytes
				var ops, bytes int64
				for i := range w.Timeline.Ops {
					ops += w.Timeline.Ops[i]
					bytes += w.Timeline.Bytes[i]
				}
				if ops != w.Ops || bytes != w.AckedBytes || w.Latency.Count+fsyncs(w) != w.Ops {
					t.Errorf("%s: timeline %d ops %d bytes, counted %d and %d", w.Worker, ops, bytes, w.Ops, w.AckedBytes)
				}
				if w.Latency.Max <= 0 || w.Failed != "" {
					t.Errorf("%+v", w)
				}
			}
			if res.AcknowledgedBytes != acked {
				t.Errorf("%d acknowledged, sum %d", res.AcknowledgedBytes, acked)
			}
			v := verify(t, VerifyParams{Ledger: job.LedgerDir})
			if !v.Pass() || len(v.Files) != 6 || v.AcknowledgedBytes < 6*30*8192 || v.InDoubtBytes != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// After each of several kill -9, the acknowledged data exists.
func TestKilledWriter(t *testing.T) {
	for fs, dir := range scratch(t) {
		t.Run(fs, func(t *testing.T) {
			for n := range 4 {
				job := Job{RunID: fmt.Sprint("killed", n), LedgerDir: t.TempDir(), ProgressSeconds: 0.01, Writers: []Writer{
					{Name: "a", Dir: dir, Pattern: Random, BlockBytes: 16384, FileBytes: 1 << 20},
					{Name: "b", Dir: dir, Pattern: Append, Mode: Fsync, BlockBytes: 4096},
				}}
				raw, err := json.Marshal(job)
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "MORTAR_TEST_JOB="+string(raw))
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				cmd.Stderr = os.Stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				sc := bufio.NewScanner(out)
				for sc.Scan() {
					var n int
					if _, err := fmt.Sscan(sc.Text(), &n); err != nil {
						t.Fatal(sc.Text())
					}
					if n > 20 {
						break
					}
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				v := verify(t, VerifyParams{Ledger: job.LedgerDir})
				if !v.Pass() || v.AcknowledgedBytes == 0 {
					t.Fatalf("%+v", v)
				}
			}
		})
	}
}

func TestDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	job := Job{RunID: "damage", LedgerDir: t.TempDir(), Writers: []Writer{{Name: "a", Dir: dir, BlockBytes: 4096, FileBytes: 64 * 4096}, {Name: "b", Dir: dir, BlockBytes: 4096, FileBytes: 64 * 4096}}}
	until(t, job, func(w WorkerProgress) bool { return w.Ops >= 64 })
	a, b := filepath.Join(dir, "damage", "a.data"), filepath.Join(dir, "damage", "b.data")
	good, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	bdata, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for _, tc := range []struct {
		name   string
		damage func() error
		class  stream.Class
		blocks int64
		from   string
	}{
		{"truncated", func() error { return os.Truncate(a, 60*4096) }, stream.Short, 4, ""},
		{"removed", func() error { return os.Remove(a) }, stream.Short, 64, ""},
		{"punched", func() error {
			f, err := os.OpenFile(a, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 8192)
		}, stream.Hole, 2, ""},
		{"of the other file", func() error {
			return os.WriteFile(a, slices.Concat(good[:5*4096], bdata[7*4096:8*4096], good[6*4096:]), 0o644)
		}, stream.Misplaced, 1, b},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.damage(); err != nil {
				t.Fatal(err)
			}
			v := verify(t, VerifyParams{Ledger: job.LedgerDir})
			if v.Pass() || v.LostBytes != tc.blocks*4096 || len(v.Extents) != 1 || v.Extents[0].Class != tc.class || v.Extents[0].FromPath != tc.from {
				t.Errorf("%+v", v)
			}
			if err := os.WriteFile(a, good, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
	// Verify through another mount, and through a missing one.
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, VerifyParams{Ledger: job.LedgerDir, Dirs: map[string]string{dir: other}}); !v.Pass() || !strings.HasPrefix(v.Files[0].Path, other) {
		t.Errorf("%+v", v)
	}
	v := verify(t, VerifyParams{Ledger: job.LedgerDir, Dirs: map[string]string{dir: other + "/not-mounted"}})
	if v.Pass() || len(v.Errors) != 2 || v.VerifiedBytes != 0 || v.LostBytes != v.AcknowledgedBytes {
		t.Errorf("%+v", v)
	}
	if v := verify(t, VerifyParams{Ledger: filepath.Join(job.LedgerDir, "b.ledger")}); !v.Pass() || len(v.Files) != 1 {
		t.Errorf("%+v", v)
	}
	if _, err := Verify(t.Context(), VerifyParams{Ledger: t.TempDir()}); err == nil {
		t.Error("no ledger at all passes")
	}
}

// A full file system causes failed and short writes.
func TestErrorsLeaveRangesInDoubt(t *testing.T) {
	dir, dir2 := mountTmpfs(t, "size=300k"), mountTmpfs(t, "size=300k")
	job := Job{RunID: "full", LedgerDir: t.TempDir(), StallSeconds: 0.1, Writers: []Writer{
		{Name: "sync", Dir: dir, BlockBytes: 32768, FileBytes: 1 << 20},
		{Name: "buffered", Dir: dir2, Mode: Fsync, BlockBytes: 8192, FileBytes: 1 << 20, FsyncEvery: 3},
	}}
	res := until(t, job, func(w WorkerProgress) bool { return w.Errors >= 3 && (w.StallSeconds > 0 || w.Worker == "buffered") })
	for _, w := range res.Workers {
		if w.AckedBytes == 0 || w.Reopens < 2 || w.Stuck || w.Failed != "" {
			t.Errorf("%+v", w)
		}
	}
	seen := map[string]bool{}
	for _, e := range res.Errors {
		seen[e.Errno] = true
		if e.Op != "write" || e.TNs == 0 {
			t.Errorf("%+v", e)
		}
	}
	if !seen["ENOSPC"] || len(res.Stalls) == 0 || !slices.ContainsFunc(res.Stalls, func(s Stall) bool { return s.Worker == "sync" && s.Open }) || res.Stalls[0].Seconds < 0.1 {
		t.Errorf("%v %+v", seen, res.Stalls)
	}
	v := verify(t, VerifyParams{Ledger: job.LedgerDir})
	if !v.Pass() || v.InDoubtBytes == 0 || v.AcknowledgedBytes == 0 {
		t.Errorf("%+v", v)
	}
}

// Space becomes free during the run: the workers recover, write ranges in doubt first, and the
// result has the stall.
func TestRecovers(t *testing.T) {
	dir := mountTmpfs(t, "size=128k")
	job := Job{RunID: "recover", LedgerDir: t.TempDir(), StallSeconds: 0.05, Writers: []Writer{
		{Name: "w", Dir: dir, Mode: Fsync, FsyncEvery: 4, BlockBytes: 8192, FileBytes: 1 << 20}, {Name: "sync", Dir: dir, BlockBytes: 32768, FileBytes: 1 << 20},
	}}
	var grown atomic.Bool
	res := until(t, job, func(w WorkerProgress) bool {
		if w.Errors >= 3 && w.StallSeconds > 0 && !grown.Swap(true) {
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
				t.Error(err)
			}
		}
		return w.AckedBytes >= 1<<20
	})
	w := res.Workers[0]
	if len(res.Stalls) == 0 || res.Stalls[0].Open || len(w.Completions) == 0 || w.Completions[0].DoneNs < w.Completions[0].IssuedNs || w.Errors < 3 {
		t.Errorf("%+v %+v", res.Stalls, w)
	}
	if v := verify(t, VerifyParams{Ledger: job.LedgerDir}); !v.Pass() || v.AcknowledgedBytes != 2<<20 || v.InDoubtBytes != 0 {
		t.Errorf("%+v", v)
	}
}

// A frozen file system hangs writers in an uninterruptible sleep, as a hard
// mount of a dead server does.
func TestStuckWorker(t *testing.T) {
	dir, _ := mountLoop(t)
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	thaw := func() error { return unix.IoctlSetInt(fd, fiThaw, 0) }
	free := t.TempDir()
	job := Job{RunID: "stuck", LedgerDir: t.TempDir(), StuckSeconds: 0.3, StallSeconds: 0.1, Writers: []Writer{
		{Name: "frozen", Dir: dir, BlockBytes: 4096}, {Name: "frozen-fsync", Dir: dir, Mode: Fsync, BlockBytes: 4096}, {Name: "free", Dir: free, BlockBytes: 4096, OpsPerSecond: 100},
	}}
	var frozen atomic.Bool
	defer func() { _ = thaw() }()
	res := until(t, job, func(w WorkerProgress) bool {
		if w.Ops > 10 && !frozen.Swap(true) {
			if err := unix.IoctlSetInt(fd, fiFreeze, 0); err != nil {
				t.Error(err)
			}
		}
		return w.Worker == "free" || frozen.Load() && w.StallSeconds > 0.2
	})
	if !slices.Equal(res.Stuck, []string{"frozen", "frozen-fsync"}) {
		t.Errorf("stuck: %v", res.Stuck)
	}
	for _, w := range res.Workers[:2] {
		if !w.Stuck {
			t.Errorf("%+v", w)
		}
	}
	if w := res.Workers[2]; w.Stuck || w.Errors > 0 {
		t.Errorf("%+v", w)
	}
	for _, name := range res.Stuck {
		if !slices.ContainsFunc(res.Stalls, func(s Stall) bool { return s.Worker == name && s.Open && s.Seconds >= 0.1 }) {
			t.Errorf("%s: %+v", name, res.Stalls)
		}
	}
	// No other run may continue the ledgers of a hanging worker.
	if _, err := Run(t.Context(), job, Control{}, nil); err == nil {
		t.Error("another run goes on with the ledgers")
	}
	if v, err := call(t, Handlers()["load.result"], StopParams{RunID: "stuck", LedgerDir: job.LedgerDir}, nil); err != nil || len(v.(*Result).Stuck) != 2 {
		t.Error(v, err)
	}
	// The ledger leaves the hanging writes undecided. The data verifies once
	// it can be read.
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, VerifyParams{Ledger: job.LedgerDir}); !v.Pass() {
		t.Errorf("%+v", v)
	}
}

const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

func mountTmpfs(t *testing.T, opts string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

func mountLoop(t *testing.T) (dir, img string) {
	t.Helper()
	img, dir = filepath.Join(t.TempDir(), "img"), t.TempDir()
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 64<<20); err != nil {
		t.Fatal(err)
	}
	command(t, "mkfs.ext4", "-q", img)
	command(t, "mount", "-o", "loop", img, dir)
	t.Cleanup(func() { unmount(t, dir) })
	return dir, img
}

func command(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// Ways to stop a file system. Source: EXT4_IOC_SHUTDOWN in linux/fs/ext4/ext4.h
const (
	// orderly: writes under way end first. An abrupt stop races with an O_SYNC
	// write whose data is on the disk and whose new size is not: Linux 6.18
	// then sometimes returns success, a loss by ext4 that is not under test.
	orderly = 0
	// abrupt: all that is not on the disk is lost, including the journal.
	abrupt = 2
)

// crash stops a file system: every call fails with EIO until it is mounted
// again.
func crash(t *testing.T, dir string, how int) {
	t.Helper()
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	const extShutdown = 0x8004587d
	if err := unix.IoctlSetPointerInt(fd, extShutdown, how); err != nil {
		t.Error(err)
	}
}

func remount(t *testing.T, dir, img string) {
	t.Helper()
	unmount(t, dir)
	command(t, "mount", "-o", "loop", img, dir)
}

// After a power cut under load every acknowledged byte exists. The writers get
// EIO and retry, and the run goes on when the disk is back.
func TestCrashedFileSystem(t *testing.T) {
	dir, img := mountLoop(t)
	job := Job{RunID: "crash", LedgerDir: t.TempDir(), StallSeconds: 0.05, Locks: []Lock{{Name: "held", Dir: dir, Role: Hold, IntervalSeconds: 0.01}}}
	for _, p := range []Pattern{Seq, Random, Append} {
		for _, m := range []Mode{OSync, Fsync} {
			w := Writer{Name: string(p) + "-" + string(m), Dir: dir, Pattern: p, Mode: m, BlockBytes: 8192, FsyncEvery: 5, OpsPerSecond: 500}
			if p != Append {
				w.FileBytes = 40 * 8192
			}
			job.Writers = append(job.Writers, w)
		}
	}
	job.ProgressSeconds = 0.02
	all := func(p Progress, enough func(WorkerProgress) bool) bool {
		return !slices.ContainsFunc(p.Workers, func(w WorkerProgress) bool { return !enough(w) })
	}
	stop, stage := make(chan struct{}), 0
	res, err := Run(t.Context(), job, Control{Stop: stop}, func(p Progress) {
		switch {
		// All workers have opened their files: a worker without one gives up.
		case stage == 0 && all(p, func(w WorkerProgress) bool { return w.Ops > 60 }):
			stage = 1
			crash(t, dir, orderly)
		case stage == 1 && all(p, func(w WorkerProgress) bool { return w.Errors > 1 }):
			stage = 2
			close(stop)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var errs []string
	for _, e := range res.Errors {
		if !slices.Contains(errs, e.Errno) {
			errs = append(errs, e.Errno)
		}
	}
	if !slices.Contains(errs, "EIO") || res.Workers[6].Violations == 0 || len(res.Stuck) != 0 {
		t.Errorf("%v %+v", errs, res.Workers[6])
	}
	// Unreadable data must not pass as good.
	if v := verify(t, VerifyParams{Ledger: job.LedgerDir}); v.Pass() || v.ByClass[stream.Unreadable] == 0 {
		t.Errorf("%+v", v)
	}
	remount(t, dir, img)
	v := verify(t, VerifyParams{Ledger: job.LedgerDir})
	if !v.Pass() || v.AcknowledgedBytes < 6*20*8192 {
		t.Errorf("%+v", v)
	}
}

// The control of the test above: the same crash reveals a server that
// acknowledges before the data is on the disk, as an async export does.
func TestAsyncIsFoundOut(t *testing.T) {
	dir, img := mountLoop(t)
	led := t.TempDir()
	l, err := stream.CreateLedger(filepath.Join(led, "w.ledger"), stream.LedgerHeader{Run: "async", Worker: "w", Stream: 1, Dir: dir, File: "f"}, newClock().now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.Index().Stream()
	fd, err := open(filepath.Join(dir, "f"), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, stream.BlockSize)
	pass := func(n int) {
		for i := range n {
			gen, seq, err := l.Intent(uint64(i), 1)
			if err != nil {
				t.Fatal(err)
			}
			s.Encode(buf, uint64(i), gen, seq, 1)
			if err := pwrite(fd, buf, int64(i)*stream.BlockSize); err != nil {
				t.Fatal(err)
			}
			if err := l.Ack(seq); err != nil { // too early
				t.Fatal(err)
			}
		}
	}
	pass(20)
	if err := fsync(fd); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(dir); err != nil {
		t.Fatal(err)
	}
	pass(10)
	crash(t, dir, abrupt)
	_ = unix.Close(fd)
	fd = -1
	remount(t, dir, img)
	v := verify(t, VerifyParams{Ledger: led})
	if v.Pass() || v.LostBytes != 10*stream.BlockSize || v.ByClass[stream.Stale] != v.LostBytes || v.Extents[0].FoundMax != 1 || v.Extents[0].AckedMin != 2 {
		t.Errorf("%+v", v)
	}
}

// unmount retries until the workers that a test left hanging have closed their
// files.
func unmount(t *testing.T, dir string) {
	for range 100 {
		if err := unix.Unmount(dir, 0); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%s stays mounted", dir)
	_ = unix.Unmount(dir, unix.MNT_DETACH)
}

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	ready := make(chan struct{})
	var once atomic.Bool
	holder := Job{RunID: "locks", Client: "one", LedgerDir: t.TempDir(), ProgressSeconds: 0.02, Locks: []Lock{
		{Name: "holder", Dir: dir, Role: Hold, File: "held", IntervalSeconds: 0.01}, {Name: "prober", Dir: dir, Role: Probe, IntervalSeconds: 0.01},
	}}
	stop := make(chan struct{})
	type answer struct {
		res *Result
		err error
	}
	held := make(chan answer, 1)
	go func() {
		res, err := Run(t.Context(), holder, Control{Stop: stop}, func(p Progress) {
			if p.Workers[0].Ops > 2 && !once.Swap(true) {
				close(ready)
			}
		})
		held <- answer{res, err}
	}()
	<-ready
	challenger := Job{RunID: "locks", Client: "two", LedgerDir: t.TempDir(), Locks: []Lock{{Name: "challenger", Dir: dir, Role: Challenge, File: "held", IntervalSeconds: 0.01}}}
	res := until(t, challenger, func(w WorkerProgress) bool { return w.Ops > 20 })
	if res.Violations != 0 || res.ErrorCount != 0 {
		t.Errorf("%+v", res)
	}
	// Take the lock away from the holder. On Linux no close of another
	// descriptor does that, so replace the file: the effect is that of a server
	// that lost its state.
	path := filepath.Join(dir, "locks", "held.lock")
	if err := os.WriteFile(path+".new", []byte(heldMark), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	challenger.LedgerDir = t.TempDir()
	res = until(t, challenger, func(w WorkerProgress) bool { return w.Violations > 0 })
	if res.Violations == 0 || res.Errors[0].Op != "challenge" {
		t.Errorf("%+v", res)
	}
	close(stop)
	a := <-held
	if a.err != nil || a.res.ErrorCount != 0 || a.res.Violations != 0 {
		t.Fatalf("%+v %v", a.res, a.err)
	}
	for _, w := range a.res.Workers[1:] {
		if w.Ops < 2 || len(w.Completions) != int(w.Ops) || w.Completions[0].Op != "lock" || w.Completions[1].Op != "unlock" {
			t.Errorf("%+v", w)
		}
	}
}

// TestUnseenLock is a challenger whose client does not see the holder's file.
func TestUnseenLock(t *testing.T) {
	dir := t.TempDir()
	challenger := Job{RunID: "locks", Client: "one", LedgerDir: t.TempDir(), Locks: []Lock{{Name: "challenger", Dir: dir, Role: Challenge, File: "held", IntervalSeconds: 0.01}}}
	res := until(t, challenger, func(w WorkerProgress) bool { return w.Ops > 2 })
	if res.Violations != 0 || res.ErrorCount != 0 || res.Workers[0].Ops <= 2 {
		t.Errorf("%+v", res)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	w := func(d string) []Writer { return []Writer{{Name: "w", Dir: d, BlockBytes: 4096, FileBytes: 1 << 20}} }
	// Run does not make a missing directory, as it may be a mount point.
	missing := Job{RunID: "r", LedgerDir: t.TempDir(), Writers: w(dir + "/not-mounted")}
	res, err := Run(t.Context(), missing, Control{}, nil)
	if err != nil || res.StoppedBy != "workers" || res.Workers[0].Failed == "" || res.Errors[0].Errno != "ENOENT" {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := os.Stat(dir + "/not-mounted"); !os.IsNotExist(err) {
		t.Error("the mount point was made")
	}
	// The file exists and is not the run's.
	if err := os.MkdirAll(dir+"/r", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/r/w.data", []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	res, err = Run(t.Context(), Job{RunID: "r", LedgerDir: t.TempDir(), Writers: w(dir)}, Control{}, nil)
	if err != nil || res.Workers[0].Failed == "" {
		t.Errorf("%+v %v", res, err)
	}
	if b, _ := os.ReadFile(dir + "/r/w.data"); string(b) != "precious" {
		t.Error("the file was overwritten")
	}
	// The ledgers of another run, and of the same one.
	led := t.TempDir()
	until(t, Job{RunID: "q", LedgerDir: led, Writers: w(dir)}, func(p WorkerProgress) bool { return p.Ops > 0 })
	for _, id := range []string{"q", "q2"} {
		if _, err := Run(t.Context(), Job{RunID: id, LedgerDir: led, Writers: w(dir)}, Control{}, nil); err == nil {
			t.Errorf("run %s takes the ledgers", id)
		}
	}
}

// Data written before a mark stays: later writes lie behind it.
func TestMark(t *testing.T) {
	job := Job{RunID: "mark", LedgerDir: t.TempDir(), ProgressSeconds: 0.02}
	dir := t.TempDir()
	for _, p := range []Pattern{Seq, Random, Append} {
		w := Writer{Name: string(p), Dir: dir, Pattern: p, Mode: OSync, BlockBytes: 4096, FileBytes: 16 * 4096, OpsPerSecond: 2000}
		if p == Append {
			w.FileBytes = 0
		}
		job.Writers = append(job.Writers, w)
	}
	stop, closed := make(chan struct{}), false
	var marks atomic.Int64
	var fault int64
	_, err := Run(t.Context(), job, Control{stop, &marks}, func(p Progress) {
		all := func(n int64) bool {
			return !slices.ContainsFunc(p.Workers, func(w WorkerProgress) bool { return w.Ops < n })
		}
		switch {
		case fault == 0 && all(40):
			marks.Add(1)
			fault = time.Now().UnixNano()
		case fault != 0 && all(1000) && !closed: // seq has gone around its 16 blocks 60 times
			closed = true
			close(stop)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	v := verify(t, VerifyParams{Ledger: job.LedgerDir, BeforeNs: fault})
	// 16 of seq, most of 16 at random, all of append; each writer may have
	// written one more.
	if !v.Pass() || v.AcknowledgedBeforeFaultBytes < (15+8+39)*4096 || v.VerifiedBeforeFaultBytes != v.AcknowledgedBeforeFaultBytes {
		t.Errorf("%d of %d bytes from before the mark; %+v", v.VerifiedBeforeFaultBytes, v.AcknowledgedBeforeFaultBytes, v)
	}
	for _, f := range v.Files {
		if f.SizeBytes > 2*16*4096 && !strings.Contains(f.Path, "append") {
			t.Errorf("%s grew to %d bytes by one mark", f.Path, f.SizeBytes)
		}
	}
}

// A names worker records the time in which names cannot change, goes on
// afterwards, and leaves nothing. load.clean removes what a killed worker left.
func TestNames(t *testing.T) {
	dir, img := mountLoop(t)
	job := Job{RunID: "names", LedgerDir: t.TempDir(), StallSeconds: 0.05, Names: []Names{{Name: "n", Dir: dir, OpsPerSecond: 500}}}
	if res := until(t, job, func(w WorkerProgress) bool { return w.Ops > 20 }); res.ErrorCount != 0 || res.Workers[0].Kind != "names" || res.Workers[0].Ops%2 != 0 {
		t.Errorf("%+v", res)
	}
	path := namesPath(job.RunID, job.Names[0])
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if res := until(t, job, func(w WorkerProgress) bool { return w.Ops > 20 }); res.ErrorCount != 0 {
		t.Errorf("over one that was left: %+v", res.Errors)
	}
	crash(t, dir, orderly)
	if res := until(t, job, func(w WorkerProgress) bool { return w.Errors > 1 || w.Failed != "" }); res.Workers[0].Ops != 0 || res.Errors[0].Op != "mkdir" {
		t.Errorf("%+v", res)
	}
	remount(t, dir, img)
	if err := os.Mkdir(path, 0o755); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := Clean(StopParams{RunID: job.RunID, LedgerDir: job.LedgerDir}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
	for _, bad := range []Names{{Name: "a/b", Dir: dir}, {Name: "n", Dir: "here"}} {
		j := Job{RunID: "x", Names: []Names{bad}}
		if err := j.fill(); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// A worker takes the lock of a client that dies, not before that, and keeps it.
func TestTakeLock(t *testing.T) {
	dir := t.TempDir()
	holder := Job{RunID: "taken", Client: "one", LedgerDir: t.TempDir(), ProgressSeconds: 0.02, Locks: []Lock{{Name: "held", Dir: dir, Role: Hold, IntervalSeconds: 0.01}}}
	dies, held := make(chan struct{}), make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), holder, Control{Stop: dies}, func(p Progress) {
			if p.Workers[0].Ops > 2 {
				select {
				case held <- struct{}{}:
				default:
				}
			}
		})
		ended <- err
	}()
	<-held
	taker := Job{RunID: "taken", Client: "two", LedgerDir: t.TempDir(), Locks: []Lock{{Name: "tried", Dir: dir, Role: Take, File: "held", IntervalSeconds: 0.01}}}
	var once atomic.Bool
	var diedNs atomic.Int64
	res := until(t, taker, func(w WorkerProgress) bool {
		if w.Ops > 5 && !once.Swap(true) {
			if w.Took {
				t.Error("it has the lock of a client that lives")
			}
			diedNs.Store(time.Now().UnixNano())
			close(dies)
		}
		return w.Took && w.Ops > 10
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w := res.Workers[0]
	i := slices.IndexFunc(w.Completions, func(c Completion) bool { return c.Op == OpTook })
	if i < 0 || w.Completions[i].DoneNs < diedNs.Load() || w.Kind != "lock-take" || res.Violations != 0 || res.ErrorCount != 0 {
		t.Errorf("%+v", res)
	}
	last := w.Completions[len(w.Completions)-1].Op
	if last != "hold" && last != "unlock" {
		t.Errorf("it ends with %q: it does not keep the lock", last)
	}
	if _, err := os.Stat(filepath.Join(dir, "taken", "held.lock")); err != nil {
		t.Error(err)
	}
}

// Every second write goes to the zone, after a mark too; the others go behind the mark.
func TestZone(t *testing.T) {
	var marks atomic.Int64
	w := &writer{cfg: Writer{Pattern: Random, BlockBytes: 4096, FileBytes: 1 << 20, ZoneBytes: 8192}, marks: &marks, rng: rand.New(rand.NewPCG(1, 1))}
	for _, from := range []int64{0, 1 << 20} {
		in := map[int64]bool{}
		for i := range 40 {
			sp := w.next()
			if i%2 == 0 {
				in[sp.off] = true
				continue
			}
			if sp.off < from || sp.off >= from+1<<20 {
				t.Errorf("write %d at %d, window from %d", i, sp.off, from)
			}
		}
		if len(in) != 2 || !in[0] || !in[4096] {
			t.Errorf("in the zone: %v", in)
		}
		marks.Add(1)
	}
	for _, bad := range []int64{-4096, 100, 2 << 20} {
		job := Job{RunID: "zone", LedgerDir: t.TempDir(), Writers: []Writer{{Name: "w", Dir: t.TempDir(), BlockBytes: 4096, FileBytes: 1 << 20, ZoneBytes: bad}}}
		if _, err := Run(t.Context(), job, Control{}, nil); err == nil || !strings.Contains(err.Error(), "zone_bytes") {
			t.Errorf("zone_bytes %d: %v", bad, err)
		}
	}
}
