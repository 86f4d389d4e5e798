// Package flock takes exclusive advisory locks (flock(2)) on open files. It
// does not know what a lock protects. The kernel releases a lock when its file
// is closed, and so also when the process dies.
package flock

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// interval is the time between two tries. Wait polls because a blocking flock(2)
// could not be cancelled.
const interval = 50 * time.Millisecond

// Wait waits for the exclusive lock on f, and holds it until f is closed. It
// returns the error of ctx if that ends first.
func Wait(ctx context.Context, f *os.File) error {
	for {
		over := ctx.Err() // before the try: a process that gets no processor has one left
		if ok, err := Try(f); ok || err != nil {
			return err
		}
		if over != nil {
			return over
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// Try takes the exclusive lock on f unless another holds it, and reports
// whether it did. Closing f releases the lock.
func Try(f *os.File) (bool, error) {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
		return true, nil
	case unix.EWOULDBLOCK, unix.EINTR:
		return false, nil
	default:
		return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
}
