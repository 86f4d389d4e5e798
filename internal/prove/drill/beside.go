package drill

import (
	"errors"
	"slices"
	"sync"

	"github.com/mortarhpc/mortar/internal/prove/fault"
)

// beside carries out steps beside the others, and keeps what could not be done.
type beside struct {
	mu      sync.Mutex
	running map[string]chan struct{} // by fault: closed when its last step is over
	errs    []error
	undone  []string // faults that could not be injected
	wg      sync.WaitGroup
}

// locked does something to what the steps have left.
func (b *beside) locked(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

// run carries out a step of a fault, after an earlier one of the same fault.
func (b *beside) run(f fault.Fault, do func() error) {
	done := make(chan struct{})
	var before chan struct{}
	b.locked(func() {
		if b.running == nil {
			b.running = map[string]chan struct{}{}
		}
		before, b.running[f.String()] = b.running[f.String()], done
	})
	b.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		err := do()
		b.locked(func() { b.errs = append(b.errs, err) })
	})
}

// wait waits until every step is over, and returns their errors.
func (b *beside) wait() (err error) {
	b.wg.Wait()
	b.locked(func() { err = errors.Join(b.errs...) })
	return err
}

// left lists the faults that could not be injected.
func (b *beside) left() (out []string) {
	b.locked(func() { out = slices.Clone(b.undone) })
	return out
}
