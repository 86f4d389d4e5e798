package gather

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// FailedPaths returns the paths that multipath considers failed. The kernel's
// multipath target knows them; the SCSI layer knows only offline devices.
func (h *Host) FailedPaths() (failed map[string]string, unread health.Unread) {
	devName := map[string]string{} // 8:16 -> sdb
	for p, t := range h.Files {
		if rest, ok := strings.CutPrefix(p, "/sys/block/sd"); ok {
			devName[strings.TrimSpace(t)] = "sd" + strings.TrimSuffix(rest, "/dev")
		}
	}
	failed = map[string]string{}
	maps, unread := linux.ParseMultipath(h.Run[CmdDM].Stdout)
	for _, paths := range maps {
		for _, p := range paths {
			switch p.State {
			case linux.PathActive:
			case linux.PathFailed:
				failed[devName[p.Dev]] = "failed in multipath"
			default:
				failed[devName[p.Dev]] = fmt.Sprintf("in state %q in multipath", p.State)
			}
		}
	}
	return failed, unread
}

// Array is an md array that is assembled on a host.
type Array struct {
	linux.MDArray
	Name    string           // in /dev/md; "" if it has none there
	Members []linux.MDMember // also those that md has thrown out, and spares that wait outside of it
	Stat    linux.MDStat     // its present activity
}

// ArrayRequest asks for arrays and disks.
func ArrayRequest() Request {
	return Request{Files: append([]string{"/proc/mdstat", "/sys/block/dm-*/dm/name"}, MDFiles...), Links: []string{"/dev/md/*"}, Disks: true}
}

// Arrays are the host's md arrays. Reading them from a map cannot fail.
func (h *Host) Arrays() (out []Array) {
	files := linux.Files(h.Files)
	found, _ := linux.MDArrays(files)
	stats := linux.ParseMDStat(h.Files["/proc/mdstat"])
	spares, _ := linux.MDSpares(files)
	for _, f := range found {
		a := Array{MDArray: f}
		a.Members, _ = linux.MDMembers(files, f.Dev)
		if i := slices.IndexFunc(stats, func(m linux.MDStat) bool { return m.Dev == f.Dev }); i >= 0 {
			a.Stat = stats[i]
		}
		for link, to := range h.Links {
			if name, ok := strings.CutPrefix(link, "/dev/md/"); ok && path.Base(to) == f.Dev {
				a.Name = name
			}
		}
		for _, k := range h.Disks {
			if f.UUID != "" && spares[k.Device] == f.UUID && len(k.Paths) > 0 {
				a.Members = append(a.Members, linux.MDMember{Dev: path.Base(k.Paths[0]), States: []string{"spare"}, Slot: -1})
			}
		}
		out = append(out, a)
	}
	return out
}

// Running is the array with a UUID; nil if it does not run on the host.
func (h *Host) Running(uuid string) *Array {
	return lists.Find(h.Arrays(), func(a *Array) bool { return md.SameUUID(a.UUID, uuid) && a.Running() })
}

// DiskOf is the disk that the kernel knows by a name: that of one of its paths, or of its map.
func (h *Host) DiskOf(dev string) (resource.DiskFact, bool) {
	return resource.DiskOf(h.Disks, dev, h.Mapped()[dev])
}

// Mapped are the names that the device mapper has for its devices, by the kernel's name (dm-3).
func (h *Host) Mapped() map[string]string {
	out := map[string]string{}
	for p, name := range h.Files {
		rest, _ := strings.CutPrefix(p, "/sys/block/")
		if dev, ok := strings.CutSuffix(rest, "/dm/name"); ok {
			out[dev] = strings.TrimSpace(name)
		}
	}
	return out
}

// Below are the devices (sda) of each device of the device mapper (dm-3).
func (h *Host) Below() map[string][]string {
	out := map[string][]string{}
	for p := range h.Links {
		rest, _ := strings.CutPrefix(p, "/sys/block/")
		if dm, slave, ok := strings.Cut(rest, "/slaves/"); ok {
			out[dm] = append(out[dm], slave)
		}
	}
	return out
}

// SystemMounts are those of the system's directories that have a file system of their own.
func (h *Host) SystemMounts(mounts []linux.Mount) (dirs []string) {
	for _, dir := range linux.SystemDirs {
		_, asked := h.FS[dir]
		if _, ok := linux.MountAt(mounts, dir); ok && asked {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// SystemErrors are the errors that each ext4 has met, by its device.
func (h *Host) SystemErrors() map[string]int {
	out := map[string]int{}
	for p, text := range h.Files {
		if dir, ok := strings.CutSuffix(p, "/errors_count"); ok && strings.HasPrefix(p, "/sys/fs/ext4/") {
			out[path.Base(dir)], _ = strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return out
}

// ETab is the file with a service's exports. It is in nfs-utils' directory. With a
// namespace only the service's own processes see that directory there, so ETab
// returns its path on the volume.
func ETab(namespace, stateDir string) string {
	if namespace == "" {
		return "/var/lib/nfs/etab"
	}
	return stateDir + "/etab"
}
