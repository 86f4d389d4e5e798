package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// Handlers are the agent's ops for load:
//
//	load.run    Job          -> Progress events, Result
//	load.stop   StopParams   -> {} at once; the result comes from load.run
//	load.result StopParams   -> Result, also of another session's run: waits for its end
//	verify.run  VerifyParams -> VerifyProgress events, VerifyResult
//	load.clean  CleanParams  -> CleanResult
//
// Those for benchmarks are told of at [BenchJob].
func Handlers() agent.Mux {
	s := &service{stops: map[string]func(){}}
	b := &benchService{runs: map[string]*benchControl{}}
	return agent.Mux{
		"load.run":    s.run,
		"load.stop":   s.stop,
		"load.result": s.result,
		"load.clean":  s.clean,
		"verify.run":  s.verify,

		"bench.prepare": b.prepare,
		"bench.run":     b.run,
		"bench.start":   b.start,
		"bench.stop":    b.stop,
		"bench.cleanup": b.cleanup,
	}
}

// service knows the runs under way in this agent.
type service struct {
	mu    sync.Mutex
	stops map[string]func()
}

func (s *service) run(ctx context.Context, params json.RawMessage, emit func(any)) (any, error) {
	var job Job
	if err := strictjson.Decode(params, &job); err != nil {
		return nil, fmt.Errorf("load.run: %w", err)
	}
	// A lost connection stops the load; the result is still to be written.
	defer agent.Hold(ctx)()
	stop := make(chan struct{})
	s.mu.Lock()
	if s.stops[job.RunID] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("load.run: run %s is under way", job.RunID)
	}
	s.stops[job.RunID] = sync.OnceFunc(func() { close(stop) })
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.stops, job.RunID)
	}()
	res, err := Run(ctx, job, stop, func(p Progress) { emit(p) })
	if err != nil {
		return nil, fmt.Errorf("load.run: %w", err)
	}
	return res, nil
}

func (s *service) stop(_ context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p StopParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("load.stop: %w", err)
	}
	s.mu.Lock()
	stop := s.stops[p.RunID]
	s.mu.Unlock()
	if stop != nil {
		stop()
		return struct{}{}, nil
	}
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return nil, fmt.Errorf("load.stop: %w", err)
	}
	switch running, err := busy(dir); {
	case err != nil:
		return nil, fmt.Errorf("load.stop: %w", err)
	case !running:
		return nil, fmt.Errorf("load.stop: no run %s is under way", p.RunID)
	}
	if err := os.WriteFile(filepath.Join(dir, stopFile), nil, 0o644); err != nil {
		return nil, fmt.Errorf("load.stop: %w", err)
	}
	return struct{}{}, nil
}

func (s *service) result(ctx context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p StopParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("load.result: %w", err)
	}
	dir, err := runDir(p.RunID, p.LedgerDir)
	if err != nil {
		return nil, fmt.Errorf("load.result: %w", err)
	}
	// A run removes the result of the one before it when it begins, so one
	// that is there is the last one's, even while a stuck worker lingers.
	var b []byte
	for {
		running, err := busy(dir)
		if err != nil {
			return nil, fmt.Errorf("load.result: %w", err)
		}
		b, err = os.ReadFile(filepath.Join(dir, resultFile))
		if err == nil {
			break
		}
		if !running || !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("load.result: %w", err)
		}
		if !sleep(200*time.Millisecond, ctx.Done()) {
			return nil, fmt.Errorf("load.result: run %s is under way: %w", p.RunID, context.Cause(ctx))
		}
	}
	var res Result
	if err := json.Unmarshal(b, &res); err != nil {
		return nil, fmt.Errorf("load.result: %s: %w", dir, err)
	}
	return &res, nil
}

func (s *service) verify(ctx context.Context, params json.RawMessage, emit func(any)) (any, error) {
	var p VerifyParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("verify.run: %w", err)
	}
	res, err := Verify(ctx, p, func(v VerifyProgress) { emit(v) })
	if err != nil {
		return nil, fmt.Errorf("verify.run: %w", err)
	}
	return res, nil
}

func (s *service) clean(ctx context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p CleanParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("load.clean: %w", err)
	}
	// In a goroutine: removing may hang as all else on a mount may.
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
		if a.err != nil {
			return nil, fmt.Errorf("load.clean: %w", a.err)
		}
		return a.res, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("load.clean: %w", context.Cause(ctx))
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

// Clean removes what a run left: the files its ledgers and its job name, one
// by one, and directories only when they are empty then.
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
			if isName(l.File) && l.Role != Challenge {
				d := filepath.Join(mapDir(l.Dir, p.Dirs), p.RunID)
				dirs = append(dirs, d)
				remove(filepath.Join(d, l.File+".lock"))
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
