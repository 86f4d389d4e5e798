package array

import (
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// Groups parses the output of the firmware's function state: a line for each group,
// "group NUMBER ARRAY_STATE DEGRADED SYNC_ACTION DONE [/ ALL]" with md's values in
// sysfs, "differ NUMBER SECTORS" with its mismatch_cnt, and "in NUMBER SLOT ..." with the
// slots of its disks.
func Groups(a *hw.Array, said string) []GroupStatus {
	groups := a.Groups
	out := make([]GroupStatus, len(groups))
	for i, g := range groups {
		out[i] = GroupStatus{Name: g.Name, State: "unknown"}
	}
	for line := range strings.Lines(said) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "in" {
			inGroup(a, out, f[1], f[2:])
		}
		if len(f) == 3 && f[0] == "differ" {
			i, err1 := strconv.Atoi(f[1])
			n, err2 := strconv.ParseInt(f[2], 10, 64)
			if err1 == nil && err2 == nil && i >= 0 && i < len(out) {
				out[i].Mismatches = n
			}
		}
		if len(f) < 6 || f[0] != "group" {
			continue
		}
		i, err1 := strconv.Atoi(f[1])
		missing, err2 := strconv.Atoi(f[3])
		if err1 != nil || err2 != nil || i < 0 || i >= len(out) {
			continue
		}
		g := &out[i]
		g.Missing = missing
		switch {
		case missing > groups[i].Survives() || f[2] == "inactive" || f[2] == "broken":
			g.State = "failed"
		case f[4] == "recover" && len(f) == 8:
			g.State = "rebuilding"
			g.Percent = percent(f[5], f[7])
		case missing > 0:
			g.State = "degraded"
		default:
			g.State = "optimal"
			if g.Comparing = f[4] == "check"; g.Comparing && len(f) == 8 {
				g.Percent = percent(f[5], f[7])
			}
		}
	}
	return out
}

// percent is 100 x done / all; 0 if either is no number.
func percent(done, all string) float64 {
	d, err1 := strconv.ParseFloat(done, 64)
	a, err2 := strconv.ParseFloat(all, 64)
	if err1 != nil || err2 != nil || a <= 0 {
		return 0
	}
	return 100 * d / a
}

// inGroup adds the disks of a group, by their slots.
func inGroup(a *hw.Array, groups []GroupStatus, number string, slots []string) {
	g, err := strconv.Atoi(number)
	if err != nil || g < 0 || g >= len(groups) {
		return
	}
	for _, s := range slots {
		if i, err := strconv.Atoi(s); err == nil && i >= 0 && i < len(a.Disks) {
			groups[g].Members = append(groups[g].Members, a.Disks[i].Serial)
		}
	}
}

// GroupStatus is one RAID group of an array.
type GroupStatus struct {
	Name string `json:"name"`
	// State is "optimal", "degraded", "rebuilding" or "failed", or "unknown" if the
	// array does not answer.
	State string `json:"state"`
	// Missing is the number of disks that the group lacks, including those that are
	// rebuilding.
	Missing int `json:"missing"`
	// Comparing: the array compares the group's data with its parities.
	Comparing bool `json:"comparing,omitempty"`
	// Percent of a rebuild or a comparison.
	Percent float64 `json:"percent,omitempty"`
	// Mismatches are the sectors that differ from their parities, as the last comparison
	// has found.
	Mismatches int64 `json:"mismatches,omitempty"`
	// Members are the serial numbers of the disks in the group; none if the array
	// does not answer.
	Members []string `json:"members,omitempty"`
}
