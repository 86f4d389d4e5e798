package stream

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Options of Verify. The zero value is good.
type Options struct {
	Path       string            // Path of the extents
	Workers    int               // chunks checked at once; default 2
	ChunkBytes int               // one read; default 1 MiB
	MaxExtents int               // findings kept, the worst first; default 1000
	Names      map[uint32]string // stream id -> path, to say whose data a misplaced block is
	Progress   func(bytes int64) // called as chunks are done, from several goroutines
	// BeforeNs: Verify counts separately the bytes acknowledged before this
	// moment (wall clock of the ledger, ns) and not written since; 0: none.
	BeforeNs int64

	// NextData distinguishes holes from zeros. It returns the first allocated
	// byte at or after off and the end of that allocated range; start is the
	// file's size if no allocated byte follows. nil: every zero is Zero.
	NextData func(off int64) (start, end int64, err error)
}

// Verify reads size bytes of r and compares them with the ledger: every block
// ever issued and everything else in the file. It reads r in chunks from several
// goroutines, into buffers aligned to 4096 bytes. A read error makes its blocks
// Unreadable; Verify itself returns only the error of ctx.
func Verify(ctx context.Context, r io.ReaderAt, size int64, x *Index, opt Options) (*Report, error) {
	if opt.Workers <= 0 {
		opt.Workers = 2
	}
	if opt.ChunkBytes <= 0 {
		opt.ChunkBytes = 1 << 20
	}
	opt.ChunkBytes = (opt.ChunkBytes + BlockSize - 1) / BlockSize * BlockSize
	if opt.MaxExtents <= 0 {
		opt.MaxExtents = 1000
	}
	v := &verifier{r: r, size: size, x: x, opt: opt, s: x.Stream()}
	for id := range opt.Names {
		if id != v.s.ID {
			v.others = append(v.others, NewStream(v.s.Run, id))
		}
	}
	blocks := max(x.Blocks(), uint64((size+BlockSize-1)/BlockSize))
	per := uint64(opt.ChunkBytes / BlockSize)
	chunks := int((blocks + per - 1) / per)
	results := make([]*collector, chunks)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(opt.Workers, max(chunks, 1)) {
		wg.Go(func() {
			buf := linux.Aligned(opt.ChunkBytes)
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= chunks {
					return
				}
				first := uint64(i) * per
				results[i] = v.chunk(buf, first, min(per, blocks-first))
				if opt.Progress != nil {
					opt.Progress(int64(per) * BlockSize)
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	total := &collector{path: opt.Path, byClass: map[Class]int64{}}
	for _, c := range results {
		total.merge(c)
	}
	f := FileReport{
		Worker: x.Header.Worker, Path: opt.Path, Stream: x.Header.Stream,
		SizeBytes: size, ExpectedSizeBytes: x.SizeBytes(), BeforeBytes: total.before,
		AcknowledgedBytes: total.acked, VerifiedBytes: total.acked - total.lost, LostBytes: total.lost,
		InDoubtBytes: total.doubt, BadBytes: total.bad, ReadBytes: total.read, ByClass: total.byClass,
	}
	rep := &Report{}
	rep.Merge(&Report{
		AcknowledgedBeforeBytes: total.before, VerifiedBeforeBytes: total.before - total.beforeLost,
		AcknowledgedBytes: f.AcknowledgedBytes, VerifiedBytes: f.VerifiedBytes, LostBytes: f.LostBytes,
		InDoubtBytes: f.InDoubtBytes, BadBytes: f.BadBytes, ReadBytes: f.ReadBytes, ByClass: f.ByClass,
		Files: []FileReport{f}, Extents: total.extents, LedgerTailBytes: x.TailBytes,
	}, opt.MaxExtents)
	return rep, nil
}

type verifier struct {
	r      io.ReaderAt
	size   int64
	x      *Index
	s      Stream
	others []Stream
	opt    Options
}

// chunk checks n blocks from first on.
func (v *verifier) chunk(buf []byte, first, n uint64) *collector {
	c := &collector{path: v.opt.Path, byClass: map[Class]int64{}}
	off := int64(first) * BlockSize
	got, err := v.read(buf[:n*BlockSize], off)
	c.read += int64(got)
	if err != nil {
		v.single(c, buf, first, n, got/BlockSize)
		return c
	}
	v.blocks(c, buf, first, n, got)
	return c
}

// blocks classifies n blocks; buf holds the first got bytes of them.
func (v *verifier) blocks(c *collector, buf []byte, first, n uint64, got int) {
	for i := range n {
		e := v.x.Expect(first + i)
		lo := int(i) * BlockSize
		if lo+BlockSize > got {
			c.add(v, first+i, e, v.tail(buf, lo, got, first+i, e), "")
			continue
		}
		b := buf[lo : lo+BlockSize]
		// Nearly every block takes this path, so it avoids further calls and
		// copies.
		f := v.s.Classify(b, first+i, e, v.others...)
		c.add(v, first+i, e, f, "")
	}
}

// tail is the finding for a block that lies, wholly or in part, past the end.
func (v *verifier) tail(buf []byte, lo, got int, block uint64, e Expect) Finding {
	if lo >= got || e.Issued > 0 {
		return absent(Short, e)
	}
	// Of a part of a block that was never issued, only zeros are allowed.
	for _, b := range buf[lo:got] {
		if b != 0 {
			return Finding{Class: Corrupt, Bad: true}
		}
	}
	return Finding{Class: Unwritten}
}

// single reads a chunk block by block after its read failed behind done blocks.
func (v *verifier) single(c *collector, buf []byte, first, n uint64, done int) {
	v.blocks(c, buf, first, uint64(done), done*BlockSize)
	for i := uint64(done); i < n; i++ {
		off := int64(first+i) * BlockSize
		got, err := v.read(buf[:BlockSize], off)
		c.read += int64(got)
		if err != nil {
			e := v.x.Expect(first + i)
			c.add(v, first+i, e, Finding{Class: Unreadable, Lost: e.Acked > 0, Bad: true}, err.Error())
			continue
		}
		v.blocks(c, buf, first+i, 1, got)
	}
}

// read fills b from off on. Fewer bytes without an error mean the end of the
// file; a file that shrinks meanwhile is short from there on. read asks for
// whole blocks even at the end, as O_DIRECT requires.
func (v *verifier) read(b []byte, off int64) (int, error) {
	left := int(min(max(v.size-off, 0), int64(len(b))))
	n := 0
	for n < left {
		m, err := v.r.ReadAt(b[n:], off+int64(n))
		n += m
		if errors.Is(err, io.EOF) || m == 0 && err == nil {
			break
		}
		if err != nil && n < left {
			return n, err
		}
	}
	return min(n, left), nil
}

// collector joins findings into extents, in the order of blocks.
type collector struct {
	path                          string
	acked, lost, doubt, bad, read int64
	before, beforeLost            int64
	byClass                       map[Class]int64
	extents                       []Extent
	counts                        [2]int64 // ok and unwritten blocks, kept off the map
}

func (c *collector) add(v *verifier, block uint64, e Expect, f Finding, errText string) {
	if e.Acked > 0 {
		c.acked += BlockSize
	}
	if v.x.Settled(block, v.opt.BeforeNs) {
		c.before += BlockSize
		if f.Lost {
			c.beforeLost += BlockSize
		}
	}
	if f.Lost {
		c.lost += BlockSize
	} else if f.Bad {
		c.bad += BlockSize
	}
	if e.Issued > e.Acked && !f.Bad {
		c.doubt += BlockSize
	}
	if f.Class == OK || f.Class == Unwritten {
		if f.Class == OK {
			c.counts[0]++
		} else {
			c.counts[1]++
		}
		return
	}
	off := int64(block) * BlockSize
	if f.Class == Zero && v.opt.NextData != nil {
		if start, _, err := v.opt.NextData(off); err == nil && start >= off+BlockSize {
			f.Class = Hole
		}
	}
	c.byClass[f.Class] += BlockSize
	n := Extent{
		Path: c.path, Class: f.Class, Lost: f.Lost, Bad: f.Bad, Offset: off, Bytes: BlockSize,
		AckedMin: e.Acked, AckedMax: e.Acked, Issued: e.Issued, FoundMin: f.Generation, FoundMax: f.Generation,
		FlippedBits: int64(f.Flipped), Sectors: f.Sectors, Error: errText,
	}
	switch f.Class {
	case Foreign:
		n.Run, n.FromStream, n.FromOffset = f.Run.String(), f.FromStream, int64(f.FromBlock)*BlockSize
	case Misplaced:
		n.FromStream, n.FromPath, n.FromOffset = f.FromStream, v.opt.Names[f.FromStream], int64(f.FromBlock)*BlockSize
		if n.FromPath == "" && f.FromStream == v.s.ID {
			n.FromPath = c.path
		}
	}
	c.append(n)
}

// append adds an extent. It extends the last extent if n continues that one.
func (c *collector) append(n Extent) {
	if len(c.extents) > 0 {
		if l := &c.extents[len(c.extents)-1]; l.Offset+l.Bytes == n.Offset && l.Class == n.Class && l.Lost == n.Lost && l.Bad == n.Bad &&
			l.FromStream == n.FromStream && l.Run == n.Run && l.Error == n.Error &&
			(n.Class != Misplaced && n.Class != Foreign || l.FromOffset+l.Bytes == n.FromOffset) {
			l.Bytes += n.Bytes
			l.AckedMin, l.AckedMax = min(l.AckedMin, n.AckedMin), max(l.AckedMax, n.AckedMax)
			l.Issued = max(l.Issued, n.Issued)
			l.FoundMin, l.FoundMax = min(l.FoundMin, n.FoundMin), max(l.FoundMax, n.FoundMax)
			l.FlippedBits += n.FlippedBits
			return
		}
	}
	c.extents = append(c.extents, n)
}

func (c *collector) merge(o *collector) {
	c.acked += o.acked
	c.before += o.before
	c.beforeLost += o.beforeLost
	c.lost += o.lost
	c.doubt += o.doubt
	c.bad += o.bad
	c.read += o.read
	for k, n := range o.byClass {
		c.byClass[k] += n
	}
	for i, k := range []Class{OK, Unwritten} {
		if o.counts[i] > 0 {
			c.byClass[k] += o.counts[i] * BlockSize
		}
	}
	for _, e := range o.extents {
		c.append(e)
	}
}
