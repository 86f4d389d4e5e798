package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

func TestEncodeDecode(t *testing.T) {
	s := NewStream(NewRunID("run"), 7)
	b := make([]byte, BlockSize)
	for i := range 200 {
		block, gen, seq := rand.Uint64N(1<<32), rand.Uint32(), rand.Uint64()
		s.Encode(b, block, gen, seq, 9)
		h, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Header{Run: s.Run, Stream: 7, Writer: 9, Block: block, Generation: gen, Sequence: seq}); h != want {
			t.Fatalf("%d: %+v, want %+v", i, h, want)
		}
	}
}

// The format must not change unnoticed: ledgers and blocks outlive programs.
func TestFormatIsStable(t *testing.T) {
	s := NewStream(NewRunID("golden"), 1)
	b := make([]byte, BlockSize)
	s.Encode(b, 2, 3, 4, 5)
	const header = "4d4f5254415242024adcd23195f3be6e6908bf15edcf9faa" + "0100000005000000" + "0200000000000000" + "0300000000000000" + "0400000000000000"
	if got := hex.EncodeToString(b[:56]); got != header {
		t.Errorf("header\n%s, want\n%s", got, header)
	}
	if got, want := xxh3.Hash(b), uint64(0x8eb449ad67374cf9); got != want {
		t.Errorf("block hashes to %#x, want %#x", got, want)
	}
}

func TestBlocksDiffer(t *testing.T) {
	a, b := make([]byte, BlockSize), make([]byte, BlockSize)
	s := NewStream(NewRunID("run"), 1)
	s.Encode(a, 5, 6, 1, 1)
	other := NewStream(NewRunID("run2"), 1)
	for name, enc := range map[string]func(){
		"generation": func() { s.Encode(b, 5, 7, 1, 1) },
		"block":      func() { s.Encode(b, 6, 6, 1, 1) },
		"stream":     func() { o := NewStream(s.Run, 2); o.Encode(b, 5, 6, 1, 1) },
		"run":        func() { other.Encode(b, 5, 6, 1, 1) },
	} {
		enc()
		// Independent random bits differ in half of all places.
		if n := differing(a[headerSize:], b[headerSize:]); n < 15000 || n > 17200 {
			t.Errorf("another %s: %d of %d bits differ", name, n, (BlockSize-headerSize)*8)
		}
		for i := range Sectors {
			if bytes.Equal(a[i*SectorSize:(i+1)*SectorSize], b[i*SectorSize:(i+1)*SectorSize]) {
				t.Errorf("another %s: sector %d is the same", name, i)
			}
		}
	}
	// No word repeats within a block, except the plain numbers in the tags.
	seen := map[uint64]bool{}
	for i := 0; i+8 <= BlockSize; i += 8 {
		if i%SectorSize == 0 {
			continue
		}
		w := binary.LittleEndian.Uint64(a[i:])
		if seen[w] {
			t.Errorf("word %#x repeats", w)
		}
		seen[w] = true
	}
}

func TestDecodeRefuses(t *testing.T) {
	s := NewStream(NewRunID("run"), 1)
	good := make([]byte, BlockSize)
	s.Encode(good, 1, 1, 1, 1)
	for _, tc := range []struct {
		name string
		edit func([]byte) []byte
		want error
	}{
		{"short", func(b []byte) []byte { return b[:BlockSize-1] }, ErrSize},
		{"long", func(b []byte) []byte { return append(b, 0) }, ErrSize},
		{"zeros", func(b []byte) []byte { return make([]byte, BlockSize) }, ErrMagic},
		{"magic", func(b []byte) []byte { b[0] ^= 1; return b }, ErrMagic},
		{"header bit", func(b []byte) []byte { b[40] ^= 4; return b }, ErrHeader},
		{"version bit", func(b []byte) []byte { b[7] ^= 4; return b }, ErrHeader},
		{"later version", func(b []byte) []byte {
			b[7] = Version + 1
			binary.LittleEndian.PutUint32(b[68:], crc32.Checksum(b[:68], castagnoli))
			return b
		}, ErrVersion},
		{"payload bit", func(b []byte) []byte { b[4095] ^= 128; return b }, ErrPayload},
	} {
		if _, err := Decode(tc.edit(bytes.Clone(good))); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	s := NewStream(NewRunID("run"), 1)
	b := make([]byte, BlockSize)
	if n := testing.AllocsPerRun(100, func() { s.Encode(b, 1, 2, 3, 4) }); n != 0 {
		t.Errorf("Encode allocates %g times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if f := s.Classify(b, 1, Expect{2, 2}); f.Class != OK {
			t.Fatal(f)
		}
	}); n != 0 {
		t.Errorf("Classify allocates %g times", n)
	}
}

func FuzzDecode(f *testing.F) {
	s := NewStream(NewRunID("run"), 1)
	b := make([]byte, BlockSize)
	f.Add(bytes.Clone(b), uint32(0), uint32(0))
	s.Encode(b, 3, 2, 1, 1)
	f.Add(bytes.Clone(b), uint32(2), uint32(2))
	b[0] ^= 1
	b[700] ^= 1
	f.Add(bytes.Clone(b), uint32(1), uint32(3))
	copy(b[512:], make([]byte, 512))
	f.Add(bytes.Clone(b), uint32(1), uint32(3))
	f.Add([]byte("x"), uint32(0), uint32(9))
	f.Fuzz(func(t *testing.T, in []byte, acked, issued uint32) {
		h, err := Decode(in)
		if err == nil && h.Run == s.Run && h.Stream == s.ID {
			// Only a block of Encode may pass; the fuzzer cannot find another.
			want := make([]byte, BlockSize)
			s.Encode(want, h.Block, h.Generation, h.Sequence, h.Writer)
			if !bytes.Equal(in, want) {
				t.Fatal("a block passes that was never written")
			}
		}
		if len(in) != BlockSize {
			if !errors.Is(err, ErrSize) {
				t.Fatal(err)
			}
			return
		}
		e := Expect{Acked: acked, Issued: max(acked, issued)}
		g := s.Classify(in, 3, e)
		if g.Lost && (e.Acked == 0 || !g.Bad) {
			t.Fatalf("%+v is lost with %+v", g, e)
		}
		if !g.Bad && g.Class != OK && g.Class != InDoubt && g.Class != Unwritten && g.Class != Torn {
			t.Fatalf("%+v is allowed", g)
		}
	})
}

// The fast check is as strict as Classify: it refuses any flipped bit, and any
// other run, stream, place or generation.
func TestHolds(t *testing.T) {
	s := NewStream(NewRunID("holds"), 3)
	b := make([]byte, BlockSize)
	s.Encode(b, 77, 5, 9, 2)
	if !s.Holds(b, 77, 5) {
		t.Fatal("a good block is refused")
	}
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if s.Holds(b, 77, 5) {
			t.Fatalf("bit %d flipped, and not found", bit)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	other, foreign := NewStream(NewRunID("holds"), 4), NewStream(NewRunID("other"), 3)
	if s.Holds(b, 78, 5) || s.Holds(b, 77, 4) || s.Holds(b, 77, 6) || s.Holds(b, 77, 0) || other.Holds(b, 77, 5) || foreign.Holds(b, 77, 5) || s.Holds(make([]byte, BlockSize), 0, 0) {
		t.Error("a block that does not belong there is taken for one that does")
	}
}

func BenchmarkGenerate(b *testing.B) {
	s := NewStream(NewRunID("bench"), 1)
	buf := linux.Aligned(1 << 20)
	b.SetBytes(int64(len(buf)))
	for n := uint32(1); b.Loop(); n++ {
		for i := range len(buf) / BlockSize {
			s.Encode(buf[i*BlockSize:], uint64(i), n, uint64(n), 1)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	s := NewStream(NewRunID("bench"), 1)
	buf := linux.Aligned(1 << 20)
	for i := range len(buf) / BlockSize {
		s.Encode(buf[i*BlockSize:], uint64(i), 1, 1, 1)
	}
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		for i := range len(buf) / BlockSize {
			if f := s.Classify(buf[i*BlockSize:], uint64(i), Expect{1, 1}); f.Class != OK {
				b.Fatal(f)
			}
		}
	}
}
