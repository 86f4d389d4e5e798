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
	OpLoadResult agent.Op[StopParams, *Result]                             = "load.result"
	OpLoadClean  agent.Op[CleanParams, *CleanResult]                       = "load.clean"
	OpVerify     agent.Stream[VerifyParams, VerifyProgress, *VerifyResult] = "verify.run"
)

// The agent's ops for benchmarks; see [BenchJob].
const (
	OpBenchPrepare agent.Op[BenchPrepareParams, *BenchFacts]                                   = "bench.prepare"
	OpBench        agent.Stream[BenchJob, BenchProgress, *BenchResult]                         = "bench.run"
	OpBenchStart   agent.Op[BenchStartParams, agent.None]                                      = "bench.start"
	OpBenchStop    agent.Op[BenchStopParams, agent.None]                                       = "bench.stop"
	OpBenchCleanup agent.Stream[BenchCleanupParams, BenchCleanupProgress, *BenchCleanupResult] = "bench.cleanup"
)

// Handlers answer these ops.
func Handlers() agent.Mux {
	s := &service{stops: map[string]func(){}, marks: map[string]*atomic.Int64{}}
	b := &benchService{runs: map[string]*benchControl{}}
	m := agent.Mux{}
	answerStream(m, OpLoad, s.run)
	answer(m, OpLoadStop, s.stop)
	answer(m, OpLoadMark, s.mark)
	answer(m, OpLoadResult, s.result)
	answer(m, OpLoadClean, s.clean)
	answerStream(m, OpVerify, Verify)
	answer(m, OpBenchPrepare, BenchPrepare)
	answerStream(m, OpBench, b.run)
	answer(m, OpBenchStart, b.start)
	answer(m, OpBenchStop, b.stop)
	answerStream(m, OpBenchCleanup, BenchCleanup)
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

// service knows the runs under way in this agent.
type service struct {
	mu    sync.Mutex
	stops map[string]func()
	marks map[string]*atomic.Int64
}

func (s *service) run(ctx context.Context, job Job, emit func(Progress)) (*Result, error) {
	// A lost connection stops the load. Hold keeps the agent alive until the
	// result is written.
	defer agent.Hold(ctx)()
	stop := make(chan struct{})
	s.mu.Lock()
	if s.stops[job.RunID] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("run %s is under way", job.RunID)
	}
	s.stops[job.RunID] = sync.OnceFunc(func() { close(stop) })
	marks := new(atomic.Int64)
	s.marks[job.RunID] = marks
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.stops, job.RunID)
		delete(s.marks, job.RunID)
	}()
	return Run(ctx, job, Control{stop, marks}, emit)
}

func (s *service) mark(_ context.Context, p StopParams) (none agent.None, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks[p.RunID] == nil {
		return none, fmt.Errorf("no run %s is under way in this session", p.RunID)
	}
	s.marks[p.RunID].Add(1)
	return none, nil
}

func (s *service) stop(_ context.Context, p StopParams) (none agent.None, err error) {
	s.mu.Lock()
	stop := s.stops[p.RunID]
	s.mu.Unlock()
	if stop != nil {
		stop()
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

func (s *service) result(ctx context.Context, p StopParams) (*Result, error) {
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

func (s *service) clean(ctx context.Context, p CleanParams) (*CleanResult, error) {
	// In a goroutine, since removing a file on a mount may hang.
	type answer struct {
		res *CleanResult
		err error
	}
	done := make(chan answer, 1)
	go func() {
		res, err := Clean(p)
		done <- answer{res, err}
	}()
	select {
	case a := <-done:
		return a.res, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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

// Clean removes the files that a run's ledgers and job name, and the directories
// that are empty then.
func Clean(p CleanParams) (*CleanResult, error) {
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return nil, err
	}
	if running, err := busy(dir); err != nil {
		return nil, err
	} else if running {
		return nil, fmt.Errorf("run %s is under way", p.RunID)
	}
	paths, err := ledgerPaths(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !isDir(dir) {
		return nil, err
	}
	res := &CleanResult{Removed: []string{}}
	var errs []error
	remove := func(path string) {
		switch err := os.Remove(path); {
		case err == nil:
			res.Removed = append(res.Removed, path)
		case !errors.Is(err, os.ErrNotExist):
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
		file := filepath.Join(mapDir(x.Header.Dir, p.Dirs), x.Header.File)
		dirs = append(dirs, filepath.Dir(file))
		remove(file)
	}
	var job Job
	if b, err := os.ReadFile(filepath.Join(dir, jobFile)); err == nil && json.Unmarshal(b, &job) == nil && job.RunID == p.RunID {
		for _, l := range job.Locks {
			if isName(l.File) && l.Role.owner() {
				d := filepath.Join(mapDir(l.Dir, p.Dirs), p.RunID)
				dirs = append(dirs, d)
				remove(filepath.Join(d, l.File+".lock"))
			}
		}
		for _, n := range job.Names {
			if isName(n.Name) {
				n.Dir = mapDir(n.Dir, p.Dirs)
				path := namesPath(p.RunID, n)
				dirs = append(dirs, filepath.Dir(path))
				remove(path) // left by a worker that hung
			}
		}
	}
	for _, d := range dirs {
		_ = os.Remove(d) // another client's files may still be there
	}
	if p.Ledger && len(errs) == 0 {
		for _, path := range append(paths, filepath.Join(dir, jobFile), filepath.Join(dir, resultFile), filepath.Join(dir, stopFile), filepath.Join(dir, lockFile)) {
			remove(path)
		}
		_ = os.Remove(dir)
	}
	return res, errors.Join(errs...)
}
