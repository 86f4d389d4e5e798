package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

func fakeNow() func() int64 {
	var t int64
	return func() int64 { t++; return t }
}

// brick is a file with its ledger, written as a workload writes it.
type brick struct {
	t      testing.TB
	f      *os.File
	l      *Ledger
	s      Stream
	writer uint32
}

func newBrick(t testing.TB, run string, id uint32) *brick {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := CreateLedger(filepath.Join(dir, "w.ledger"), LedgerHeader{Run: run, Worker: "w", Stream: id, Dir: dir, File: "data"}, fakeNow())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); l.Close() })
	return &brick{t, f, l, NewStream(NewRunID(run), id), id}
}

// ackedBytes counts the blocks with an acknowledged generation.
func ackedBytes(x *Index) (n int64) {
	for b := range x.Blocks() {
		if x.Expect(b).Acked > 0 {
			n += BlockSize
		}
	}
	return n
}

func (b *brick) encode(block uint64, gen uint32, seq uint64) []byte {
	buf := make([]byte, BlockSize)
	b.s.Encode(buf, block, gen, seq, b.writer)
	return buf
}

// issue records and writes n blocks and leaves them undecided.
func (b *brick) issue(block uint64, n uint32) (gen uint32, seq uint64) {
	b.t.Helper()
	gen, seq, err := b.l.Intent(block, n)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range uint64(n) {
		b.put(block+i, b.encode(block+i, gen, seq))
	}
	return gen, seq
}

func (b *brick) write(block uint64, n uint32) {
	b.t.Helper()
	_, seq := b.issue(block, n)
	if err := b.l.Ack(seq); err != nil {
		b.t.Fatal(err)
	}
}

// put writes bytes without the ledger, to plant a fault.
func (b *brick) put(block uint64, buf []byte) { b.putAt(int64(block)*BlockSize, buf) }

func (b *brick) putAt(off int64, buf []byte) {
	b.t.Helper()
	if _, err := b.f.WriteAt(buf, off); err != nil {
		b.t.Fatal(err)
	}
}

func (b *brick) get(block uint64) []byte {
	b.t.Helper()
	buf := make([]byte, BlockSize)
	if _, err := b.f.ReadAt(buf, int64(block)*BlockSize); err != nil {
		b.t.Fatal(err)
	}
	return buf
}

func (b *brick) verify(opt Options) *Report {
	b.t.Helper()
	x, err := ReadLedger(b.l.f.Name())
	if err != nil {
		b.t.Fatal(err)
	}
	st, err := b.f.Stat()
	if err != nil {
		b.t.Fatal(err)
	}
	opt.Path = "data"
	opt.NextData = func(off int64) (int64, int64, error) {
		start, err := unix.Seek(int(b.f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return st.Size(), st.Size(), nil
		}
		if err != nil {
			return 0, 0, err
		}
		end, err := unix.Seek(int(b.f.Fd()), start, unix.SEEK_HOLE)
		return start, end, err
	}
	r, err := Verify(context.Background(), b.f, st.Size(), x, opt)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.AcknowledgedBytes != r.VerifiedBytes+r.LostBytes {
		b.t.Errorf("acknowledged %d is not verified %d + lost %d", r.AcknowledgedBytes, r.VerifiedBytes, r.LostBytes)
	}
	if r.AcknowledgedBytes != ackedBytes(x) {
		b.t.Errorf("acknowledged %d, the ledger says %d", r.AcknowledgedBytes, ackedBytes(x))
	}
	var sum int64
	for _, n := range r.ByClass {
		sum += n
	}
	if want := max(int64(x.Blocks())*BlockSize, (st.Size()+BlockSize-1)/BlockSize*BlockSize); sum != want {
		b.t.Errorf("classes add up to %d of %d bytes: %v", sum, want, r.ByClass)
	}
	return r
}

// Blocks of the standard brick: 0-63 acknowledged, 8-15 twice, 20-21 with a
// second write in doubt, 64-71 never issued (a hole), 72-75 issued and
// undecided for the first time, 76-79 acknowledged.
func standardBrick(t testing.TB) *brick {
	b := newBrick(t, "run", 1)
	b.write(0, 64)
	b.write(8, 8)
	b.issue(20, 2)
	b.issue(72, 4)
	b.write(76, 4)
	return b
}

func TestPlantedFaults(t *testing.T) {
	type finding struct {
		class  Class
		block  int64
		blocks int64
		lost   bool
		bad    bool
		check  func(Extent) string // "" is good
	}
	old := func(b *brick, block uint64, gen uint32) []byte { return b.encode(block, gen, 99) }
	for _, tc := range []struct {
		name  string
		plant func(b *brick)
		want  []finding // in addition to always below
		cut   bool      // blocks 72-79 are gone too
	}{
		{name: "nothing", plant: func(b *brick) {}},
		{"zeroed", func(b *brick) { b.put(30, make([]byte, 2*BlockSize)) }, []finding{{class: Zero, block: 30, blocks: 2, lost: true, bad: true}}, false},
		{"hole", func(b *brick) {
			if err := unix.Fallocate(int(b.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 40*BlockSize, 3*BlockSize); err != nil {
				t.Fatal(err)
			}
		}, []finding{{class: Hole, block: 40, blocks: 3, lost: true, bad: true}}, false},
		{"truncated", func(b *brick) {
			if err := b.f.Truncate(50 * BlockSize); err != nil {
				t.Fatal(err)
			}
		}, []finding{{class: Short, block: 50, blocks: 14, lost: true, bad: true}, {class: Short, block: 76, blocks: 4, lost: true, bad: true}}, true},
		{"truncated inside a block", func(b *brick) {
			if err := b.f.Truncate(79*BlockSize + 100); err != nil {
				t.Fatal(err)
			}
		}, []finding{{class: Short, block: 79, blocks: 1, lost: true, bad: true}}, false},
		{"stale", func(b *brick) {
			for i := range uint64(3) {
				b.put(9+i, old(b, 9+i, 1))
			}
		}, []finding{{class: Stale, block: 9, blocks: 3, lost: true, bad: true, check: func(e Extent) string {
			if e.FoundMin != 1 || e.FoundMax != 1 || e.AckedMin != 2 {
				return "generation"
			}
			return ""
		}}}, false},
		{"misplaced within the file", func(b *brick) {
			b.put(33, b.get(9))
			b.put(34, b.get(10))
		}, []finding{{class: Misplaced, block: 33, blocks: 2, lost: true, bad: true, check: func(e Extent) string {
			if e.FromOffset != 9*BlockSize || e.FromPath != "data" || e.FromStream != 1 || e.FoundMin != 2 {
				return "origin"
			}
			return ""
		}}}, false},
		{"misplaced from another file", func(b *brick) {
			o := newBrick(t, "run", 2)
			b.put(35, o.encode(1234, 7, 1))
		}, []finding{{class: Misplaced, block: 35, blocks: 1, lost: true, bad: true, check: func(e Extent) string {
			if e.FromOffset != 1234*BlockSize || e.FromPath != "other" || e.FromStream != 2 || e.FoundMin != 7 {
				return "origin"
			}
			return ""
		}}}, false},
		{"misplaced where nothing was written", func(b *brick) { b.put(66, b.get(9)) },
			[]finding{{class: Misplaced, block: 66, blocks: 1, bad: true}}, false},
		{"foreign run", func(b *brick) {
			o := newBrick(t, "older", 1)
			b.put(36, o.encode(36, 1, 1))
		}, []finding{{class: Foreign, block: 36, blocks: 1, lost: true, bad: true, check: func(e Extent) string {
			if e.Run != NewRunID("older").String() {
				return "run"
			}
			return ""
		}}}, false},
		{"torn with an older generation", func(b *brick) { b.putAt(10*BlockSize+3*SectorSize, old(b, 10, 1)[3*SectorSize:]) },
			[]finding{{class: Torn, block: 10, blocks: 1, lost: true, bad: true, check: dates(2, 2, 2, 1, 1, 1, 1, 1)}}, false},
		{"torn, the first sector older", func(b *brick) { b.putAt(10*BlockSize, old(b, 10, 1)[:SectorSize]) },
			[]finding{{class: Torn, block: 10, blocks: 1, lost: true, bad: true, check: dates(1, 2, 2, 2, 2, 2, 2, 2)}}, false},
		{"torn between acknowledged and undecided", func(b *brick) { b.putAt(20*BlockSize+5*SectorSize, old(b, 20, 1)[5*SectorSize:]) },
			[]finding{{class: Torn, block: 20, blocks: 1, check: dates(2, 2, 2, 2, 2, 1, 1, 1)}, {class: InDoubt, block: 21, blocks: 1}}, false},
		{"torn, part never written", func(b *brick) { b.putAt(11*BlockSize+4*SectorSize, make([]byte, 4*SectorSize)) },
			[]finding{{class: Torn, block: 11, blocks: 1, lost: true, bad: true, check: dates(2, 2, 2, 2, 0, 0, 0, 0)}}, false},
		{"torn undecided first write", func(b *brick) { b.putAt(73*BlockSize, make([]byte, 3*SectorSize)) },
			[]finding{{class: Torn, block: 73, blocks: 1, check: dates(0, 0, 0, 1, 1, 1, 1, 1)}}, false},
		{"one sector of another block", func(b *brick) { b.putAt(12*BlockSize+SectorSize, b.get(50)[SectorSize:2*SectorSize]) },
			[]finding{{class: Torn, block: 12, blocks: 1, lost: true, bad: true, check: func(e Extent) string {
				if e.Sectors[1] != (Sector{State: "other", Generation: 1, FromBlock: 50}) {
					return fmt.Sprint(e.Sectors)
				}
				return ""
			}}}, false},
		{"one bit in the payload", func(b *brick) { flip(b, 13, 4000, 1) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(1)}}, false},
		{"bits in a tag", func(b *brick) { flip(b, 13, SectorSize+9, 7) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"bit in the header's block number", func(b *brick) { flip(b, 13, 33, 1) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"bit in the header's sequence", func(b *brick) { flip(b, 13, 48, 1) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"bit in the header's magic", func(b *brick) { flip(b, 13, 0, 1) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"bits in the header's checksum", func(b *brick) { flip(b, 13, 69, 3) }, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"bits in every sector", func(b *brick) {
			for i := range Sectors {
				flip(b, 13, i*SectorSize+100, 0x11)
			}
		}, []finding{{class: Corrupt, block: 13, blocks: 1, lost: true, bad: true, check: flips(16)}}, false},
		{"garbage", func(b *brick) { b.put(14, bytes.Repeat([]byte("garbage!"), BlockSize/8)) },
			[]finding{{class: Corrupt, block: 14, blocks: 1, lost: true, bad: true, check: flips(0)}}, false},
		{"garbage where nothing was written", func(b *brick) { b.put(64, bytes.Repeat([]byte("garbage!"), BlockSize/8)) },
			[]finding{{class: Corrupt, block: 64, blocks: 1, bad: true}}, false},
		{"newer than issued", func(b *brick) { b.put(15, old(b, 15, 3)) },
			[]finding{{class: Impossible, block: 15, blocks: 1, lost: true, bad: true, check: func(e Extent) string {
				if e.FoundMin != 3 || e.Issued != 2 {
					return "generation"
				}
				return ""
			}}}, false},
		{"never issued but there", func(b *brick) { b.put(70, old(b, 70, 1)) }, []finding{{class: Impossible, block: 70, blocks: 1, bad: true}}, false},
		{"grown with garbage", func(b *brick) { b.putAt(80*BlockSize+5, []byte("x")) }, []finding{{class: Corrupt, block: 80, blocks: 1, bad: true}}, false},
		{"two faults side by side", func(b *brick) {
			b.put(30, make([]byte, BlockSize))
			flip(b, 31, 1000, 1)
		}, []finding{{class: Zero, block: 30, blocks: 1, lost: true, bad: true}, {class: Corrupt, block: 31, blocks: 1, lost: true, bad: true}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := standardBrick(t)
			tc.plant(b)
			always := []finding{{class: InDoubt, block: 20, blocks: 2}, {class: InDoubt, block: 72, blocks: 4}}
			for _, f := range tc.want {
				if f.block == 20 {
					always = always[1:]
				}
				if f.block == 73 { // splits the second
					always = []finding{always[0], {class: InDoubt, block: 72, blocks: 1}, {class: InDoubt, block: 74, blocks: 2}}
				}
			}
			// Every chunk size must come to the same verdict.
			for _, chunk := range []int{BlockSize, 7 * BlockSize, 1 << 20} {
				r := b.verify(Options{ChunkBytes: chunk, Names: map[uint32]string{1: "data", 2: "other"}})
				want := append(always[:len(always):len(always)], tc.want...)
				if tc.cut {
					want[1] = finding{class: InDoubt, block: 72, blocks: 4}
				}
				var lost, bad int64
				for _, w := range want {
					found := false
					for _, e := range r.Extents {
						if e.Class != w.class || e.Offset != w.block*BlockSize || e.Bytes != w.blocks*BlockSize {
							continue
						}
						found = true
						if e.Lost != w.lost || e.Bad != w.bad {
							t.Errorf("lost %v bad %v: %s", e.Lost, e.Bad, e)
						}
						if w.check != nil {
							if s := w.check(e); s != "" {
								t.Errorf("%s: %s", s, e)
							}
						}
					}
					if !found {
						t.Errorf("no extent %s, %d blocks at %d", w.class, w.blocks, w.block)
					}
					if w.lost {
						lost += w.blocks * BlockSize
					} else if w.bad {
						bad += w.blocks * BlockSize
					}
				}
				if len(r.Extents) != len(want) || t.Failed() {
					var all []string
					for _, e := range r.Extents {
						all = append(all, e.String())
					}
					t.Errorf("chunk %d: %d extents, want %d:\n%s", chunk, len(r.Extents), len(want), strings.Join(all, "\n"))
				}
				if r.LostBytes != lost || r.BadBytes != bad || r.Pass() != (lost+bad == 0) {
					t.Errorf("lost %d bad %d pass %v, want %d and %d", r.LostBytes, r.BadBytes, r.Pass(), lost, bad)
				}
				if t.Failed() {
					break
				}
			}
		})
	}
}

func dates(want ...uint32) func(Extent) string {
	return func(e Extent) string {
		for i, s := range e.Sectors {
			if s.Generation != want[i] || s.FlippedBits != 0 {
				return fmt.Sprintf("sector dates %v, want %v", e.Sectors, want)
			}
		}
		if len(e.Sectors) != len(want) {
			return "no sector dates"
		}
		return ""
	}
}

func flips(want int64) func(Extent) string {
	return func(e Extent) string {
		if e.FlippedBits != want {
			return fmt.Sprintf("%d bits flipped, want %d", e.FlippedBits, want)
		}
		return ""
	}
}

func flip(b *brick, block uint64, at int, mask byte) {
	buf := b.get(block)
	buf[at] ^= mask
	b.put(block, buf)
}

// failing is a disk with a bad block.
type failing struct {
	io.ReaderAt
	lo, hi int64
}

var errDisk = errors.New("input/output error")

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off < f.hi && off+int64(len(b)) > f.lo {
		n := 0
		if off < f.lo {
			n, _ = f.ReaderAt.ReadAt(b[:f.lo-off], off)
		}
		return n, errDisk
	}
	return f.ReaderAt.ReadAt(b, off)
}

func TestUnreadable(t *testing.T) {
	b := newBrick(t, "run", 1)
	b.write(0, 64)
	x, err := ReadLedger(b.l.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(context.Background(), failing{b.f, 10*BlockSize + 100, 11*BlockSize + 1}, 64*BlockSize, x, Options{Path: "data"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Extents) != 1 || r.Extents[0].Class != Unreadable || r.Extents[0].Offset != 10*BlockSize || r.Extents[0].Bytes != 2*BlockSize ||
		r.LostBytes != 2*BlockSize || r.Extents[0].Error != errDisk.Error() || r.Pass() {
		t.Errorf("%+v", r)
	}
}

func TestVerifyIsCancelled(t *testing.T) {
	b := standardBrick(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Verify(ctx, b.f, 1<<30, b.l.Index(), Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestReportCap(t *testing.T) {
	b := newBrick(t, "run", 1)
	b.write(0, 100)
	for i := uint64(0); i < 100; i += 2 {
		b.put(i, make([]byte, BlockSize))
	}
	b.issue(99, 1)
	r := b.verify(Options{MaxExtents: 10})
	if len(r.Extents) != 10 || r.ExtentsOmitted != 41 || r.LostBytes != 50*BlockSize {
		t.Errorf("%d extents, %d omitted, lost %d", len(r.Extents), r.ExtentsOmitted, r.LostBytes)
	}
	for _, e := range r.Extents {
		if !e.Lost {
			t.Errorf("kept %s", e)
		}
	}
}

// cpu is the user and system time of this process in seconds. Other processes on
// the machine do not change it.
func cpu(b *testing.B) float64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}

const benchBlocks = 65536 // 256 MiB

// The speed of generating: encode, ledger, and 1 MiB writes over a file on tmpfs
// that already has its pages.
func BenchmarkGenerateFile(b *testing.B) {
	b.Chdir("/dev/shm")
	f, err := os.CreateTemp("", "mortar-bench-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	l, err := CreateLedger(filepath.Join(b.TempDir(), "l"), LedgerHeader{Run: "bench", Stream: 1}, fakeNow())
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	s := NewStream(NewRunID("bench"), 1)
	buf := linux.Aligned(1 << 20)
	for off := int64(0); off < benchBlocks*BlockSize; off += int64(len(buf)) {
		if _, err := f.WriteAt(buf, off); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(benchBlocks * BlockSize)
	start := cpu(b)
	for b.Loop() {
		for block := uint64(0); block < benchBlocks; block += 256 {
			gen, seq, err := l.Intent(block, 256)
			if err != nil {
				b.Fatal(err)
			}
			for i := range uint64(256) {
				s.Encode(buf[i*BlockSize:], block+i, gen, seq, 1)
			}
			if _, err := f.WriteAt(buf, int64(block)*BlockSize); err != nil {
				b.Fatal(err)
			}
			if err := l.Ack(seq); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*benchBlocks*BlockSize/(1<<20)/(cpu(b)-start), "MiB/cpu-s")
}

// The speed of verifying: from the page cache, against the ledger.
func BenchmarkVerifyFile(b *testing.B) {
	br := newBrick(b, "run", 1)
	for i := uint64(0); i < benchBlocks; i += 256 {
		br.write(i, 256)
	}
	x, err := ReadLedger(br.l.f.Name())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchBlocks * BlockSize)
	start := cpu(b)
	for b.Loop() {
		r, err := Verify(context.Background(), br.f, benchBlocks*BlockSize, x, Options{})
		if err != nil || !r.Pass() {
			b.Fatal(err, r)
		}
	}
	b.ReportMetric(float64(b.N)*benchBlocks*BlockSize/(1<<20)/(cpu(b)-start), "MiB/cpu-s")
}

// Only data acknowledged before a moment and not written since proves that older
// data survived.
func TestBefore(t *testing.T) {
	b := newBrick(t, "before", 7)
	b.write(0, 4) // before
	b.write(4, 2) // before, then written again
	b.issue(6, 1) // never decided
	fault := b.l.now()
	b.write(4, 1)
	b.issue(5, 1)
	b.write(8, 3) // after
	rep := b.verify(Options{BeforeNs: fault})
	if rep.AcknowledgedBeforeFaultBytes != 4*BlockSize || rep.VerifiedBeforeFaultBytes != 4*BlockSize || !rep.Pass() {
		t.Errorf("%d of %d bytes, pass %v", rep.VerifiedBeforeFaultBytes, rep.AcknowledgedBeforeFaultBytes, rep.Pass())
	}
	b.put(2, make([]byte, BlockSize))
	b.put(9, make([]byte, BlockSize))
	rep = b.verify(Options{BeforeNs: fault})
	if rep.AcknowledgedBeforeFaultBytes != 4*BlockSize || rep.VerifiedBeforeFaultBytes != 3*BlockSize || rep.LostBytes != 2*BlockSize {
		t.Errorf("%d of %d bytes, %d lost", rep.VerifiedBeforeFaultBytes, rep.AcknowledgedBeforeFaultBytes, rep.LostBytes)
	}
	if rep = b.verify(Options{}); rep.AcknowledgedBeforeFaultBytes != 0 {
		t.Errorf("no moment: %d", rep.AcknowledgedBeforeFaultBytes)
	}
	// The ledger on disk has the times.
	x, err := ReadLedger(b.l.f.Name())
	if err != nil || !x.Settled(0, fault) || x.Settled(4, fault) || x.Settled(8, fault) || x.Settled(1<<40, fault) {
		t.Error(err)
	}
}
