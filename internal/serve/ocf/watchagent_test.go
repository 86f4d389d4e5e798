package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// process starts a shell script that is called as the watcher is, and gives
// it the lock on a file that this test holds as well. As long as the test does
// not close it, the lock stays after the process, as that of one does whose
// other thread hangs in the kernel.
func process(t *testing.T, p watchProcess, script string) (cmd *exec.Cmd, held *os.File) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ocf"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/bin/sh", "ocf", unit.WatchAction)
	cmd.Dir, cmd.ExtraFiles, cmd.Stdout = dir, []*os.File{held}, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_ = w.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil { // it says that it is ready
		t.Fatal(err)
	}
	_ = r.Close()
	if err := held.Truncate(0); err != nil { // this process's ID may have more digits
		t.Fatal(err)
	}
	if _, err := held.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	return cmd, held
}

func TestStopOfTheWatcher(t *testing.T) {
	p := watchProcess{file: filepath.Join(t.TempDir(), "watch"), action: unit.WatchAction, grace: 200 * time.Millisecond}
	if killed, err := p.stop(t.Context()); err != nil || killed {
		t.Errorf("none runs: %v %v", killed, err)
	}

	// It ends when asked to.
	p.grace = time.Minute
	cmd, held := process(t, p, "echo; while :; do sleep 0.1; done")
	if pid, err := p.running(); err != nil || pid != cmd.Process.Pid {
		t.Errorf("running: %d %v", pid, err)
	}
	_ = held.Close()
	if killed, err := p.stop(t.Context()); err != nil || killed {
		t.Errorf("asked: %v %v", killed, err)
	}

	// It is deaf, as one whose helper hangs.
	p.grace = 200 * time.Millisecond
	_, held = process(t, p, "trap '' TERM; echo; while :; do sleep 0.1; done")
	_ = held.Close()
	if killed, err := p.stop(t.Context()); err != nil || !killed {
		t.Errorf("deaf: %v %v", killed, err)
	}
	p.grace = time.Minute
	if !p.ends(t.Context()) { // its last child has the lock, too
		t.Error("still running")
	}

	// It hangs in the Host: the lock stays although it was killed. The stop
	// succeeds, and another watcher can start.
	p.grace = 200 * time.Millisecond
	cmd, held = process(t, p, "trap '' TERM; echo; while :; do sleep 0.1; done")
	defer held.Close()
	if killed, err := p.stop(t.Context()); err != nil || !killed {
		t.Errorf("hangs: %v %v", killed, err)
	}
	var ee *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ee) {
		t.Errorf("it was not killed: %v", err)
	}
	if pid, err := p.running(); err != nil || pid != 0 {
		t.Errorf("after it: %d %v", pid, err)
	}
	next, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := p.running(); err != nil || pid != os.Getpid() {
		t.Errorf("the next: %d %v", pid, err)
	}
	// This process is no watcher, whatever the file says.
	if killed, err := p.stop(t.Context()); err == nil || killed {
		t.Errorf("no watcher: %v %v", killed, err)
	}
	if err := unix.Kill(os.Getpid(), 0); err != nil {
		t.Error(err)
	}
	_ = next.Close()
}

// A watcher that began before a file of its services was written does not know what it says.
func TestWatcherOlderThanItsFiles(t *testing.T) {
	dir := t.TempDir()
	p := watchProcess{file: filepath.Join(dir, "watch")}
	began := time.Now().Add(-time.Minute)
	touch := func(name string, at time.Time) string {
		f := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(f, nil, 0o600), os.Chtimes(f, at, at)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	old, same := touch("old", began.Add(-time.Hour)), touch("same", began)
	if p.olderThan([]string{old}) {
		t.Error("no watcher runs")
	}
	touch("watch", began)
	if p.olderThan([]string{old, same, filepath.Join(dir, "none")}) {
		t.Error("it has read them all")
	}
	if !p.olderThan([]string{old, touch("new", began.Add(time.Second))}) {
		t.Error("one was written later")
	}
}

// watchedHost keeps the files of the watcher, and of the process in its place, in a directory
// of the test, and /run in memory. It returns this host's name, and what writes a service's
// configuration for some nodes.
func watchedHost(t *testing.T) (host string, file func(name string, nodes map[string]string) string) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil { // of this process's namespace
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/run", unix.MNT_DETACH) })
	watch, rest := theWatcher, standbyProcess
	theWatcher.file, standbyProcess.file = filepath.Join(dir, "watch"), filepath.Join(dir, "rest")
	t.Cleanup(func() {
		_, _ = theWatcher.stop(context.Background())
		_, _ = standbyProcess.stop(context.Background())
		theWatcher, standbyProcess = watch, rest
	})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host, func(name string, nodes map[string]string) string {
		c := testConfig()
		c.Nodes = nodes
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// TestWatchAgent takes a real watcher through the actions of Pacemaker: this
// test's own binary is the process that stays (see TestMain).
func TestWatchAgent(t *testing.T) {
	host, file := watchedHost(t)
	good := file("good.json", map[string]string{host: "10.0.0.1", "partner": "10.0.0.2"})
	more := file("more.json", map[string]string{host: "10.0.0.1", "other": "10.0.0.2"})
	bad := file("bad.json", map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"})
	last := 0
	for _, c := range []struct {
		action string
		files  []string
		code   int
		runs   bool
		same   bool // the process of the row before
	}{
		{"promote", []string{good}, ErrUnimplement, false, false},
		{"start", nil, ErrConfigured, false, false},
		{"validate-all", []string{good}, Success, false, false},
		{"validate-all", []string{bad}, ErrInstalled, false, false},
		{"monitor", []string{good}, NotRunning, false, false},
		{"stop", nil, Success, false, false},
		{"start", []string{bad}, ErrGeneric, false, false},
		{"start", []string{good}, Success, true, false},
		{"start", []string{good}, Success, true, true},
		{"monitor", []string{good}, Success, true, true},
		{"status", []string{good, more}, Success, true, false}, // apply has added a service
		{"monitor", []string{good, more}, Success, true, true},
		{"monitor", []string{bad}, ErrGeneric, false, false},
		{"start", []string{good}, Success, true, false},
		{"stop", []string{good}, Success, false, false},
		{"stop", []string{good}, Success, false, false},
	} {
		code, err := watchDo(t.Context(), c.action, c.files)
		pid, running := theWatcher.running()
		if code != c.code || (err != nil) == (code == Success || code == NotRunning) || running != nil || (pid != 0) != c.runs || c.runs && (pid == last) != c.same {
			t.Fatalf("%s %v: %d %v; process %d after %d, %v", c.action, c.files, code, err, pid, last, running)
		}
		last = pid
	}
	var out, reason strings.Builder
	env := func(string) string { return "" }
	if WatchMain(t.Context(), []string{"meta-data"}, env, &out, &reason) != Success || out.String() != watchMetadata {
		t.Errorf("%s", out.String())
	}
	if WatchMain(t.Context(), nil, env, &out, &reason) != ErrArgs || WatchMain(t.Context(), []string{"start"}, env, &out, &reason) != ErrConfigured || !strings.Contains(reason.String(), "configs is not set") {
		t.Errorf("%s", reason.String())
	}
}

// A process that asks whether a watcher runs has its lock for a moment. A watcher that begins
// meanwhile does not take that for another watcher.
func TestWatcherBeginsWhileOthersAsk(t *testing.T) {
	p := watchProcess{file: filepath.Join(t.TempDir(), "watch")}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		for ctx.Err() == nil {
			_, _ = p.running()
		}
	})
	for range 100 {
		f, err := p.lock()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if other, err := p.lock(); err == nil {
		other.Close()
		t.Error("two watchers run")
	}
}
