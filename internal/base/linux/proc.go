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

// Pressure is how much processes wait for a resource.
type Pressure struct {
	Avg300 float64       // percent of the last five minutes
	Total  time.Duration // since the host started
}

// ParsePressure reads a line of a file of /proc/pressure: "some" of all processes wait, or
// all of them ("full").
//
// Source: Linux, Documentation/accounting/psi.rst
func ParsePressure(text, name string) (p Pressure, ok bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != name {
			continue
		}
		for _, word := range f[1:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "avg300":
				p.Avg300, _ = strconv.ParseFloat(value, 64)
			case "total":
				us, _ := strconv.ParseInt(value, 10, 64)
				p.Total = time.Duration(us) * time.Microsecond
			}
		}
		return p, true
	}
	return p, false
}

// VMStat reads a counter of /proc/vmstat, such as oom_kill: the processes that the kernel
// has killed for want of memory since the host started.
func VMStat(text, name string) (n int64, ok bool) {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
