package stream

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"

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

// maxCandidates bounds the undecided generations to try on a sector without a
// valid tag.
const maxCandidates = 64

// A sector of random data differs from the expected one in 2048 of 4096 bits,
// with a standard deviation of 32. With fewer differences than maxFlipped it is
// the expected sector, damaged.
const maxFlipped = SectorSize * 8 / 8

// damaged classifies the eight sectors one by one.
func (s *Stream) damaged(b []byte, block uint64, e Expect, others []Stream) Finding {
	var (
		sectors = make([]Sector, Sectors)
		unknown []int
		cand    []uint32
		want    [BlockSize]byte
		strayed *Stream // the stream of the misplaced sectors
		foreign *Header
	)
	addCand := func(g uint32) {
		if g == 0 {
			return
		}
		for _, c := range cand {
			if c == g {
				return
			}
		}
		cand = append(cand, g)
	}
	expect := func(gen uint32) []byte {
		generate(want[:], s.seed(block, gen), block, gen)
		return want[:]
	}
	for i := range sectors {
		sec, got := b[i*SectorSize:(i+1)*SectorSize], &sectors[i]
		if bytes.Equal(sec, zeros[:SectorSize]) {
			got.State = "zero"
			continue
		}
		if i == 0 {
			h, err := decodeHeader(b)
			switch {
			case err != nil:
				unknown = append(unknown, i)
			case h.Run != s.Run:
				*got = Sector{State: "other", Generation: h.Generation, FromBlock: h.Block}
				foreign = &h
			case h.Stream != s.ID || h.Block != block:
				*got = Sector{State: "other", Generation: h.Generation, FromBlock: h.Block}
				st := NewStream(s.Run, h.Stream)
				strayed = &st
			default:
				*got = Sector{State: "data", Generation: h.Generation}
				got.FlippedBits = differing(sec[headerSize:], expect(h.Generation)[headerSize:SectorSize])
				addCand(h.Generation)
			}
			continue
		}
		gen, low := binary.LittleEndian.Uint32(sec), binary.LittleEndian.Uint32(sec[4:])
		check := binary.LittleEndian.Uint64(sec[8:])
		switch {
		case low == uint32(block) && check == tagCheck(s.seed(block, gen), i):
			*got = Sector{State: "data", Generation: gen}
			got.FlippedBits = differing(sec, expect(gen)[i*SectorSize:(i+1)*SectorSize])
			addCand(gen)
		case check == tagCheck(s.seed(uint64(low), gen), i):
			*got = Sector{State: "other", Generation: gen, FromBlock: uint64(low)}
			strayed = s
		default:
			for j := range others {
				if check == tagCheck(others[j].seed(uint64(low), gen), i) {
					*got = Sector{State: "other", Generation: gen, FromBlock: uint64(low)}
					strayed = &others[j]
				}
			}
			if got.State == "" {
				unknown = append(unknown, i)
			}
		}
	}
	addCand(e.Acked)
	for g := e.Issued; g > e.Acked && e.Issued-g < maxCandidates; g-- {
		addCand(g)
	}
	best := make([]int, Sectors)
	for _, g := range cand {
		w := expect(g)
		for _, i := range unknown {
			sec := b[i*SectorSize : (i+1)*SectorSize]
			var n int
			if i == 0 {
				n = differing(sec[headerSize:], w[headerSize:SectorSize])
			} else {
				n = differing(sec, w[i*SectorSize:(i+1)*SectorSize])
			}
			if n <= maxFlipped && (sectors[i].State == "" || n < best[i]) {
				best[i] = n
				sectors[i] = Sector{State: "data", Generation: g, FlippedBits: n}
			}
		}
	}
	for _, i := range unknown {
		switch {
		case sectors[i].State == "":
			sectors[i].State = "garbage"
		case i == 0:
			sectors[i].FlippedBits += s.headerFlips(b, expect(sectors[i].Generation), block, sectors[i].Generation)
		}
	}

	f := Finding{Sectors: sectors}
	var data, zero, other, garbage int
	uniform, allowed := true, true
	for i := range sectors {
		sec := &sectors[i]
		f.Flipped += sec.FlippedBits
		switch sec.State {
		case "data":
			data++
			if f.Generation == 0 {
				f.Generation = sec.Generation
			}
			uniform = uniform && sec.Generation == f.Generation
			f.Generation = min(f.Generation, sec.Generation)
			allowed = allowed && sec.FlippedBits == 0 && sec.Generation >= e.Acked && sec.Generation <= e.Issued
		case "zero":
			zero++
			allowed = allowed && e.Acked == 0 && e.Issued > 0
		case "other":
			other++
			uniform = uniform && sec.FromBlock == sectors[0].FromBlock && sec.Generation == sectors[0].Generation
			allowed = false
		default:
			garbage++
			allowed = false
		}
	}
	f.Bad, f.Lost = !allowed, !allowed && e.Acked > 0
	switch {
	case foreign != nil && data == 0:
		f.Class, f.Run, f.FromStream, f.FromBlock = Foreign, foreign.Run, foreign.Stream, foreign.Block
	case other == Sectors && uniform && strayed != nil:
		// All sectors are of one generation, and still Decode refused the block.
		f.Class, f.FromStream, f.FromBlock, f.Generation = Misplaced, strayed.ID, sectors[0].FromBlock, sectors[0].Generation
	case data > 0 && (!uniform || zero > 0 || other > 0):
		f.Class = Torn
	case zero > 0 && other > 0:
		f.Class = Torn
	default:
		f.Class = Corrupt
		// Every sector may be right and only the payload checksum in the header
		// wrong, while the header's own checksum is valid.
		f.Flipped = max(f.Flipped, 1)
		if garbage > 0 && data == 0 {
			f.Flipped = 0 // the flipped bits cannot be counted
		}
		f.Bad, f.Lost = true, e.Acked > 0
	}
	return f
}

// headerFlips counts the flipped bits of a damaged header whose block and
// generation are known. want is the block as generated. Sequence and writer are
// unknown, so headerFlips tries to flip each of their bits: it finds one flipped
// bit exactly, and counts several as one.
func (s *Stream) headerFlips(got, want []byte, block uint64, gen uint32) int {
	var ref [headerSize]byte
	copy(ref[:], magic)
	ref[7] = Version
	copy(ref[8:24], s.Run[:])
	binary.LittleEndian.PutUint32(ref[24:], s.ID)
	copy(ref[28:32], got[28:32])
	binary.LittleEndian.PutUint64(ref[32:], block)
	binary.LittleEndian.PutUint32(ref[40:], gen)
	copy(ref[48:56], got[48:56])
	binary.LittleEndian.PutUint64(ref[56:], xxh3.Hash(want[headerSize:BlockSize]))
	n := differing(got[:68], ref[:68])
	crc := binary.LittleEndian.Uint32(got[68:])
	if crc32.Checksum(ref[:68], castagnoli) == crc {
		return n
	}
	for _, field := range [][2]int{{28, 32}, {48, 56}} {
		for bit := field[0] * 8; bit < field[1]*8; bit++ {
			ref[bit/8] ^= 1 << (bit % 8)
			match := crc32.Checksum(ref[:68], castagnoli) == crc
			ref[bit/8] ^= 1 << (bit % 8)
			if match {
				return n + 1
			}
		}
	}
	if k := bits.OnesCount32(crc32.Checksum(ref[:68], castagnoli) ^ crc); k <= 2 {
		return n + k // in the checksum itself
	}
	return n + 1
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
