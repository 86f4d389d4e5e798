package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

const (
	actionSeconds = 120       // bound on an action that names none
	actionOutput  = 256 << 10 // bytes kept of each of its stdout and stderr
	lockPath      = "/run/mortar/action.lock"
)

// runner runs actions: the only thing in the agent that changes the host.
type runner struct {
	lock *hostLock
	log  func(line string) // may be nil
	sys  resource.Sys      // reads what Blank devices carry
	// holder is that of the session's commands, and brick the file of claims.
	holder, brick string
}

// run does one action. What has begun is finished, or runs into its own time
// bound, even if the caller cancels or goes away: half an apt or mkfs is
// worse than a late one. A command that fails gives a *Error with its argv,
// exit code and stderr.
func (r *runner) run(ctx context.Context, p RunParams, emit func(RunEvent)) (resource.Output, error) {
	a := p.Action
	if err := a.Permitted(p.Permitted); err != nil {
		return resource.Output{}, err
	}
	if len(a.Cmd) == 0 && a.File == nil || len(a.Cmd) > 0 && a.File != nil && !a.File.Remove {
		return resource.Output{}, &Error{Message: fmt.Sprintf("action %q needs either a command, with or without a file to remove after it, or a file", a.Title)}
	}
	if filepath.Base("/"+a.Beside) != a.Beside && a.Beside != "" || len(a.Cmd) == 0 && a.Beside != "" {
		return resource.Output{}, &Error{Message: fmt.Sprintf("action %q: %q names nothing that a command works on", a.Title, a.Beside)}
	}
	release := Hold(ctx)
	defer release()
	take := func(l *hostLock) (func(), error) {
		unlock, err := l.acquire(ctx, func() { emit(RunEvent{Waiting: true}) })
		if err != nil {
			return nil, fmt.Errorf("waiting for another session's action on this host: %w", err)
		}
		return unlock, nil
	}
	if a.Beside != "" {
		// Before the host's lock, so that an action that waits here does not hold up the others. A
		// lock object of its own keeps the actions of one session apart, too.
		done, err := take(&hostLock{path: r.lock.path + "-" + a.Beside})
		if err != nil {
			return resource.Output{}, err
		}
		defer done()
	}
	unlock, err := take(r.lock)
	if err != nil {
		return resource.Output{}, err
	}
	defer unlock()
	brick, err := claim.Read(r.brick)
	if err == nil {
		err = brick.MayAct(r.holder)
	}
	if err != nil {
		return resource.Output{}, err
	}
	if len(a.Blank) > 0 {
		if err := storage.MustBeBlank(ctx, r.sys, a.Blank); err != nil {
			return resource.Output{}, err
		}
	}
	r.note(signed(p.By, logLine(a)))
	if a.Beside != "" {
		unlock()
	}
	out, err := carryOut(ctx, a)
	if err != nil {
		r.note(signed(p.By, fmt.Sprintf(FailedLog+"%s: %v", a.Title, err)))
	}
	return out, err
}

func (r *runner) note(line string) {
	if r.log != nil {
		r.log(line)
	}
}

// carryOut does what the action says.
func carryOut(ctx context.Context, a resource.Action) (resource.Output, error) {
	if len(a.Cmd) == 0 {
		return resource.Output{}, doFile(a)
	}
	seconds := a.Seconds
	if seconds <= 0 {
		seconds = actionSeconds
	}
	cmd := command.Cmd{Argv: a.Cmd, Stdin: a.Stdin, Timeout: time.Duration(seconds) * time.Second, Limit: actionOutput}
	said, err := cmd.Run(context.WithoutCancel(ctx))
	out := resource.Output(said)
	if a.Secret {
		out.Stdout, out.Stderr = mask(out.Stdout, a.Stdin), mask(out.Stderr, a.Stdin)
	}
	if err != nil {
		return out, &Error{Message: err.Error(), Cmd: a.Cmd, Code: out.Code, Stderr: out.Stderr, Cause: resource.CauseOf(err)}
	}
	if out.Code != 0 && !slices.Contains(a.OKCodes, out.Code) {
		text := failureText(out)
		return out, &Error{Message: fmt.Sprintf("%s: exit code %d", a.Title, out.Code), Cmd: a.Cmd, Code: out.Code, Stderr: text, Errno: linux.ErrnoIn(text)}
	}
	if a.File != nil {
		return out, doFile(a)
	}
	return out, nil
}

// doFile does what an action does to a file.
func doFile(a resource.Action) error {
	f := *a.File
	if f.From != "" {
		return &Error{Message: fmt.Sprintf("%s: the content of %s did not come along", a.Title, f.From)}
	}
	if f.Mode == 0 {
		f.Mode = defaultMode(f, a.Secret)
	}
	if err := writeFile(f); err != nil {
		return &Error{Message: fmt.Sprintf("%s: %v", a.Title, err)}
	}
	return nil
}

// failureText is stderr, or the end of stdout for tools that complain there.
func failureText(out resource.Output) string {
	if strings.TrimSpace(out.Stderr) != "" {
		return out.Stderr
	}
	const keep = 2000
	if len(out.Stdout) > keep {
		return out.Stdout[len(out.Stdout)-keep:]
	}
	return out.Stdout
}

// mask hides a secret, and each line of it, in a command's output.
func mask(s string, secret []byte) string {
	const stars = "********"
	if whole := strings.TrimSpace(string(secret)); len(whole) >= 3 {
		s = strings.ReplaceAll(s, whole, stars)
	}
	for line := range bytes.Lines(secret) {
		if l := strings.TrimSpace(string(line)); len(l) >= 3 {
			s = strings.ReplaceAll(s, l, stars)
		}
	}
	return s
}

// defaultMode is for a file that names no mode.
func defaultMode(f resource.File, secret bool) uint32 {
	switch {
	case secret && f.Mkdir:
		return 0o700
	case secret:
		return 0o600
	case f.Mkdir:
		return 0o755
	}
	return 0o644
}

// writeFile makes what f says, atomically: readers, and a crash, see the old
// or the new. Missing directories above it are made with mode 0755.
func writeFile(f resource.File) error {
	if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path || f.Path == "/" {
		return fmt.Errorf("%q is not a clean absolute path", f.Path)
	}
	if f.Remove {
		err := os.Remove(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return durable.SyncDir(filepath.Dir(f.Path))
	}
	if strings.HasPrefix(f.Path, "/proc/") || strings.HasPrefix(f.Path, "/sys/") {
		return writeKnob(f.Path, f.Content)
	}
	uid, gid, err := owner(f.Owner, f.Group)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	switch {
	case f.Mkdir:
		if err := os.Mkdir(f.Path, 0o700); err != nil {
			fi, serr := os.Stat(f.Path)
			if !errors.Is(err, fs.ErrExist) || serr != nil || !fi.IsDir() {
				return err
			}
		}
		if err := os.Chown(f.Path, uid, gid); err != nil {
			return err
		}
		if err := unix.Chmod(f.Path, f.Mode); err != nil {
			return &fs.PathError{Op: "chmod", Path: f.Path, Err: err}
		}
		return durable.SyncDir(dir)
	case f.Symlink != "":
		return durable.Symlink(f.Symlink, f.Path)
	}
	return durable.Write(f.Path, durable.File{Content: f.Content, Mode: f.Mode, UID: uid, GID: gid})
}

// writeKnob hands a value to the kernel: in one write, to a file that is
// there already.
func writeKnob(path string, value []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	return errors.Join(err, f.Close())
}

// owner resolves names; "" is root.
func owner(name, group string) (uid, gid int, err error) {
	if name != "" && name != "root" {
		u, err := user.Lookup(name)
		if err != nil {
			return 0, 0, err
		}
		if uid, err = strconv.Atoi(u.Uid); err != nil {
			return 0, 0, err
		}
	}
	if group != "" && group != "root" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return 0, 0, err
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return 0, 0, err
		}
	}
	return uid, gid, nil
}

// hostLock keeps the actions of different sessions on one host apart: an
// apply that was killed leaves an agent that finishes the action in hand, and
// the next apply must not run into it. Actions of one session may overlap.
type hostLock struct {
	path string
	mu   sync.Mutex
	n    int
	f    *os.File
}

// acquire calls waiting once if it has to wait.
func (l *hostLock) acquire(ctx context.Context, waiting func()) (release func(), err error) {
	for first := true; ; first = false {
		ok, err := l.try()
		if err != nil {
			return nil, err
		}
		if ok {
			return sync.OnceFunc(l.release), nil
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (l *hostLock) try() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
			return false, err
		}
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return false, err
		}
		if ok, err := flock.Try(f); !ok {
			_ = f.Close()
			return false, err
		}
		l.f = f
	}
	l.n++
	return true, nil
}

func (l *hostLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n--; l.n == 0 {
		_ = l.f.Close() // closing ends the lock; nothing was written
		l.f = nil
	}
}
