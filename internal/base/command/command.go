// Package command runs commands of this host: an exact argv, which no shell
// takes apart, with the same environment everywhere, a bound in time, and a
// bound on what is kept of the output. A command that does not end when it is
// killed, because it hangs in the kernel, is given up. The package does not
// know what a command is for, nor who may run it.
package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// agentTools has what Debian's resource-agents keeps off the PATH: tickle_tcp.
	agentTools = "/usr/libexec/heartbeat:/usr/lib/heartbeat"
)

// Environment of every command: the C locale, because output is parsed, and
// a PATH that has the sbin directories, whatever that of sshd or Pacemaker is.
var Environment = []string{
	"PATH=" + searchPath,
	"LC_ALL=C",
	"HOME=/root",
	"DEBIAN_FRONTEND=noninteractive",
}

// Group says which processes are killed with a command, and which kill it.
type Group int

// Groups.
const (
	// OwnGroup: when time runs out, the command and what it started are killed.
	OwnGroup Group = iota
	// OwnSession is OwnGroup for a command that leaves a daemon behind: it
	// lives on when the group of this process is killed, and it may keep the
	// command's output open, which goes to memory and not through a pipe.
	OwnSession
	// ParentGroup keeps the command in the process group of the caller: a signal to
	// the group also reaches the command.
	ParentGroup
)

type Cmd struct {
	Argv  []string
	Stdin []byte   // none: /dev/null
	Env   []string // besides Environment
	// Timeout bounds it besides ctx; 0: ctx alone does.
	Timeout time.Duration
	// Limit is how many bytes are kept of stdout and of stderr; the rest
	// is cut out of the middle. 0: 8 MiB, more than any tool says in earnest.
	Limit int
	Group Group
	// Launch calls start on the thread that the command begins on, e.g. in
	// another namespace; nil: on any.
	Launch func(start func() error) error
}

type Output struct {
	Stdout, Stderr string
	Code           int // -1: it did not end by itself
}

const (
	// pipeTime is how long a daemon that a command left behind may hold its
	// pipes open before they are closed.
	pipeTime = 2 * time.Second
	// dieTime is how long a process that was killed may take to end, besides
	// the pipeTime of one with pipes.
	dieTime = time.Second
	// GivenUp is when, after it was killed, a command that hangs is given up.
	GivenUp = pipeTime + dieTime
)

// errHangs: only a reset of the host, or of what it waits for, ends such a
// process.
var errHangs = errors.New("it hangs in the kernel, where it cannot be killed: a disk, a path or a file system that it reads does not answer")

// Run waits for the end of the command. A command that cannot be started, ran
// out of time or died of a signal gives an error; an exit code other than 0
// gives none.
func (c Cmd) Run(ctx context.Context) (Output, error) {
	out, err := c.run(ctx)
	if err != nil && len(c.Argv) > 0 {
		err = fmt.Errorf("%s: %w", strings.Join(c.Argv[:min(len(c.Argv), 3)], " "), err)
	}
	return out, err
}

// Text is Run for a command that must succeed, and gives its stdout. The error
// has the whole command and what it said.
func (c Cmd) Text(ctx context.Context) (string, error) {
	out, err := c.run(ctx)
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("exit status %d", out.Code)
	}
	if err == nil {
		return out.Stdout, nil
	}
	said := strings.TrimSpace(out.Stderr)
	if said == "" {
		said = strings.TrimSpace(out.Stdout)
	}
	return out.Stdout, fmt.Errorf("%s: %w: %s", strings.Join(c.Argv, " "), err, said)
}

func (c Cmd) run(ctx context.Context) (Output, error) {
	out := Output{Code: -1}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("not done after %v", c.Timeout))
		defer cancel()
	}
	cmd, err := c.prepare(ctx)
	if err != nil {
		return out, err
	}
	stdout, stderr, err := c.sinks()
	if err != nil {
		return out, err
	}
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout.writer(), stderr.writer()
	if err = c.launch(cmd); err == nil {
		err = c.ended(ctx, cmd)
	}
	out.Stdout, out.Stderr = stdout.String(), stderr.String()
	if err != errHangs && cmd.ProcessState != nil {
		out.Code = cmd.ProcessState.ExitCode()
	}
	var ee *exec.ExitError
	switch {
	case ctx.Err() != nil && err == errHangs:
		return out, fmt.Errorf("%w, and %w", context.Cause(ctx), err)
	case ctx.Err() != nil:
		return out, fmt.Errorf("%w, killed", context.Cause(ctx))
	case errors.As(err, &ee) && out.Code < 0:
		return out, errors.New(ee.ProcessState.String())
	case ee != nil, errors.Is(err, exec.ErrWaitDelay), errors.Is(err, syscall.EPIPE):
		// Its exit code counts, also if it ended without reading all of its
		// stdin, or left a daemon behind that holds its pipes.
		return out, nil
	}
	return out, err
}

// ended waits for the end of a command that was started. One that does not end
// when it is killed, because ctx has ended, is given up.
func (c Cmd) ended(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	die := GivenUp
	if c.Group == OwnSession { // no pipes
		die = dieTime
	}
	select {
	case err := <-done:
		return err
	case <-time.After(die):
		return errHangs
	}
}

// Lines gives each line that the command prints as it comes, until it ends or
// ctx does; Timeout does not count. A line longer than 64 KiB comes in parts.
func (c Cmd) Lines(ctx context.Context, line func(string)) (Output, error) {
	out := Output{Code: -1}
	cmd, err := c.prepare(ctx)
	if err != nil {
		return out, err
	}
	stderr := &clipped{limit: c.limit()}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := c.launch(cmd); err != nil {
		return out, err
	}
	br := bufio.NewReaderSize(stdout, 64<<10)
	var rerr error
	for rerr == nil || errors.Is(rerr, bufio.ErrBufferFull) {
		var b []byte
		if b, rerr = br.ReadSlice('\n'); len(b) > 0 {
			line(string(bytes.TrimRight(b, "\n")))
		}
	}
	err = cmd.Wait()
	out.Stderr, out.Code = stderr.String(), cmd.ProcessState.ExitCode()
	var ee *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case err != nil && !errors.As(err, &ee):
		return out, err
	case !errors.Is(rerr, io.EOF):
		return out, rerr
	}
	return out, nil
}

// Start starts the command and does not wait for its end; its output is lost.
func (c Cmd) Start() (*os.Process, error) {
	cmd, err := c.prepare(context.Background())
	if err != nil {
		return nil, err
	}
	err = c.launch(cmd)
	return cmd.Process, err
}

// prepare makes all of the command but its stdout and stderr.
func (c Cmd) prepare(ctx context.Context) (*exec.Cmd, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("no command given")
	}
	path, err := LookPath(c.Argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.Argv[1:]...)
	cmd.Args[0] = c.Argv[0]
	cmd.Env = append(Environment[:len(Environment):len(Environment)], c.Env...)
	cmd.Dir = "/"
	if len(c.Stdin) > 0 {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	switch c.Group {
	case OwnGroup:
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	case OwnSession:
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if c.Group != ParentGroup {
		cmd.Cancel = func() error { return killGroup(cmd) }
	}
	cmd.WaitDelay = pipeTime
	return cmd, nil
}

func (c Cmd) launch(cmd *exec.Cmd) error {
	if c.Launch == nil {
		return cmd.Start()
	}
	return c.Launch(cmd.Start)
}

// killGroup ends a command and what it started.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// LookPath finds a program on the PATH that commands get, not on the one of
// this process. A name with a slash is taken as it is.
func LookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range strings.Split(searchPath+":"+agentTools, ":") {
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}
