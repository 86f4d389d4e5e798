package mdraid

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Member is one device of an array and what was found on it.
type Member struct {
	Dev string
	SB  *md.Superblock
	Err error // why SB is nil
}

// Verdict is how an array may be started.
type Verdict struct {
	Members []string // devices to hand to mdadm
	Missing int      // members short of the full number
	// Awaited are members that the array ran with until its end and that are not here.
	// A member that md had thrown out before is none of them.
	Awaited []int // their numbers in the superblocks
	// Silent are members that are there and do not answer: no start waits longer for them.
	Silent int
	// Spares are devices that are in no slot by their own superblocks; md may have given their
	// numbers to other disks since. They are left out.
	Spares        []string
	DirtyDegraded bool // the kernel has to be told to start it nevertheless
	// Anew are members of a RAID 10 that were being rebuilt when the server died. They are
	// left out, and rebuilt from the start (see rebuildAnew).
	Anew  []string
	Notes []string // what an administrator should know
	// Doubt is why the array must not be started unless its stripes are found
	// to be whole (see settle); nil: it may.
	Doubt error
	// Slots are the members by their places, of which the newest superblock is
	// Newest; a Slot without a superblock is missing.
	Slots  []Member
	Newest *md.Superblock
}

// Judge decides from the superblocks of all reachable members whether an
// array may be started. It is as strict as the kernel and mdadm without
// --force, but says why, and before anything is changed.
func Judge(a Array, members []Member, policy string) (Verdict, error) {
	var v Verdict
	var fresh *md.Superblock
	want := md.Hex(a.UUID)
	var usable []Member
	for _, m := range members {
		switch {
		case m.SB == nil:
			v.Notes = append(v.Notes, fmt.Sprintf("%s: %v", m.Dev, m.Err))
			if errors.Is(m.Err, kernel.ErrSilent) {
				v.Silent++
			}
		case m.SB.UUID != want:
			v.Notes = append(v.Notes, fmt.Sprintf("%s belongs to another array (%s %q)", m.Dev, m.SB.UUID, m.SB.Name))
		default:
			usable = append(usable, m)
			if fresh == nil || m.SB.Events > fresh.Events {
				fresh = m.SB
			}
		}
	}
	if fresh == nil {
		return v, refusal.New("no-member", refusal.Args{"array": a.Name, "members": len(members), "notes": strings.Join(v.Notes, "; ")})
	}
	if fresh.Features&md.FeatureJournal != 0 {
		// Without it md would take stripes that are torn for whole.
		return v, refusal.New("has-journal", refusal.Args{"array": a.Name})
	}
	dirty := fresh.ResyncedTo != math.MaxUint64
	slot := make([]bool, fresh.RaidDisks)
	v.Slots, v.Newest = make([]Member, fresh.RaidDisks), fresh
	filled := 0
	for _, m := range usable {
		role := uint16(md.RoleSpare)
		if int(m.SB.DevNumber) < len(fresh.Roles) {
			role = fresh.Roles[m.SB.DevNumber]
		}
		stale := md.Stale(m.SB.Events, fresh.Events)
		switch {
		case m.SB.Slot() < 0 && role != md.RoleFaulty:
			v.Spares = append(v.Spares, m.Dev)
			continue
		case int(role) < fresh.RaidDisks && stale:
			v.Notes = append(v.Notes, fmt.Sprintf("%s is out of date (event %d, the array is at %d)", m.Dev, m.SB.Events, fresh.Events))
			continue // mdadm would leave it out too
		case int(role) < fresh.RaidDisks && m.SB.Features&md.FeatureRecovery != 0:
			if dirty && fresh.Level == 10 {
				v.Notes = append(v.Notes, m.Dev+" was being rebuilt: the crash makes that begin anew")
				v.Anew = append(v.Anew, m.Dev)
				continue
			}
			v.Notes = append(v.Notes, m.Dev+" is being rebuilt")
		case int(role) < fresh.RaidDisks:
			if slot[role] {
				return v, refusal.New("same-slot", refusal.Args{"array": a.Name, "slot": role, "device": m.Dev})
			}
			slot[role] = true
			v.Slots[role] = m
			filled++
		default:
			// Its superblock may end but one event before that: the kernel would take it.
			v.Notes = append(v.Notes, m.Dev+" was thrown out of the array")
			continue
		}
		v.Members = append(v.Members, m.Dev)
	}
	sort.Strings(v.Members)
	v.Missing = fresh.RaidDisks - filled
	v.Awaited = awaited(fresh, usable)
	if md.CanLose(fresh.Level, fresh.Layout, slot) < 0 {
		return v, refusal.New("too-few", refusal.Args{"array": a.Name, "missing": v.Missing, "members": fresh.RaidDisks, "level": fresh.Level,
			"notes": strings.Join(v.Notes, "; ")})
	}
	parity := fresh.Level >= 4 && fresh.Level <= 6
	if v.Missing > 0 && parity && dirty && fresh.Features&md.FeaturePPL == 0 {
		if policy != "start" {
			mend := ""
			if len(v.Awaited) > 0 {
				mend = "; connect the missing disks"
			}
			v.Doubt = fmt.Errorf("array %s was being written when its server died and lacks %d of %d members%s: blocks of the missing members may be rebuilt wrong%s",
				a.Name, v.Missing, fresh.RaidDisks, because(v.Notes), mend)
		}
		v.DirtyDegraded = true
	}
	return v, nil
}

// awaited are the numbers of the devices that have a slot of the array by its newest
// superblock, and are not among these.
func awaited(newest *md.Superblock, here []Member) (out []int) {
	for number, role := range newest.Roles {
		if int(role) < newest.RaidDisks && !slices.ContainsFunc(here, func(m Member) bool { return int(m.SB.DevNumber) == number && m.SB.Slot() >= 0 }) {
			out = append(out, number)
		}
	}
	return out
}

func because(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}
