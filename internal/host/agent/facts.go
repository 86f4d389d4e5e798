package agent

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/release"
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

// OS reads which system this host has.
func (h HostSys) OS() (linux.OSRelease, error) {
	b, err := h.ReadFile("/etc/os-release")
	if err != nil {
		return linux.OSRelease{}, fmt.Errorf("os-release: %w", err)
	}
	return linux.ParseOSRelease(string(b)), nil
}

// Hello reads who this host is.
func (h HostSys) Hello() (Hello, error) {
	osRelease, err := h.OS()
	if err != nil {
		return Hello{}, err
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
		OSRelease: osRelease,
		UID:       os.Geteuid(), BootID: h.line("/proc/sys/kernel/random/boot_id"),
		NowNS: time.Now().UnixNano(), MemBytes: linux.Memory(string(meminfo), "MemTotal"),
	}, nil
}
