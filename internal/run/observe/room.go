package observe

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/gather"
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

// systemMounts are those of the system's directories that have a file system of their own.
func systemMounts(h *gather.Host, mounts []linux.Mount) (dirs []string) {
	for _, dir := range linux.SystemDirs {
		_, asked := h.FS[dir]
		if _, ok := linux.MountAt(mounts, dir); ok && asked {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// systemErrors are the errors that each ext4 has met, by its device.
func systemErrors(h *gather.Host) map[string]int {
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
			c.find(dir, "system-hangs", with{"dir": dir, "host": s.name})
			continue
		}
		if m, _ := linux.MountAt(s.mounts, dir); slices.Contains(m.Options, "ro") {
			f := c.find(dir+" read-only", "system-readonly", with{"dir": dir, "host": s.name})
			if dir == "/boot" { // some keep it so
				f.Level = Warning
			}
		}
		r := fs.Room()
		used, what := percentUsed(r.Size, r.Avail), "space"
		if u := percentUsed(r.Inodes, r.InodesFree); u > used {
			used, what = u, "inodes"
		}
		if why := r.Full(dir); why != "" {
			c.find(dir, "system-full", with{"dir": dir, "host": s.name, "why": why}).Mend = linux.MakeRoom(dir)
		} else if used >= systemWarn {
			c.find(dir, "system-nearly-full", with{"dir": dir, "host": s.name, "used": used, "of": what, "free": r.Avail >> 20}).Mend = linux.MakeRoom(dir)
		}
	}
	errors := systemErrors(s.host)
	for _, dev := range slices.Sorted(maps.Keys(errors)) {
		n := errors[dev]
		if n == 0 {
			continue
		}
		c.find(dev+" errors", "system-errors", with{"device": dev, "host": s.name, "dirs": strings.Join(s.mountedFrom(dev), ", "), "errors": n})
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
	switch {
	case all > 0 && 100*float64(free) < memoryWarn*float64(all):
		c.find("memory", "memory-short", with{"host": s.name, "free": free >> 20, "memory": all >> 20})
	case pressure.Avg300 >= stalledWarn:
		c.find("memory", "memory-waited-for", with{"host": s.name, "stalled": pressure.Avg300})
	}
	if n, _ := linux.VMStat(s.host.Files["/proc/vmstat"], "oom_kill"); n > 0 {
		c.find("out of memory", "memory-killed", with{"host": s.name, "processes": n})
	}
}

// system adds the room of the server's own system, and its memory.
func (e *exposition) system(h *gather.Host) {
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
		e.add("mortar_system_full", bit(fs.Room().Full(dir) != ""), "path", dir)
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
