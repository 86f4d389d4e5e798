package rack

import (
	"bytes"
	"context"
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

// run runs a tool of the host and waits for it. The tool dies with us, even
// if we are killed. Its output is part of the error only.
func run(ctx context.Context, argv ...string) error {
	_, err := runInput(ctx, nil, argv...)
	return err
}

// filter runs a tool with the given standard input and returns its output.
func filter(ctx context.Context, in []byte, argv ...string) ([]byte, error) {
	return runInput(ctx, in, argv...)
}

func runInput(ctx context.Context, in []byte, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, toolPath(argv[0]), argv[1:]...)
	cmd.Env = toolEnv()
	if in != nil {
		cmd.Stdin = bytes.NewReader(in)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// The parent-death signal is tied to the thread that started the
	// child, so the thread stays ours until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, toolError(argv, err, errs.String()+out.String())
	}
	return out.Bytes(), nil
}

// toolPath finds a tool, also in the directories in which Debian keeps
// administration tools and which not every PATH has. It returns the bare name
// of a tool that is not there, for the error message.
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

// toolEnv is the environment of tools: the same messages and sort order
// everywhere, and the directories in which Debian keeps administration tools.
func toolEnv() []string {
	return append(os.Environ(), "LC_ALL=C.UTF-8", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin:/usr/bin:/bin")
}

// toolError says which tool failed, how, and the end of what it said.
func toolError(argv []string, err error, said string) error {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, strings.Join(lines, "\n"))
}

// lockFile takes the lock on a file, waiting for whoever holds it. The lock
// goes with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = flock.Wait(ctx, f); err == nil {
			// Whoever held it may have removed the file, and a lock on a
			// file that nobody else can open locks nothing.
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
