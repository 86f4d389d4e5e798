package workload

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namer is the goroutine of one Names.
type namer struct {
	*worker
	cfg  Names
	path string
}

func (n *namer) run() error {
	if err := n.retry(func() error { return makeRunDir(n.worker, filepath.Dir(n.path)) }, hopeless); err != nil {
		return err
	}
	pace := newPacer(n.cfg.OpsPerSecond)
	var wait backoff
	for made := false; made || pace.wait(n.stop); {
		op, call := "mkdir", func() error { return unix.Mkdir(n.path, 0o755) }
		if made {
			op, call = "rmdir", func() error { return unix.Rmdir(n.path) }
		}
		n.begin(op)
		_, err := retryInterrupted(func() (int, error) { return 0, call() })
		// The directory is left from an earlier run of the job, or the
		// server carried out a call whose answer was lost.
		if !made && errors.Is(err, unix.EEXIST) || made && errors.Is(err, unix.ENOENT) {
			err = nil
		}
		if err != nil {
			n.fail(err)
			if !wait.wait(n.stop) {
				return errStopped
			}
			continue
		}
		wait.reset()
		n.succeed(0)
		made = !made
	}
	return nil
}
