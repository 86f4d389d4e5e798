package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// A ledger file: a prologue (magic, length, JSON header, CRC32C), then records
// of one size. Every record's CRC32C is seeded with the prologue's, so that a
// record of another ledger does not pass. A record says:
//
//	 0  kind (1), 1 to 3 reserved
//	 4  number of blocks (4)
//	 8  generation (4)
//	12  errno (4)
//	16  first block (8)
//	24  write sequence (8)
//	32  wall clock, ns (8)
//	40  reserved (4)
//	44  CRC32C of bytes 0 to 43 (4)
const (
	ledgerMagic  = "MORTLG01"
	recordSize   = 48
	maxHeader    = 1 << 16
	maxBlocks    = 1 << 32 // 16 TiB of one file
	pageBlocks   = 8192
	ledgerFormat = 1
)

type kind uint8

const (
	kindIntent  kind = 1 + iota // about to write
	kindAck                     // that write is acknowledged
	kindSync                    // an fsync begun after every write up to that sequence has succeeded
	kindDoubt                   // that write failed or was cut short
	kindSyncErr                 // the fsync failed: nothing written since the last one is acknowledged by a later one
	kindResume                  // the writer died and began again: what was under way stays undecided
)

// LedgerHeader says whose ledger it is.
type LedgerHeader struct {
	Format    int    `json:"format"`
	Run       string `json:"run"`
	Client    string `json:"client,omitempty"`
	Worker    string `json:"worker"`
	Stream    uint32 `json:"stream"`
	Writer    uint32 `json:"writer"`
	Dir       string `json:"dir"`  // the mount or directory under test
	File      string `json:"file"` // the data file, relative to Dir
	CreatedNs int64  `json:"created_ns"`
}

// ErrLedger marks a ledger that cannot be trusted: damaged elsewhere than in
// its last record, or no ledger.
var ErrLedger = errors.New("damaged ledger")

type page struct {
	acked, issued [pageBlocks]uint32
	when          [pageBlocks]int64 // of the acknowledgement: wall clock, ns
}

// Index is a ledger in memory: what every block may be.
type Index struct {
	Header    LedgerHeader
	TailBytes int64 // bytes of a half-written last record that were ignored

	pages     []*page
	pending   []write // written, or being written, and not yet decided
	seq       uint64
	acked     int64  // blocks with an acknowledged generation
	ackedEnd  uint64 // blocks up to the end of the last acknowledged
	issuedEnd uint64
	crc       uint32 // of the prologue
	size      int64  // of the whole records read, with the prologue
}

type write struct {
	seq   uint64
	block uint64
	n     uint32
	gen   uint32
	wall  int64 // of the record, ns
}

// Expect says what the ledger allows of a block.
func (x *Index) Expect(block uint64) Expect {
	if p := block / pageBlocks; p < uint64(len(x.pages)) && x.pages[p] != nil {
		pg, i := x.pages[p], block%pageBlocks
		return Expect{Acked: pg.acked[i], Issued: pg.issued[i]}
	}
	return Expect{}
}

// Settled says that a block holds what was acknowledged before a moment (wall
// clock of the ledger, ns), and that no write to it was issued since.
func (x *Index) Settled(block uint64, beforeNs int64) bool {
	p := block / pageBlocks
	if p >= uint64(len(x.pages)) || x.pages[p] == nil {
		return false
	}
	pg, i := x.pages[p], block%pageBlocks
	return pg.acked[i] > 0 && pg.acked[i] == pg.issued[i] && pg.when[i] < beforeNs
}

// Blocks is how many blocks the file has at most, by what was issued.
func (x *Index) Blocks() uint64 { return x.issuedEnd }

// SizeBytes is how long the file must be at least.
func (x *Index) SizeBytes() int64 { return int64(x.ackedEnd) * BlockSize }

// AckedBytes is how many bytes of the file hold acknowledged data.
func (x *Index) AckedBytes() int64 { return x.acked * BlockSize }

// Stream is the stream this is the ledger of.
func (x *Index) Stream() Stream { return NewStream(NewRunID(x.Header.Run), x.Header.Stream) }

func (x *Index) page(block uint64) *page {
	p := block / pageBlocks
	for uint64(len(x.pages)) <= p {
		x.pages = append(x.pages, nil)
	}
	if x.pages[p] == nil {
		x.pages[p] = new(page)
	}
	return x.pages[p]
}

// nextGen is a generation newer than any issued in the range.
func (x *Index) nextGen(block uint64, n uint32) (uint32, error) {
	var g uint32
	for i := range uint64(n) {
		g = max(g, x.Expect(block+i).Issued)
	}
	if g == 1<<32-1 {
		return 0, fmt.Errorf("block %d has used up its generations", block)
	}
	return g + 1, nil
}

func (x *Index) ack(w write, wall int64) {
	for b := w.block; b < w.block+uint64(w.n); b++ {
		pg, i := x.page(b), b%pageBlocks
		if pg.acked[i] == 0 {
			x.acked++
		}
		if w.gen > pg.acked[i] {
			pg.acked[i], pg.when[i] = w.gen, wall
		}
	}
	x.ackedEnd = max(x.ackedEnd, w.block+uint64(w.n))
}

// drop takes the write of that sequence from those pending.
func (x *Index) drop(seq uint64) (write, bool) {
	for i := len(x.pending) - 1; i >= 0; i-- {
		if x.pending[i].seq == seq {
			w := x.pending[i]
			x.pending = append(x.pending[:i], x.pending[i+1:]...)
			return w, true
		}
	}
	return write{}, false
}

// apply is the one way a record changes the index, when written and when read
// again.
func (x *Index) apply(k kind, w write) error {
	switch k {
	case kindIntent:
		if w.n == 0 || w.block >= maxBlocks || uint64(w.n) > maxBlocks-w.block || uint64(w.n) > 1<<20 {
			return fmt.Errorf("write of %d blocks at block %d", w.n, w.block)
		}
		if w.seq != x.seq+1 {
			return fmt.Errorf("write %d follows write %d", w.seq, x.seq)
		}
		for b := w.block; b < w.block+uint64(w.n); b++ {
			p := &x.page(b).issued[b%pageBlocks]
			if w.gen <= *p {
				return fmt.Errorf("generation %d of block %d is issued twice", w.gen, b)
			}
			*p = w.gen
		}
		x.seq = w.seq
		x.issuedEnd = max(x.issuedEnd, w.block+uint64(w.n))
		x.pending = append(x.pending, w)
	case kindAck:
		p, ok := x.drop(w.seq)
		if !ok {
			return fmt.Errorf("write %d is acknowledged but not under way", w.seq)
		}
		x.ack(p, w.wall)
	case kindSync:
		rest := x.pending[:0]
		for _, p := range x.pending {
			if p.seq <= w.seq {
				x.ack(p, w.wall)
			} else {
				rest = append(rest, p)
			}
		}
		x.pending = rest
	case kindDoubt:
		if _, ok := x.drop(w.seq); !ok {
			return fmt.Errorf("write %d failed but was not under way", w.seq)
		}
	case kindSyncErr, kindResume:
		x.pending = x.pending[:0]
	default:
		return fmt.Errorf("unknown record kind %d", k)
	}
	return nil
}

func encodeRecord(b []byte, crc uint32, k kind, w write, errno uint32) {
	b = b[:recordSize:recordSize]
	clear(b)
	b[0] = byte(k)
	binary.LittleEndian.PutUint32(b[4:], w.n)
	binary.LittleEndian.PutUint32(b[8:], w.gen)
	binary.LittleEndian.PutUint32(b[12:], errno)
	binary.LittleEndian.PutUint64(b[16:], w.block)
	binary.LittleEndian.PutUint64(b[24:], w.seq)
	binary.LittleEndian.PutUint64(b[32:], uint64(w.wall))
	binary.LittleEndian.PutUint32(b[44:], crc32.Update(crc, castagnoli, b[:44]))
}

func decodeRecord(b []byte, crc uint32) (kind, write, bool) {
	if crc32.Update(crc, castagnoli, b[:44]) != binary.LittleEndian.Uint32(b[44:]) {
		return 0, write{}, false
	}
	return kind(b[0]), write{
		seq:   binary.LittleEndian.Uint64(b[24:]),
		block: binary.LittleEndian.Uint64(b[16:]),
		n:     binary.LittleEndian.Uint32(b[4:]),
		gen:   binary.LittleEndian.Uint32(b[8:]),
		wall:  int64(binary.LittleEndian.Uint64(b[32:])),
	}, true
}

// ParseLedger reads a whole ledger. A last record that is half written is
// what a killed writer leaves: it is ignored, which is safe, as an intent that
// is not whole was not followed by its write, and an acknowledgement that is
// not whole only leaves its write undecided. Damage anywhere else is
// ErrLedger.
func ParseLedger(r io.Reader) (*Index, error) {
	var fixed [12]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil || string(fixed[:8]) != ledgerMagic {
		return nil, fmt.Errorf("%w: it does not begin like a ledger", ErrLedger)
	}
	n := binary.LittleEndian.Uint32(fixed[8:])
	if n > maxHeader {
		return nil, fmt.Errorf("%w: its header is said to have %d bytes", ErrLedger, n)
	}
	head := make([]byte, n+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("%w: its header is cut short", ErrLedger)
	}
	x := &Index{crc: crc32.Update(crc32.Checksum(fixed[:], castagnoli), castagnoli, head[:n])}
	if x.crc != binary.LittleEndian.Uint32(head[n:]) {
		return nil, fmt.Errorf("%w: its header's checksum does not match", ErrLedger)
	}
	if err := json.Unmarshal(head[:n], &x.Header); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", ErrLedger, err)
	}
	if x.Header.Format != ledgerFormat {
		return nil, fmt.Errorf("%w: its format is %d, this program reads %d", ErrLedger, x.Header.Format, ledgerFormat)
	}
	x.size = int64(len(fixed) + len(head))
	buf := make([]byte, recordSize*2048)
	bad := int64(-1) // offset of a record that did not check, excusable as the last only
	for {
		got, err := io.ReadFull(r, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		end := err != nil
		for rec := buf[:got]; len(rec) > 0; {
			if bad >= 0 {
				return nil, fmt.Errorf("%w: the record at byte %d does not match its checksum", ErrLedger, bad)
			}
			if len(rec) < recordSize {
				x.TailBytes = int64(len(rec))
				break
			}
			k, w, ok := decodeRecord(rec, x.crc)
			if !ok {
				bad = x.size
				rec = rec[recordSize:]
				continue
			}
			if err := x.apply(k, w); err != nil {
				return nil, fmt.Errorf("%w: the record at byte %d: %w", ErrLedger, x.size, err)
			}
			x.size += recordSize
			rec = rec[recordSize:]
		}
		if end {
			if bad >= 0 {
				x.TailBytes += recordSize
			}
			return x, nil
		}
	}
}

// ReadLedger reads the ledger file at path.
func ReadLedger(path string) (*Index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, err := ParseLedger(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, nil
}

// Ledger is a ledger being written. Records go straight to the file (one
// write call each, no buffer), so they survive the death of the process; not
// a crash of the machine it is kept on, which is not the one under test.
//
// One goroutine writes; Expect may be called from others.
type Ledger struct {
	path string
	f    *os.File
	now  func() int64
	rec  [recordSize]byte

	mu sync.RWMutex // guards x: Expect against the writer
	x  *Index
}

// CreateLedger begins a new ledger; the file must not exist. now gives the
// wall clock in ns.
func CreateLedger(path string, h LedgerHeader, now func() int64) (*Ledger, error) {
	h.Format = ledgerFormat
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint32([]byte(ledgerMagic), uint32(len(head)))
	b = append(b, head...)
	crc := crc32.Checksum(b, castagnoli)
	b = binary.LittleEndian.AppendUint32(b, crc)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(b); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return &Ledger{path: path, f: f, now: now, x: &Index{Header: h, crc: crc, size: int64(len(b))}}, nil
}

// OpenLedger continues a ledger whose writer died.
func OpenLedger(path string, now func() int64) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	x, err := ParseLedger(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l := &Ledger{path: path, f: f, now: now, x: x}
	if err = f.Truncate(x.size); err == nil {
		_, err = f.Seek(x.size, io.SeekStart)
	}
	if err == nil {
		err = l.put(kindResume, write{}, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// Path is the ledger's file.
func (l *Ledger) Path() string { return l.path }

// Close closes the file.
func (l *Ledger) Close() error { return l.f.Close() }

func (l *Ledger) put(k kind, w write, errno uint32) error {
	w.wall = l.now()
	encodeRecord(l.rec[:], l.x.crc, k, w, errno)
	if n, err := l.f.Write(l.rec[:]); err != nil {
		// Half a record in the middle would spoil the ledger: take it back.
		if n > 0 {
			if terr := l.f.Truncate(l.x.size); terr == nil {
				_, _ = l.f.Seek(l.x.size, io.SeekStart)
			}
		}
		return fmt.Errorf("ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.x.size += recordSize
	return l.x.apply(k, w)
}

// Intent records that n blocks from block on are about to be written, and
// gives the generation and the sequence to write them with. Without a nil
// error the write must not be issued.
func (l *Ledger) Intent(block uint64, n uint32) (gen uint32, seq uint64, err error) {
	gen, err = l.x.nextGen(block, n)
	if err != nil {
		return 0, 0, err
	}
	seq = l.x.seq + 1
	return gen, seq, l.put(kindIntent, write{seq: seq, block: block, n: n, gen: gen}, 0)
}

// Ack records that the write was acknowledged: a synchronous write returned
// whole.
func (l *Ledger) Ack(seq uint64) error { return l.put(kindAck, write{seq: seq}, 0) }

// Synced records that an fsync succeeded that was begun after write seq (and
// all before it) returned: all of them are acknowledged, but for those in
// doubt.
func (l *Ledger) Synced(seq uint64) error { return l.put(kindSync, write{seq: seq}, 0) }

// Doubt records that the write failed or was short: its range is undecided
// until it is acknowledged again.
func (l *Ledger) Doubt(seq uint64, errno uint32) error {
	return l.put(kindDoubt, write{seq: seq}, errno)
}

// SyncFailed records that an fsync failed: the kernel has forgotten which
// pages, so no later fsync acknowledges what was written before it.
func (l *Ledger) SyncFailed(errno uint32) error { return l.put(kindSyncErr, write{}, errno) }

// Expect says what the ledger allows of a block at this moment.
func (l *Ledger) Expect(block uint64) Expect {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.x.Expect(block)
}

// Index is the ledger's index, for use when its writer is done.
func (l *Ledger) Index() *Index { return l.x }

// AckedEnd is the block after the last acknowledged one, at this moment.
func (l *Ledger) AckedEnd() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.x.ackedEnd)
}
