package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/host/sshtest"
)

// TestOtherDistribution connects to hosts whose os-release(5) says Red Hat Enterprise Linux
// 9. A process with its own mount namespace sees that file.
func TestOtherDistribution(t *testing.T) {
	const inside = "MORTAR_TEST_OTHER_DISTRIBUTION"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestOtherDistribution$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1", libDirEnv+"="+libDir)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	file := filepath.Join(t.TempDir(), "os-release")
	if err := os.WriteFile(file, []byte("ID=\"rhel\"\nVERSION_ID=\"9.4\"\nPRETTY_NAME=\"Red Hat Enterprise Linux 9.4 (Plow)\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.EvalSymlinks("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, here, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	x := newSite(t, sshtest.Start(t), nil)
	for _, args := range [][]string{{"plan", x.spec}, {"apply", "--yes", x.spec}} {
		code, out, msg := mortar(t, args...)
		if code != exitBadInput {
			t.Errorf("%v: exit code %d, %s", args, code, out)
		}
		for _, want := range []string{
			`brick\.yaml:\d+:\d+: nfs1 runs Red Hat Enterprise Linux 9\.4 \(Plow\), which is not supported; install Debian 12 or Debian 13`,
			`brick\.yaml:\d+:\d+: c1 runs Red Hat Enterprise Linux 9\.4 \(Plow\)`,
			`Nothing was changed`,
		} {
			if !regexp.MustCompile(want).MatchString(msg) {
				t.Errorf("%v: %q is not in\n%s", args, want, msg)
			}
		}
	}
}
