package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var groups = []Group{OwnGroup, OwnSession, ParentGroup}

func TestLongOutputIsCut(t *testing.T) {
	for _, group := range groups {
		out, err := Cmd{Argv: []string{"sh", "-c", "echo first; seq 1 200000; echo last"}, Limit: 1000, Group: group}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Stdout) > 1100 || !strings.HasPrefix(out.Stdout, "first\n1\n") || !strings.HasSuffix(out.Stdout, "200000\nlast\n") {
			t.Errorf("%d bytes: %.60q … %q", len(out.Stdout), out.Stdout, out.Stdout[len(out.Stdout)-30:])
		}
	}
}

// Freeze and thaw a file system. Source: ioctl_fs.h, FIFREEZE and FITHAW
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// frozenDir gives a directory in which a process that makes a file hangs until the
// end of the test. It needs root and a loop device.
func frozenDir(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	dir := t.TempDir()
	for _, argv := range [][]string{
		{"truncate", "--size=16M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); err != nil {
			t.Error(err)
		}
		_ = f.Close()
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// A command that hangs in the kernel is given up, and named.
func TestHungCommandIsGivenUp(t *testing.T) {
	file := filepath.Join(frozenDir(t), "x")
	for _, group := range groups {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			// Long enough that touch has begun, and hangs, on a busy machine.
			out, err := Cmd{Argv: []string{"touch", file}, Timeout: 2 * time.Second, Group: group}.Run(t.Context())
			if !errors.Is(err, errHangs) || out.Code != -1 || !strings.HasPrefix(err.Error(), "touch "+file+": ") {
				t.Errorf("group %d: %+v %v", group, out, err)
			}
		})
		t.Run("", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := (Cmd{Argv: []string{"touch", file}, Group: group}).Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("group %d: cancelled: %v", group, err)
			}
		})
	}
}

// What a command says and how it ends, whichever group it is in.
func TestRun(t *testing.T) {
	t.Setenv("OCF_RESKEY_x", "1")
	for _, group := range groups {
		run := func(argv ...string) (Output, error) {
			return Cmd{Argv: argv, Stdin: []byte("in"), Env: []string{"A=b"}, Group: group}.Run(t.Context())
		}
		if out, err := run("cat"); err != nil || out != (Output{Stdout: "in"}) {
			t.Errorf("%+v %v", out, err)
		}
		if out, err := run("sh", "-c", "echo out; echo err >&2; exit 3"); err != nil || out != (Output{"out\n", "err\n", 3}) {
			t.Errorf("%+v %v", out, err)
		}
		if out, err := run("sh", "-c", "kill -9 $$"); err == nil || out.Code != -1 {
			t.Errorf("%+v %v", out, err)
		}
		if _, err := run("no-such-program"); !errors.Is(err, exec.ErrNotFound) {
			t.Error(err)
		}
		if _, err := run(); err == nil {
			t.Error("nothing was run")
		}
		// The environment is not that of this process.
		if out, err := run("env"); err != nil || !slices.Equal(strings.Fields(out.Stdout), append(slices.Clip(Environment), "A=b")) {
			t.Errorf("%+v %v", out, err)
		}
		// One that does not read its stdin.
		c := Cmd{Argv: []string{"true"}, Stdin: make([]byte, 1<<20), Group: group}
		if out, err := c.Run(t.Context()); err != nil || out.Code != 0 {
			t.Errorf("%+v %v", out, err)
		}
	}
}

// What a command started is killed with it, unless it is to share the fate of
// this process.
func TestGroupIsKilled(t *testing.T) {
	for _, group := range groups {
		pidfile := filepath.Join(t.TempDir(), "pid")
		c := Cmd{Argv: []string{"sh", "-c", `sleep 300 & echo $! >"$0"; wait`, pidfile}, Group: group}
		ctx, cancel := context.WithCancel(t.Context())
		var pid int
		go func() {
			for pid == 0 {
				if b, err := os.ReadFile(pidfile); err == nil && strings.HasSuffix(string(b), "\n") {
					pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if out, err := c.Run(ctx); !errors.Is(err, context.Canceled) || out.Code != -1 {
			t.Errorf("group %d: %+v %v", group, out, err)
		}
		lives := func() bool { // a process that was killed may be a zombie for a while
			state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && !strings.Contains(string(state), ") Z ")
		}
		if group == ParentGroup {
			if !lives() {
				t.Error("what the command started was killed with it")
			}
		} else {
			for lives() { // the kernel takes its time
				time.Sleep(time.Millisecond)
			}
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func TestText(t *testing.T) {
	_, err := Cmd{Argv: []string{"sh", "-c", "echo why >&2; exit 2"}}.Text(t.Context())
	if err == nil || err.Error() != "sh -c echo why >&2; exit 2: exit status 2: why" {
		t.Error(err)
	}
	if s, err := (Cmd{Argv: []string{"echo", "x"}}).Text(t.Context()); err != nil || s != "x\n" {
		t.Errorf("%q %v", s, err)
	}
}

func TestLines(t *testing.T) {
	var got []string
	out, err := Cmd{Argv: []string{"sh", "-c", "echo a; echo b; printf c; echo e >&2; exit 4"}}.Lines(t.Context(), func(l string) { got = append(got, l) })
	if err != nil || out != (Output{"", "e\n", 4}) || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q %+v %v", got, out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Cmd{Argv: []string{"sh", "-c", "echo a; exec sleep 300"}}.Lines(ctx, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A program that is started without waiting goes on by itself.
func TestStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	p, err := Cmd{Argv: []string{"touch", file}, Group: OwnSession}.Start()
	if err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Error(state, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if _, err := (Cmd{Argv: []string{"no-such-program"}}).Start(); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}
