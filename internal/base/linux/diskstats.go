package linux

import (
	"strconv"
	"strings"
)

// DiskStat is what the kernel counts of a block device since it is there.
type DiskStat struct {
	Done     int64 // reads, writes and flushes that were answered
	MS       int64 // how long all of them took together, milliseconds
	InFlight int64 // that wait for an answer
	Read     int64 // bytes
	Written  int64 // bytes
}

// ParseDiskStats reads /proc/diskstats, by the device's name. Discards are left
// out: a disk may take its time for them.
//
// Source: Documentation/admin-guide/iostats.rst
func ParseDiskStats(text string) map[string]DiskStat {
	out := map[string]DiskStat{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 14 {
			continue
		}
		field := func(i int) int64 {
			if len(f) <= i+2 {
				return 0
			}
			n, _ := strconv.ParseInt(f[i+2], 10, 64) // the kernel writes numbers
			return n
		}
		// Fields count from 1 behind the name; 16 and 17 are flushes, of Linux 5.5.
		out[f[2]] = DiskStat{Done: field(1) + field(5) + field(16), MS: field(4) + field(8) + field(17), InFlight: field(9),
			Read: field(3) * sector, Written: field(7) * sector}
	}
	return out
}
