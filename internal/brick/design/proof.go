package design

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Fingerprint tells one configuration of a level of fencing from another: its
// devices and their parameters. How long Pacemaker waits before it uses a
// device (pcmk_delay_*) has no part in it, and neither have secrets, which
// no Design holds.
func (l *FenceLevel) Fingerprint() string {
	type device struct {
		Agent  string
		Params map[string]string
	}
	var all []device
	for _, f := range l.Devices {
		p := maps.Clone(f.Params)
		maps.DeleteFunc(p, func(k, _ string) bool { return strings.HasPrefix(k, "pcmk_delay_") })
		all = append(all, device{f.Agent, p})
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic("unreachable: strings are always JSON: " + err.Error())
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))[:12]
}

// IDs are those of the level's devices.
func (l *FenceLevel) IDs() []string {
	return lists.Map(l.Devices, func(f FenceDevice) string { return f.ID })
}

// Levels are those of one node, in order.
func (h *HA) Levels(node string) []*FenceLevel { return levelsOf(node, h.Fencing) }

// Topology are the levels of one node as the cluster has them: the hedge first.
func (h *HA) Topology(node string) []*FenceLevel {
	return append(levelsOf(node, h.Hedge), h.Levels(node)...)
}

func levelsOf(node string, levels []FenceLevel) []*FenceLevel {
	var out []*FenceLevel
	for i := range levels {
		if levels[i].Node == node {
			out = append(out, &levels[i])
		}
	}
	return out
}
