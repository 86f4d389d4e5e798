// Package pace says whether a block device is slow. Status, and the agent that drops slow disks
// or blames a device for a late answer, have this rule; each decides itself how long it looks.
// It is pure, and knows no brick.
package pace

import (
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
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

// Answers are what a block device answered between two moments.
type Answers struct {
	Done  int64         // requests
	Took  time.Duration // all of them together
	Bytes int64         // read and written
	// Stuck: nothing was answered, and something was asked all the time.
	Stuck bool
	// Open: something was asked at both moments.
	Open bool
}

// Between compares the kernel's counters at two moments. A device without answers that was not
// asked has zero answers; one whose counters fell is another device, and is left out.
func Between(before, after map[string]linux.DiskStat) map[string]Answers {
	out := map[string]Answers{}
	for dev, b := range after {
		a, ok := before[dev]
		if !ok || b.Done < a.Done || b.MS < a.MS {
			continue
		}
		open := a.InFlight > 0 && b.InFlight > 0
		out[dev] = Answers{Done: b.Done - a.Done, Took: time.Duration(b.MS-a.MS) * time.Millisecond, Bytes: b.Read + b.Written - a.Read - a.Written,
			Stuck: open && b.Done == a.Done, Open: open}
	}
	return out
}

// Mean is the time of an answer; of a stuck device a lower bound.
func (a Answers) Mean(window time.Duration) time.Duration {
	switch {
	case a.Stuck:
		return window
	case a.Done > 0:
		return a.Took / time.Duration(a.Done)
	}
	return 0
}
