package workload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Bench carries out one phase on this client. start delivers the moment to begin at;
// nil: at once. When stop is closed or ctx ends, the phase
// ends early and returns the results so far. Bench calls progress, which may be
// nil, from one goroutine. Bench returns an error only if the job could not
// begin; failures of threads are in the result.
func Bench(ctx context.Context, job BenchJob, start <-chan int64, stop <-chan struct{}, progress func(BenchProgress)) (*BenchResult, error) {
	if err := job.fill(); err != nil {
		return nil, err
	}
	r, err := newBenchRun(ctx, job)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.tmp)
	return r.drive(ctx, start, stop, progress), nil
}

// benchRun is one phase under way.
type benchRun struct {
	job      BenchJob
	clock    *clock
	tmp      string // has a directory for each program
	programs []*program
	startNs  int64
}

func newBenchRun(ctx context.Context, job BenchJob) (*benchRun, error) {
	r := &benchRun{job: job, clock: newClock()}
	if _, err := exec.LookPath(fio); err != nil {
		return nil, fmt.Errorf("%w (%s)", err, FioInstall)
	}
	works, err := job.works()
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, w := range works {
		if job.Phase.Metadata() && job.Phase.Makes() && !job.Shared {
			trees = append(trees, treeDir(&job, w))
		}
	}
	// A call on a file system may hang.
	if _, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, setDir(&job, works[0].dir, trees) }); err != nil {
		return nil, errors.New(explain(err))
	}
	if r.tmp, err = os.MkdirTemp("", "mortar-bench-"); err != nil {
		return nil, err
	}
	for i, w := range works {
		own := job.of(w.rank)
		p := &program{job: own, work: w, argv: fioCommand(own, w), dir: filepath.Join(r.tmp, strconv.Itoa(i)), giveUp: time.Duration(job.GiveUpSeconds * 1e9)}
		err = os.Mkdir(p.dir, 0o700)
		if p.gated = p.argv[0] == fio; err == nil && p.gated {
			err = unix.Mkfifo(filepath.Join(p.dir, gateFile), 0o600)
		}
		if err != nil {
			os.RemoveAll(r.tmp)
			return nil, err
		}
		r.programs = append(r.programs, p)
	}
	return r, nil
}

// rankShifts says on whose files a phase works: those of the client this many times
// ReadShift further on. So no client has the files of a phase in its cache.
// Source: mdtest.c of IOR 4.1 (stat_name, read_name, rm_name)
var rankShifts = map[BenchPhase]int{SeqRead: 1, RandRead: 1, MDStat: 1, MDRead: 2, MDRemove: 3, MDDirStat: 1, MDRmdir: 3}

// works shares a phase out among processes.
func (j *BenchJob) works() ([]threadWork, error) {
	dir := filepath.Join(j.Dir, j.RunID, j.Set)
	shift := rankShifts[j.Phase] * j.ReadShift
	mod := func(n, of int) int { return (n%of + of) % of }
	var out []threadWork
	for n := range j.Threads {
		w := threadWork{rank: j.ClientIndex*j.Threads + n, dir: dir, bytes: j.FileBytes, files: int64(j.Branch) * int64(j.Items)}
		w.owner = mod(w.rank+shift*j.Threads, j.Clients*j.Threads)
		known := false
		for _, r := range j.Regions {
			if r.Rank == w.owner && !j.Phase.Makes() {
				w.bytes, w.files, known = r.Bytes, r.Files, true
			}
		}
		switch {
		case j.Phase == Find:
		case j.Phase.Metadata() && w.files == 0, !j.Phase.Metadata() && (w.bytes < j.RecordBytes || !known && !j.Phase.Writes()):
			return nil, fmt.Errorf("nothing that phase %s could use was written to the region of rank %d of set %s", j.Phase, w.owner, j.Set)
		}
		out = append(out, w)
	}
	return out, nil
}

// drive starts the programs, has all of them begin at once, and waits for their
// ends.
func (r *benchRun) drive(ctx context.Context, start <-chan int64, stop <-chan struct{}, progress func(BenchProgress)) *BenchResult {
	j := &r.job
	begin, ended := make(chan struct{}), make(chan struct{})
	var ready, done sync.WaitGroup
	for _, p := range r.programs {
		ready.Add(1)
		done.Add(1)
		go func() {
			p.run(sync.OnceFunc(ready.Done), begin, ended)
			done.Done()
		}()
	}
	allReady, allDone := closedAfter(&ready), closedAfter(&done)
	state, by, atOnce := "preparing", "", start == nil
	emit := func() {
		if progress != nil {
			progress(r.progress(state))
		}
	}
	var due <-chan time.Time
	at := func(ns int64) { due, start = time.After(time.Duration(ns-r.clock.now())), nil }
	end := func(why string) {
		if by == "" {
			by = why
			close(ended)
		}
	}
	cancelled := ctx.Done()
	tick := time.NewTicker(time.Duration(j.ProgressSeconds * 1e9))
	defer tick.Stop()
	for allDone != nil {
		select {
		case <-allReady:
			allReady, state = nil, "waiting"
			if atOnce {
				at(0)
			}
			emit()
		case ns := <-start:
			at(ns)
		case <-due:
			due, state = nil, "running"
			r.startNs = r.clock.now()
			close(begin)
		case <-stop:
			stop = nil
			end("stop")
		case <-cancelled:
			cancelled = nil
			end("cancelled")
		case <-allDone:
			allDone = nil
		case <-tick.C:
			emit()
		}
	}
	res := r.result(by, j.of(0).Phase)
	if j.SmallBytes > 0 {
		res.Beside = r.result(by, j.of(1).Phase)
	}
	return res
}

func closedAfter(wg *sync.WaitGroup) <-chan struct{} {
	c := make(chan struct{})
	go func() { wg.Wait(); close(c) }()
	return c
}

func (r *benchRun) progress(state string) BenchProgress {
	p := BenchProgress{State: state}
	if r.job.Phase.Metadata() {
		return p
	}
	for _, x := range r.programs {
		p.Bytes += x.moved(r.job.Phase.Writes())
		p.TotalBytes += x.work.bytes
	}
	return p
}

// stallSeconds is how long an operation takes that counts as a stall.
const stallSeconds = 0.5

// result joins what the programs of a phase report.
func (r *benchRun) result(by string, phase BenchPhase) *BenchResult {
	j := &r.job
	if r.startNs == 0 {
		r.startNs = r.clock.now() // stopped before the start
	}
	res := &BenchResult{StartNs: r.startNs, EndNs: r.startNs, StoppedBy: by}
	if j.Phase == MDRead || j.Phase == MDCreate && j.ItemBytes > 0 {
		res.Notes = append(res.Notes, "latencies are those of reading or writing a file's contents; opening, closing and syncing it is in the rate alone")
	}
	var spells [][]spell
	for _, p := range r.programs {
		if p.job.Phase != phase {
			continue
		}
		t := p.outcome(p.job, by != "")
		res.CPUSeconds += p.cpu
		res.Verified = res.Verified.plus(t.verified)
		th := BenchThread{Rank: p.work.rank, StartNs: r.startNs, EndNs: r.startNs + int64(t.seconds*1e9), Ops: t.ops, Bytes: t.bytes}
		for _, s := range t.spells {
			for ns := range s.bins {
				if seconds(ns) > stallSeconds {
					th.StallSeconds = max(th.StallSeconds, seconds(ns))
				}
			}
		}
		if t.err != nil {
			th.Fault, th.Error = benchFault(t.err), explain(t.err)
		}
		res.Ops, res.Bytes, res.EndNs = res.Ops+th.Ops, res.Bytes+th.Bytes, max(res.EndNs, th.EndNs)
		res.Threads, spells = append(res.Threads, th), append(spells, t.spells)
		switch j.Phase {
		case SeqWrite:
			res.Regions = append(res.Regions, BenchRegion{Rank: th.Rank, Bytes: th.Bytes})
		case MDCreate, MDMkdir:
			res.Regions = append(res.Regions, BenchRegion{Rank: th.Rank, Files: th.Ops})
		}
	}
	if j.Phase != Find {
		res.fillTimeline(j, spells)
	}
	if by == "" {
		res.StoppedBy = "done"
		if j.DurationSeconds > 0 && seconds(res.EndNs-res.StartNs) >= j.DurationSeconds {
			res.StoppedBy = "duration"
		}
	}
	return res
}

// plus is the sum of two results; either may be nil.
func (v *BenchVerify) plus(o *BenchVerify) *BenchVerify {
	if v == nil || o == nil {
		if v == nil {
			return o
		}
		return v
	}
	return &BenchVerify{Bytes: v.Bytes + o.Bytes, BadBytes: v.BadBytes + o.BadBytes, Findings: append(v.Findings, o.Findings...)}
}

// signalGrace is how long a phase waits for a program after SIGINT, and again after
// SIGKILL.
const signalGrace = 10 * time.Second

// program is the process of a thread.
type program struct {
	job    *BenchJob // its part of the phase's
	work   threadWork
	argv   []string
	dir    string        // it runs there
	gated  bool          // it waits at gateFile before it begins
	giveUp time.Duration // a program that uses no CPU for so long counts as hung

	pid    atomic.Int64             // 0: it does not run
	io     atomic.Int64             // bytes that it has moved, as last seen
	before atomic.Pointer[[2]int64] // bytes read and written before the begin
	out    bytes.Buffer
	errOut firstMiB
	took   time.Duration // from the begin on
	cpu    float64       // seconds, user and system
	left   bool          // the process still exists
	err    error
}

// firstMiB keeps the beginning of what is written to it: fio has three lines for
// each block that is wrong.
type firstMiB struct{ bytes.Buffer }

func (h *firstMiB) Write(b []byte) (int, error) {
	if room := 1<<20 - h.Len(); room > 0 {
		h.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// run runs the program. It calls ready once the program waits for the begin, or
// has failed. It returns after begin or ended is closed and the program is over.
// ended sends SIGINT, as Ctrl-C does, and later SIGKILL if the program is still
// running.
func (p *program) run(ready func(), begin, ended <-chan struct{}) {
	either := func() (began bool) {
		ready()
		select {
		case <-begin:
			return true
		case <-ended:
			return false
		}
	}
	if !p.gated && !either() {
		return
	}
	var began time.Time
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &p.out, &p.errOut
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// A tool ends with this process, also if that is killed: one that has no end of its own
	// would fill the volume. The kernel sends the signal when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.err = cmd.Start(); p.err != nil {
		either()
		return
	}
	p.pid.Store(int64(cmd.Process.Pid))
	defer p.pid.Store(0)
	signal := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	look, check := time.NewTicker(10*time.Millisecond), time.NewTicker(min(time.Second, p.giveUp/4))
	defer look.Stop()
	defer check.Stop()
	gate, started, stop := -1, begin, ended
	if !p.gated {
		look.Stop()
	}
	var kill, leave <-chan time.Time
	hung := false
	used, usedAt := int64(-1), time.Now()
	for {
		select {
		case p.err = <-done:
			if !began.IsZero() {
				p.took = time.Since(began)
			}
			if hung {
				p.err = fmt.Errorf("it did nothing for %.0f s and was ended: %w", p.giveUp.Seconds(), errHung)
			}
			if gate >= 0 {
				_ = unix.Close(gate)
			}
			p.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
			either()
			return
		case <-look.C:
			// Without a reader the FIFO cannot be opened (ENXIO): fio is not there yet.
			fd, err := unix.Open(filepath.Join(p.dir, gateFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				gate = fd
				look.Stop()
				ready()
			}
		case <-started:
			started, began, usedAt = nil, time.Now(), time.Now()
			look.Stop()
			p.before.Store(new(readIO(cmd.Process.Pid)))
			if gate >= 0 {
				_ = unix.Close(gate)
				gate = -1
			}
		case <-check.C:
			if now := groupCPU(cmd.Process.Pid); now != used || gate >= 0 {
				used, usedAt = now, time.Now()
			} else if time.Since(usedAt) > p.giveUp && !hung {
				hung = true
				signal(syscall.SIGINT)
				kill = time.After(signalGrace)
			}
		case <-stop:
			stop = nil
			if kill == nil && leave == nil {
				signal(syscall.SIGINT)
				kill = time.After(signalGrace)
			}
		case <-kill:
			signal(syscall.SIGKILL)
			kill, leave = nil, time.After(signalGrace)
		case <-leave:
			// The process may still write its output, so do not read it.
			p.err, p.left = fmt.Errorf("it hangs in the kernel and cannot even be killed: %w", errHung), true
			return
		}
	}
}

// readIO returns how many bytes a process has read and written by system calls.
// Source: proc_pid_io(5)
func readIO(pid int) (rw [2]int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, _ = fmt.Sscanf(string(b), "rchar: %d\nwchar: %d", &rw[0], &rw[1])
	}
	return rw
}

// moved is how many bytes the program has moved since the begin, as far as that is
// known.
func (p *program) moved(writes bool) int64 {
	if pid := p.pid.Load(); pid > 0 {
		before, now := p.before.Load(), readIO(int(pid))
		if before == nil {
			return 0
		}
		i := 0
		if writes {
			i = 1
		}
		p.io.Store(max(p.io.Load(), now[i]-before[i]))
	}
	return p.io.Load()
}

// groupCPU is the CPU time, in clock ticks, that the processes of a group
// have used so far. Source: proc_pid_stat(5)
func groupCPU(pgid int) int64 {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	var sum int64
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err != nil {
			continue // the process has ended
		}
		// The name, in brackets, may hold spaces and brackets.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 15 || f[2] != strconv.Itoa(pgid) {
			continue
		}
		for _, s := range f[11:15] { // utime, stime, and those of the children it has waited for
			n, _ := strconv.ParseInt(s, 10, 64)
			sum += n
		}
	}
	return sum
}

// outcome reads what the program has left. stopped means that it was told to
// end.
func (p *program) outcome(j *BenchJob, stopped bool) *outcome {
	var out output
	if !p.left {
		var err error
		if out.report, err = os.ReadFile(filepath.Join(p.dir, reportFile)); err != nil {
			out.report = p.out.Bytes()
		}
		out.said = p.errOut.String()
	}
	if log, _ := filepath.Glob(filepath.Join(p.dir, latencyLog+"_*.log")); len(log) == 1 {
		out.log, _ = os.ReadFile(log[0])
	}
	t, err := parseOutput(j, p.work, out)
	if err != nil {
		// What the kernel has counted is all that is known.
		t = &outcome{bytes: p.io.Load(), seconds: p.took.Seconds(), err: p.failure(err)}
		if !j.Phase.Metadata() {
			t.ops = t.bytes / j.RecordBytes
		}
		return t
	}
	t.seconds = cmp.Or(t.seconds, p.took.Seconds()) // find tells no time
	if p.err != nil && !stopped && t.err == nil {
		t.err = p.failure(nil)
	}
	return t
}

var errHung = errors.New("a server or device that does not answer?")

// parseOutput parses the program's output, and refuses impossible figures.
func parseOutput(j *BenchJob, w threadWork, out output) (*outcome, error) {
	t, err := parseFio(j, w, out)
	if err == nil && (t.ops < 0 || t.bytes < 0 || !(t.seconds >= 0) || t.seconds > 1e9) {
		return nil, fmt.Errorf("%d operations, %d bytes in %g s cannot be", t.ops, t.bytes, t.seconds)
	}
	return t, err
}

// failure is the error of a program that failed, with the error number that its
// message names.
func (p *program) failure(parse error) error {
	name := filepath.Base(p.argv[0])
	if errors.Is(p.err, errHung) {
		return fmt.Errorf("%s: %w", name, p.err)
	}
	if p.err == nil {
		return fmt.Errorf("%s: its output is not understood: %w", name, parse)
	}
	said := p.errOut.String() + p.out.String()
	err := fmt.Errorf("%s: %w: %s", name, p.err, lastLines(said, 3))
	if e := linux.ErrnoIn(said); e != 0 {
		return fmt.Errorf("%w (%w)", err, e)
	}
	return err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
