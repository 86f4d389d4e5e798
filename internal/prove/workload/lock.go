package workload

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// locker is the goroutine of one Lock.
//
// The holder writes the state of its lock into the file. So a challenger that
// gets the lock can tell a lock granted twice from a released lock.
type locker struct {
	*worker
	cfg  Lock
	path string
}

const (
	heldMark = "held\n"
	freeMark = "free\n"
)

// owner reports whether a worker of this role makes the file of its lock.
func (r LockRole) owner() bool { return r == Hold || r == Probe }

// try takes or releases the lock without waiting for a holder. The kernel still
// waits while the server is in its grace period.
func (l *locker) try(typ int16) error {
	_, err := retryInterrupted(func() (int, error) {
		return 0, unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: typ, Whence: unix.SEEK_SET})
	})
	return err
}

func denied(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) }

// createAfter is the number of attempts, over about three seconds, after which a challenger or taker
// creates the lock file if it still gets ENOENT. An NFSv3 client can keep a negative
// dentry for minutes after the holder has created the file (lab/ha.md).
const createAfter = 6

// open opens the lock file, and creates it if the role is one of an owner.
func (l *locker) open() error {
	var wait backoff
	first := true
	for tries := 0; ; tries++ {
		err := l.openOnce(l.cfg.Role.owner() || tries >= createAfter)
		if err == nil {
			l.done()
			return nil
		}
		if !l.cfg.Role.owner() && errors.Is(err, unix.ENOENT) {
			l.done() // the holder has not begun yet
		} else {
			l.fail(err)
			if first && hopeless(err) {
				return err
			}
		}
		first = false
		if !wait.wait(l.stop) {
			return errStopped
		}
	}
}

func (l *locker) openOnce(create bool) (err error) {
	dir := filepath.Dir(l.path)
	if err := makeRunDir(l.worker, dir); err != nil {
		return err
	}
	flags := unix.O_RDWR
	if create {
		flags |= unix.O_CREAT
	} else if err := l.refresh(dir); err != nil {
		return err
	}
	l.begin("open")
	l.fd, err = open(l.path, flags)
	return err
}

// refresh makes the kernel ask the server about the directory. Otherwise a
// challenger that starts before the holder makes its file gets ENOENT from the
// client's own cache for acdirmin (30 s).
// Source: nfs(5), "Directory entry caching"; opening a directory revalidates it.
func (l *locker) refresh(dir string) error {
	l.begin("open")
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func (l *locker) reopen(wait *backoff) error {
	l.shut()
	if !wait.wait(l.stop) {
		return errStopped
	}
	return l.open()
}

// mark writes the state of the lock through the descriptor that holds it.
func (l *locker) mark(s string) error {
	if err := pwrite(l.fd, []byte(s), 0); err != nil {
		return err
	}
	return fsync(l.fd)
}

// hold holds the lock until the run stops; held: the worker has it already.
func (l *locker) hold(held bool) error {
	var wait backoff
	for {
		if !held {
			l.begin("lock")
			if err := l.try(unix.F_WRLCK); err != nil {
				if err := l.retry(err, &wait); err != nil {
					return err
				}
				continue
			}
			l.succeed(0)
			held = true
		}
		// NFSv4 answers EIO for I/O under a lock that was lost.
		l.begin("hold")
		if err := l.mark(heldMark); err != nil {
			l.fail(err)
			l.violation("hold", "the lock or the file under it was lost: "+err.Error())
			held = false
			if err := l.reopen(&wait); err != nil {
				return err
			}
			continue
		}
		l.succeed(0)
		wait.reset()
		if !sleep(time.Duration(l.cfg.IntervalSeconds*float64(time.Second)), l.stop) {
			break
		}
	}
	l.begin("unlock")
	err := l.mark(freeMark)
	if err == nil {
		err = l.try(unix.F_UNLCK)
	}
	if err != nil {
		l.fail(err)
		return nil
	}
	l.succeed(0)
	return nil
}

// lockOp names the operation with which a role tries to take the lock.
var lockOp = map[LockRole]string{Probe: "lock", Challenge: "challenge", Take: "ask"}

// run holds the lock, or tries in each interval to take it. A prober has a file of its
// own. To a challenger or taker a refusal is the right answer, of a server that keeps the
// lock for its holder.
func (l *locker) run() error {
	if err := l.open(); err != nil {
		return err
	}
	if l.cfg.Role == Hold {
		return l.hold(false)
	}
	pace := newPacer(1 / l.cfg.IntervalSeconds)
	var wait backoff
	for pace.wait(l.stop) {
		l.begin(lockOp[l.cfg.Role])
		err := l.try(unix.F_WRLCK)
		if err == nil && l.cfg.Role == Take {
			l.took()
			return l.hold(true)
		}
		if denied(err) && l.cfg.Role != Probe {
			l.succeed(0)
			continue
		}
		if err == nil {
			l.succeed(0)
			if l.cfg.Role == Challenge {
				l.challenged()
			}
			l.begin("unlock")
			if err = l.try(unix.F_UNLCK); err == nil {
				l.succeed(0)
				wait.reset()
				continue
			}
		}
		if err := l.retry(err, &wait); err != nil {
			return err
		}
	}
	return nil
}

// retry notes that an operation failed, and waits until another try makes sense: the server may
// still keep the lock of a holder that has just died.
func (l *locker) retry(failed error, wait *backoff) error {
	l.fail(failed)
	switch {
	case !denied(failed):
		return l.reopen(wait)
	case !wait.wait(l.stop):
		return errStopped
	}
	return nil
}

// challenged looks whether the lock that a challenger got is one that is held.
func (l *locker) challenged() {
	var b [16]byte
	n, err := retryInterrupted(func() (int, error) { return unix.Pread(l.fd, b[:], 0) })
	if err == nil && strings.HasPrefix(string(b[:n]), heldMark) {
		l.violation("challenge", fmt.Sprintf("got the lock on %s that another client holds", l.path))
	}
}
