// Package flock waits for advisory locks on open files.
package flock

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// interval between two tries: flock(2) itself could not be given up.
const interval = 50 * time.Millisecond

// Wait takes the exclusive lock on a file, which goes with it. If ctx is done
// before, its error is returned.
func Wait(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}
