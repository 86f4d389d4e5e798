package rack

import (
	"sync"
	"time"
)

// Event is one piece of news about a running operation.
type Event struct {
	// Step is the step's short name: "packages", "image", "network",
	// "disks", "power", "nodes", "boot <node>", ...
	Step string
	// Detail says more, for people.
	Detail string
	// Done is false when the step begins and true when it has ended.
	Done bool
	// Err is why the step failed; only with Done.
	Err error
	// Elapsed is the step's time; only with Done.
	Elapsed time.Duration
}

// Progress hears of every step's beginning and end. Steps overlap, but the
// function is never called twice at once. It must not block.
type Progress func(Event)

type progress struct {
	mu sync.Mutex
	fn Progress
}

func (p *progress) tell(e Event) {
	if p == nil || p.fn == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fn(e)
}

func (p *progress) step(name, detail string, fn func() error) error {
	p.tell(Event{Step: name, Detail: detail})
	start := time.Now()
	err := fn()
	p.tell(Event{Step: name, Detail: detail, Done: true, Err: err, Elapsed: time.Since(start)})
	return err
}
