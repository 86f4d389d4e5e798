package workload

import (
	"os"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// mountOf finds the mount that a path is on. It reads /proc/self/mountinfo
// only, since a call to the file system itself could hang. It returns a zero
// Mount if no mount matches.
func mountOf(path string) linux.Mount {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return linux.Mount{}
	}
	m, _ := linux.MountOf(linux.ParseMountInfo(string(b)), path)
	return m
}

// allOptions joins the options of a mount and of its file system.
func allOptions(m linux.Mount) string {
	return strings.Join(append(m.Options[:len(m.Options):len(m.Options)], m.Super...), ",")
}
