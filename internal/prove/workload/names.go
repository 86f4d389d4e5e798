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
	stop <-chan struct{}
}

func (n *namer) run() {
	err := n.loop()
	n.close(-1)
	if err != nil && !errors.Is(err, errStopped) {
		n.giveUp(err)
	}
}

func (n *namer) loop() error {
	if err := n.runDir(); err != nil {
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
		_, err := again(func() (int, error) { return 0, call() })
		// The directory is left from an earlier run of the job, or the
		// server carried out a call whose answer was lost.
		if !made && errors.Is(err, unix.EEXIST) || made && errors.Is(err, unix.ENOENT) {
			err = nil
		}
		if err != nil {
			n.fail(err, 0, 0)
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

// runDir makes the run's directory. It retries until the run stops.
func (n *namer) runDir() error {
	var wait backoff
	for {
		err := makeRunDir(n.worker, filepath.Dir(n.path))
		if err == nil {
			n.done()
			return nil
		}
		n.fail(err, 0, 0)
		if hopeless(err) {
			return err
		}
		if !wait.wait(n.stop) {
			return errStopped
		}
	}
}
