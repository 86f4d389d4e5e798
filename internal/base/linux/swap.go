package linux

import (
	"strconv"
	"strings"
)

// SwapsFile lists the swap that is in use.
const SwapsFile = "/proc/swaps"

// ParseSwaps gives the bytes of each file and device that the host swaps to. Source: proc_swaps(5).
func ParseSwaps(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if kib, err := strconv.ParseInt(f[len(f)-3], 10, 64); err == nil { // the heading has no number
			out[Unescape(f[0])] = kib << 10
		}
	}
	return out
}
