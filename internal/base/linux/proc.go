package linux

import (
	"strconv"
	"strings"
	"time"
)

// Uptime reads /proc/uptime: how long the host has run.
func Uptime(text string) (up time.Duration, ok bool) {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	s, err := strconv.ParseFloat(first, 64)
	return time.Duration(s * float64(time.Second)), err == nil
}

// Memory reads a line of /proc/meminfo, e.g. MemTotal, in bytes; 0 if it is not
// there. Source: proc_meminfo(5)
func Memory(meminfo, name string) int64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name+":" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
