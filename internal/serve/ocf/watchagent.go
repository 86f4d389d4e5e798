package ocf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	cmd "github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// watchProcess finds the watcher of this server by its file. The watcher
// locks it as long as it lives, and writes its process ID into it: the kernel
// drops the lock with the process, however that ends.
type watchProcess struct {
	file   string
	action string        // how the agent calls itself as this process
	grace  time.Duration // for the process to end after a signal
}

// theWatcher is the one of this server. It ends within one look, which takes
// milliseconds unless a command or the kernel hangs.
var theWatcher = watchProcess{file: unit.RunDir + "/watch", action: unit.WatchAction, grace: 2 * time.Second}

// WatchMain runs the agent ocf:mortar:watch as Pacemaker does.
func WatchMain(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	a := &agent{getenv: getenv, stderr: stderr, now: time.Now}
	if len(args) != 1 {
		fmt.Fprintln(stderr, strings.Replace(usage, "service", "watch", 1))
		return ErrArgs
	}
	if args[0] == "meta-data" {
		io.WriteString(stdout, watchMetadata)
		return Success
	}
	files := strings.Fields(getenv("OCF_RESKEY_configs"))
	code, err := watchDo(ctx, args[0], files)
	if err != nil {
		a.reason(err)
	}
	return code
}

func watchDo(ctx context.Context, action string, files []string) (int, error) {
	switch action {
	case "start", "monitor", "stop", "validate-all", "status":
	default:
		return ErrUnimplement, fmt.Errorf("no action %s", action)
	}
	if os.Geteuid() != 0 {
		return ErrPerm, errors.New("must be run as root")
	}
	if len(files) == 0 && action != "stop" {
		return ErrConfigured, errors.New("parameter configs is not set: the paths of the services' JSON files")
	}
	switch action {
	case "start":
		// First: at its end it gives the way to the fence devices back.
		if err := standbyProcess.end(ctx, files); err != nil {
			return ErrGeneric, err
		}
		if err := theWatcher.begin(ctx, files); err != nil {
			return ErrGeneric, err
		}
	case "stop":
		if err := theWatcher.end(ctx, files); err != nil {
			return ErrGeneric, err
		}
		if err := startStandby(ctx, files); err != nil {
			// A failed stop would have it tried again and again, and mend nothing.
			logAs("mortar-watch")("this server can fence its partner while it is cut off, until the watcher runs again: %v", err)
		}
	case "monitor", "status":
		pid, err := theWatcher.running()
		if err != nil {
			return ErrGeneric, err
		}
		if pid == 0 {
			return NotRunning, nil
		}
		// apply has put another binary, other services, or other files of them in place.
		if !sameWatch(pid, files) || theWatcher.olderThan(files) {
			if err := errors.Join(theWatcher.end(ctx, files), theWatcher.begin(ctx, files)); err != nil {
				return ErrGeneric, err
			}
		}
	case "validate-all":
		if _, err := newWatcher(kernel.New(), files, func(string, ...any) {}); err != nil {
			return ErrInstalled, err
		}
	}
	return Success, nil
}

// running is the process ID of the watcher that runs, 0 if none does.
func (p watchProcess) running() (int, error) {
	f, err := os.Open(p.file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err {
	case nil:
		return 0, nil
	case unix.EWOULDBLOCK:
	default:
		return 0, err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	if pid := pidOf(b); pid > 1 {
		return pid, nil
	}
	return 0, fmt.Errorf("%s is held by a process that has not written its ID", p.file)
}

// olderThan says whether one of the services' files was written after the watcher began:
// the watcher reads them once. A growth adds arrays to them.
func (p watchProcess) olderThan(files []string) bool {
	began, err := os.Stat(p.file)
	return err == nil && slices.ContainsFunc(files, func(f string) bool {
		st, err := os.Stat(f)
		return err == nil && st.ModTime().After(began.ModTime())
	})
}

func (p watchProcess) args(files []string) []string {
	return append([]string{"ocf", p.action}, files...)
}

// sameWatch says whether a watcher is of this very binary and for these files.
func sameWatch(pid int, files []string) bool {
	var mine, its unix.Stat_t
	if unix.Stat("/proc/self/exe", &mine) != nil || unix.Stat(fmt.Sprintf("/proc/%d/exe", pid), &its) != nil {
		return true // not known
	}
	args := argsOf(pid)
	if args == nil {
		return true
	}
	return mine.Dev == its.Dev && mine.Ino == its.Ino && len(args) > 1 && strings.Join(args[1:], " ") == strings.Join(theWatcher.args(files), " ")
}

// begin starts the process, unless it runs.
func (p watchProcess) begin(ctx context.Context, files []string) error {
	if pid, err := p.running(); err != nil || pid != 0 {
		return err
	}
	if _, err := newWatcher(kernel.New(), files, func(string, ...any) {}); err != nil {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	// Not with ctx: it outlives this action.
	child, err := cmd.Cmd{Argv: append([]string{exe}, p.args(files)...), Group: cmd.OwnSession}.Start()
	if err != nil {
		return err
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := child.Wait()
		ended <- state
	}()
	for {
		if pid, err := p.running(); err == nil && pid == child.Pid {
			return nil
		}
		select {
		case how := <-ended:
			return fmt.Errorf("the watcher ended at once: %v (journalctl -t mortar-watch)", how)
		case <-ctx.Done():
			child.Kill()
			return errors.New("the watcher does not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// unblockTime bounds giving the way to the fence devices back after a watcher that
// was killed. With the two graces of a stop it leaves most of the 30 s that
// Pacemaker gives the action.
const unblockTime = 5 * time.Second

// end ends the process, and gives the way to the fence devices back if that could not.
func (p watchProcess) end(ctx context.Context, files []string) error {
	killed, err := p.stop(ctx)
	if err != nil || !killed {
		return err
	}
	// It could not take its routes away itself.
	if w, err := newWatcher(kernel.New(), files, func(string, ...any) {}); err == nil {
		ctx, cancel := context.WithTimeout(ctx, unblockTime)
		defer cancel()
		w.blockFencing(ctx, false)
	}
	return nil
}

// stop ends the watcher, and says whether it had to be killed. A failed stop
// would have the server fenced, for a process that holds nothing that another
// server needs: so one that hangs in the kernel is left to it. It was killed
// and runs no code any more. Its lock stays until the kernel lets it go, so
// the file is removed: the next watcher makes another.
func (p watchProcess) stop(ctx context.Context) (killed bool, err error) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		pid, err := p.running()
		if err == nil && pid == 0 {
			return killed, nil
		}
		// The file of a watcher that has just started has the ID of one before.
		if err == nil && p.is(pid) {
			if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return killed, err
			}
			killed = sig == unix.SIGKILL
		}
		if p.ends(ctx) {
			return killed, nil
		}
	}
	if !killed {
		return false, fmt.Errorf("%s is held by a process that is no watcher", p.file)
	}
	return true, os.Remove(p.file)
}

// ends waits for the end of the watcher, but not for ever.
func (p watchProcess) ends(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.grace)
	defer cancel()
	for {
		if pid, err := p.running(); err == nil && pid == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p watchProcess) is(pid int) bool {
	return unit.Called(argsOf(pid), p.action)
}

// argsOf are the arguments of a process, its name first; none if it is gone.
func argsOf(pid int) []string {
	cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return unit.SplitArgs(cmd)
}

// logAs logs to the host's log by a name; a host without a log is no reason not to
// watch.
func logAs(name string) func(format string, a ...any) {
	l, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_NOTICE, name)
	if err != nil {
		return func(string, ...any) {}
	}
	return func(format string, a ...any) { fmt.Fprintf(l, format, a...) }
}

// open makes this process the one of p, until the file is closed, and reads the services.
func (p watchProcess) open(k kernel.Host, files []string, log func(string, ...any)) (*os.File, *watcher, error) {
	if err := os.MkdirAll(unit.RunDir, 0o755); err != nil {
		return nil, nil, err
	}
	f, err := p.lock()
	if err != nil {
		log("%v", err)
		return nil, nil, err
	}
	w, err := newWatcher(k, files, log)
	if err != nil {
		log("%v", err)
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, w, nil
}

func watchMain(ctx context.Context, files []string) error {
	log, changes := logAs("mortar-watch"), logAs("mortar")
	k := kernel.New()
	f, w, err := theWatcher.open(k, files, log)
	if err != nil {
		return err
	}
	defer f.Close()
	w.record = func(format string, a ...any) { changes(RecordedBy(w.services[0].Node)+format, a...) }
	events, err := k.Events(ctx)
	if err != nil {
		log("links and disks are looked at every %v only: %v", unit.WatchTick, err)
	}
	w.run(ctx, events)
	return nil
}

// RecordedBy begins a line of the log of a host's changes that the watcher made, as
// package agent does it for commands.
func RecordedBy(host string) string { return "watcher@" + host + " (mortar-watch): " }

// lockTime is how long a watcher that begins waits for its lock. running has it for a moment
// whenever a process asks, as the start that began this watcher does each 20 ms.
const lockTime = time.Second

// lock makes this process the watcher, until the file is closed.
func (p watchProcess) lock() (*os.File, error) {
	f, err := os.OpenFile(p.file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	if err := flock.Wait(ctx, f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another watcher runs", p.file), err, f.Close())
	}
	// At once: a stop has to find a process that hangs later.
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// tryLock takes the lock of a service's actions if no process has it.
func tryLock(service string) (func(), error) {
	return lock(unit.AtOnce(context.Background()), service)
}
