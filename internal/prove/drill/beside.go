package drill

import (
	"errors"
	"sync"
)

// beside carries out steps beside the others, and keeps what could not be done.
type beside struct {
	mu      sync.Mutex
	running map[string]chan struct{} // by fault: closed when its last step is over
	errs    []error
	notDone []string
	wg      sync.WaitGroup
}

// run carries out a step of a fault, after an earlier one of the same fault.
func (b *beside) run(f Fault, do func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil {
		b.running = map[string]chan struct{}{}
	}
	before, done := b.running[f.String()], make(chan struct{})
	b.running[f.String()] = done
	b.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if err := do(); err != nil {
			b.mu.Lock()
			b.errs = append(b.errs, err)
			b.mu.Unlock()
		}
	})
}

// wait waits until every step is over, and returns their errors.
func (b *beside) wait() error {
	b.wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}

// undone notes a fault that could not be injected.
func (b *beside) undone(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notDone = append(b.notDone, what)
}

// left lists the faults that could not be injected.
func (b *beside) left() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.notDone...)
}
