package ocf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	cmd = exec.Command("/bin/sh", "ocf", watchAction)
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
	if _, err := held.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	return cmd, held
}

func TestStopOfTheWatcher(t *testing.T) {
	p := watchProcess{file: filepath.Join(t.TempDir(), "watch"), grace: 200 * time.Millisecond}
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

	// It hangs in the kernel: the lock stays although it was killed. The stop
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
