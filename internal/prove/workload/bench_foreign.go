package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// benchForeign carries out a phase with another program. The program gets a set
// of its own, as its files are not self-describing.
func benchForeign(ctx context.Context, job BenchJob, start <-chan int64, stop <-chan struct{}, progress func(BenchProgress)) (*BenchResult, error) {
	f := engineOf(job.Engine)
	if err := job.Able(); err != nil {
		return nil, err
	}
	exe, err := exec.LookPath(string(job.Engine))
	if err != nil {
		return nil, fmt.Errorf("engine %s is not installed on this client: %w", job.Engine, err)
	}
	run := filepath.Join(job.Dir, job.RunID)
	dir := filepath.Join(run, job.Set+"."+string(job.Engine))
	_, err = patiently(ctx, func() (struct{}, error) {
		if err := checkMarker(run, job.RunID); err != nil {
			return struct{}{}, err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return struct{}{}, err
		}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, errors.New(explain(err))
	}
	tmp, err := os.MkdirTemp("", "mortar-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	client := job.ClientIndex
	if !job.Phase.Writes() {
		client = ((client+job.ReadShift)%job.Clients + job.Clients) % job.Clients
	}
	report := filepath.Join(tmp, "report")
	argv := f.command(&job, dir, report, client)
	argv[0] = exe
	if f.mpi && job.Threads > 1 {
		mpirun, err := exec.LookPath("mpirun")
		if err != nil {
			return nil, fmt.Errorf("engine %s needs mpirun for more than one thread: %w", job.Engine, err)
		}
		argv = append([]string{mpirun, "-np", strconv.Itoa(job.Threads)}, argv...)
	}

	clock := newClock()
	emit := func(state string, elapsed float64) {
		if progress != nil {
			progress(BenchProgress{RunID: job.RunID, Phase: job.Phase, TNs: clock.now(), State: state, ElapsedSeconds: elapsed, Threads: []BenchThreadProgress{}})
		}
	}
	res := &BenchResult{
		RunID: job.RunID, Set: job.Set, Client: job.Client, ClientIndex: job.ClientIndex, Phase: job.Phase, Engine: job.Engine, Command: argv,
		Notes: append([]string{fmt.Sprintf("%s has not verified the data and gives no timeline", job.Engine)}, f.notes...),
	}
	m := mountOf(job.Dir)
	res.FSType, res.Source = m.Type, m.Source
	at := job.StartNs
	if job.Hold {
		emit("waiting", 0)
		select {
		case at = <-start:
		case <-stop:
			res.StoppedBy = "stop"
		case <-ctx.Done():
			res.StoppedBy = "cancelled"
		}
	}
	if d := at - clock.now(); d > 0 && res.StoppedBy == "" {
		t := time.NewTimer(time.Duration(d))
		defer t.Stop()
		select {
		case <-t.C:
		case <-stop:
			res.StoppedBy = "stop"
		case <-ctx.Done():
			res.StoppedBy = "cancelled"
		}
	}
	res.StartNs = clock.now()
	res.EndNs = res.StartNs
	res.Timeline = BenchTimeline{StartNs: res.StartNs, BucketSeconds: job.BucketSeconds, Buckets: []BenchTimeBucket{}}
	if res.StoppedBy != "" {
		return res, nil
	}
	p := &program{argv: argv, clock: clock, emit: emit, every: time.Duration(job.ProgressSeconds * 1e9), giveUp: time.Duration(job.GiveUpSeconds * 1e9)}
	p.run(ctx, stop, res)
	f.fill(&job, res, p, report)
	return res, nil
}

// program is the engine's process.
type program struct {
	argv        []string
	clock       *clock
	emit        func(state string, elapsed float64)
	every       time.Duration
	giveUp      time.Duration // a program that uses no CPU for so long counts as hung
	out, errOut bytes.Buffer
	left        bool // the process still exists
	err         error
}

// run runs the program to its end. A stop sends SIGINT, as Ctrl-C does, and
// later SIGKILL if the program is still running.
func (p *program) run(ctx context.Context, stop <-chan struct{}, res *BenchResult) {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.errOut
	// Without these settings mpirun refuses to run as root, or more processes
	// than cores.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.err = cmd.Start(); p.err != nil {
		return
	}
	signal := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	cancelled := ctx.Done()
	var kill, leave <-chan time.Time
	hung := false
	used, usedAt := int64(-1), time.Now()
	end := func(why string) {
		if kill == nil && leave == nil {
			res.StoppedBy = why
			signal(syscall.SIGINT)
			kill = time.After(hurry)
		}
	}
	for {
		select {
		case p.err = <-done:
			if hung {
				p.err = fmt.Errorf("it did nothing for %.0f s and was ended: %w", p.giveUp.Seconds(), errHung)
			}
			if ps := cmd.ProcessState; ps != nil {
				res.UserCPUSeconds, res.SysCPUSeconds = ps.UserTime().Seconds(), ps.SystemTime().Seconds()
			}
			return
		case <-tick.C:
			p.emit("running", seconds(p.clock.now()-res.StartNs))
			if now := groupCPU(cmd.Process.Pid); now != used {
				used, usedAt = now, time.Now()
			} else if time.Since(usedAt) > p.giveUp && !hung {
				hung = true
				end("")
			}
		case <-stop:
			stop = nil
			end("stop")
		case <-cancelled:
			cancelled = nil
			end("cancelled")
		case <-kill:
			signal(syscall.SIGKILL)
			kill, leave = nil, time.After(hurry)
		case <-leave:
			// The process may still write its output, so do not read it.
			p.err, p.left = fmt.Errorf("it hangs in the kernel and cannot even be killed: %w", errHung), true
			return
		}
	}
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

// fill makes a result of the program's report.
func (f *engine) fill(job *BenchJob, res *BenchResult, p *program, report string) {
	out, err := os.ReadFile(report)
	if err != nil && !p.left {
		out = p.out.Bytes()
	}
	got, err := f.read(job, out)
	if err != nil {
		got = &foreignResult{threads: []foreignThread{{err: p.failure(err)}}}
	} else if p.err != nil && res.StoppedBy == "" {
		for i := range got.threads {
			if got.threads[i].err == nil {
				got.threads[i].err = p.failure(nil)
			}
		}
	}
	if res.StoppedBy == "" {
		res.StoppedBy = "done"
		if job.DurationSeconds > 0 && seconds(p.clock.now()-res.StartNs) >= job.DurationSeconds {
			res.StoppedBy = "duration"
		}
	}
	res.EngineVersion, res.TreeMakeSeconds, res.TreeRemoveSeconds = got.version, got.makeSeconds, got.rmSeconds
	whole := res.StoppedBy == "done"
	for i, t := range got.threads {
		th := BenchThread{
			Thread: i, Rank: job.ClientIndex*job.Threads + i, Path: job.Dir, StartNs: res.StartNs, EndNs: res.StartNs + int64(t.seconds*1e9),
			Ops: t.ops, Bytes: t.bytes, Latency: t.latency, Finished: t.err == nil && whole,
		}
		th.LastNs = th.EndNs
		if t.err != nil {
			th.Fault, th.Errno, th.Error = benchFault(t.err), errno(t.err), explain(t.err)
			whole = false
		}
		res.Ops += th.Ops
		res.Bytes += th.Bytes
		res.EndNs = max(res.EndNs, th.EndNs)
		res.Threads = append(res.Threads, th)
	}
	if got.all != nil {
		res.Latency = *got.all
	}
	if !whole || !(job.Phase.Writes() && job.Phase != MDRemove) {
		return
	}
	// The program reports no counts per region. It ended well, so all planned
	// records are written.
	for n := range job.Threads {
		r := BenchRegion{Rank: job.ClientIndex*job.Threads + n, Bytes: job.FileBytes}
		if job.Phase.Metadata() {
			files := int64(job.Branch) * int64(job.Items)
			r.Passes = []BenchPass{{Issued: files, Acked: files}}
		} else {
			records := job.FileBytes / job.RecordBytes
			r.Passes = []BenchPass{{RecordBytes: job.RecordBytes, Random: job.Phase == RandWrite, Issued: records, Acked: records}}
		}
		res.Regions = append(res.Regions, r)
	}
}

var errHung = errors.New("a server or device that does not answer?")

// read parses the program's output, and refuses impossible figures.
func (f *engine) read(j *BenchJob, out []byte) (*foreignResult, error) {
	r, err := f.parse(j, out)
	if err != nil {
		return nil, err
	}
	for _, t := range r.threads {
		if t.ops < 0 || t.bytes < 0 || t.latency.Count < 0 || !(t.seconds >= 0) || t.seconds > 1e9 {
			return nil, fmt.Errorf("%d operations, %d bytes in %g s cannot be", t.ops, t.bytes, t.seconds)
		}
	}
	return r, nil
}

// failure is the error of a program that failed, with the error number that its
// message names.
func (p *program) failure(parse error) error {
	if errors.Is(p.err, errHung) {
		return fmt.Errorf("%s: %w", p.argv[0], p.err)
	}
	said := p.errOut.String() + p.out.String()
	if p.err == nil {
		return fmt.Errorf("%s: its output is not understood: %w", p.argv[0], parse)
	}
	err := fmt.Errorf("%s: %w: %s", p.argv[0], p.err, lastLines(said, 3))
	for _, e := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.ESTALE, unix.EINVAL, unix.EIO, unix.ENOENT} {
		if strings.Contains(strings.ToLower(said), strings.ToLower(e.Error())) {
			return fmt.Errorf("%w (%w)", err, e)
		}
	}
	return err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// firstLine is the first line that a program prints when run with arg.
func firstLine(ctx context.Context, path, arg string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, arg).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
