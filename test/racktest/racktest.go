// Package racktest runs tests that build virtual racks: each test in a process of its own,
// without a limit of time, and so that no rack outlives its test, whatever ends that. It does
// not know what a rack is: the caller's function takes one down.
package racktest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/flock"
)

const (
	// child marks the process of a single test.
	child = "MORTAR_RACKTEST_CHILD"
	// silence ends a test that prints nothing for so long. The longest silence of a test that
	// works is a command that waits for an operation, which prints at least each minute.
	silence = 30 * time.Minute
	// prefix and lockName mark the directories of tests. The process of the test holds the
	// lock, so a directory whose lock is free is left over.
	prefix   = "mortar-test-"
	lockName = ".lock"
)

// Dir makes a directory for the specs of a test's racks, which lie in .mortar/BRICK/rack below,
// or for a rack named rack. A rack that the test leaves there is taken down, by Main or by the next run of any test.
func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := flock.Try(f); !ok {
		t.Fatalf("%s is in use by another process: %v", f.Name(), err)
	}
	t.Cleanup(func() {
		f.Close()
		if left := racks(dir); len(left) > 0 {
			t.Logf("left for the sweep: %v", left)
			return
		}
		os.RemoveAll(dir)
	})
	return dir
}

// Cover is Dir for the racks of specs in a directory that the test has elsewhere.
func Cover(t *testing.T, dir string) {
	t.Helper()
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(abs, filepath.Join(Dir(t), "covered")); err != nil {
		t.Fatal(err)
	}
}

// racks lists the directories of the racks below a test's directory.
func racks(dir string) []string {
	var out []string
	for _, pattern := range []string{"rack", ".mortar/*/rack", "*/.mortar/*/rack"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is valid
		out = append(out, found...)
	}
	return out
}

// sweep takes down the racks of tests that no longer run, and removes their directories.
func sweep(down func(rack string) error) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		f, openErr := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if openErr != nil {
			continue // not a test's, or gone by now
		}
		if free, lockErr := flock.Try(f); free {
			failed := false
			for _, rack := range racks(dir) {
				fmt.Printf("=== taking down %s, which a test has left\n", rack)
				if e := down(rack); e != nil {
					failed, err = true, errors.Join(err, fmt.Errorf("%s: %w", rack, e))
				}
			}
			if !failed {
				err = errors.Join(err, os.RemoveAll(dir))
			}
		} else {
			err = errors.Join(err, lockErr)
		}
		f.Close()
	}
	return err
}

// Main runs the chosen tests one after the other, each in a process of its own, and returns
// the exit code for TestMain. It takes down racks that earlier runs have left first, and what
// each test has left after it: a test that fails, panics, is killed, prints nothing for half an
// hour, or is cut off because Main gets SIGTERM or SIGINT.
func Main(m *testing.M, down func(rack string) error) int {
	flag.Parse()
	if os.Getenv(child) != "" || flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	// "go test" that is ended by SIGTERM does not tell its test.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0); err != nil {
		return fatal(err)
	}
	// Nor does it read on, and a report to it must not end the sweep.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if err := sweep(down); err != nil {
		return fatal(err)
	}
	tests, err := chosen()
	if err != nil {
		return fatal(err)
	}
	code := 0
	for _, name := range tests {
		ended, err := one(name, stop)
		if err != nil {
			fmt.Printf("=== %s: %v\n", name, err)
			code = 1
		}
		if err := sweep(down); err != nil {
			code = fatal(err)
		}
		if ended {
			return 1
		}
	}
	return code
}

func fatal(err error) int {
	fmt.Println("=== racktest:", err)
	return 1
}

// chosen lists the tests that -run names.
func chosen() ([]string, error) {
	pattern, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if pattern == "" {
		pattern = "."
	}
	out, err := exec.Command(os.Args[0], "-test.list="+pattern).Output()
	return slices.DeleteFunc(strings.Fields(string(out)), func(s string) bool { return !strings.HasPrefix(s, "Test") }), err
}

// watched passes output on and notes when it came.
type watched struct {
	to   io.Writer
	last atomic.Int64
}

func (w *watched) Write(b []byte) (int, error) {
	w.last.Store(time.Now().UnixNano())
	return w.to.Write(b)
}

// one runs a test in a process, in a group with the commands that it starts. ended reports
// that a signal cut it off.
func one(name string, stop <-chan os.Signal) (ended bool, err error) {
	args := []string{"-test.run=^" + name + "$", "-test.timeout=0"}
	if _, sub, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		args[0] += "/" + sub
	}
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.run=") && !strings.HasPrefix(a, "-test.timeout=") && !strings.HasPrefix(a, "-test.testlogfile=") {
			args = append(args, a)
		}
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), child+"=1")
	out := &watched{to: os.Stdout}
	out.last.Store(time.Now().UnixNano())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	// The kernel sends Pdeathsig when the thread that started the process ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	group := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) } // it may have ended
	defer group(syscall.SIGKILL)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return false, err
		case s := <-stop:
			group(syscall.SIGKILL)
			<-done
			return true, fmt.Errorf("cut off by signal %v", s)
		case <-tick.C:
			if time.Since(time.Unix(0, out.last.Load())) < limit() {
				continue
			}
			// The test prints its stacks and ends.
			_ = cmd.Process.Signal(syscall.SIGQUIT)
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				group(syscall.SIGKILL)
				<-done
			}
			return false, fmt.Errorf("it printed nothing for %v: it hangs", limit())
		}
	}
}

// limit is silence, or what the test of this package sets.
func limit() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("MORTAR_RACKTEST_SILENCE")); err == nil {
		return d
	}
	return silence
}
