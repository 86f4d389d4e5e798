package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Interruptible returns a context that ends with Ctrl-C, SIGTERM or SIGHUP; the command cleans up
// then. A second Ctrl-C ends the program at once.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan os.Signal, 8)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go obey(got, cancel, func() {
		cleanups.Lock()
		os.Exit(Interrupted)
	})
	return ctx, func() { signal.Stop(got); cancel() }
}

// cleanups are those under way that a second Ctrl-C must not cut off.
var cleanups sync.RWMutex

// Uninterrupted begins such a clean-up, and returns its end.
func Uninterrupted() (end func()) {
	cleanups.RLock()
	return cleanups.RUnlock
}

// obey counts Ctrl-C alone: a terminal that closes sends SIGHUP twice.
func obey(got <-chan os.Signal, cancel, kill func()) {
	interrupts := 0
	for s := range got {
		if s == os.Interrupt {
			interrupts++
		}
		if interrupts == 2 {
			kill()
			return
		}
		cancel()
	}
}

// OrInterrupt returns with do, or when ctx ends: do may hang in a read. It is for what only reads.
func OrInterrupt(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return Fail(Interrupted, errors.New("interrupted"))
	}
}
