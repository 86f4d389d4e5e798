// Package stream has self-describing data and its ledger. Every 4 KiB block
// names its run, stream (file), block number, generation and writer. Its payload
// can be regenerated from these, and every sector carries a keyed tag. So Verify
// can classify any block found on disk: stale, misplaced, torn, of another run,
// corrupt in so many bits. The ledger records the writes issued and
// acknowledged; Verify compares the blocks with the ledger. The package decides
// nothing about I/O (which flags, when to sync, what to do after an error) and
// knows no network or host.
//
// Its speed, with and without a file: lab/engine.md.
package stream

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// The geometry of a block, in bytes.
const (
	BlockSize  = 4096
	SectorSize = 512
	Sectors    = BlockSize / SectorSize

	headerSize = 72
	tagSize    = 16
)

// Version is the version of the block format.
const Version = 2

// A header, little endian:
//
//	 0  magic "MORTARB" and version (1 byte)
//	 8  run id (16)
//	24  stream id (4)
//	28  writer (4)
//	32  block number (8)
//	40  generation (4)
//	44  reserved, zero (4)
//	48  write sequence (8)
//	56  XXH3 of the payload, bytes 72 to 4095 (8)
//	64  reserved, zero (4)
//	68  CRC32C of bytes 0 to 67 (4)
//
// Each further sector begins with a tag:
//
//	0  generation (4)
//	4  low half of the block number (4)
//	8  check, keyed by run, stream, block, generation and sector (8)
//
// and every other byte comes from the generator.
const magic = "MORTARB"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RunID names a run in its blocks.
type RunID [16]byte

// NewRunID makes the id of a run out of its name (128 bits of XXH3).
func NewRunID(name string) RunID { return xxh3.HashString128(name).Bytes() }

func (r RunID) String() string { return hex.EncodeToString(r[:]) }

// Header is what a block says about itself.
type Header struct {
	Run        RunID
	Stream     uint32
	Writer     uint32
	Block      uint64 // offset in the file / BlockSize
	Generation uint32 // of this block, from 1, never reused
	Sequence   uint64 // of the write among all writes of the stream
}

// The errors of Decode.
var (
	ErrSize    = errors.New("not a whole block")
	ErrMagic   = errors.New("no block header")
	ErrVersion = errors.New("unknown version of the block format")
	ErrHeader  = errors.New("header checksum does not match")
	ErrPayload = errors.New("payload checksum does not match")
)

// Stream writes and recognizes the blocks of one file of one run. It holds no
// state and may be used from any goroutine.
type Stream struct {
	Run RunID
	ID  uint32
	key uint64
}

// NewStream returns the stream of that id in a run.
func NewStream(run RunID, id uint32) Stream {
	var b [20]byte
	copy(b[:], run[:])
	binary.LittleEndian.PutUint32(b[16:], id)
	return Stream{Run: run, ID: id, key: xxh3.Hash(b[:])}
}

const (
	c0 = 0xa0761d6478bd642f
	c1 = 0xe7037ed1a0b428db
	c2 = 0x8ebc6af09c88c6e3
	c3 = 0x589965cc75374cc3

	mask = 1<<64 - 1
)

func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// seed keys the generator and the tags of one generation of one block.
func (s *Stream) seed(block uint64, gen uint32) uint64 {
	return mum(mum(s.key^c0, block^c1)^c2, uint64(gen)^c3) ^ s.key
}

func tagCheck(seed uint64, sector int) uint64 {
	return mum(seed^c3, uint64(sector)*c0^c2)
}

// pool has random words, the same in every program; payloads are pieces of it.
var pool = func() (p [poolSize]byte) {
	x := uint64(c0)
	for w := p[:]; len(w) > 0; w = w[8:] {
		x += c0 & mask
		binary.LittleEndian.PutUint64(w, mum(x, x^c1))
	}
	return p
}()

// The pool and a block fit into a core's first-level cache together.
const poolSize = 16<<10 + BlockSize

// generate fills b (one block) with the generator's words and the tags. The seed
// selects a piece of the pool and is combined with each word. That costs a third
// of computing each word, and storage can neither compress nor deduplicate the
// result. Any sector can be regenerated.
func generate(b []byte, seed, block uint64, gen uint32) {
	b = b[:BlockSize:BlockSize]
	from := seed % (poolSize - BlockSize) / 8 * 8
	p := pool[from:][:BlockSize:BlockSize]
	mix(b, p, seed)
	for i := 1; i < Sectors; i++ {
		t := b[i*SectorSize : i*SectorSize+tagSize]
		binary.LittleEndian.PutUint32(t[0:4], gen)
		binary.LittleEndian.PutUint32(t[4:8], uint32(block))
		binary.LittleEndian.PutUint64(t[8:16], tagCheck(seed, i))
	}
}

// mix combines a block of the pool with the seed. The race detector would make 1,024
// calls per block here, most of the time of the drills' tests. generate and putHeader
// write into each sector of b, where the race detector sees a race for the block.
//
//go:norace
func mix(b, p []byte, seed uint64) {
	b, p = b[:BlockSize:BlockSize], p[:BlockSize:BlockSize]
	for i := 0; i <= BlockSize-64; i += 64 {
		d, s := b[i:i+64:i+64], p[i:i+64:i+64]
		binary.LittleEndian.PutUint64(d[0:8], binary.LittleEndian.Uint64(s[0:8])^seed)
		binary.LittleEndian.PutUint64(d[8:16], binary.LittleEndian.Uint64(s[8:16])^seed)
		binary.LittleEndian.PutUint64(d[16:24], binary.LittleEndian.Uint64(s[16:24])^seed)
		binary.LittleEndian.PutUint64(d[24:32], binary.LittleEndian.Uint64(s[24:32])^seed)
		binary.LittleEndian.PutUint64(d[32:40], binary.LittleEndian.Uint64(s[32:40])^seed)
		binary.LittleEndian.PutUint64(d[40:48], binary.LittleEndian.Uint64(s[40:48])^seed)
		binary.LittleEndian.PutUint64(d[48:56], binary.LittleEndian.Uint64(s[48:56])^seed)
		binary.LittleEndian.PutUint64(d[56:64], binary.LittleEndian.Uint64(s[56:64])^seed)
	}
}

// Encode fills dst, one block, with generation gen of a block.
func (s *Stream) Encode(dst []byte, block uint64, gen uint32, seq uint64, writer uint32) {
	dst = dst[:BlockSize:BlockSize]
	generate(dst, s.seed(block, gen), block, gen)
	s.putHeader(dst, block, gen, seq, writer)
}

func (s *Stream) putHeader(dst []byte, block uint64, gen uint32, seq uint64, writer uint32) {
	h := dst[:headerSize:headerSize]
	copy(h, magic)
	h[7] = Version
	copy(h[8:24], s.Run[:])
	binary.LittleEndian.PutUint32(h[24:], s.ID)
	binary.LittleEndian.PutUint32(h[28:], writer)
	binary.LittleEndian.PutUint64(h[32:], block)
	binary.LittleEndian.PutUint32(h[40:], gen)
	binary.LittleEndian.PutUint32(h[44:], 0)
	binary.LittleEndian.PutUint64(h[48:], seq)
	binary.LittleEndian.PutUint64(h[56:], xxh3.Hash(dst[headerSize:BlockSize]))
	binary.LittleEndian.PutUint32(h[64:], 0)
	binary.LittleEndian.PutUint32(h[68:], crc32.Checksum(h[:68], castagnoli))
}

// decodeHeader reads the header alone.
func decodeHeader(b []byte) (h Header, err error) {
	b = b[:headerSize:headerSize]
	if string(b[:7]) != magic {
		return h, ErrMagic
	}
	if crc32.Checksum(b[:68], castagnoli) != binary.LittleEndian.Uint32(b[68:]) {
		return h, ErrHeader
	}
	// After the checksum, so that a flipped bit in the version counts as damage
	// and not as another version.
	if b[7] != Version {
		return h, ErrVersion
	}
	copy(h.Run[:], b[8:24])
	h.Stream = binary.LittleEndian.Uint32(b[24:])
	h.Writer = binary.LittleEndian.Uint32(b[28:])
	h.Block = binary.LittleEndian.Uint64(b[32:])
	h.Generation = binary.LittleEndian.Uint32(b[40:])
	h.Sequence = binary.LittleEndian.Uint64(b[48:])
	return h, nil
}

// Decode reads a block's header and checks header and payload against their
// checksums. It returns the header with ErrPayload too, and an empty header with
// any other error.
func Decode(b []byte) (Header, error) {
	if len(b) != BlockSize {
		return Header{}, ErrSize
	}
	h, err := decodeHeader(b)
	if err != nil {
		return h, err
	}
	if xxh3.Hash(b[headerSize:]) != binary.LittleEndian.Uint64(b[56:]) {
		return h, ErrPayload
	}
	return h, nil
}
