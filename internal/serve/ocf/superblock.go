package ocf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
)

// superblock is what the agent needs of an md superblock, version 1.2.
// Source: struct mdp_superblock_1 in linux/raid/md_p.h.
type superblock struct {
	UUID       string // 32 hex digits
	Name       string
	Level      int
	Layout     uint32
	RaidDisks  int
	Features   uint32
	DevNumber  uint32
	Events     uint64
	ResyncedTo uint64 // sector up to which the array is in sync; all ones: clean
	Roles      []uint16
}

const (
	superblockOffset = 4096 // of version 1.2: 4 KiB from the start of the member
	superblockSize   = 4096
	superblockMagic  = 0xa92b4efc

	featureRecovery = 0x02  // this member is being rebuilt
	featureJournal  = 0x200 // writes go through a journal first
	featurePPL      = 0x400 // partial parity log

	roleSpare = 0xffff
)

var errNoSuperblock = errors.New("no md superblock of version 1.2")

// parseSuperblock reads the 4 KiB at superblockOffset of a member.
func parseSuperblock(b []byte) (*superblock, error) {
	le := binary.LittleEndian
	if len(b) < superblockSize || le.Uint32(b) != superblockMagic || le.Uint32(b[4:]) != 1 {
		return nil, errNoSuperblock
	}
	maxDev := int(le.Uint32(b[220:]))
	if maxDev > (superblockSize-256)/2 {
		return nil, errors.New("md superblock with an impossible number of devices")
	}
	if got, want := superblockSum(b[:256+2*maxDev]), le.Uint32(b[216:]); got != want {
		return nil, fmt.Errorf("md superblock with a wrong checksum (%08x, should be %08x)", want, got)
	}
	sb := &superblock{
		UUID:       hex.EncodeToString(b[16:32]),
		Name:       string(bytes.TrimRight(b[32:64], "\x00")),
		Level:      int(int32(le.Uint32(b[72:]))),
		Layout:     le.Uint32(b[76:]),
		RaidDisks:  int(le.Uint32(b[92:])),
		Features:   le.Uint32(b[8:]),
		DevNumber:  le.Uint32(b[160:]),
		Events:     le.Uint64(b[200:]),
		ResyncedTo: le.Uint64(b[208:]),
		Roles:      make([]uint16, maxDev),
	}
	for i := range sb.Roles {
		sb.Roles[i] = le.Uint16(b[256+2*i:])
	}
	return sb, nil
}

// superblockSum is the checksum over a superblock, its own field taken as 0.
// Source: calc_sb_1_csum in drivers/md/md.c.
func superblockSum(b []byte) uint32 {
	le := binary.LittleEndian
	var sum uint64
	i := 0
	for ; i+4 <= len(b); i += 4 {
		if i != 216 {
			sum += uint64(le.Uint32(b[i:]))
		}
	}
	if i+2 <= len(b) {
		sum += uint64(le.Uint16(b[i:]))
	}
	return uint32(sum) + uint32(sum>>32)
}

// member is one device of an array and what was found on it.
type member struct {
	Dev string
	SB  *superblock
	Err error // why SB is nil
}

// verdict is how an array may be started.
type verdict struct {
	Members       []string // devices to hand to mdadm
	Missing       int      // members short of the full number
	DirtyDegraded bool     // the kernel has to be told to start it nevertheless
	Notes         []string // what an administrator should know
}

// judge decides from the superblocks of all reachable members whether an
// array may be started. It is as strict as the kernel and mdadm without
// --force, but says why, and before anything is changed.
func judge(a Array, members []member, policy string) (verdict, error) {
	var v verdict
	var fresh *superblock
	want := md.Hex(a.UUID)
	var usable []member
	for _, m := range members {
		switch {
		case m.SB == nil:
			v.Notes = append(v.Notes, fmt.Sprintf("%s: %v", m.Dev, m.Err))
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
		return v, fmt.Errorf("array %s: none of its %d members was found%s", a.Name, len(members), because(v.Notes))
	}
	slot := make([]bool, fresh.RaidDisks)
	filled := 0
	for _, m := range usable {
		role := uint16(roleSpare)
		if int(m.SB.DevNumber) < len(fresh.Roles) {
			role = fresh.Roles[m.SB.DevNumber]
		}
		// The kernel accepts a difference of one: the array died between two
		// members' superblock writes.
		stale := m.SB.Events+1 < fresh.Events
		switch {
		case int(role) < fresh.RaidDisks && stale:
			v.Notes = append(v.Notes, fmt.Sprintf("%s is out of date (event %d, the array is at %d)", m.Dev, m.SB.Events, fresh.Events))
			continue // mdadm would leave it out too
		case int(role) < fresh.RaidDisks && m.SB.Features&featureRecovery != 0:
			v.Notes = append(v.Notes, m.Dev+" is being rebuilt")
		case int(role) < fresh.RaidDisks:
			if slot[role] {
				return v, fmt.Errorf("array %s: two devices claim its slot %d, one of them %s: is a disk a copy of another?", a.Name, role, m.Dev)
			}
			slot[role] = true
			filled++
		case role != roleSpare && stale:
			v.Notes = append(v.Notes, m.Dev+" was thrown out of the array")
			continue
		}
		v.Members = append(v.Members, m.Dev)
	}
	sort.Strings(v.Members)
	v.Missing = fresh.RaidDisks - filled
	if md.CanLose(fresh.Level, fresh.Layout, slot) < 0 {
		return v, fmt.Errorf("array %s: %d of %d members are missing, more than RAID %d can lose%s; see that its disks are connected and powered",
			a.Name, v.Missing, fresh.RaidDisks, fresh.Level, because(v.Notes))
	}
	parity := fresh.Level >= 4 && fresh.Level <= 6
	dirty := fresh.ResyncedTo != math.MaxUint64
	if v.Missing > 0 && parity && dirty && fresh.Features&(featureJournal|featurePPL) == 0 {
		if policy != "start" {
			return v, fmt.Errorf("array %s was being written when its server died and lacks %d of %d members%s: blocks of the missing members may be rebuilt wrong; "+
				"connect the missing disks, or accept that with \"dirty_degraded\": \"start\" in the agent's config",
				a.Name, v.Missing, fresh.RaidDisks, because(v.Notes))
		}
		v.DirtyDegraded = true
	}
	return v, nil
}

func because(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}
