package cache

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// Label is the record of the SSDs on the disks. At a start it decides which data on
// the SSDs is valid: which arrays belong to the cache, and which SSDs hold the newest
// dirty data.
//
// There are two copies, at 1 and 2 MiB of the header volume, written in turn. Each is
// one block of 4 KiB with magic, length, CRC32C and JSON.
type Label struct {
	Sequence int64 `json:"sequence"` // of writes of the label
	// Generation counts the arrays made; it selects the UUID of the next one.
	Generation int `json:"generation"`
	// SSDs are the partitioned SSDs; Split: with a partition for dirty data.
	SSDs  []string `json:"ssds"`
	Split bool     `json:"split"`
	// Dirty and Clean are the layers; a layer without an entry passes all I/O
	// through. Clean is by the server with the SSDs inside, "" if all servers reach
	// them.
	Dirty *Layer            `json:"dirty,omitempty"`
	Clean map[string]*Layer `json:"clean,omitempty"`
	// Open: the stack is up, or went down without a stop, or a layer had lost its
	// set at the stop. See trusted.
	Open bool `json:"open,omitempty"`
}

// sameParts reports whether two labels have the same SSDs, arrays and sets, which only a
// change of the cache changes. A nil label has none.
func (l *Label) sameParts(other *Label) bool {
	parts := func(l *Label) string {
		var p Label
		if l != nil {
			p = *l
		}
		p.Sequence, p.Open = 0, false
		if p.Dirty != nil {
			d := *p.Dirty
			d.Members = nil
			p.Dirty = &d
		}
		b, err := json.Marshal(p)
		if err != nil {
			panic(err) // a struct of strings and numbers
		}
		return string(b)
	}
	return parts(l) == parts(other)
}

// Layer is one bcache set and the array it is on.
type Layer struct {
	Array string `json:"array"` // md UUID
	Set   string `json:"set"`   // bcache set UUID
	// Members are serials. Of the dirty layer: the members in sync at the last
	// look; an SSD that left the mirror holds old data.
	Members []string `json:"members"`
}

const (
	labelMagic = "mortar cache\x00\x00\x00\x01"
	labelSize  = 4096
)

var labelOffsets = [2]int64{1 << 20, 2 << 20}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (l *Label) encode() ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	b := make([]byte, labelSize)
	n := copy(b, labelMagic)
	if n+8+len(text) > len(b) {
		return nil, fmt.Errorf("label of %d bytes is too long", len(text))
	}
	binary.LittleEndian.PutUint32(b[n:], uint32(len(text)))
	binary.LittleEndian.PutUint32(b[n+4:], crc32.Checksum(text, castagnoli))
	copy(b[n+8:], text)
	return b, nil
}

// errNoLabel: there is no label, as on a volume that never had a cache.
var errNoLabel = errors.New("no label of a cache")

func decodeLabel(b []byte) (*Label, error) {
	n := len(labelMagic)
	if len(b) < n+8 || string(b[:n]) != labelMagic {
		return nil, errNoLabel
	}
	size := binary.LittleEndian.Uint32(b[n:])
	if uint64(size) > uint64(len(b)-n-8) {
		return nil, fmt.Errorf("label of %d bytes is damaged", size)
	}
	text := b[n+8 : n+8+int(size)]
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(b[n+4:]) {
		return nil, errors.New("label is damaged: wrong checksum")
	}
	var l Label
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("label: %w", err)
	}
	return &l, nil
}

// newest returns the later one of the undamaged copies of the label. It is an error if
// both are damaged, since the content of the SSDs is unknown then.
func newest(a, b []byte) (*Label, error) {
	la, ea := decodeLabel(a)
	lb, eb := decodeLabel(b)
	switch {
	case ea == nil && eb == nil:
		if lb.Sequence > la.Sequence {
			return lb, nil
		}
		return la, nil
	case ea == nil:
		return la, nil
	case eb == nil:
		return lb, nil
	case errors.Is(ea, errNoLabel) && errors.Is(eb, errNoLabel):
		return nil, errNoLabel
	}
	if errors.Is(ea, errNoLabel) {
		return nil, eb
	}
	return nil, ea
}

// superblock has the needed fields of bcache's superblock on a backing device.
// Source: bcache_ondisk.h of the kernel, struct cache_sb_disk, BDEV_STATE.
type superblock struct {
	Set   [16]byte
	State int
}

// States of a backing device.
const (
	stateNone  = 0 // never attached, or detached
	stateClean = 1
	stateDirty = 2
	stateStale = 3 // ran without its cache
)

// trusted reports for each layer whether its set is valid when the stack comes up
// again. If a set without dirty data fails, its device goes on without the set, and
// bcache does not record that. If the SSDs come back, bcache would answer reads with
// stale data.
//
//   - After a stop with every set in use, both sets are valid.
//   - A dirty layer with dirty data is valid: bcache stops the device rather than
//     bypass a dirty set.
//   - In that case the mirror as a whole has not failed. It also shows which SSD
//     failed: md counts an event on the other members before a write goes on. If no
//     SSD failed, the clean layer is valid too.
//
// witness: every SSD of the clean layer has a member of the mirror that did not fail.
func trusted(open bool, dirtyState int, witness bool) (clean, dirty bool) {
	if !open {
		return true, true
	}
	return dirtyState == stateDirty && witness, dirtyState == stateDirty
}

var bcacheMagic = []byte{0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81}

func parseSuperblock(b []byte) (*superblock, error) {
	if len(b) < 112 || !slices.Equal(b[24:40], bcacheMagic) {
		return nil, errors.New("no superblock of bcache")
	}
	sb := &superblock{State: int(binary.LittleEndian.Uint64(b[104:]) >> 61 & 3)}
	copy(sb.Set[:], b[56:72])
	return sb, nil
}
