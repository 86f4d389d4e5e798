package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// The agent's ops for load.
const (
	// OpLoad runs a job to its end and answers with the result. The agent also
	// leaves the result on the client's disk.
	OpLoad agent.Stream[Job, Progress, *Result] = "load.run"
	// OpLoadStop ends a run. It answers at once; OpLoad delivers the result.
	OpLoadStop agent.Op[StopParams, agent.None] = "load.stop"
	// OpLoadMark tells the writers to leave the data written until now as it is
	// and to go on behind it. A writer may still repeat writes that failed, and
	// carry out the write that it was about to begin.
	OpLoadMark agent.Op[StopParams, agent.None] = "load.mark"
	// OpLoadResult waits for the end of a run, which another session may have
	// started.
	OpLoadResult agent.Op[StopParams, *Result] = "load.result"
	// OpLoadClean removes the run's lock files, the data files that its ledgers
	// name, and the ledgers.
	OpLoadClean agent.Op[StopParams, agent.None]       = "load.clean"
	OpVerify    agent.Op[VerifyParams, *stream.Report] = "verify.run"
)

// The agent's ops for benchmarks; see [BenchJob].
const (
	OpBenchPrepare agent.Op[BenchParams, *BenchFacts]                  = "bench.prepare"
	OpBench        agent.Stream[BenchJob, BenchProgress, *BenchResult] = "bench.run"
	OpBenchStart   agent.Op[BenchStartParams, agent.None]              = "bench.start"
	OpBenchStop    agent.Op[StopParams, agent.None]                    = "bench.stop"
	OpBenchCleanup agent.Op[BenchParams, agent.None]                   = "bench.cleanup"
)

// Handlers answer these ops.
func Handlers() agent.Mux {
	s, b := &service{}, &benchService{}
	m := agent.Mux{}
	answerStream(m, OpLoad, s.run)
	answer(m, OpLoadStop, s.stop)
	answer(m, OpLoadMark, s.mark)
	answer(m, OpLoadResult, result)
	answer(m, OpLoadClean, clean)
	answer(m, OpVerify, Verify)
	answer(m, OpBenchPrepare, BenchPrepare)
	answerStream(m, OpBench, b.run)
	answer(m, OpBenchStart, b.start)
	answer(m, OpBenchStop, b.stop)
	answer(m, OpBenchCleanup, BenchCleanup)
	return m
}

// answerStream registers f with m as the handler of op. Errors begin with the
// op's name.
func answerStream[P, E, R any](m agent.Mux, op agent.Stream[P, E, R], f func(context.Context, P, func(E)) (R, error)) {
	op.Answer(m, func(ctx context.Context, p P, emit func(E)) (R, error) {
		r, err := f(ctx, p, emit)
		if err != nil {
			err = fmt.Errorf("%s: %w", op, err)
		}
		return r, err
	})
}

func answer[P, R any](m agent.Mux, op agent.Op[P, R], f func(context.Context, P) (R, error)) {
	answerStream(m, agent.Stream[P, agent.None, R](op), func(ctx context.Context, p P, _ func(agent.None)) (R, error) { return f(ctx, p) })
}

// control steers a run under way.
type control struct {
	stop  func()
	marks atomic.Int64 // of a load
	start chan int64   // of a phase: the moment to begin at
}

// underWay knows the runs under way in this agent, by id.
type underWay struct {
	mu   sync.Mutex
	runs map[string]*control
}

// begin adds a run, which the channel that it returns stops.
func (u *underWay) begin(id string) (c *control, stop <-chan struct{}, end func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs[id] != nil {
		return nil, nil, nil, fmt.Errorf("run %s is under way", id)
	}
	if u.runs == nil {
		u.runs = map[string]*control{}
	}
	ch := make(chan struct{})
	c = &control{stop: sync.OnceFunc(func() { close(ch) }), start: make(chan int64, 1)}
	u.runs[id] = c
	return c, ch, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.runs, id)
	}, nil
}

func (u *underWay) of(id string) (*control, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.runs[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no run %s is under way in this session", id)
}

// service answers the ops for load.
type service struct{ underWay }

func (s *service) run(ctx context.Context, job Job, emit func(Progress)) (*Result, error) {
	// A lost connection stops the load. Hold keeps the agent alive until the
	// result is written.
	defer agent.Hold(ctx)()
	c, stop, end, err := s.begin(job.RunID)
	if err != nil {
		return nil, err
	}
	defer end()
	return Run(ctx, job, Control{stop, &c.marks}, emit)
}

func (s *service) mark(_ context.Context, p StopParams) (none agent.None, err error) {
	c, err := s.of(p.RunID)
	if err == nil {
		c.marks.Add(1)
	}
	return none, err
}

func (s *service) stop(_ context.Context, p StopParams) (none agent.None, err error) {
	if c, err := s.of(p.RunID); err == nil {
		c.stop()
		return none, nil
	}
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return none, err
	}
	switch running, err := busy(dir); {
	case err != nil:
		return none, err
	case !running:
		return none, fmt.Errorf("no run %s is under way", p.RunID)
	}
	return none, os.WriteFile(filepath.Join(dir, stopFile), nil, 0o644)
}

func result(ctx context.Context, p StopParams) (*Result, error) {
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return nil, err
	}
	// A run removes the previous run's result when it begins. So an existing
	// result is that of the last run, even while a stuck worker lingers.
	var b []byte
	for {
		running, err := busy(dir)
		if err != nil {
			return nil, err
		}
		b, err = os.ReadFile(filepath.Join(dir, resultFile))
		if err == nil {
			break
		}
		if !running || !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if !sleep(200*time.Millisecond, ctx.Done()) {
			return nil, fmt.Errorf("run %s is under way: %w", p.RunID, context.Cause(ctx))
		}
	}
	var res Result
	if err := json.Unmarshal(b, &res); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &res, nil
}

func clean(ctx context.Context, p StopParams) (none agent.None, err error) {
	// Removing a file on a mount may hang.
	return patiently(ctx, func() (agent.None, error) { return none, Clean(p) })
}

// benchService answers the ops for benchmarks.
type benchService struct{ underWay }

func (s *benchService) run(ctx context.Context, job BenchJob, emit func(BenchProgress)) (*BenchResult, error) {
	c, stop, end, err := s.begin(job.RunID)
	if err != nil {
		return nil, err
	}
	defer end()
	return Bench(ctx, job, c.start, stop, emit)
}

func (s *benchService) start(_ context.Context, p BenchStartParams) (none agent.None, err error) {
	c, err := s.of(p.RunID)
	if err != nil {
		return none, err
	}
	select {
	case c.start <- p.StartNs:
		return none, nil
	default:
		return none, fmt.Errorf("the phase of run %q has been told already", p.RunID)
	}
}

func (s *benchService) stop(_ context.Context, p StopParams) (none agent.None, err error) {
	c, err := s.of(p.RunID)
	if err == nil {
		c.stop()
	}
	return none, err
}

func runDir(runID, ledgerDir string) (string, error) {
	if !isName(runID) {
		return "", fmt.Errorf("run_id %q: use letters, digits, '.', '_' and '-'", runID)
	}
	if ledgerDir != "" {
		return ledgerDir, nil
	}
	return DefaultLedgerDir(runID), nil
}

// Clean removes the files that a run's ledgers and job name, the directories
// that are empty then, and the ledgers.
func Clean(p StopParams) error {
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return err
	}
	if running, err := busy(dir); err != nil {
		return err
	} else if running {
		return fmt.Errorf("run %s is under way", p.RunID)
	}
	paths, err := ledgerPaths(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !isDir(dir) {
		return err
	}
	var errs []error
	remove := func(path string) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	var dirs []string
	for _, path := range paths {
		x, err := stream.ReadLedger(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if x.Header.Run != p.RunID || !filepath.IsLocal(x.Header.File) {
			errs = append(errs, fmt.Errorf("%s: it is of run %s, file %q", path, x.Header.Run, x.Header.File))
			continue
		}
		file := filepath.Join(x.Header.Dir, x.Header.File)
		dirs = append(dirs, filepath.Dir(file))
		remove(file)
	}
	var job Job
	if b, err := os.ReadFile(filepath.Join(dir, jobFile)); err == nil && json.Unmarshal(b, &job) == nil && job.RunID == p.RunID {
		for _, l := range job.Locks {
			if isName(l.File) && l.Role.owner() {
				d := filepath.Join(l.Dir, p.RunID)
				dirs = append(dirs, d)
				remove(filepath.Join(d, l.File+".lock"))
			}
		}
		for _, n := range job.Names {
			if isName(n.Name) {
				path := namesPath(p.RunID, n)
				dirs = append(dirs, filepath.Dir(path))
				remove(path) // left by a worker that hung
			}
		}
	}
	for _, d := range dirs {
		_ = os.Remove(d) // another client's files may still be there
	}
	if len(errs) == 0 {
		for _, path := range append(paths, filepath.Join(dir, jobFile), filepath.Join(dir, resultFile), filepath.Join(dir, stopFile), filepath.Join(dir, lockFile)) {
			remove(path)
		}
		_ = os.Remove(dir)
	}
	return errors.Join(errs...)
}
