package md

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Bitmap is what the head of a write-intent bitmap says of it.
// Source: bitmap_super_t in drivers/md/md-bitmap.h.
type Bitmap struct {
	UUID   string // of the array, 32 hex digits
	Events uint64 // of the array, when the bitmap was last written
	Chunk  int64  // bytes of each member that a bit stands for
	Size   int64  // bytes of each member
	// Lost: a write to the bitmap has failed, or it was left behind; its bits say nothing.
	Lost bool
}

const (
	bitmapMagic = 0x6d746962 // "bitm"
	// bitmapHead is where the bits begin.
	bitmapHead = 256
	// Bits of the state: stale, write error.
	bitmapLost = 1<<1 | 1<<2
)

// ParseBitmap reads the head of a bitmap. Of the versions only that is known
// whose bits are in the order of bytes, which mdadm makes; that of clusters has
// several bitmaps.
func ParseBitmap(b []byte) (*Bitmap, error) {
	le := binary.LittleEndian
	if len(b) < bitmapHead || le.Uint32(b) != bitmapMagic {
		return nil, errors.New("no write-intent bitmap")
	}
	const known = 4
	if v := le.Uint32(b[4:]); v != known {
		return nil, fmt.Errorf("a write-intent bitmap of version %d", v)
	}
	m := &Bitmap{UUID: hex.EncodeToString(b[8:24]), Events: le.Uint64(b[24:]), Size: int64(le.Uint64(b[40:])) * sector,
		Chunk: int64(le.Uint32(b[52:])), Lost: le.Uint32(b[48:])&bitmapLost != 0}
	if m.Chunk < 4096 || m.Chunk&(m.Chunk-1) != 0 || m.Size <= 0 || m.Size/m.Chunk > 1<<31 {
		return nil, fmt.Errorf("a write-intent bitmap with chunks of %d for %d bytes", m.Chunk, m.Size)
	}
	return m, nil
}

// Bytes is how long the bitmap is with its head.
func (m *Bitmap) Bytes() int64 { return bitmapHead + (m.chunks()+7)/8 }

func (m *Bitmap) chunks() int64 { return (m.Size + m.Chunk - 1) / m.Chunk }

// Dirty tells of a bitmap's bytes whether a chunk may differ between members.
func (m *Bitmap) Dirty(b []byte, chunk int64) bool {
	return b[bitmapHead+chunk/8]&(1<<(chunk%8)) != 0
}

// Dirtied lists the parts of each member, from and to in bytes, that any of
// several copies of the bitmap calls dirty.
func (m *Bitmap) Dirtied(copies ...[]byte) (parts [][2]int64) {
	for c := range m.chunks() {
		dirty := false
		for _, b := range copies {
			dirty = dirty || m.Dirty(b, c)
		}
		from, to := c*m.Chunk, min((c+1)*m.Chunk, m.Size)
		switch n := len(parts); {
		case !dirty:
		case n > 0 && parts[n-1][1] == from:
			parts[n-1][1] = to
		default:
			parts = append(parts, [2]int64{from, to})
		}
	}
	return parts
}
