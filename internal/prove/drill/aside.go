package drill

import (
	"errors"
	"sync"
)

// aside carries out steps beside the others, and keeps what could not be done.
type aside struct {
	mu      sync.Mutex
	running map[string]chan struct{} // by fault: closed when its last step is over
	errs    []error
	notDone []string
	wg      sync.WaitGroup
}

// run carries out a step of a fault, after an earlier one of the same fault.
func (a *aside) run(f Fault, do func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[string]chan struct{}{}
	}
	before, done := a.running[f.String()], make(chan struct{})
	a.running[f.String()] = done
	a.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if err := do(); err != nil {
			a.mu.Lock()
			a.errs = append(a.errs, err)
			a.mu.Unlock()
		}
	})
}

// wait waits until every step is over, and returns their errors.
func (a *aside) wait() error {
	a.wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.errs...)
}

// undone notes a fault that could not be injected.
func (a *aside) undone(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notDone = append(a.notDone, what)
}

// left lists the faults that could not be injected.
func (a *aside) left() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.notDone...)
}
