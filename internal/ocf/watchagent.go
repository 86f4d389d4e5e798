package ocf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchAction is the agent calling itself, as the process that stays.
const watchAction = "_watch"

// watchFile is locked by the watcher as long as it lives and holds its
// process ID: the kernel drops the lock with the process, however it ends.
const watchFile = runDir + "/watch"

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
		if err := startWatch(ctx, files); err != nil {
			return ErrGeneric, err
		}
	case "stop":
		if err := stopWatch(ctx); err != nil {
			return ErrGeneric, err
		}
	case "monitor", "status":
		pid, err := watching()
		if err != nil {
			return ErrGeneric, err
		}
		if pid == 0 {
			return NotRunning, nil
		}
		// apply has put another binary, or other services, in place.
		if !sameWatch(pid, files) {
			if err := errors.Join(stopWatch(ctx), startWatch(ctx, files)); err != nil {
				return ErrGeneric, err
			}
		}
	case "validate-all":
		if _, err := newWatcher(newLinux(), files, func(string, ...any) {}); err != nil {
			return ErrInstalled, err
		}
	}
	return Success, nil
}

// watching is the process ID of the watcher that runs, 0 if none does.
func watching() (int, error) {
	f, err := os.Open(watchFile)
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
	return 0, fmt.Errorf("%s is held by a process that has not written its ID", watchFile)
}

// watchArgs is how the watcher is called.
func watchArgs(files []string) []string { return append([]string{"ocf", watchAction}, files...) }

// sameWatch says whether a watcher is of this very binary and for these files.
func sameWatch(pid int, files []string) bool {
	var mine, its unix.Stat_t
	if unix.Stat("/proc/self/exe", &mine) != nil || unix.Stat(fmt.Sprintf("/proc/%d/exe", pid), &its) != nil {
		return true // not known
	}
	cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return true
	}
	args := strings.Split(strings.TrimSuffix(string(cmd), "\x00"), "\x00")
	return mine.Dev == its.Dev && mine.Ino == its.Ino && len(args) > 1 && strings.Join(args[1:], " ") == strings.Join(watchArgs(files), " ")
}

func startWatch(ctx context.Context, files []string) error {
	if pid, err := watching(); err != nil || pid != 0 {
		return err
	}
	if _, err := newWatcher(newLinux(), files, func(string, ...any) {}); err != nil {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	// Not with ctx: it outlives this action.
	cmd := exec.Command(exe, watchArgs(files)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + strings.Join(searchPath[:4], ":"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if pid, err := watching(); err == nil && pid == cmd.Process.Pid {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the watcher ended at once: %v (journalctl -t mortar-watch)", err)
		case <-ctx.Done():
			cmd.Process.Kill()
			return errors.New("the watcher does not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func stopWatch(ctx context.Context) error {
	for sig := unix.SIGTERM; ; sig = unix.SIGKILL {
		pid, err := watching()
		if err != nil || pid == 0 {
			return err
		}
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		for range 100 { // 2 s
			if pid, err := watching(); err == nil && pid == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the watcher (%d) does not end", pid)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// watchMain is the watcher: it ends with ctx.
func watchMain(ctx context.Context, files []string) error {
	log := func(string, ...any) {}
	if l, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_NOTICE, "mortar-watch"); err == nil {
		log = func(format string, a ...any) { fmt.Fprintf(l, format, a...) }
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(watchFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: another watcher runs: %w", watchFile, err)
	}
	k := newLinux()
	w, err := newWatcher(k, files, log)
	if err != nil {
		log("%v", err)
		return err
	}
	events, err := k.Events(ctx)
	if err != nil {
		log("links and disks are looked at every %v only: %v", watchTick, err)
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return err
	}
	w.run(ctx, events)
	return nil
}

// tryLock takes the lock of a service's actions if nobody has it.
func tryLock(service string) (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return lock(ctx, service)
}

// watchMetadata is what meta-data prints; it conforms to ra-api-1.dtd.
const watchMetadata = `<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="watch" version="1.0">
<version>1.0</version>

<longdesc lang="en">
Watches a server of a Mortar brick, as a clone. It waits for the kernel's
messages about links and disks and tells the cluster, as node attributes,
whether the public network has a link (mortar-link) and whether the disks of
each service can be reached (mortar-storage-SERVICE). A server that serves
disks it has lost, and its partner has not, asks to be fenced. NFS daemons of
a running service that die are started again.
</longdesc>
<shortdesc lang="en">Watches links, disk paths and NFS daemons of a Mortar storage server</shortdesc>

<parameters>
<parameter name="configs" unique="0" required="1">
<longdesc lang="en">
The files that describe the services of the brick, as the agent
ocf:mortar:service reads them: absolute paths, with blanks between them.
</longdesc>
<shortdesc lang="en">Descriptions of the services (JSON files)</shortdesc>
<content type="string"/>
</parameter>
</parameters>

<actions>
<action name="start" timeout="30s"/>
<action name="stop" timeout="30s"/>
<action name="monitor" depth="0" timeout="30s" interval="30s"/>
<action name="status" depth="0" timeout="30s" interval="30s"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
`
