package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/base/netns"
)

// Files of the run directory, relative to it.
func ConsoleFile(node string) string { return node + ".console" }

func QMPSocket(node string) string { return node + ".qmp" }

func RunDir(dir string) string { return filepath.Join(dir, "run") }

func PidFile(dir, name string) string { return filepath.Join(RunDir(dir), name+".pid") }

func SelfBinary(dir string) string { return filepath.Join(RunDir(dir), "mortar") }

func LogFile(dir, name string) string { return filepath.Join(RunDir(dir), name+".log") }

func ConfFile(dir, name string) string { return filepath.Join(RunDir(dir), name+".conf") }

type process struct {
	pid  int
	exe  string
	args []string
}

// readProcess returns a process; nil if it does not exist or is a zombie.
func readProcess(pid int) *process {
	base := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(base + "/stat")
	if err != nil {
		return nil
	}
	// The state follows the name, which is in parentheses and may contain any
	// character.
	if i := bytes.LastIndexByte(stat, ')'); i < 0 || i+2 >= len(stat) || stat[i+2] == 'Z' || stat[i+2] == 'X' {
		return nil
	}
	cmdline, err := os.ReadFile(base + "/cmdline")
	if err != nil || len(cmdline) == 0 {
		return nil
	}
	exe, err := os.Readlink(base + "/exe")
	if err != nil {
		return nil
	}
	return &process{
		pid:  pid,
		exe:  strings.TrimSuffix(exe, " (deleted)"),
		args: strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00"),
	}
}

// rackTools are the programs that a rack runs, in addition to the copy of our own
// binary in its run directory.
var rackTools = []string{"qemu-system-x86_64", "ipmi_sim", "snmpd", "ssh"}

// ofRack reports whether a process belongs to the rack in dir: it runs one of the
// rack's programs, and its arguments name a file of that directory.
func (p *process) ofRack(dir string) bool {
	if p.exe == SelfBinary(dir) {
		return true
	}
	return slices.Contains(rackTools, filepath.Base(p.exe)) &&
		slices.ContainsFunc(p.args, func(a string) bool { return strings.Contains(a, dir+"/") })
}

// RackProcesses lists every process of the rack in dir.
func RackProcesses(dir string) ([]*process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []*process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p := readProcess(pid); p != nil && p.ofRack(dir) {
			out = append(out, p)
		}
	}
	return out, nil
}

// Running returns the process in the rack's pid file of that name, nil if that process
// does not exist or is not the rack's.
func Running(dir, name string) *process {
	text, err := os.ReadFile(PidFile(dir, name))
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return nil
	}
	p := readProcess(pid)
	if p == nil || !p.ofRack(dir) {
		return nil
	}
	// Another process of this rack may have reused the number.
	if !slices.ContainsFunc(p.args, func(a string) bool { return a == PidFile(dir, name) || a == ConfFile(dir, name) }) {
		return nil
	}
	return p
}

// gone reports whether the process has ended; another one may have its number.
func (p *process) gone() bool {
	now := readProcess(p.pid)
	return now == nil || !slices.Equal(now.args, p.args)
}

// Kill kills a process and waits until it is gone.
func (p *process) Kill() error {
	// os.FindProcess holds a process file descriptor, which a reused number
	// cannot confuse.
	fd, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer fd.Release()
	if p.gone() {
		return nil
	}
	if err := fd.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Second, fmt.Errorf("process %d (%s) does not die", p.pid, filepath.Base(p.exe)))
	defer cancel()
	return Poll(ctx, 10*time.Millisecond, func() (bool, error) { return p.gone(), nil })
}

// Stop kills the process of that name, if it runs.
func Stop(dir, name string) error {
	p := Running(dir, name)
	if p == nil {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	if err := os.Remove(PidFile(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Reread has a process that runs read its files again.
func Reread(dir, name string) error {
	p := Running(dir, name)
	if p == nil {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGUSR1); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Spawn starts a program of the rack inside its network namespace, in a session of
// its own, with the run directory as working directory and its output in the log of
// that name. It closes the channel when the program has ended.
func Spawn(dir, ns, name string, argv ...string) (*os.Process, <-chan struct{}, error) {
	log, err := os.OpenFile(LogFile(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(Path(argv[0]), argv[1:]...)
	cmd.Env = append(toolEnv(), "SNMP_PERSISTENT_DIR="+filepath.Join(RunDir(dir), name+".state"))
	cmd.Dir = RunDir(dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := netns.Do(ns, cmd.Start); err != nil {
		return nil, nil, err
	}
	gone := make(chan struct{})
	go func() {
		// The log has the program's last output.
		_ = cmd.Wait()
		close(gone)
	}()
	return cmd.Process, gone, nil
}

// StartDaemon starts a program of the rack that runs until stop, and waits until ready
// returns true. One of its arguments must be the pid file or the configuration of that
// name, by which running knows it.
func StartDaemon(ctx context.Context, dir, ns, name string, ready func() bool, argv ...string) error {
	proc, gone, err := Spawn(dir, ns, name, argv...)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(PidFile(dir, name), fmt.Appendln(nil, proc.Pid), 0o600); err != nil {
		return err
	}
	return WaitStarted(ctx, dir, name, gone, ready)
}

// WaitStarted waits until ready returns true, the program ends, or ctx ends.
func WaitStarted(ctx context.Context, dir, name string, gone <-chan struct{}, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		if ready() {
			return true, nil
		}
		select {
		case <-gone:
			return false, fmt.Errorf("%s ended at once:\n%s", name, Tail(LogFile(dir, name), 10))
		default:
			return false, nil
		}
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s does not come up: %w", name, err)
	}
	return err
}

// Tail is the end of a text file, for an error message.
func Tail(file string, lines int) string {
	text, _ := os.ReadFile(file) // without it the error has nothing more to tell
	return LastLines(string(text), lines)
}
