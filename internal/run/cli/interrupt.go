package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible returns a context that ends with Ctrl-C, SIGTERM or SIGHUP; the command cleans up
// then. A second Ctrl-C ends the program at once.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan os.Signal, 8)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go obey(got, cancel, func() { os.Exit(Interrupted) })
	return ctx, func() { signal.Stop(got); cancel() }
}

// obey counts Ctrl-C alone: a terminal that closes sends SIGHUP twice, and a command that mortar
// has started gets SIGTERM of its parent besides the Ctrl-C of the terminal.
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
