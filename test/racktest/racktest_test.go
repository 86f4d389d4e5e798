package racktest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fate says how TestFate ends. Only runs that this package's test starts have one.
const fate = "MORTAR_RACKTEST_FATE"

func TestMain(m *testing.M) {
	if os.Getenv(fate) == "" {
		os.Exit(m.Run())
	}
	os.Exit(Main(m, func(rack string) error {
		fmt.Println("down", rack)
		return os.RemoveAll(rack)
	}))
}

// TestFate leaves a rack and ends in one of the ways that a test can.
func TestFate(t *testing.T) {
	how := os.Getenv(fate)
	if how == "" {
		return // nothing to show by itself
	}
	rack := filepath.Join(Dir(t), ".mortar", "b", "rack")
	if err := os.MkdirAll(rack, 0o700); err != nil {
		t.Fatal(err)
	}
	fmt.Println("up", rack)
	switch how {
	case "pass":
		os.RemoveAll(rack)
	case "fail":
		t.Error("failed")
	case "panic":
		go panic("in another goroutine")
		time.Sleep(time.Hour)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "hang", "unread":
		time.Sleep(time.Hour)
	}
}

// TestOther shows that the tests after one that is cut off still run.
func TestOther(t *testing.T) { fmt.Println("other") }

// run runs this package's tests as a user of Main would.
func run(t *testing.T, tmp, how string, whileUp func(p *os.Process)) (out string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^(TestFate|TestOther)$", "-test.v=true")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, fate+"="+how, "MORTAR_RACKTEST_SILENCE=3s")
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = 10 * time.Second
	if how == "unread" {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cmd.Stdout, cmd.Stderr = w, w
		signal := whileUp
		whileUp = func(p *os.Process) { r.Close(); signal(p) }
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if whileUp != nil {
		for end := time.Now().Add(20 * time.Second); len(left(tmp)) == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		whileUp(cmd.Process)
	}
	_ = cmd.Wait() // the exit code tells
	return b.String(), cmd.ProcessState.ExitCode()
}

func left(tmp string) []string {
	out, _ := filepath.Glob(filepath.Join(tmp, prefix+"*", ".mortar", "b", "rack"))
	return out
}

// No rack outlives its test, however that ends.
func TestNoRackIsLeft(t *testing.T) {
	send := func(s syscall.Signal) func(*os.Process) {
		return func(p *os.Process) { _ = p.Signal(s) }
	}
	for _, x := range []struct {
		how     string
		whileUp func(p *os.Process)
		code    int
		says    []string
		never   string
	}{
		{how: "pass", code: 0, says: []string{"other"}, never: "down"},
		{how: "fail", code: 1, says: []string{"down", "other"}},
		{how: "panic", code: 1, says: []string{"in another goroutine", "down", "other"}},
		{how: "kill", code: 1, says: []string{"down", "other"}},
		{how: "hang", code: 1, says: []string{"it printed nothing for 3s", "goroutine", "down", "other"}},
		{how: "hang", whileUp: send(syscall.SIGTERM), code: 1, says: []string{"cut off", "down"}, never: "other"},
		{how: "unread", whileUp: send(syscall.SIGTERM), code: 1}, // "go test" died of the same signal
		{how: "hang", whileUp: send(syscall.SIGINT), code: 1, says: []string{"cut off", "down"}, never: "other"},
	} {
		t.Run(x.how, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			out, code := run(t, tmp, x.how, x.whileUp)
			lines := strings.Split(out, "\n")
			if code != x.code || slices.ContainsFunc(x.says, func(s string) bool { return !strings.Contains(out, s) }) {
				t.Errorf("exit %d, want %d and %v:\n%s", code, x.code, x.says, out)
			}
			if x.never != "" && slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, x.never) }) {
				t.Errorf("%q is there:\n%s", x.never, out)
			}
			if l, _ := filepath.Glob(filepath.Join(tmp, "*")); len(l) > 0 {
				t.Errorf("left: %v", l)
			}
		})
	}
}

// The next run takes down what a killed one has left, and nothing of one that runs.
func TestNextRunSweeps(t *testing.T) {
	tmp := t.TempDir()
	if _, code := run(t, tmp, "hang", func(p *os.Process) { _ = p.Kill() }); code != -1 {
		t.Fatalf("exit %d", code)
	}
	if len(left(tmp)) != 1 {
		t.Fatal("the killed run has left nothing to sweep")
	}
	// The killed run's test dies with it, some milliseconds later.
	for end := time.Now().Add(10 * time.Second); len(left(tmp)) > 0 && time.Now().Before(end); {
		if out, code := run(t, tmp, "pass", nil); code != 0 {
			t.Fatalf("exit %d:\n%s", code, out)
		}
	}
	if l := left(tmp); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}
