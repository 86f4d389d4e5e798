package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Hello says who answers.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`  // of this binary
	Binary   string `json:"binary"`   // its path on the host
	Hostname string `json:"hostname"` // uname -n
	linux.OSRelease
	Kernel   string `json:"kernel"` // uname -r
	UID      int    `json:"uid"`
	BootID   string `json:"boot_id"`
	NowNS    int64  `json:"now_ns"`    // wall clock, ns since 1970
	MemBytes int64  `json:"mem_bytes"` // memory, bytes
}

// Facts are what a plan needs to know of a host before it is made.
type Facts struct {
	Hello
	resource.HostFacts
	Brick claim.State `json:"brick"`
}

// Hello reads who this host is.
func (h HostSys) Hello() (Hello, error) {
	osRelease, err := h.ReadFile("/etc/os-release")
	if err != nil {
		return Hello{}, fmt.Errorf("os-release: %w", err)
	}
	meminfo, _ := h.ReadFile("/proc/meminfo") // unknown is 0
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Hello{}, fmt.Errorf("uname: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return Hello{}, fmt.Errorf("executable: %w", err)
	}
	return Hello{
		Protocol: Protocol, Version: release.Version(""), Binary: exe,
		Hostname: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]),
		OSRelease: linux.ParseOSRelease(string(osRelease)),
		UID:       os.Geteuid(), BootID: h.line("/proc/sys/kernel/random/boot_id"),
		NowNS: time.Now().UnixNano(), MemBytes: linux.Memory(string(meminfo), "MemTotal"),
	}, nil
}

// Facts reads the host.
func (h HostSys) Facts(ctx context.Context) (Facts, error) {
	hello, err := h.Hello()
	if err != nil {
		return Facts{}, err
	}
	f, err := resource.ObserveFacts(ctx, h)
	if err != nil {
		return Facts{}, fmt.Errorf("facts: %w", err)
	}
	brick, err := claim.Read(claim.File())
	if err != nil {
		return Facts{}, fmt.Errorf("brick: %w", err)
	}
	return Facts{Hello: hello, HostFacts: f, Brick: brick}, nil
}
