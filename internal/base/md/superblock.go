package md

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Superblock is what a member of an array says of it, in version 1.2.
// Source: struct mdp_superblock_1 in linux/raid/md_p.h.
type Superblock struct {
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
	Chunk      int64 // bytes
	Size       int64 // bytes of each member that are used
	// Data and Bitmap are where these begin, bytes from the member's start; a
	// Bitmap of 0: there is none.
	Data, Bitmap int64
}

// Where a superblock of version 1.2 is, bytes from the start of the member, and
// what it begins with.
const (
	SuperblockOffset = 4096
	SuperblockSize   = 4096
	SuperblockMagic  = 0xa92b4efc
)

// sector is the unit of superblocks and bitmaps, bytes.
const sector = 512

// Features of a superblock.
const (
	FeatureBitmap   = 0x01  // there is a write-intent bitmap
	FeatureRecovery = 0x02  // this member is being rebuilt
	FeatureReshape  = 0x04  // the array's geometry is being changed
	FeatureJournal  = 0x200 // writes go through a journal first
	FeaturePPL      = 0x400 // partial parity log
)

// Roles of members that are in no slot. md gives one that it has thrown out RoleFaulty
// for as long as it lists the member, and RoleSpare after that.
// Source: linux/raid/md_p.h; super_1_sync in drivers/md/md.c
const (
	RoleSpare  = 0xffff
	RoleFaulty = 0xfffe
)

// Slot is where a member says that it is in the array; -1: it is a spare.
func (s *Superblock) Slot() int {
	const most = 0xff00 // Source: linux/raid/md_p.h, MD_DISK_ROLE_MAX
	if int(s.DevNumber) >= len(s.Roles) || s.Roles[s.DevNumber] > most {
		return -1
	}
	return int(s.Roles[s.DevNumber])
}

// Stale tells whether a member at an event is out of date, by the newest event
// of its array. The kernel accepts a difference of one: the array died between
// two members' superblock writes. Source: drivers/md/md.c, super_1_validate
func Stale(event, newest uint64) bool { return event+1 < newest }

var errNoSuperblock = errors.New("no md superblock of version 1.2")

// ParseSuperblock reads the 4 KiB at SuperblockOffset of a member.
func ParseSuperblock(b []byte) (*Superblock, error) {
	le := binary.LittleEndian
	if len(b) < SuperblockSize || le.Uint32(b) != SuperblockMagic || le.Uint32(b[4:]) != 1 {
		return nil, errNoSuperblock
	}
	maxDev := int(le.Uint32(b[220:]))
	if maxDev > (SuperblockSize-256)/2 {
		return nil, errors.New("md superblock with an impossible number of devices")
	}
	if got, want := SuperblockSum(b[:256+2*maxDev]), le.Uint32(b[216:]); got != want {
		return nil, fmt.Errorf("md superblock with a wrong checksum (%08x, should be %08x)", want, got)
	}
	sb := &Superblock{
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
		Chunk:      int64(le.Uint32(b[88:])) * sector,
		Size:       int64(le.Uint64(b[80:])) * sector,
		Data:       int64(le.Uint64(b[128:])) * sector,
	}
	if sb.Features&FeatureBitmap != 0 {
		sb.Bitmap = SuperblockOffset + int64(int32(le.Uint32(b[96:])))*sector
	}
	for i := range sb.Roles {
		sb.Roles[i] = le.Uint16(b[256+2*i:])
	}
	return sb, nil
}

// SuperblockSum is the checksum over a superblock, its own field taken as 0.
// Source: calc_sb_1_csum in drivers/md/md.c.
func SuperblockSum(b []byte) uint32 {
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

// ParseExamine reads `mdadm --examine`, by device: UUID, events, features and slot.
func ParseExamine(text string) map[string]*Superblock {
	m := map[string]*Superblock{}
	var sb *Superblock
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "/") {
			sb = &Superblock{}
			m[strings.TrimSuffix(strings.TrimSpace(line), ":")] = sb
			continue
		}
		k, v, ok := strings.Cut(strings.TrimSpace(line), " : ")
		if !ok || sb == nil {
			continue
		}
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(k) {
		case "Array UUID":
			sb.UUID = Hex(v)
		case "Feature Map":
			features, _ := strconv.ParseUint(strings.TrimPrefix(v, "0x"), 16, 32)
			sb.Features = uint32(features)
		case "Events":
			sb.Events, _ = strconv.ParseUint(v, 10, 64)
		case "Device Role":
			if slot, err := strconv.ParseUint(strings.TrimPrefix(v, "Active device "), 10, 16); err == nil {
				sb.Roles = []uint16{uint16(slot)}
			}
		}
	}
	return m
}
