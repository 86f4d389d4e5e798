// Package flock takes advisory locks on open files.
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
		if ok, err := Try(f); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}

// Try takes the exclusive lock on a file, which goes with it, if nobody has it.
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
