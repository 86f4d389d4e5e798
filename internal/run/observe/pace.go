package observe

import (
	"time"

	rule "github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// slowest calls found for each of several devices that answers much later than the others, with
// the arguments of its finding. They share a load: disks of a RAID group, LUNs of a volume, SSDs
// of a mirror.
func slowest(devs []string, paces map[string]gather.Pace, found func(dev string, args with)) {
	for _, d := range devs {
		own, ok := paces[d]
		var peers []time.Duration
		for _, x := range devs {
			if p, ok := paces[x]; ok && x != d {
				peers = append(peers, meanTime(p))
			}
		}
		// One of two does not show which of them is slow. A leg of a mirror does: both get
		// each write.
		if !ok || len(peers) < min(2, len(devs)-1) || len(peers) == 0 {
			continue
		}
		if usual, slow := rule.Slow(meanTime(own), peers); slow {
			found(d, with{"pace": own.String(), "usual": float64(usual) / float64(time.Millisecond)})
		}
	}
}

func meanTime(p gather.Pace) time.Duration { return time.Duration(p.MS * float64(time.Millisecond)) }
