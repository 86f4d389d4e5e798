package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/initrd"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Environment of every command: the C locale, because output is parsed, and
// a PATH that has the sbin directories whatever sshd's says.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LC_ALL=C",
	"HOME=/root",
	"DEBIAN_FRONTEND=noninteractive",
}

const (
	querySeconds = 60
	queryOutput  = 8 << 20 // bytes kept of a query's stdout
	readLimit    = 8 << 20 // bytes of the largest file read whole
)

// HostSys is the host this process runs on, as a resource may see it.
type HostSys struct {
	root string // "" in earnest; a directory in tests of what is parsed from /sys and /run
}

var _ resource.Sys = HostSys{}

func (h HostSys) path(p string) string { return filepath.Join(h.root, "/", p) }

// ReadFile reads a file of at most 8 MiB.
func (h HostSys) ReadFile(path string) ([]byte, error) {
	// A FIFO without a writer would block in open(2).
	f, err := os.OpenFile(h.path(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	var b bytes.Buffer
	// /proc and /sys files give no size: read one byte more than is allowed.
	if _, err := b.ReadFrom(io.LimitReader(f, readLimit+1)); err != nil {
		return nil, err
	}
	if b.Len() > readLimit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes", readLimit)}
	}
	return b.Bytes(), nil
}

// Stat describes a path; IsLink is of the path itself, the rest of what it
// leads to.
func (h HostSys) Stat(path string) (resource.FileInfo, error) {
	fi, err := os.Stat(h.path(path))
	if err != nil {
		return resource.FileInfo{}, err
	}
	info := resource.FileInfo{Mode: permissions(fi.Mode()), IsDir: fi.IsDir(), Size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.UID, info.GID = int(st.Uid), int(st.Gid)
	}
	if l, err := os.Lstat(h.path(path)); err == nil {
		info.IsLink = l.Mode()&fs.ModeSymlink != 0
	}
	return info, nil
}

// Glob lists paths that match, sorted; none is no error.
func (h HostSys) Glob(pattern string) ([]string, error) {
	m, err := filepath.Glob(h.path(pattern))
	if err != nil {
		return nil, err
	}
	for i := range m {
		m[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(m[i], h.root), "/")
	}
	sort.Strings(m)
	return m, nil
}

// Readlink resolves a path fully.
func (h HostSys) Readlink(path string) (string, error) {
	p, err := filepath.EvalSymlinks(h.path(path))
	if err != nil {
		return "", err
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(p, h.root), "/"), nil
}

// Initrd reads an initial RAM disk to its end, for at most a minute.
func (h HostSys) Initrd(ctx context.Context, image string, patterns []string) (map[string]string, error) {
	f, err := os.Open(h.path(image))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, querySeconds*time.Second)
	defer cancel()
	files, err := initrd.Files(ctx, f, func(name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			ok, _ := filepath.Match(p, "/"+name) // a pattern that is none matches nothing
			return ok
		})
	})
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: image, Err: err}
	}
	out := map[string]string{}
	for name, text := range files {
		out["/"+name] = string(text)
	}
	return out, nil
}

// Query runs a command that only reads, for at most a minute. It refuses any
// other; see resource.ReadOnly.
func (h HostSys) Query(ctx context.Context, argv ...string) (resource.Output, error) {
	if err := resource.ReadOnly(argv); err != nil {
		return resource.Output{Code: -1}, err
	}
	return command{argv: argv, timeout: querySeconds * time.Second, limit: queryOutput}.run(ctx)
}

// permissions are the bits chmod(2) takes.
func permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		p |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		p |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		p |= unix.S_ISVTX
	}
	return p
}

// command is an exact argv, run without a shell in its own process group.
type command struct {
	argv    []string
	stdin   []byte
	timeout time.Duration
	limit   int // bytes kept of each of stdout and stderr
}

// run waits for the command. A command that cannot be started, ran out of
// time or died of a signal gives an error; its exit code is in the Output.
// Output beyond the limit is cut out of the middle.
func (c command) run(ctx context.Context) (resource.Output, error) {
	out := resource.Output{Code: -1}
	if len(c.argv) == 0 || c.argv[0] == "" {
		return out, errors.New("no command given")
	}
	path, err := lookPath(c.argv[0])
	if err != nil {
		return out, err
	}
	tctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(tctx, path, c.argv[1:]...)
	cmd.Args[0] = c.argv[0]
	cmd.Env = environment
	cmd.Dir = "/"
	if len(c.stdin) > 0 { // else /dev/null
		cmd.Stdin = bytes.NewReader(c.stdin)
	}
	stdout, stderr := &clipped{limit: c.limit}, &clipped{limit: c.limit}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	// A daemon the command left behind may hold its pipes open for ever.
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Start()
	if err == nil {
		err = ended(tctx, cmd)
	}
	out.Stdout, out.Stderr = stdout.String(), stderr.String()
	if errors.Is(err, errHangs) && ctx.Err() == nil {
		return out, fmt.Errorf("%s: not done after %v, and %w: a disk, a path or a file system that it reads does not answer", strings.Join(c.argv[:min(len(c.argv), 3)], " "), c.timeout, err)
	}
	if err != errHangs && cmd.ProcessState != nil {
		out.Code = cmd.ProcessState.ExitCode()
	}
	var ee *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out, fmt.Errorf("%s: %w", c.argv[0], context.Cause(ctx))
	case tctx.Err() != nil:
		return out, fmt.Errorf("%s: not done after %v, killed", c.argv[0], c.timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		return out, nil
	case errors.As(err, &ee):
		if out.Code < 0 {
			return out, fmt.Errorf("%s: %s", c.argv[0], ee.ProcessState)
		}
		return out, nil
	case errors.Is(err, syscall.EPIPE):
		// It ended without reading all of its stdin; its exit code counts.
		return out, nil
	}
	return out, err
}

// errHangs: only a reset of the host, or of what it waits for, ends such a
// process.
var errHangs = errors.New("it hangs in the kernel, where it cannot be killed")

// dieTime is how long a process that was killed may take to end, with
// WaitDelay for its pipes.
const dieTime = 3 * time.Second

// ended waits for the end of a command that was started. One that does not end
// when it is killed, because ctx has ended, is given up.
func ended(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(dieTime):
		return errHangs
	}
}

// killGroup ends a command and what it started.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// lookPath finds a command on the PATH commands get, not on the agent's own.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range strings.Split(strings.TrimPrefix(environment[0], "PATH="), ":") {
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// clipped keeps the first and the last half of limit bytes.
type clipped struct {
	mu         sync.Mutex
	limit      int
	head, tail []byte
	dropped    int
}

func (c *clipped) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	half := c.limit / 2
	if room := half - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - half; over > half { // trim now and then, not on each write
		c.dropped += over
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	return n, nil
}

func (c *clipped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail, dropped := c.tail, c.dropped
	if over := len(tail) - c.limit/2; over > 0 {
		tail, dropped = tail[over:], dropped+over
	}
	if dropped == 0 {
		return string(c.head) + string(tail)
	}
	return fmt.Sprintf("%s\n[… %d bytes cut …]\n%s", c.head, dropped, tail)
}
