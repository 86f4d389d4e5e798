package ownprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespaces runs a package's tests in user, network and mount namespaces of their own, with
// an empty /run, where they may do what the agent does as root, without any privilege and
// without a trace on the machine. It ends the process: TestMain calls it last.
func Namespaces(m *testing.M) {
	const inside = "MORTAR_TEST_NAMESPACES"
	if os.Getenv(inside) != "" {
		if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // the agent writes there
			panic(err)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
