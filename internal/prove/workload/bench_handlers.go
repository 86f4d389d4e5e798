package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

// benchService knows the phases under way in this agent.
type benchService struct {
	mu   sync.Mutex
	runs map[string]*benchControl // by run id
}

type benchControl struct {
	start chan int64
	stop  func()
}

func (s *benchService) prepare(ctx context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p BenchPrepareParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("bench.prepare: %w", err)
	}
	f, err := BenchPrepare(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("bench.prepare: %w", err)
	}
	return f, nil
}

func (s *benchService) run(ctx context.Context, params json.RawMessage, emit func(any)) (any, error) {
	var job BenchJob
	if err := strictjson.Decode(params, &job); err != nil {
		return nil, fmt.Errorf("bench.run: %w", err)
	}
	stop := make(chan struct{})
	c := &benchControl{start: make(chan int64, 1), stop: sync.OnceFunc(func() { close(stop) })}
	s.mu.Lock()
	if s.runs[job.RunID] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("bench.run: a phase of run %s is under way", job.RunID)
	}
	s.runs[job.RunID] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runs, job.RunID)
	}()
	res, err := Bench(ctx, job, c.start, stop, func(p BenchProgress) { emit(p) })
	if err != nil {
		return nil, fmt.Errorf("bench.run: %w", err)
	}
	return res, nil
}

func (s *benchService) under(op, runID string) (*benchControl, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.runs[runID]
	if c == nil {
		return nil, fmt.Errorf("%s: no phase of run %q is under way", op, runID)
	}
	return c, nil
}

func (s *benchService) start(_ context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p BenchStartParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("bench.start: %w", err)
	}
	c, err := s.under("bench.start", p.RunID)
	if err != nil {
		return nil, err
	}
	select {
	case c.start <- p.StartNs:
		return struct{}{}, nil
	default:
		return nil, fmt.Errorf("bench.start: the phase of run %q has been told already", p.RunID)
	}
}

func (s *benchService) stop(_ context.Context, params json.RawMessage, _ func(any)) (any, error) {
	var p BenchStopParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("bench.stop: %w", err)
	}
	c, err := s.under("bench.stop", p.RunID)
	if err != nil {
		return nil, err
	}
	c.stop()
	return struct{}{}, nil
}

func (s *benchService) cleanup(ctx context.Context, params json.RawMessage, emit func(any)) (any, error) {
	var p BenchCleanupParams
	if err := strictjson.Decode(params, &p); err != nil {
		return nil, fmt.Errorf("bench.cleanup: %w", err)
	}
	res, err := BenchCleanup(ctx, p, func(v BenchCleanupProgress) { emit(v) })
	if err != nil {
		return nil, fmt.Errorf("bench.cleanup: %w", err)
	}
	return res, nil
}
