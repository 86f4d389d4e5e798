package stream

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"
)

// Expect is what the ledger allows of a block: the last acknowledged generation
// or a later issued one. Without an acknowledged generation the block may also
// be empty.
type Expect struct {
	Acked  uint32 // 0: none
	Issued uint32 // 0: none; never less than Acked
}

// Finding is the verdict on one block.
type Finding struct {
	Class      Class
	Lost       bool   // acknowledged data is gone
	Bad        bool   // not allowed, acknowledged or not
	Generation uint32 // the generation found; 0: none readable
	FromStream uint32 // misplaced
	FromBlock  uint64 // misplaced
	Run        RunID  // foreign
	Flipped    int    // corrupt, torn: bits that differ from what was written
	Sectors    []Sector
}

var zeros [BlockSize]byte

// Classify classifies b, one block read from the place of block. others are
// streams of the run whose sectors may be in b by mistake. Classify allocates
// memory only for damaged blocks.
func (s *Stream) Classify(b []byte, block uint64, e Expect, others ...Stream) Finding {
	b = b[:BlockSize:BlockSize]
	if s.Holds(b, block, e.Acked) {
		return Finding{Class: OK, Generation: e.Acked}
	}
	h, err := Decode(b)
	if err != nil {
		if (err == ErrMagic || err == ErrHeader) && bytes.Equal(b, zeros[:]) {
			return absent(Zero, e)
		}
		return s.damaged(b, block, e, others)
	}
	lost := e.Acked > 0
	switch {
	case h.Run != s.Run:
		return Finding{Class: Foreign, Lost: lost, Bad: true, Generation: h.Generation, FromStream: h.Stream, FromBlock: h.Block, Run: h.Run}
	case h.Stream != s.ID || h.Block != block:
		return Finding{Class: Misplaced, Lost: lost, Bad: true, Generation: h.Generation, FromStream: h.Stream, FromBlock: h.Block}
	case h.Generation > e.Issued:
		return Finding{Class: Impossible, Lost: lost, Bad: true, Generation: h.Generation}
	case h.Generation < e.Acked:
		return Finding{Class: Stale, Lost: true, Bad: true, Generation: h.Generation}
	case h.Generation == e.Acked:
		return Finding{Class: OK, Generation: h.Generation}
	}
	return Finding{Class: InDoubt, Generation: h.Generation}
}

// Holds reports whether b is undamaged, in its place and of that generation, as
// nearly every block is. It is faster than Classify, which handles all other
// blocks.
func (s *Stream) Holds(b []byte, block uint64, gen uint32) bool {
	h := b[:headerSize:headerSize]
	return binary.LittleEndian.Uint64(h[32:]) == block && binary.LittleEndian.Uint32(h[40:]) == gen && gen > 0 &&
		binary.LittleEndian.Uint32(h[24:]) == s.ID && h[7] == Version && string(h[:7]) == magic && RunID(h[8:24]) == s.Run &&
		crc32.Checksum(h[:68], castagnoli) == binary.LittleEndian.Uint32(h[68:]) &&
		xxh3.Hash(b[headerSize:BlockSize]) == binary.LittleEndian.Uint64(h[56:])
}

// absent is the finding for an empty block of class c.
func absent(c Class, e Expect) Finding {
	switch {
	case e.Acked > 0:
		return Finding{Class: c, Lost: true, Bad: true}
	case e.Issued > 0:
		return Finding{Class: InDoubt}
	}
	return Finding{Class: Unwritten}
}

// damage is a block of which Decode understands nothing as a whole.
type damage struct {
	s       *Stream
	b       []byte
	block   uint64
	sectors []Sector
	strayed *Stream // the stream of the misplaced sectors
	foreign *Header
	want    [BlockSize]byte
}

// damaged classifies the eight sectors one by one.
func (s *Stream) damaged(b []byte, block uint64, e Expect, others []Stream) Finding {
	d := &damage{s: s, b: b, block: block, sectors: make([]Sector, Sectors)}
	for i := range d.sectors {
		switch {
		case bytes.Equal(d.sector(i), zeros[:SectorSize]):
			d.sectors[i].State = "zero"
		case i == 0:
			d.header()
		default:
			d.tagged(i, others)
		}
	}
	return d.finding(e)
}

func (d *damage) sector(i int) []byte { return d.b[i*SectorSize : (i+1)*SectorSize] }

// found records that a sector is of this block, and in how many bits it differs from that,
// without the header.
func (d *damage) found(i int, gen uint32) {
	generate(d.want[:], d.s.seed(d.block, gen), d.block, gen)
	from, to := i*SectorSize, (i+1)*SectorSize
	if i == 0 {
		from = headerSize
	}
	d.sectors[i] = Sector{State: "data", Generation: gen, FlippedBits: differing(d.b[from:to], d.want[from:to])}
}

// header reads the first sector, which says itself what it is.
func (d *damage) header() {
	h, err := decodeHeader(d.b)
	if err == nil && h.Run == d.s.Run && h.Stream == d.s.ID && h.Block == d.block {
		d.found(0, h.Generation)
		return
	}
	if err != nil {
		d.sectors[0].State = "garbage"
		return
	}
	d.sectors[0] = Sector{State: "other", Generation: h.Generation, FromBlock: h.Block}
	if h.Run != d.s.Run {
		d.foreign = &h
		return
	}
	d.strayed = new(NewStream(d.s.Run, h.Stream))
}

// tagged reads one of the other sectors by its tag.
func (d *damage) tagged(i int, others []Stream) {
	sec := d.sector(i)
	gen, low, check := binary.LittleEndian.Uint32(sec), binary.LittleEndian.Uint32(sec[4:]), binary.LittleEndian.Uint64(sec[8:])
	if low == uint32(d.block) && check == tagCheck(d.s.seed(d.block, gen), i) {
		d.found(i, gen)
		return
	}
	of := d.s
	if check != tagCheck(d.s.seed(uint64(low), gen), i) {
		k := slices.IndexFunc(others, func(o Stream) bool { return check == tagCheck(o.seed(uint64(low), gen), i) })
		if k < 0 {
			d.sectors[i].State = "garbage"
			return
		}
		of = &others[k]
	}
	d.sectors[i], d.strayed = Sector{State: "other", Generation: gen, FromBlock: uint64(low)}, of
}

// finding sums the sectors up.
func (d *damage) finding(e Expect) Finding {
	f := Finding{Sectors: d.sectors}
	count := map[string]int{}
	uniform, allowed := true, true
	for _, sec := range d.sectors {
		f.Flipped += sec.FlippedBits
		count[sec.State]++
		switch sec.State {
		case "data":
			f.Generation = cmp.Or(f.Generation, sec.Generation)
			uniform = uniform && sec.Generation == f.Generation
			f.Generation = min(f.Generation, sec.Generation)
			allowed = allowed && sec.FlippedBits == 0 && sec.Generation >= e.Acked && sec.Generation <= e.Issued
		case "zero":
			allowed = allowed && e.Acked == 0 && e.Issued > 0
		case "other":
			uniform = uniform && sec.FromBlock == d.sectors[0].FromBlock && sec.Generation == d.sectors[0].Generation
			allowed = false
		default:
			allowed = false
		}
	}
	data, zero, other := count["data"], count["zero"], count["other"]
	f.Bad, f.Lost = !allowed, !allowed && e.Acked > 0
	switch {
	case d.foreign != nil && data == 0:
		f.Class, f.Run, f.FromStream, f.FromBlock = Foreign, d.foreign.Run, d.foreign.Stream, d.foreign.Block
	case other == Sectors && uniform && d.strayed != nil:
		// All sectors are of one generation, and still Decode refused the block.
		f.Class, f.FromStream, f.FromBlock, f.Generation = Misplaced, d.strayed.ID, d.sectors[0].FromBlock, d.sectors[0].Generation
	case data > 0 && (!uniform || zero > 0 || other > 0), zero > 0 && other > 0:
		f.Class = Torn
	default:
		f.Class = Corrupt
		if count["garbage"] == 0 {
			// Every sector may be right and only the payload checksum in the header
			// wrong, while the header's own checksum is valid.
			f.Flipped = max(f.Flipped, 1)
		}
		f.Bad, f.Lost = true, e.Acked > 0
	}
	return f
}

func differing(a, b []byte) int {
	n := 0
	for len(a) >= 8 && len(b) >= 8 {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(a) ^ binary.LittleEndian.Uint64(b))
		a, b = a[8:], b[8:]
	}
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}
