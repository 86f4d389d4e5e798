// Package pace says whether a block device is slow. Status, and the agent that drops slow disks
// or blames a device for a late answer, have this rule; each decides itself how long it looks.
// It is pure, and knows no brick.
package pace

import (
	"slices"
	"time"
)

// A slow device takes Times as long for an answer as the middle one of its peers, and Least.
//
// A device is compared with others that share its load (disks of a RAID group, LUNs of a
// volume, SSDs of a mirror), not with its own past, which follows the load. Disks of healthy
// groups are more than twice as slow as their peers 0.2 % of the time (Hao et al., The Tail at
// Store, FAST'16), and a busy processor delays all of them: hence ten times that. Least is how
// long a hard disk may take that has a full queue, or repeats a read.
const (
	Times = 20
	Least = 300 * time.Millisecond
)

// Slow judges a device by the mean time that it and its peers take for an answer. usual is that
// of the middle one of the peers, 0 without any.
func Slow(took time.Duration, peers []time.Duration) (usual time.Duration, slow bool) {
	if len(peers) > 0 {
		usual = slices.Sorted(slices.Values(peers))[len(peers)/2]
	}
	return usual, took >= Least && took >= Times*usual
}
