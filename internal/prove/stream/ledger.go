package stream

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A ledger file is a prologue (magic, length, JSON header, CRC32C), then records
// of one size. The prologue's CRC32C seeds that of every record, so a record of
// another ledger does not pass. A record has:
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
	kindIntent  kind = 1 + iota // a write is about to begin
	kindAck                     // the write is acknowledged
	kindSync                    // an fsync begun after every write up to that sequence has succeeded
	kindDoubt                   // the write failed or was short
	kindSyncErr                 // an fsync failed: a later fsync does not acknowledge the writes before it
)

// LedgerHeader names the run and the worker of a ledger.
type LedgerHeader struct {
	Format int    `json:"format"`
	Run    string `json:"run"`
	Client string `json:"client,omitempty"`
	Worker string `json:"worker"`
	Stream uint32 `json:"stream"`
	Dir    string `json:"dir"`  // the mount or directory under test
	File   string `json:"file"` // the data file, relative to Dir
}

// ErrLedger marks a file that is no ledger, or a ledger with damage before its
// last record.
var ErrLedger = errors.New("damaged ledger")

type page struct {
	acked, issued [pageBlocks]uint32
	when          [pageBlocks]int64 // of the acknowledgement: wall clock, ns
}

// Index is a ledger in memory: it holds what the ledger allows of every block.
type Index struct {
	Header LedgerHeader

	pages     []*page
	pending   []write // issued and not yet decided
	seq       uint64
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

// Expect returns what the ledger allows of a block.
func (x *Index) Expect(block uint64) Expect {
	if p := block / pageBlocks; p < uint64(len(x.pages)) && x.pages[p] != nil {
		pg, i := x.pages[p], block%pageBlocks
		return Expect{Acked: pg.acked[i], Issued: pg.issued[i]}
	}
	return Expect{}
}

// Settled reports whether the block's last write was acknowledged before
// beforeNs (wall clock of the ledger, ns) and no later one was issued.
func (x *Index) Settled(block uint64, beforeNs int64) bool {
	e := x.Expect(block)
	return e.Acked > 0 && e.Acked == e.Issued && x.pages[block/pageBlocks].when[block%pageBlocks] < beforeNs
}

// Blocks is the number of blocks that the file has at most, by the writes
// issued.
func (x *Index) Blocks() uint64 { return x.issuedEnd }

// Stream is the ledger's stream.
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
		if w.gen > pg.acked[i] {
			pg.acked[i], pg.when[i] = w.gen, wall
		}
	}
}

// drop removes the write of that sequence from the pending writes.
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

// apply changes the index by one record. Writing and reading a ledger both use
// it, so they agree.
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
	case kindSyncErr:
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

// ParseLedger reads a whole ledger. It ignores a half-written last record, which
// a killed writer leaves. That is safe: no write follows an incomplete intent,
// and an incomplete acknowledgement only leaves its write undecided. Any other
// damage is ErrLedger.
func ParseLedger(r io.Reader) (*Index, error) {
	in := bufio.NewReaderSize(r, 1<<17)
	var fixed [12]byte
	if _, err := io.ReadFull(in, fixed[:]); err != nil || string(fixed[:8]) != ledgerMagic {
		return nil, fmt.Errorf("%w: it does not begin like a ledger", ErrLedger)
	}
	n := binary.LittleEndian.Uint32(fixed[8:])
	if n > maxHeader {
		return nil, fmt.Errorf("%w: its header is said to have %d bytes", ErrLedger, n)
	}
	head := make([]byte, n+4)
	if _, err := io.ReadFull(in, head); err != nil {
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
	var rec [recordSize]byte
	for bad := false; ; { // bad: a record with a wrong checksum, allowed only if it is the last
		_, err := io.ReadFull(in, rec[:])
		switch {
		case err == io.EOF:
			return x, nil
		case err != nil && err != io.ErrUnexpectedEOF:
			return nil, err
		case bad:
			return nil, fmt.Errorf("%w: the record at byte %d does not match its checksum", ErrLedger, x.size)
		case err != nil:
			return x, nil
		}
		k, w, ok := decodeRecord(rec[:], x.crc)
		if bad = !ok; bad {
			continue
		}
		if err := x.apply(k, w); err != nil {
			return nil, fmt.Errorf("%w: the record at byte %d: %w", ErrLedger, x.size, err)
		}
		x.size += recordSize
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

// Ledger is a ledger being written. Each record goes to the file with one write
// call, without a buffer. So records survive the death of the process; after Durable
// also a crash of its machine.
// It belongs to one goroutine.
type Ledger struct {
	f    *os.File
	now  func() int64
	rec  [recordSize]byte
	sync bool // each record is on the disk before put returns
	x    *Index
}

// CreateLedger creates a new ledger. The file must not exist; the error is
// os.ErrExist if it does. now returns the wall clock in ns.
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
	return &Ledger{f: f, now: now, x: &Index{Header: h, crc: crc, size: int64(len(b))}}, nil
}

// Durable has each record on the disk before the writer goes on, so that the ledger
// survives a crash of the machine: no write is issued that it does not know.
func (l *Ledger) Durable() error {
	l.sync = true
	return l.f.Sync()
}

// Close closes the file.
func (l *Ledger) Close() error { return l.f.Close() }

func (l *Ledger) put(k kind, w write, errno uint32) error {
	w.wall = l.now()
	encodeRecord(l.rec[:], l.x.crc, k, w, errno)
	if n, err := l.f.Write(l.rec[:]); err != nil {
		// Half a record in the middle would damage the ledger: remove it.
		if n > 0 {
			if terr := l.f.Truncate(l.x.size); terr == nil {
				_, _ = l.f.Seek(l.x.size, io.SeekStart)
			}
		}
		return fmt.Errorf("ledger: %w", err)
	}
	if l.sync {
		if err := unix.Fdatasync(int(l.f.Fd())); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	l.x.size += recordSize
	return l.x.apply(k, w)
}

// Intent records that the writer is about to write n blocks from block on. It
// returns the generation and the sequence to write them with. After an error the
// writer must not issue the write.
func (l *Ledger) Intent(block uint64, n uint32) (gen uint32, seq uint64, err error) {
	gen, err = l.x.nextGen(block, n)
	if err != nil {
		return 0, 0, err
	}
	seq = l.x.seq + 1
	return gen, seq, l.put(kindIntent, write{seq: seq, block: block, n: n, gen: gen}, 0)
}

// Ack records that the write is acknowledged: a synchronous write wrote all its
// bytes.
func (l *Ledger) Ack(seq uint64) error { return l.put(kindAck, write{seq: seq}, 0) }

// Synced records the success of an fsync that began after write seq and all
// writes before it had returned. It acknowledges all of them except those in
// doubt.
func (l *Ledger) Synced(seq uint64) error { return l.put(kindSync, write{seq: seq}, 0) }

// Doubt records that the write failed or was short: its range stays undecided
// until a later write of it is acknowledged.
func (l *Ledger) Doubt(seq uint64, errno uint32) error {
	return l.put(kindDoubt, write{seq: seq}, errno)
}

// SyncFailed records that an fsync failed. No later fsync acknowledges the
// writes before it, since the kernel no longer knows which pages failed.
func (l *Ledger) SyncFailed(errno uint32) error { return l.put(kindSyncErr, write{}, errno) }

// Index is the ledger's index. Use it only when the writer has ended.
func (l *Ledger) Index() *Index { return l.x }
