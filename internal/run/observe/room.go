package observe

import (
	"maps"
	"slices"
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

// room judges the file systems of a server's own system.
func (s *server) room(c *Part) {
	for _, dir := range s.host.SystemMounts(s.mounts) {
		fs := s.host.FS[dir]
		if fs.TimedOut || fs.Err != "" {
			c.find(dir, "system-hangs", with{"dir": dir, "host": s.name})
			continue
		}
		if m, _ := linux.MountAt(s.mounts, dir); m.ReadOnly() {
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
	errors := s.host.SystemErrors()
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
	return 100 * float64(size-min(free, size)) / float64(size)
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
