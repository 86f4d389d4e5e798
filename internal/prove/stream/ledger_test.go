package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/test/ownprocess"
)

func TestLedgerRules(t *testing.T) {
	b := newBrick(t, "run", 1)
	l := b.l
	intent := func(block uint64, n uint32) uint64 {
		t.Helper()
		_, seq, err := l.Intent(block, n)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(block uint64, acked, issued uint32) {
		t.Helper()
		if e := l.x.Expect(block); e != (Expect{acked, issued}) {
			t.Errorf("block %d: %+v, want %d %d", block, e, acked, issued)
		}
		x, err := ReadLedger(l.f.Name())
		must(err)
		if e := x.Expect(block); e != (Expect{acked, issued}) {
			t.Errorf("block %d as read again: %+v, want %d %d", block, e, acked, issued)
		}
	}
	must(l.Ack(intent(0, 4)))
	want(3, 1, 1)
	want(4, 0, 0)

	// A wide write over mixed generations is newer than all of them.
	must(l.Ack(intent(2, 1)))
	must(l.Ack(intent(0, 8)))
	want(0, 3, 3)
	want(7, 3, 3)

	// In doubt until acknowledged again.
	must(l.Doubt(intent(0, 1), 5))
	want(0, 3, 4)
	must(l.Ack(intent(0, 1)))
	want(0, 5, 5)

	// An fsync acknowledges the writes before it, except failed ones.
	s1, s2 := intent(10, 1), intent(11, 1)
	must(l.Doubt(s1, 5))
	s3 := intent(12, 1)
	must(l.Synced(s2))
	want(10, 0, 1)
	want(11, 1, 1)
	want(12, 0, 1)
	// A failed fsync leaves all writes before it in doubt, also after the next
	// fsync.
	must(l.SyncFailed(5))
	intent(13, 1)
	must(l.Synced(s3 + 1))
	want(12, 0, 1)
	want(13, 1, 1)

	// Two writes of one block before an fsync.
	intent(20, 1)
	last := intent(20, 1)
	must(l.Synced(last))
	want(20, 2, 2)

	if err := l.Ack(last); err == nil {
		t.Error("a write is acknowledged twice")
	}
	if _, _, err := l.Intent(maxBlocks, 1); err == nil {
		t.Error("a write past the largest file passes")
	}
	if n := l.Index().Blocks() * BlockSize; n != 21*BlockSize {
		t.Errorf("size %d", n)
	}
}

func TestLedgerIsNotOverwritten(t *testing.T) {
	b := newBrick(t, "run", 1)
	if _, err := CreateLedger(b.l.f.Name(), LedgerHeader{}, fakeNow()); !errors.Is(err, os.ErrExist) {
		t.Error("a ledger is overwritten:", err)
	}
}

// Whatever part of the last record a dying machine leaves, the ledger can be
// read and never promises more than was recorded.
func TestLedgerTail(t *testing.T) {
	b := newBrick(t, "run", 1)
	b.write(0, 1)
	b.write(1, 1)
	whole, err := os.ReadFile(b.l.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	head := len(whole) - 4*recordSize
	for n := head; n <= len(whole); n++ {
		x, err := ParseLedger(bytes.NewReader(whole[:n]))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		records := (n - head) / recordSize
		if ackedBytes(x) != int64(records/2)*BlockSize || x.seq != uint64((records+1)/2) {
			t.Fatalf("%d bytes: %+v", n, x)
		}
	}
	for n := range head {
		if _, err := ParseLedger(bytes.NewReader(whole[:n])); !errors.Is(err, ErrLedger) {
			t.Fatalf("%d bytes of the header: %v", n, err)
		}
	}
}

func TestLedgerDamage(t *testing.T) {
	b := newBrick(t, "run", 1)
	for i := range uint64(4) {
		b.write(i, 1)
	}
	whole, err := os.ReadFile(b.l.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	// A flipped bit before the last record is refused.
	for i := range len(whole) - recordSize {
		bad := bytes.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		if _, err := ParseLedger(bytes.NewReader(bad)); !errors.Is(err, ErrLedger) {
			t.Fatalf("bit in byte %d: %v", i, err)
		}
	}
	// Records of another ledger are refused.
	o := newBrick(t, "run", 2)
	for i := range uint64(4) {
		o.write(i, 1)
	}
	other, err := os.ReadFile(o.l.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	mixed := append(bytes.Clone(whole[:len(whole)-4*recordSize]), other[len(other)-4*recordSize:]...)
	if _, err := ParseLedger(bytes.NewReader(mixed)); !errors.Is(err, ErrLedger) {
		t.Error("records of another ledger pass:", err)
	}
	// A record lost from the middle.
	at := len(whole) - 4*recordSize
	if _, err := ParseLedger(bytes.NewReader(append(bytes.Clone(whole[:at]), whole[at+recordSize:]...))); !errors.Is(err, ErrLedger) {
		t.Error("a lost record passes:", err)
	}
}

// A full disk must not spoil the ledger.
func TestLedgerFull(t *testing.T) {
	if ownprocess.Repeated(t) {
		return
	}
	b := newBrick(t, "run", 1)
	b.write(0, 1)
	st, err := b.l.f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	// Room for half a record: write returns short, then EFBIG.
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(st.Size()) + recordSize/2, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, _, werr := b.l.Intent(1, 1)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if werr == nil {
		t.Fatal("half a record passes")
	}
	if _, seq, err := b.l.Intent(1, 1); err != nil || seq != 2 {
		t.Fatal(seq, err)
	}
	if x, err := ReadLedger(b.l.f.Name()); err != nil || x.Blocks() != 2 {
		t.Errorf("%+v %v", x, err)
	}
}

func FuzzParseLedger(f *testing.F) {
	b := newBrick(f, "run", 1)
	b.write(0, 4)
	b.issue(2, 2)
	_ = b.l.SyncFailed(5)
	whole, err := os.ReadFile(b.l.f.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte(ledgerMagic))
	// Records whose checksums are right, so that the fuzzer gets past them.
	f.Add(append(bytes.Clone(whole), make([]byte, 3*recordSize)...))
	x, err := ParseLedger(bytes.NewReader(whole))
	if err != nil {
		f.Fatal(err)
	}
	head := whole[:len(whole)-4*recordSize]
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, raw := range []bool{true, false} {
			if !raw {
				// The input as records with good checksums.
				recs := bytes.Clone(in[:len(in)/recordSize*recordSize])
				for r := recs; len(r) > 0; r = r[recordSize:] {
					k, w := kind(r[0]), write{}
					if _, d, ok := decodeRecord(r, x.crc); ok {
						w = d
					} else {
						w = write{seq: uint64(r[24]), block: uint64(r[16])<<(r[17]%40) + uint64(r[18]), n: uint32(r[4]), gen: uint32(r[8])}
					}
					encodeRecord(r, x.crc, k, w, 0)
				}
				in = append(bytes.Clone(head), recs...)
			}
			got, err := ParseLedger(bytes.NewReader(in))
			if err != nil {
				if !errors.Is(err, ErrLedger) {
					t.Fatal(err)
				}
				continue
			}
			if left := int64(len(in)) - got.size; left < 0 || left > recordSize {
				t.Fatalf("%d of %d bytes", got.size, len(in))
			}
			for p, pg := range got.pages {
				if pg == nil {
					continue
				}
				for i := range pg.acked {
					if pg.acked[i] > pg.issued[i] {
						t.Fatalf("block %d: acknowledged %d, issued %d", p*pageBlocks+i, pg.acked[i], pg.issued[i])
					}
				}
			}
		}
	})
}

// model is a disk with a ledger. The disk keeps what it must and loses what it
// may. The model itself remembers what was acknowledged.
type model struct {
	t   *testing.T
	rng *rand.Rand
	s   Stream
	l   *Ledger
	durable,
	cached map[uint64][]byte // blocks; cached are written and not yet synced
	acked   map[uint64]uint32
	issued  map[uint64]uint32
	history map[uint64][]byte // some older, acknowledged and then overwritten content
	unsync  []write
	crashed bool
}

const modelBlocks = 40

func (m *model) op() {
	block := m.rng.Uint64N(modelBlocks)
	n := uint32(1 + m.rng.Uint64N(min(4, modelBlocks-block)))
	must := func(err error) {
		if err != nil {
			m.t.Helper()
			m.t.Fatal(err)
		}
	}
	issue := func() write {
		gen, seq, err := m.l.Intent(block, n)
		must(err)
		for b := block; b < block+uint64(n); b++ {
			if gen <= m.issued[b] {
				m.t.Fatalf("generation %d of block %d is reused", gen, b)
			}
			m.issued[b] = gen
		}
		return write{seq: seq, block: block, n: n, gen: gen}
	}
	store := func(to map[uint64][]byte, b uint64, w write) {
		buf := make([]byte, BlockSize)
		m.s.Encode(buf, b, w.gen, w.seq, 1)
		to[b] = buf
	}
	ack := func(w write) {
		for b := w.block; b < w.block+uint64(w.n); b++ {
			if old := m.durable[b]; old != nil && m.acked[b] > 0 && m.acked[b] < w.gen {
				if h, err := Decode(old); err == nil && h.Generation < w.gen {
					m.history[b] = old
				}
			}
			m.acked[b] = max(m.acked[b], w.gen)
		}
	}
	// flush makes a cached block durable, as the kernel may at any time.
	flush := func(b uint64) {
		if c := m.cached[b]; c != nil {
			m.durable[b] = c
			delete(m.cached, b)
		}
	}
	switch m.rng.IntN(10) {
	case 0, 1, 2: // synchronous write
		w := issue()
		ack(w)
		for b := block; b < block+uint64(n); b++ {
			delete(m.cached, b)
			store(m.durable, b, w)
		}
		must(m.l.Ack(w.seq))
	case 3, 4, 5: // buffered write
		w := issue()
		for b := block; b < block+uint64(n); b++ {
			store(m.cached, b, w)
			if m.rng.IntN(4) == 0 {
				flush(b)
			}
		}
		m.unsync = append(m.unsync, w)
	case 6: // fsync
		if len(m.unsync) == 0 {
			return
		}
		for _, w := range m.unsync {
			ack(w)
		}
		for b := range uint64(modelBlocks) {
			flush(b)
		}
		must(m.l.Synced(m.unsync[len(m.unsync)-1].seq))
		m.unsync = nil
	case 7: // failed fsync: any part of what was cached is there, or not
		if len(m.unsync) == 0 {
			return
		}
		m.lose()
		must(m.l.SyncFailed(uint32(unix.EIO)))
		m.unsync = nil
	case 8: // failed write: any part of it is there, blocks may be torn
		w := issue()
		for b := block; b < block+uint64(n); b++ {
			if m.cached[b] != nil {
				flush(b)
			}
			m.tear(b, w)
		}
		must(m.l.Doubt(w.seq, uint32(unix.EIO)))
	case 9: // crash of the writer, in the middle of a write or between
		if m.rng.IntN(10) > 0 {
			return
		}
		if m.rng.IntN(2) == 0 {
			w := issue()
			for b := block; b < block+uint64(n); b++ {
				flush(b)
				m.tear(b, w)
			}
		}
		m.lose()
		m.unsync = nil
		path := m.l.f.Name()
		must(m.l.Close())
		if m.rng.IntN(2) == 0 { // and half a record
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must(err)
			_, err = f.Write(make([]byte, 1+m.rng.IntN(recordSize-1)))
			must(err)
			must(f.Close())
		}
		m.crashed = true
	}
}

// lose drops some of the cached blocks.
func (m *model) lose() {
	for b, c := range m.cached {
		if m.rng.IntN(2) == 0 {
			m.durable[b] = c
		}
		delete(m.cached, b)
	}
}

// tear lets some sectors of a write reach the disk.
func (m *model) tear(b uint64, w write) {
	buf := make([]byte, BlockSize)
	m.s.Encode(buf, b, w.gen, w.seq, 1)
	old := m.durable[b]
	if old == nil {
		old = make([]byte, BlockSize)
	}
	old = bytes.Clone(old)
	for i := range Sectors {
		if m.rng.IntN(3) > 0 {
			copy(old[i*SectorSize:(i+1)*SectorSize], buf[i*SectorSize:])
		}
	}
	m.durable[b] = old
}

func (m *model) image() []byte {
	img := make([]byte, modelBlocks*BlockSize)
	for b, c := range m.durable {
		copy(img[b*BlockSize:], c)
	}
	for b, c := range m.cached {
		copy(img[b*BlockSize:], c)
	}
	return img
}

func (m *model) verify(img []byte) *Report {
	m.t.Helper()
	x, err := ReadLedger(m.l.f.Name())
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := Verify(context.Background(), bytes.NewReader(img), int64(len(img)), x, Options{ChunkBytes: 8 * BlockSize})
	if err != nil {
		m.t.Fatal(err)
	}
	if want := int64(len(m.acked)) * BlockSize; r.AcknowledgedBytes != want {
		m.t.Fatalf("%d bytes acknowledged, the model says %d", r.AcknowledgedBytes, want)
	}
	for b := range uint64(modelBlocks) {
		if e := x.Expect(b); e.Acked != m.acked[b] || e.Issued != m.issued[b] {
			m.t.Fatalf("block %d: %+v, the model says %d and %d", b, e, m.acked[b], m.issued[b])
		}
	}
	return r
}

// On an honest disk Verify finds nothing lost or wrong. Of blocks then taken
// away Verify finds each one, and no other.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l, err := CreateLedger(filepath.Join(t.TempDir(), "l"), LedgerHeader{Run: "model", Stream: 1}, fakeNow())
			if err != nil {
				t.Fatal(err)
			}
			m := &model{
				t: t, rng: rand.New(rand.NewPCG(seed, 1)), s: NewStream(NewRunID("model"), 1), l: l,
				durable: map[uint64][]byte{}, cached: map[uint64][]byte{}, acked: map[uint64]uint32{}, issued: map[uint64]uint32{}, history: map[uint64][]byte{},
			}
			defer func() { m.l.Close() }()
			for i := range 120 {
				if m.crashed {
					break
				}
				m.op()
				if i%20 != 19 && !m.crashed {
					continue
				}
				img := m.image()
				if r := m.verify(img); !r.Pass() {
					t.Fatalf("step %d: an honest disk fails: %v", i, r.Extents)
				}
				// Take away blocks that hold acknowledged data.
				lost := map[uint64]bool{}
				for b := range m.acked {
					var with []byte
					switch m.rng.IntN(6) {
					case 0:
						with = make([]byte, BlockSize)
					case 1:
						with = m.history[b]
						if with == nil {
							continue
						}
					case 2:
						with = bytes.Clone(img[b*BlockSize : (b+1)*BlockSize])
						with[m.rng.IntN(BlockSize)] ^= 1
					case 3:
						if b+1 >= modelBlocks || m.acked[b+1] == 0 {
							continue
						}
						with = make([]byte, BlockSize)
						m.s.Encode(with, b+1, m.acked[b+1], 1, 1)
					default:
						continue
					}
					copy(img[b*BlockSize:], with)
					lost[b] = true
				}
				r := m.verify(img)
				if r.LostBytes != int64(len(lost))*BlockSize || r.BadBytes != 0 {
					t.Fatalf("step %d: lost %d bytes, wrong %d, taken %d blocks: %v", i, r.LostBytes, r.BadBytes, len(lost), r.Extents)
				}
				for _, e := range r.Extents {
					for b := uint64(e.Offset / BlockSize); e.Lost && b < uint64((e.Offset+e.Bytes)/BlockSize); b++ {
						if !lost[b] {
							t.Fatalf("step %d: block %d was not taken: %s", i, b, e)
						}
					}
				}
			}
		})
	}
}

// A durable ledger is read like any other, while its writer goes on.
func TestLedgerDurable(t *testing.T) {
	b := newBrick(t, "run", 1)
	if err := b.l.Durable(); err != nil {
		t.Fatal(err)
	}
	_, seq, err := b.l.Intent(0, 4)
	if err == nil {
		err = b.l.Ack(seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	x, err := ReadLedger(b.l.f.Name())
	if err != nil || x.Expect(3) != (Expect{1, 1}) {
		t.Errorf("%+v, %v", x, err)
	}
	if err := b.l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.l.Intent(0, 1); err == nil {
		t.Error("a record that is on no disk is an intent")
	}
}
