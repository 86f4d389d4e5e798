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
	ChunkBytes int               // one read; default 1 MiB; for tests
	MaxExtents int               // findings kept, the worst first; default 1000
	Names      map[uint32]string // stream id -> path, to say whose data a misplaced block is
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
	for range 2 {
		wg.Go(func() {
			buf := linux.Aligned(opt.ChunkBytes)
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= chunks {
					return
				}
				first := uint64(i) * per
				results[i] = v.chunk(buf, first, min(per, blocks-first))
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rep := &Report{}
	for _, c := range results {
		rep.Merge(c.report())
	}
	rep.Files = []FileReport{{Worker: x.Header.Worker, Path: opt.Path, SizeBytes: size, BeforeBytes: rep.AcknowledgedBeforeFaultBytes}}
	rep.Cap(opt.MaxExtents)
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
	c := &collector{Report: Report{ByClass: map[Class]int64{}}}
	off := int64(first) * BlockSize
	got, err := v.read(buf[:n*BlockSize], off)
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
			c.add(v, first+i, e, v.tail(buf, lo, got, e), "")
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
func (v *verifier) tail(buf []byte, lo, got int, e Expect) Finding {
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

// collector is the report of a chunk in the making. Nearly all blocks are ok or
// unwritten: they are counted off the map.
type collector struct {
	Report
	ok, unwritten int64 // bytes
}

func (c *collector) report() *Report {
	for k, n := range map[Class]int64{OK: c.ok, Unwritten: c.unwritten} {
		if n > 0 {
			c.ByClass[k] += n
		}
	}
	return &c.Report
}

func (c *collector) add(v *verifier, block uint64, e Expect, f Finding, errText string) {
	if e.Acked > 0 {
		c.AcknowledgedBytes += BlockSize
	}
	switch {
	case f.Lost:
		c.LostBytes += BlockSize
	case f.Bad:
		c.BadBytes += BlockSize
	case e.Acked > 0:
		c.VerifiedBytes += BlockSize
	}
	if v.x.Settled(block, v.opt.BeforeNs) {
		c.AcknowledgedBeforeFaultBytes += BlockSize
		if !f.Lost {
			c.VerifiedBeforeFaultBytes += BlockSize
		}
	}
	if e.Issued > e.Acked && !f.Bad {
		c.InDoubtBytes += BlockSize
	}
	switch f.Class {
	case OK:
		c.ok += BlockSize
		return
	case Unwritten:
		c.unwritten += BlockSize
		return
	}
	off := int64(block) * BlockSize
	if f.Class == Zero && v.opt.NextData != nil {
		if start, _, err := v.opt.NextData(off); err == nil && start >= off+BlockSize {
			f.Class = Hole
		}
	}
	c.ByClass[f.Class] += BlockSize
	n := Extent{
		Path: v.opt.Path, Class: f.Class, Lost: f.Lost, Bad: f.Bad, Offset: off, Bytes: BlockSize,
		AckedMin: e.Acked, AckedMax: e.Acked, Issued: e.Issued, FoundMin: f.Generation, FoundMax: f.Generation,
		FlippedBits: int64(f.Flipped), Sectors: f.Sectors, Error: errText,
	}
	switch f.Class {
	case Foreign:
		n.Run, n.FromStream, n.FromOffset = f.Run.String(), f.FromStream, int64(f.FromBlock)*BlockSize
	case Misplaced:
		n.FromStream, n.FromPath, n.FromOffset = f.FromStream, v.opt.Names[f.FromStream], int64(f.FromBlock)*BlockSize
		if n.FromPath == "" && f.FromStream == v.s.ID {
			n.FromPath = v.opt.Path
		}
	}
	c.Report.add(n)
}
