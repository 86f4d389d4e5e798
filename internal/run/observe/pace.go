package observe

import (
	"fmt"
	"slices"
)

// Which of several devices that share a load answers late: disks of a RAID group, LUNs of a
// volume, SSDs of a mirror. Package ocf decides by a longer look which disk is dropped.

const (
	// slowFactor: a device is slow if it takes this many times as long as its peers.
	// They share the load evenly, so a factor of two may be chance, a factor of ten is
	// not.
	slowFactor = 10
	// slowMS is the time in milliseconds up to which no device is slow: a hard disk
	// with a full queue, or one that repeats a read, takes that long.
	slowMS = 250
)

// latecomers finds the devices that answer much later than the others, and how long the
// middle one takes, in milliseconds.
func latecomers(devs []string, pace map[string]Pace) (slow []string, usual float64) {
	var all []float64
	for _, d := range devs {
		if p, ok := pace[d]; ok {
			all = append(all, p.MS)
		}
	}
	slices.Sort(all)
	// Two of many do not show which of them is slow. The legs of a mirror do: both get
	// each write.
	if fewest := min(3, max(2, len(devs))); len(all) < fewest {
		return nil, 0
	}
	usual = all[(len(all)-1)/2]
	for _, d := range devs {
		if p, ok := pace[d]; ok && p.MS >= slowMS && p.MS >= slowFactor*usual {
			slow = append(slow, d)
		}
	}
	return slow, usual
}

// String says how late a device answers.
func (p Pace) String() string {
	if p.Done == 0 {
		return "answered nothing for a second"
	}
	return fmt.Sprintf("takes %.0f ms for an answer", p.MS)
}
