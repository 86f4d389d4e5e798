package tool

import (
	"sync"
	"time"
)

// Event is the begin or the end of a step of a running operation.
type Event struct {
	// Step is the step's short name: "packages", "image", "network",
	// "disks", "power", "nodes", "boot <node>", ...
	Step string
	// Detail is a text for people.
	Detail string
	// Done is false when the step begins and true when it has ended.
	Done bool
	// Err is why the step failed; only with Done.
	Err error
	// Elapsed is the step's time; only with Done.
	Elapsed time.Duration
}

// Progress receives the begin and the end of every step. Steps overlap, but calls do
// not. It must not block.
type Progress func(Event)

type Steps struct {
	mu sync.Mutex
	Fn Progress
}

func (p *Steps) tell(e Event) {
	if p == nil || p.Fn == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Fn(e)
}

func (p *Steps) Step(name, detail string, fn func() error) error {
	p.tell(Event{Step: name, Detail: detail})
	start := time.Now()
	err := fn()
	p.tell(Event{Step: name, Detail: detail, Done: true, Err: err, Elapsed: time.Since(start)})
	return err
}
