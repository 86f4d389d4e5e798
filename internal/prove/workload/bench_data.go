package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// dataWork moves the records of one region. The thread itself generates and
// verifies records between the system calls: with a helper on another core, the
// hand-over and the transfer between the caches cost more CPU than the work
// (lab/engine.md). That time is counted separately, in no latency and
// no stall.
type dataWork struct {
	t       *benchThread
	job     *BenchJob
	region  BenchRegion // as it is before this phase
	rank    int         // whose region
	path    string
	write   bool
	record  int64
	random  bool
	direct  bool
	stream  stream.Stream
	expect  *expectations // reading with verification
	fd      int
	base    int64        // device: where the thread's first record lies
	stride  int64        // device: from one of its records to the next, in records
	records atomic.Int64 // planned
	order   permutation  // random
	buf     []byte
	// plain means that the record size is no multiple of the block size of
	// package stream. Each record is then a pattern of its own (fillPattern),
	// written once and compared as a whole with expected.
	plain    bool
	expected []byte

	mu       sync.Mutex // guards the fields below, which other goroutines read
	pass     BenchPass
	findings BenchVerify
}

func newDataWork(t *benchThread) (*dataWork, error) {
	j := &t.run.job
	w := &dataWork{
		t: t, job: j, rank: t.res.Rank, write: j.Phase.Writes(), record: j.RecordBytes, fd: -1,
		random: j.Phase == RandRead || j.Phase == RandWrite, direct: j.Direct,
		plain: j.Device == "" && j.RecordBytes%stream.BlockSize != 0,
	}
	if w.random {
		w.direct = !j.Buffered
	}
	if j.Device != "" {
		w.path, w.direct = j.Device, true
		t.res.Path = j.Device
		return w, nil
	}
	if !w.write {
		w.rank = (w.rank + j.ReadShift*j.Threads) % (j.Clients * j.Threads)
		if w.rank < 0 {
			w.rank += j.Clients * j.Threads
		}
	}
	w.region = BenchRegion{Rank: w.rank, Bytes: j.FileBytes}
	for _, r := range j.Regions {
		if r.Rank == w.rank {
			w.region = r
		}
	}
	id := uint32(w.rank) + 1
	name := fmt.Sprintf("c%03d-t%03d.data", w.rank/j.Threads, w.rank%j.Threads)
	if j.Layout != OwnFile {
		id, name = 1<<31, "shared.data"
	}
	w.stream = stream.NewStream(stream.NewRunID(j.RunID+"/"+j.Set), id)
	w.path = filepath.Join(t.run.dir, name)
	t.res.Path = w.path
	if w.region.Bytes != j.FileBytes {
		return nil, fmt.Errorf("set %s was written with %d bytes for each thread, not %d", j.Set, w.region.Bytes, j.FileBytes)
	}
	for _, p := range w.region.Passes {
		if (j.Layout == Strided || w.plain) && p.RecordBytes != w.record {
			return nil, fmt.Errorf("set %s was written in records of %d bytes: they cannot be %d", j.Set, p.RecordBytes, w.record)
		}
		if w.plain && w.write {
			return nil, fmt.Errorf("set %s was written already: records that are no multiple of %d are written once", j.Set, stream.BlockSize)
		}
	}
	if w.write {
		w.pass = BenchPass{Random: w.random, RecordBytes: w.record}
		w.records.Store(j.FileBytes / w.record)
		w.order = w.permutation(len(w.region.Passes)+1, w.records.Load(), w.record)
		return w, nil
	}
	n := int64(0)
	if w.plain {
		w.expected = make([]byte, w.record)
		if len(w.region.Passes) > 0 {
			n = w.region.Passes[0].Acked
		}
	} else {
		w.expect = newExpectations(&w.region, w.permutation)
		n = w.expect.end / w.record
	}
	if n == 0 {
		return nil, fmt.Errorf("nothing that could be read was written to the region of rank %d of set %s", w.rank, j.Set)
	}
	w.order = w.permutation(0, n, w.record)
	if j.Limit > 0 {
		n = min(n, j.Limit)
	}
	w.records.Store(n)
	if j.Unverified {
		w.expect, w.expected = nil, nil
	}
	return w, nil
}

// permutation is the order in which a random pass takes a region's records.
// Reading counts as generation 0.
func (w *dataWork) permutation(generation int, records, record int64) permutation {
	return newPermutation(fmt.Sprintf("%s/%s/%d/%d/%d", w.job.RunID, w.job.Set, w.rank, generation, record), records)
}

// offset converts an offset in the region, at the start of a record, to an
// offset in the file.
func (w *dataWork) offset(at int64) int64 {
	switch w.job.Layout {
	case Segmented:
		return int64(w.rank)*w.job.FileBytes + at
	case Strided:
		return (at/w.record*int64(w.job.Clients*w.job.Threads) + int64(w.rank)) * w.record
	}
	if w.job.Device != "" {
		at *= w.stride
	}
	return w.base + at
}

// place is the i-th record's offset in the region.
func (w *dataWork) place(i int64) int64 {
	if w.random {
		i = w.order.at(i)
	}
	return i * w.record
}

func (w *dataWork) open() error {
	flags := unix.O_RDONLY
	if w.write {
		flags = unix.O_WRONLY | unix.O_CREAT
		if len(w.region.Passes) == 0 && w.job.Layout == OwnFile {
			flags |= unix.O_TRUNC
		}
	}
	if w.direct {
		flags |= unix.O_DIRECT
	}
	fd, err := open(w.path, flags)
	if err != nil {
		if w.direct && errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w %w", err, errDirect)
		}
		return err
	}
	w.fd = fd
	if w.job.Device != "" {
		if err := w.part(); err != nil {
			return err
		}
	}
	if w.job.DropCache && !w.write {
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			return pathError("fadvise", w.path, err)
		}
	}
	w.buf = linux.Aligned(int(w.record))
	return nil
}

// part finds the thread's part of the device.
func (w *dataWork) part() error {
	size, err := unix.Seek(w.fd, 0, io.SeekEnd)
	if err != nil {
		return pathError("seek", w.path, err)
	}
	w.stride = int64(w.job.RegionThreads)
	parts := int64(w.job.Threads) / w.stride
	turn := w.stride * w.record // a record of each thread of the part
	each := size / parts / turn * turn
	part, place := int64(w.t.res.Thread)/w.stride, int64(w.t.res.Thread)%w.stride
	w.base = each*part + w.record*place
	if w.job.FileBytes > 0 {
		each = min(each, w.job.FileBytes/turn*turn)
	}
	if each == 0 {
		return fmt.Errorf("%s: its %d bytes are too few for %d threads", w.path, size, w.job.Threads)
	}
	w.records.Store(each / turn)
	w.order = w.permutation(0, each/turn, w.record)
	return nil
}

// generate fills the buffer with the i-th record, which belongs at off.
func (w *dataWork) generate(i, off int64, gen uint32) {
	if w.plain {
		fillPattern(w.buf, w.seed(i))
		return
	}
	block := uint64(off / stream.BlockSize)
	for b := w.buf; len(b) > 0; b, block = b[stream.BlockSize:], block+1 {
		w.stream.Encode(b, block, gen, uint64(i)+1, uint32(w.rank))
	}
}

// seed is the seed of the pattern of the i-th record.
func (w *dataWork) seed(i int64) uint64 {
	return xxh3.HashString(fmt.Sprintf("%s/%s/%d/%d", w.job.RunID, w.job.Set, w.rank, i))
}

func (w *dataWork) loop() error {
	var err error
	if w.write {
		err = w.writeAll()
		return errors.Join(err, w.finish(err))
	}
	err = w.readAll()
	t := w.t.run.clock.now()
	fd := w.fd
	w.fd = -1
	cerr := pathError("close", w.path, unix.Close(fd))
	w.t.set(func(r *BenchThread) { r.CloseSeconds = seconds(w.t.run.clock.now() - t) })
	return errors.Join(err, cerr)
}

func (w *dataWork) writeAll() error {
	clock, t := w.t.run.clock, w.t
	gen := uint32(len(w.region.Passes) + 1)
	total := w.records.Load()
	var issued, acked int64
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pass.Issued, w.pass.Acked = issued, acked
	}()
	now := clock.now()
	for i := range total {
		if t.run.enough(now) {
			return nil
		}
		off := w.offset(w.place(i))
		w.generate(i, off, gen)
		begun := clock.now()
		issued++
		if issued%256 == 1 {
			// If the thread hangs, the result assumes that it may have written
			// these records.
			w.mu.Lock()
			w.pass.Issued = issued + 255
			w.mu.Unlock()
		}
		if err := pwrite(w.fd, w.buf, off); err != nil {
			return fmt.Errorf("at %d: %w", off, pathError("write", w.path, err))
		}
		acked++
		end := clock.now()
		t.record(now, begun, end, w.record)
		now = end
	}
	t.set(func(r *BenchThread) { r.Finished = true })
	return nil
}

// finish flushes and closes the file, inside the timing.
func (w *dataWork) finish(failed error) error {
	clock := w.t.run.clock
	var errs []error
	t0 := clock.now()
	if !w.job.NoFsync {
		errs = append(errs, pathError("fsync", w.path, fsync(w.fd)))
	}
	t1 := clock.now()
	fd := w.fd
	w.fd = -1
	errs = append(errs, pathError("close", w.path, unix.Close(fd)))
	t2 := clock.now()
	w.t.set(func(r *BenchThread) { r.FlushSeconds, r.CloseSeconds = seconds(t1-t0), seconds(t2-t1) })
	err := errors.Join(errs...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		// After a failed fsync or close no record is known to be safe.
		w.pass.Acked = 0
	}
	return err
}

// written is the region after this phase. left means that the thread still
// hangs, so no record of the phase is known to be safe.
func (w *dataWork) written(left bool) BenchRegion {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.region
	r.Passes = append([]BenchPass(nil), r.Passes...)
	p := w.pass
	if left {
		p.Acked, p.Issued = 0, min(max(p.Issued, 1), r.Bytes/w.record)
	}
	if p.Issued > 0 {
		r.Passes = append(r.Passes, p)
	}
	return r
}

func (w *dataWork) readAll() error {
	clock, t := w.t.run.clock, w.t
	var v BenchVerify
	defer func() { w.found(&v) }()
	now, done := clock.now(), int64(0) // done: when the last call had returned
	total := w.records.Load()
	for i := range total {
		if t.run.enough(now) {
			return nil
		}
		if done == 0 {
			done = now
		}
		off := w.offset(w.place(i))
		n, err := pread(w.fd, w.buf, off)
		if err == nil && n == 0 {
			err = fmt.Errorf("the file ends there, and was longer: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return fmt.Errorf("at %d: %w", off, pathError("read", w.path, err))
		}
		end := clock.now()
		t.record(done, now, end, int64(n))
		now, done = end, end
		if w.expect != nil || w.expected != nil {
			w.verify(&v, i, off, n)
			now = clock.now()
			if i%256 == 0 {
				w.found(&v)
			}
		}
	}
	t.set(func(r *BenchThread) { r.Finished = true })
	return nil
}

// pread fills b, except at the end of the file.
func pread(fd int, b []byte, off int64) (int, error) {
	n, err := unix.Pread(fd, b, off)
	if n == len(b) && err == nil {
		return n, nil
	}
	for {
		if err != nil && !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
		n = max(n, 0)
		m, err2 := unix.Pread(fd, b[n:], off+int64(n))
		if m == 0 && err2 == nil {
			return n, nil
		}
		n, err = n+max(m, 0), err2
		if n == len(b) {
			return n, nil
		}
	}
}

// verify compares the i-th record with the data written. The record was read
// from off; the file had n bytes of it.
func (w *dataWork) verify(v *BenchVerify, i, off int64, n int) {
	if w.plain {
		fillPattern(w.expected, w.seed(i))
		v.Bytes += int64(n)
		if !bytes.Equal(w.buf[:n], w.expected[:n]) {
			v.BadBytes += int64(n)
			v.Findings = append(v.Findings, fmt.Sprintf("%s: %d bytes from %d on are not what was written", w.path, n, off))
		}
	} else {
		w.compare(v, w.buf[:n], off)
	}
	if short := w.record - int64(n); short > 0 {
		v.Bytes += short
		v.BadBytes += short
		v.Findings = append(v.Findings, fmt.Sprintf("%s: short, %d bytes missing from %d on", w.path, short, off+int64(n)))
	}
}

// found moves v into the findings that other goroutines read.
func (w *dataWork) found(v *BenchVerify) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := max(0, MaxFindings-len(w.findings.Findings))
	v.Findings = v.Findings[:min(room, len(v.Findings))]
	w.findings.add(v)
	*v = BenchVerify{}
}

func (w *dataWork) compare(v *BenchVerify, b []byte, off int64) {
	for ; len(b) >= stream.BlockSize; b, off = b[stream.BlockSize:], off+stream.BlockSize {
		v.Bytes += stream.BlockSize
		e := w.expect.of(w, off)
		if w.stream.Holds(b, uint64(off/stream.BlockSize), e.Acked) {
			continue
		}
		f := w.stream.Classify(b[:stream.BlockSize], uint64(off/stream.BlockSize), e)
		if !f.Bad {
			continue
		}
		v.BadBytes += stream.BlockSize
		if len(v.Findings) < MaxFindings {
			x := stream.Extent{
				Path: w.path, Class: f.Class, Lost: f.Lost, Bad: true, Offset: off, Bytes: stream.BlockSize, AckedMin: e.Acked, AckedMax: e.Acked,
				Issued: e.Issued, FoundMin: f.Generation, FoundMax: f.Generation, FromStream: f.FromStream,
				FromOffset: int64(f.FromBlock) * stream.BlockSize, FlippedBits: int64(f.Flipped), Sectors: f.Sectors,
			}
			if f.Class == stream.Foreign {
				x.Run = f.Run.String()
			}
			v.Findings = append(v.Findings, x.String())
		}
	}
}

// verified is what verify has found so far, nil if the phase verifies nothing.
func (w *dataWork) verified() *BenchVerify {
	if w.write || w.expect == nil && w.expected == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.findings
	v.Findings = append([]string(nil), v.Findings...)
	return &v
}

func (w *dataWork) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}

// expectations tell which generations each block of a region may hold.
type expectations struct {
	uniform stream.Expect   // of every block, if blocks is nil
	blocks  []stream.Expect // of the region, in its order
	end     int64           // bytes from the region's start on that hold acknowledged data throughout
}

func newExpectations(r *BenchRegion, order func(generation int, records, record int64) permutation) *expectations {
	e := &expectations{}
	whole := len(r.Passes) > 0
	for _, p := range r.Passes {
		whole = whole && p.Acked*p.RecordBytes == r.Bytes && p.Issued == p.Acked
	}
	if whole {
		n := uint32(len(r.Passes))
		e.uniform, e.end = stream.Expect{Acked: n, Issued: n}, r.Bytes
		return e
	}
	e.blocks = make([]stream.Expect, r.Bytes/stream.BlockSize)
	for g, p := range r.Passes {
		per := p.RecordBytes / stream.BlockSize
		perm := order(g+1, r.Bytes/p.RecordBytes, p.RecordBytes)
		for i := range min(p.Issued, r.Bytes/p.RecordBytes) {
			at := i
			if p.Random {
				at = perm.at(i)
			}
			for b := at * per; b < (at+1)*per; b++ {
				e.blocks[b].Issued = uint32(g + 1)
				if i < p.Acked {
					e.blocks[b].Acked = uint32(g + 1)
				}
			}
		}
	}
	for e.end < r.Bytes && e.blocks[e.end/stream.BlockSize].Acked > 0 {
		e.end += stream.BlockSize
	}
	return e
}

// of is the expectation of the block at an offset of the file.
func (e *expectations) of(w *dataWork, off int64) stream.Expect {
	if e.blocks == nil {
		return e.uniform
	}
	return e.blocks[w.inRegion(off)/stream.BlockSize]
}

// inRegion is the inverse of offset, for any byte.
func (w *dataWork) inRegion(off int64) int64 {
	switch w.job.Layout {
	case Segmented:
		return off - int64(w.rank)*w.job.FileBytes
	case Strided:
		n := int64(w.job.Clients * w.job.Threads)
		return off/w.record/n*w.record + off%w.record
	}
	return off
}

// permutation is a fixed random order of n things, computed without a table: a
// Feistel network over the next larger power of four, repeated until the value
// is below n (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type permutation struct {
	n    uint64
	half uint // bits
	mask uint64
	keys [4]uint64
}

func newPermutation(name string, n int64) permutation {
	p := permutation{n: uint64(n), half: 1}
	for 1<<(2*p.half) < p.n {
		p.half++
	}
	p.mask = 1<<p.half - 1
	for i := range p.keys {
		p.keys[i] = xxh3.HashStringSeed(name, uint64(i))
	}
	return p
}

func (p *permutation) at(i int64) int64 {
	x := uint64(i)
	for {
		l, r := x>>p.half, x&p.mask
		for _, k := range p.keys {
			f := (r + k) * 0x9e3779b97f4a7c15
			f ^= f >> 29
			l, r = r, l^(f*0xbf58476d1ce4e5b9>>32)&p.mask
		}
		x = l<<p.half | r
		if x < p.n {
			return int64(x)
		}
	}
}
