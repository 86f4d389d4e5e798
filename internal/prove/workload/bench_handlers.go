package workload

import (
	"context"
	"fmt"
	"sync"

	"github.com/mortarhpc/mortar/internal/host/agent"
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

func (s *benchService) run(ctx context.Context, job BenchJob, emit func(BenchProgress)) (*BenchResult, error) {
	stop := make(chan struct{})
	c := &benchControl{start: make(chan int64, 1), stop: sync.OnceFunc(func() { close(stop) })}
	s.mu.Lock()
	if s.runs[job.RunID] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("a phase of run %s is under way", job.RunID)
	}
	s.runs[job.RunID] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runs, job.RunID)
	}()
	return Bench(ctx, job, c.start, stop, emit)
}

func (s *benchService) under(runID string) (*benchControl, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.runs[runID]
	if c == nil {
		return nil, fmt.Errorf("no phase of run %q is under way", runID)
	}
	return c, nil
}

func (s *benchService) start(_ context.Context, p BenchStartParams) (none agent.None, err error) {
	c, err := s.under(p.RunID)
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

func (s *benchService) stop(_ context.Context, p BenchStopParams) (none agent.None, err error) {
	c, err := s.under(p.RunID)
	if err != nil {
		return none, err
	}
	c.stop()
	return none, nil
}
