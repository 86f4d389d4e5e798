package rack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/flock"
)

// run runs a tool of the host and waits for it. The tool dies with us, even if we are
// killed. Its output appears only in an error.
func run(ctx context.Context, argv ...string) error {
	_, err := output(ctx, nil, argv...)
	return err
}

// output is run for a tool that reads a text and writes one.
func output(ctx context.Context, in []byte, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, toolPath(argv[0]), argv[1:]...)
	cmd.Env = toolEnv()
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// The kernel sends the parent-death signal when the thread that started the
	// child ends, so keep the thread until then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, lastLines(errs.String()+out.String(), 12))
	}
	return out.Bytes(), nil
}

// toolPath finds a tool, even in Debian's directories for administration tools that
// PATH may lack. It returns the bare name of a missing tool, for the error message.
func toolPath(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, d := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if p, err := exec.LookPath(filepath.Join(d, name)); err == nil {
			return p
		}
	}
	return name
}

// toolEnv is the environment of tools: a fixed locale, and a PATH with Debian's
// directories for administration tools.
func toolEnv() []string {
	return append(os.Environ(), "LC_ALL=C.UTF-8", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin:/usr/bin:/bin")
}

// lastLines is the end of a text, for an error message.
func lastLines(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// poll asks until done, and returns why ctx ended if that is before.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// removeAll removes the files and directories that match a pattern.
func removeAll(pattern string) error {
	found, err := filepath.Glob(pattern)
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// lockFile waits for the lock on a file and takes it. The lock ends with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = flock.Wait(ctx, f); err == nil {
			// The previous holder may have removed the file. A lock on a removed
			// file is useless, since no other process can open it.
			mine, err1 := f.Stat()
			there, err2 := os.Stat(path)
			if err1 == nil && err2 == nil && os.SameFile(mine, there) {
				return func() { f.Close() }, nil
			}
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}
