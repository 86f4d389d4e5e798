package observe

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// A server's own system is no part of the brick, but Pacemaker that cannot write its
// configuration, or is killed for want of memory, takes over nothing.

// Limits below which the system's room and memory give no finding.
const (
	systemWarn = 90.0 // percent of a file system used
	memoryWarn = 5.0  // percent of the memory available
	// stalledWarn is the percentage of five minutes in which all processes waited for
	// memory at once. Below a tenth a server is merely busy.
	stalledWarn = 10.0
)

// systemFiles tell of memory, and of errors that ext4 has met; a file system keeps the
// number until it is checked.
// Source: Linux, Documentation/ABI/testing/sysfs-fs-ext4 (errors_count: kernel 4.2)
var systemFiles = []string{"/proc/meminfo", "/proc/pressure/memory", "/proc/vmstat", "/sys/fs/ext4/*/errors_count"}

// room is a file system as package linux judges it.
func (f FS) room() linux.Room {
	return linux.Room{Size: f.Size, Avail: f.Avail, Inodes: f.Files, InodesFree: f.FilesFree}
}

// systemMounts are those of the system's directories that have a file system of their own.
func systemMounts(h *Host, mounts []linux.Mount) (dirs []string) {
	for _, dir := range linux.SystemDirs {
		_, asked := h.FS[dir]
		if _, ok := linux.MountAt(mounts, dir); ok && asked {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// systemErrors are the errors that each ext4 has met, by its device.
func systemErrors(h *Host) map[string]int {
	out := map[string]int{}
	for p, text := range h.Files {
		if dir, ok := strings.CutSuffix(p, "/errors_count"); ok && strings.HasPrefix(p, "/sys/fs/ext4/") {
			out[path.Base(dir)], _ = strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return out
}

// room judges the file systems of a server's own system.
func (s *server) room(c *Part) {
	for _, dir := range systemMounts(s.host, s.mounts) {
		fs := s.host.FS[dir]
		if fs.TimedOut || fs.Err != "" {
			f := c.add(Fault, dir, "%s of %s does not answer", dir, s.name)
			f.Mend = "look at the kernel's log and at the disk of the system"
			continue
		}
		if m, _ := linux.MountAt(s.mounts, dir); slices.Contains(m.Options, "ro") {
			level := Fault
			if dir == "/boot" { // some keep it so
				level = Warning
			}
			f := c.add(level, dir+" read-only", "%s of %s is mounted read-only", dir, s.name)
			f.Mend = "the kernel's log says why, if it was not a person: an error of the disk, or of the file system; check it at the next boot (`fsck.mode=force`)"
		}
		r := fs.room()
		used, what := percentUsed(r.Size, r.Avail), "space"
		if u := percentUsed(r.Inodes, r.InodesFree); u > used {
			used, what = u, "inodes"
		}
		if why := r.Full(dir); why != "" {
			c.add(Fault, dir, "%s of %s is full: %s", dir, s.name, why).Mend = linux.MakeRoom(dir)
		} else if used >= systemWarn {
			c.add(Warning, dir, "%s of %s is nearly full: %.0f %% of its %s used, %d MiB are free", dir, s.name, used, what, r.Avail>>20).Mend = linux.MakeRoom(dir)
		}
	}
	errors := systemErrors(s.host)
	for _, dev := range slices.Sorted(maps.Keys(errors)) {
		n := errors[dev]
		if n == 0 {
			continue
		}
		at := ""
		if m := s.mountedFrom(dev); len(m) > 0 {
			at = " (" + strings.Join(m, ", ") + ")"
		}
		f := c.add(Warning, dev+" errors", "the file system on %s of %s%s has met %d errors", dev, s.name, at, n)
		f.Mend = "look at its disk (`smartctl -a`) and at the kernel's log; e2fsck(8) mends the file system, and sets the number back"
	}
}

func percentUsed(size, free uint64) float64 {
	if size == 0 {
		return 0
	}
	return 100 - 100*float64(free)/float64(size)
}

// memory judges whether a server has enough.
func (s *server) memory(c *Part) {
	info := s.host.Files["/proc/meminfo"]
	all, free := linux.Memory(info, "MemTotal"), linux.Memory(info, "MemAvailable")
	pressure, _ := linux.ParsePressure(s.host.Files["/proc/pressure/memory"], "full")
	const mend = "see what takes it (`ps -e -o rss,comm --sort=-rss | head`); a server of a brick runs nothing else"
	switch {
	case all > 0 && 100*float64(free) < memoryWarn*float64(all):
		c.add(Warning, "memory", "%s is short of memory: %d MiB of %d MiB are available", s.name, free>>20, all>>20).Mend = mend
	case pressure.Avg300 >= stalledWarn:
		c.add(Warning, "memory", "%s is short of memory: for %.0f %% of the last five minutes all its processes waited for some", s.name, pressure.Avg300).Mend = mend
	}
	if n, _ := linux.VMStat(s.host.Files["/proc/vmstat"], "oom_kill"); n > 0 {
		c.add(Warning, "out of memory", "the kernel of %s has killed %d processes for want of memory since it started", s.name, n).Mend =
			"`journalctl -k -g oom` names them; the count starts again when the server does"
	}
}

// system adds the room of the server's own system, and its memory.
func (e *exposition) system(h *Host) {
	mounts := linux.ParseMounts(h.Files["/proc/self/mounts"])
	for _, dir := range systemMounts(h, mounts) {
		fs := h.FS[dir]
		answers := !fs.TimedOut && fs.Err == ""
		m, _ := linux.MountAt(mounts, dir)
		_, ro := m.Option("ro")
		e.add("mortar_system_answers", bit(answers), "path", dir)
		e.add("mortar_system_readonly", bit(ro), "path", dir)
		if !answers {
			continue
		}
		e.add("mortar_system_full", bit(fs.room().Full(dir) != ""), "path", dir)
		e.add("mortar_system_size_bytes", float64(fs.Size), "path", dir)
		e.add("mortar_system_avail_bytes", float64(fs.Avail), "path", dir)
		e.add("mortar_system_inodes", float64(fs.Files), "path", dir)
		e.add("mortar_system_inodes_free", float64(fs.FilesFree), "path", dir)
	}
	errors := systemErrors(h)
	for _, dev := range slices.Sorted(maps.Keys(errors)) {
		e.add("mortar_system_errors", float64(errors[dev]), "device", dev)
	}
	info := h.Files["/proc/meminfo"]
	if all := linux.Memory(info, "MemTotal"); all > 0 {
		e.add("mortar_memory_bytes", float64(all))
		e.add("mortar_memory_available_bytes", float64(linux.Memory(info, "MemAvailable")))
	}
	if p, ok := linux.ParsePressure(h.Files["/proc/pressure/memory"], "full"); ok {
		e.add("mortar_memory_stalled_seconds_total", p.Total.Seconds())
	}
	if n, ok := linux.VMStat(h.Files["/proc/vmstat"], "oom_kill"); ok {
		e.add("mortar_memory_kills_total", float64(n))
	}
}
