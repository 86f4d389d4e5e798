package linux

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var nvmeController = regexp.MustCompile(`^nvme[0-9]+$`)

// NVMePaths are the controllers (nvme0) by which the kernel's own multipath reaches a
// namespace (nvme0n1), each with its state; "live" is the one that takes I/O. It is empty for
// other disks, and for a namespace that belongs to one controller: that one's state is the
// disk's device/state. The disk of a namespace with several controllers has no such file.
//
// Source: drivers/nvme/host/core.c, nvme_init_subsystem (links) and nvme_sysfs_show_state
func NVMePaths(t Tree, dev string) map[string]string {
	if !strings.HasPrefix(dev, "nvme") {
		return nil
	}
	dir := "/sys/block/" + dev + "/device"
	names, _ := t.ReadDir(dir)
	out := map[string]string{}
	for _, n := range names {
		if nvmeController.MatchString(n) {
			state, _ := t.ReadFile(dir + "/" + n + "/state")
			out[n] = strings.TrimSpace(string(state))
		}
	}
	return out
}

// NVMeLive counts the controllers that take I/O.
func NVMeLive(paths map[string]string) int {
	return len(slices.DeleteFunc(slices.Collect(maps.Values(paths)), func(state string) bool { return state != "live" }))
}
