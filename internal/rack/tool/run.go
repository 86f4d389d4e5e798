package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/flock"
)

// RefusedError is the error for bad input, or for a host on which the rack cannot
// run. Nothing was changed.
type RefusedError struct {
	Problems []string
}

func (e *RefusedError) Error() string { return strings.Join(e.Problems, "\n") }

func Refuse(format string, args ...any) error {
	return &RefusedError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// Overwrite writes over a part of a file that exists.
func Overwrite(file string, offset int64, content io.Reader) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, offset), content)
	return errors.Join(err, f.Close())
}

func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// AbsDir is the unique path of a rack's directory, without symbolic links, by which
// the rack's processes are found. It leaves parts that do not exist yet unchanged.
func AbsDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := abs; ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// AppendLine adds a line to a log.
func AppendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Run runs a tool of the host and waits for it. The tool dies with us, even if we are
// killed. Its output appears only in an error.
func Run(ctx context.Context, argv ...string) error {
	_, err := Output(ctx, nil, argv...)
	return err
}

// Output is run for a tool that reads a text and writes one.
func Output(ctx context.Context, in []byte, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, Path(argv[0]), argv[1:]...)
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
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, LastLines(errs.String()+out.String(), 12))
	}
	return out.Bytes(), nil
}

// Path finds a tool, even in Debian's directories for administration tools that
// PATH may lack. It returns the bare name of a missing tool, for the error message.
func Path(name string) string {
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

// LastLines is the end of a text, for an error message.
func LastLines(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Poll asks until done, and returns why ctx ended if that is before.
func Poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
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

// RemoveAll removes the files and directories that match a pattern.
func RemoveAll(pattern string) error {
	found, err := filepath.Glob(pattern)
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// LockFile waits for the lock on a file and takes it. The lock ends with the process.
func LockFile(ctx context.Context, path string) (unlock func(), err error) {
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

// MakeSparse makes a sparse file of that size. It keeps an existing file of the same
// size.
func MakeSparse(file string, size int64) error {
	if st, err := os.Stat(file); err == nil {
		if st.Size() != size {
			return fmt.Errorf("%s has %d bytes, want %d", file, st.Size(), size)
		}
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(f.Truncate(size), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(file))
	}
	if errors.Is(err, unix.EFBIG) {
		err = Refuse("%s: this file system has no files of %d bytes: build the rack on XFS (--dir)", file, size)
	}
	return err
}

func SaveJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600)
}

func LoadJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
