package ocf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
	"github.com/mortarhpc/mortar/test/ownprocess"
)

// TestMain runs the tests in user, network and mount namespaces of their own,
// where they may do what the agent does as root, without any privilege and
// without a trace on the machine. Called as the watcher, or as the process in its
// place, it is that of the tests, which keep its file beside the first configuration.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "ocf" && staying[os.Args[2]] != nil {
		dir := filepath.Dir(os.Args[3])
		theWatcher.file, standbyProcess.file, clusterEngine = filepath.Join(dir, "watch"), filepath.Join(dir, "rest"), processName(os.Getpid())
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := staying[os.Args[2]](ctx, os.Args[3:]); err != nil {
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "ocf" && os.Args[2] == kernel.AnswerAction {
		os.Exit(Main(context.Background(), os.Args[2:], os.Getenv, os.Stdout, os.Stderr))
	}
	if len(os.Args) == 4 && os.Args[1] == "ocf" && os.Args[2] == childAction {
		if s, _ := strconv.Atoi(os.Getenv("OCF_RESKEY_test_sleep")); s > 0 {
			time.Sleep(time.Duration(s) * time.Second)
		}
		os.Exit(Main(context.Background(), os.Args[2:], os.Getenv, os.Stdout, os.Stderr))
	}
	ownprocess.Namespaces(m)
}

func TestMountsReal(t *testing.T) {
	k := kernel.New()
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	vol, bind := dir+"/vol", dir+"/bind"
	for _, d := range []string{vol, bind} {
		if err := k.Mkdir(d, 0o750, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	flags, data := unit.MountOptions([]string{"noatime", "nodev", "size=4m"})
	if err := k.Mount("model", vol, "tmpfs", flags, data); err != nil {
		t.Fatal(err)
	}
	defer k.Unmount(vol)
	if err := k.Mkdir(vol+"/state/sm", 0o700, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := k.Mount(vol+"/state", bind, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer k.Unmount(bind)
	s := &unit.Host{K: k, Self: os.Getpid()}
	all, err := s.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	m, b := unit.MountedAt(all, vol), unit.MountedAt(all, bind)
	if m == nil || b == nil {
		t.Fatalf("not found in %+v", all)
	}
	if m.Type != "tmpfs" || !slices.Contains(m.Options, "noatime") || !slices.Contains(m.Options, "nodev") || m.Dev != b.Dev || b.Root != "/state" {
		t.Errorf("%+v, %+v", m, b)
	}
	// A process in it is found, by either path, and by nothing else.
	for _, where := range []string{vol, bind} {
		hold := exec.Command("sleep", "60")
		hold.Dir = where
		if err := hold.Start(); err != nil {
			t.Fatal(err)
		}
		u := s.Users(m.Dev)
		if len(u) != 1 || u[0].PID != hold.Process.Pid || u[0].Name != "sleep" {
			t.Errorf("users of %s: %+v, want %d", where, u, hold.Process.Pid)
		}
		if err := k.Unmount(where); err != unix.EBUSY {
			t.Errorf("unmount of a busy file system: %v", err)
		}
		if err := k.Kill(hold.Process.Pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		hold.Wait()
	}
	if u := s.Users(m.Dev); len(u) != 0 {
		t.Errorf("users %+v", u)
	}
	for _, where := range []string{bind, vol} {
		if err := k.Unmount(where); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestOwnProcesses(t *testing.T) {
	s := nfs.New(&unit.Host{K: kernel.New()}, &nfs.NFSService{}, "", nil)
	hold := exec.Command("sleep", "60")
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	found := func() bool {
		for _, pid := range s.ProcessesOf("sleep") {
			if pid == hold.Process.Pid {
				return true
			}
		}
		return false
	}
	if !found() {
		t.Error("a running process is not found")
	}
	hold.Process.Kill()
	// Dead, but not waited for: a zombie is no daemon.
	for i := 0; i < 1000 && found(); i++ {
		time.Sleep(time.Millisecond)
	}
	if found() {
		t.Error("a zombie is taken for a running process")
	}
	hold.Wait()
}

// An action whose child hangs answers in time. While no path to the disks is
// left, the service is not moved for it.
func TestInTime(t *testing.T) {
	config := filepath.Join(t.TempDir(), "service.json")
	src, err := json.Marshal(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, src, 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"OCF_RESKEY_config": config, "OCF_RESKEY_CRM_meta_timeout": "2000", "OCF_RESKEY_CRM_meta_interval": "10000", "OCF_RESKEY_test_sleep": "600"}
	for k, v := range env {
		t.Setenv(k, v)
	}
	// The disks of the config are not on this machine: nothing reaches them.
	var out, errs bytes.Buffer
	if code := Main(t.Context(), []string{"monitor"}, os.Getenv, &out, &errs); code != Success {
		t.Errorf("no paths: exit %d, %s", code, &errs)
	}
	a := &agent{getenv: os.Getenv, stderr: &errs, now: time.Now}
	if code := a.givenUp("monitor", testConfig(), errors.New("it hangs in the kernel"), true, ""); code != ErrGeneric || !strings.Contains(errs.String(), "took too long: it hangs in the kernel") {
		t.Errorf("paths: exit %d, %s", code, &errs)
	}
	errs.Reset()
	for action, want := range map[string]int{"monitor": Success, "stop": ErrGeneric} {
		if code := a.givenUp(action, testConfig(), errors.New("it hangs in the kernel"), true, "disk MA01 is slow"); code != want {
			t.Errorf("%s with a slow disk: exit %d", action, code)
		}
	}
	// A stop that hangs has failed, whatever the paths: only fencing helps.
	if code := Main(t.Context(), []string{"stop"}, os.Getenv, &out, &errs); code != ErrGeneric || !strings.Contains(errs.String(), "stop of service home took too long") {
		t.Errorf("stop: exit %d, %s", code, &errs)
	}
	// Nor does Pacemaker wait for a start that hangs: it would until the disk answers.
	errs.Reset()
	if code := Main(t.Context(), []string{"start"}, os.Getenv, &out, &errs); code != ErrGeneric || !strings.Contains(errs.String(), "start of service home took too long") {
		t.Errorf("start: exit %d, %s", code, &errs)
	}
	if b, err := os.ReadFile(unit.RunDir + "/refused-home"); !strings.Contains(string(b), "the start took too long") {
		t.Errorf("the watcher is not told to have it forgiven: %q, %v", b, err)
	}
	// In time, the child's answer is the answer, with what it says.
	t.Setenv("OCF_RESKEY_test_sleep", "")
	t.Setenv("OCF_RESKEY_CRM_meta_clone", "0")
	errs.Reset()
	if code := Main(t.Context(), []string{"monitor"}, os.Getenv, &out, &errs); code != ErrConfigured || !strings.Contains(errs.String(), "must not be cloned") {
		t.Errorf("clone: exit %d, %s", code, &errs)
	}
}
