package ocf

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// members are disks of a RAID 6 of four with a bitmap, as md writes them.
type members struct {
	kernel.Host
	dev map[string][]byte
}

const (
	stripeChunk = 8192
	stripeRows  = 64
	bitmapChunk = 4 * stripeChunk
	bitmapAt    = 8192
	dataAt      = 1 << 16
)

func (m *members) Now() time.Time { return time.Now() }

func (m *members) Realpath(p string) (string, error) {
	if m.dev[p] == nil {
		return "", fs.ErrNotExist
	}
	return p, nil
}

func (m *members) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	if off%4096 != 0 || n%4096 != 0 {
		return nil, fmt.Errorf("%d bytes at %d with O_DIRECT", n, off)
	}
	if m.dev[dev] == nil {
		return nil, fs.ErrNotExist
	}
	return m.dev[dev][off : off+int64(n)], nil
}

func (m *members) Ask(_ context.Context, _ time.Duration, all []kernel.Question) []kernel.Answer {
	return asked(all, nil, m.ReadBlocks)
}

func (m *members) ReadFile(name string) ([]byte, error) {
	if name == "/proc/uptime" {
		return []byte("9999.0 1.0\n"), nil
	}
	return nil, fs.ErrNotExist
}

func (m *members) Save(string, []byte) error { return nil }

// double is a byte times two in the field of RAID 6.
func double(b byte) byte {
	if b&0x80 != 0 {
		return b<<1 ^ 0x1d
	}
	return b << 1
}

// at is where a row's chunk begins on a member.
func at(row int64) int64 { return dataAt + row*stripeChunk }

// parities brings P and Q of a row up to date.
func (m *members) parities(row int64) {
	slotP, slotQ, data := raid6.Layout{Disks: 4}.Row(row)
	chunk := func(slot int) []byte { return m.dev[slotDev(slot)][at(row):][:stripeChunk] }
	p, q, a, b := chunk(slotP), chunk(slotQ), chunk(data[0]), chunk(data[1])
	for i := range p {
		p[i], q[i] = a[i]^b[i], a[i]^double(b[i])
	}
}

func slotDev(slot int) string { return fmt.Sprintf("/dev/mapper/d%d", slot) }

// newMembers is an array whose server died while it wrote where the bitmap's
// bits dirty say.
func newMembers(dirty ...int) *members {
	m := &members{dev: map[string][]byte{}}
	for name, d := range wholeMembers().dev {
		m.dev[name] = bytes.Clone(d)
		copy(m.dev[name][bitmapAt:], testBitmap(9, stripeRows*stripeChunk, dirty...))
	}
	return m
}

// wholeMembers is the array without a bitmap.
var wholeMembers = sync.OnceValue(func() *members {
	m := &members{dev: map[string][]byte{}}
	const size = stripeRows * stripeChunk
	rng := rand.NewChaCha8([32]byte{5, 6})
	for slot := range 4 {
		d := make([]byte, dataAt+size)
		rng.Read(d[dataAt:])
		sb := testSuperblock{uuid: arrayUUID, level: 6, layout: 2, disks: 4, dev: uint32(slot), events: 9, dirty: true,
			roles: []uint16{0, 1, 2, 3}, chunk: stripeChunk, size: size, data: dataAt, bitmap: bitmapAt}
		copy(d[md.SuperblockOffset:], sb.bytes())
		m.dev[slotDev(slot)] = d
	}
	for row := range int64(stripeRows) {
		m.parities(row)
	}
	return m
})

func testBitmap(events uint64, size int64, dirty ...int) []byte {
	le := binary.LittleEndian
	b := make([]byte, 4096)
	copy(b, "bitm")
	le.PutUint32(b[4:], 4)
	raw, _ := hex.DecodeString(arrayUUID)
	copy(b[8:], raw)
	le.PutUint64(b[24:], events)
	le.PutUint64(b[32:], events)
	le.PutUint64(b[40:], uint64(size/512))
	le.PutUint32(b[52:], bitmapChunk)
	for _, c := range dirty {
		b[256+c/8] |= 1 << (c % 8)
	}
	return b
}

// start judges the array as a start does.
func (m *members) start(t *testing.T) (mdraid.Verdict, error) {
	t.Helper()
	s := mdraid.New(&unit.Host{K: m, Log: &unit.Steps{Stderr: io.Discard, Now: time.Now}}, &mdraid.MDStorage{}, &doubt.Notes{Host: &unit.Host{K: m}}, nil)
	a := groupR0()
	v, err := judged(s, a, mdraid.Superblocks{})
	if err != nil {
		t.Fatal(err)
	}
	return v, refusedBy(t.Context(), s, a, &v)
}

// refusedBy is the error of a start of one array.
func refusedBy(ctx context.Context, s *mdraid.Kind, a mdraid.Array, v *mdraid.Verdict) error {
	if d := s.Stripes.Settle(ctx, a, v, &mdraid.Reached{Moved: func() {}}); d != nil {
		return (&doubt.Doubt{Service: "home", Arrays: []doubt.ArrayInDoubt{*d}}).Refusal(v.Doubt)
	}
	return nil
}

// A server died while it wrote, and one disk is missing: the array starts if its
// parities agree wherever it was being written.
func TestSettle(t *testing.T) {
	const row = 5 // in chunk 1 of the bitmap; P is on slot 2, Q on 3, data on 0 and 1
	flip := func(m *members, slot int, off int64) { m.dev[slotDev(slot)][at(row)+off] ^= 0x55 }
	for _, c := range []struct {
		name    string
		dirty   []int
		missing int
		change  func(m *members)
		want    string // of the refusal; empty: it starts
	}{
		{name: "nothing was under way", dirty: []int{1}, missing: 0},
		{name: "no bit is set", missing: 1},
		{name: "a neighbour and both parities are written", dirty: []int{1}, missing: 0, change: func(m *members) {
			flip(m, 1, 9)
			m.parities(row)
		}},
		{name: "a neighbour is written, its parities are not", dirty: []int{1}, missing: 0, change: func(m *members) { flip(m, 1, 9) },
			want: "in doubt are the blocks of 4096 bytes at 81920 (1 in all); all else is whole"},
		{name: "P is written, Q is not", dirty: []int{0, 1}, missing: 1, change: func(m *members) { flip(m, 2, 4096) },
			want: "at 94208 ("},
		{name: "Q is written, P is not", dirty: []int{1, 15}, missing: 1, change: func(m *members) { flip(m, 3, 0) },
			want: "at 90112 ("},
		{name: "torn where P is missing: all data are there", dirty: []int{1}, missing: 2, change: func(m *members) { flip(m, 1, 9) }},
		{name: "torn where Q is missing", dirty: []int{1}, missing: 3, change: func(m *members) { flip(m, 1, 9) }},
		{name: "only where a bit is set it can be torn", dirty: []int{2}, missing: 0, change: func(m *members) { flip(m, 1, 9) }},
		{name: "bits of one member are enough", missing: 0, change: func(m *members) {
			copy(m.dev[slotDev(3)][bitmapAt:], testBitmap(9, stripeRows*stripeChunk, 1))
			flip(m, 1, 9)
		}, want: "(1 in all)"},
		{name: "the bitmap is old", dirty: []int{1}, missing: 0, change: func(m *members) {
			copy(m.dev[slotDev(3)][bitmapAt:], testBitmap(7, stripeRows*stripeChunk))
		}, want: "d3: its bitmap is out of date"},
		{name: "md was taking its last event back", missing: 0, change: func(m *members) {
			for slot := range 4 {
				copy(m.dev[slotDev(slot)][bitmapAt:], testBitmap(8, stripeRows*stripeChunk, 1))
			}
		}},
		{name: "md was taking its last event back, and a stripe is torn", missing: 0, change: func(m *members) {
			for slot := range 4 {
				copy(m.dev[slotDev(slot)][bitmapAt:], testBitmap(8, stripeRows*stripeChunk, 1))
			}
			flip(m, 1, 9)
		}, want: "at 81920 (1 in all)"},
		{name: "the bitmap is of another size", dirty: []int{1}, missing: 0, change: func(m *members) {
			copy(m.dev[slotDev(3)][bitmapAt:], testBitmap(9, 2*stripeRows*stripeChunk))
		}, want: "out of date"},
		{name: "the bitmap could not be written", dirty: []int{1}, missing: 0, change: func(m *members) {
			m.dev[slotDev(3)][bitmapAt+48] = 4
		}, want: "out of date"},
		{name: "there is no bitmap", missing: 0, change: func(m *members) { clear(m.dev[slotDev(3)][bitmapAt:][:8]) }, want: "no write-intent bitmap"},
		{name: "two are missing", dirty: []int{1}, missing: 0, change: func(m *members) { delete(m.dev, slotDev(1)) }, want: "that lacks one member"},
		{name: "a disk that cannot be read", dirty: []int{1}, missing: 0, change: func(m *members) { m.dev[slotDev(3)][bitmapAt] = 'x' }, want: "cannot be told"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMembers(c.dirty...)
			if c.change != nil {
				c.change(m)
			}
			delete(m.dev, slotDev(c.missing))
			v, err := m.start(t)
			if c.want != "" {
				if !says(err, c.want) || !says(err, "[in-doubt] arrays=r0") {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil || !v.DirtyDegraded || v.Doubt != nil {
				t.Errorf("it does not start: %v, %+v", err, v)
			}
		})
	}
}

func TestSettleTakesItsTime(t *testing.T) {
	m := newMembers(1)
	delete(m.dev, slotDev(0))
	s := mdraid.New(&unit.Host{K: m}, &mdraid.MDStorage{}, &doubt.Notes{Host: &unit.Host{K: m}}, nil)
	v := mdraid.Verdict{Doubt: errors.New("doubt"), Missing: 1}
	for slot := range 4 {
		x := mdraid.Member{Dev: slotDev(slot)}
		if slot != 0 {
			x.SB, _ = s.Superblock(t.Context(), x.Dev)
			v.Newest = x.SB
		}
		v.Slots = append(v.Slots, x)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := refusedBy(ctx, s, mdraid.Array{Name: "r0", UUID: arrayUUID}, &v); err == nil || v.Doubt == nil {
		t.Error("what was not compared is taken for whole")
	}
}

// slowMembers are disks that take 3 s for each read of data, and files that are kept.
type slowMembers struct {
	*members
	mu    sync.Mutex
	files map[string][]byte
	busy  map[string]chan struct{}
	each  time.Duration // more than 3 s for each read
	reads atomic.Int64
}

// idle is a service of which nothing runs here.
type idle struct{}

func (idle) Active() (some, all bool, err error) { return false, false, nil }
func (idle) Mine(context.Context) error          { return nil }
func (idle) HoldUdev(context.Context)            {}

func newSlowMembers(m *members) *slowMembers {
	slow := &slowMembers{members: m, files: map[string][]byte{}, busy: map[string]chan struct{}{}}
	for dev := range m.dev {
		slow.busy[dev] = make(chan struct{}, 1)
	}
	return slow
}

// groupR0 is the array that newMembers makes.
func groupR0() mdraid.Array {
	a := mdraid.Array{Name: "r0", UUID: md.UUID(arrayUUID)}
	for slot := range 4 {
		a.Members = append(a.Members, slotDev(slot))
	}
	return a
}

// kind is the storage of a service with these arrays.
func (m *slowMembers) kind(arrays ...mdraid.Array) *mdraid.Kind {
	h := &unit.Host{K: m, Service: "home", Node: "nfs2", Log: &unit.Steps{Stderr: io.Discard, Now: time.Now}}
	return mdraid.New(h, &mdraid.MDStorage{Arrays: arrays}, &doubt.Notes{Host: h}, idle{})
}

func (m *slowMembers) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	if off >= dataAt {
		m.busy[dev] <- struct{}{}
		time.Sleep(max(m.each, 3*time.Second))
		<-m.busy[dev]
		m.reads.Add(1)
	}
	return m.members.ReadBlocks(dev, off, n)
}

func (m *slowMembers) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.files[name]; ok {
		return b, nil
	}
	return m.members.ReadFile(name)
}

func (m *slowMembers) Save(name string, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = b
	return nil
}

func (m *slowMembers) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

// lookForAMinute is a start that ends after a minute.
func lookForAMinute(t *testing.T, s *mdraid.Kind) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.LookAll(ctx)
	return err
}

// A comparison that gets on is waited for, however long it takes.
func TestSettleIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
		delete(m.dev, slotDev(0))
		slow := newSlowMembers(m)
		begun := time.Now()
		if _, err := slow.kind(groupR0()).LookAll(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < 90*time.Second {
			t.Errorf("it took %v: the test tests nothing", took)
		}
	})
}

// What does not fit into the time of one start is compared by the next ones, each stripe
// once; nothing starts before that, and the blocks that the first one found count.
func TestSettleGoesOn(t *testing.T) {
	for _, torn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMembers(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
			if torn {
				m.dev[slotDev(1)][at(5)] ^= 0x55
			}
			delete(m.dev, slotDev(0))
			slow := newSlowMembers(m)
			s := slow.kind(groupR0())
			for start := 1; ; start++ {
				begun := time.Now()
				err := lookForAMinute(t, s)
				if took := time.Since(begun); took > 1*time.Minute+30*time.Second {
					t.Errorf("start %d took %v", start, took)
				}
				d := doubt.Of(err)
				if d != nil {
					if err := s.Doubts.SaveDoubt(d); err != nil {
						t.Fatal(err)
					}
				}
				if d != nil && d.Arrays[0].Remaining > 0 {
					if s.Sound(t.Context()) != nil {
						t.Fatal("the watcher does not have Pacemaker try again")
					}
					if start == 9 {
						t.Fatalf("start %d: %v", start, err)
					}
					continue
				}
				if torn && (d == nil || !slices.Equal(d.Arrays[0].Blocks, []int64{81920}) || s.Sound(t.Context()) == nil) || !torn && err != nil {
					t.Errorf("start %d: %v", start, err)
				}
				if start < 2 {
					t.Error("one start was enough: the test tests nothing")
				}
				break
			}
			// 64 rows; the missing member is P or Q of half of them. What a start had begun
			// when its time was over is compared again.
			if n := slow.reads.Load() / 3; n < 32 || n > 32+8*8 {
				t.Errorf("%d rows were compared", n)
			}
			// Once the array was started all of it is compared again.
			for slot := 1; slot < 4; slot++ {
				sb := testSuperblock{uuid: arrayUUID, level: 6, layout: 2, disks: 4, dev: uint32(slot), events: 11, dirty: true,
					roles: []uint16{0, 1, 2, 3}, chunk: stripeChunk, size: stripeRows * stripeChunk, data: dataAt, bitmap: bitmapAt}
				copy(m.dev[slotDev(slot)][md.SuperblockOffset:], sb.bytes())
				copy(m.dev[slotDev(slot)][bitmapAt:], testBitmap(11, stripeRows*stripeChunk, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
			}
			if err := lookForAMinute(t, s); !says(err, "[comparing] arrays=r0") {
				t.Errorf("another event: %v", err)
			}
		})
	}
}

// Starts compare every group to its end, also if one has blocks in doubt. Until then the
// agent tells a person to wait. Then it asks once, for all groups.
func TestSettleGoesOnWithAllGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
		slow := newSlowMembers(newMembers(all[:4]...))
		slow.dev[slotDev(1)][at(5)] ^= 0x55
		const otherUUID = "11111111222222223333333344444444"
		b := mdraid.Array{Name: "r1", UUID: md.UUID(otherUUID)}
		for slot := range 4 {
			b.Members = append(b.Members, slotDev(slot)+"b")
			d := bytes.Clone(newMembers(all...).dev[slotDev(slot)])
			other, _ := hex.DecodeString(otherUUID)
			sb := testSuperblock{uuid: otherUUID, level: 6, layout: 2, disks: 4, dev: uint32(slot), events: 9, dirty: true,
				roles: []uint16{0, 1, 2, 3}, chunk: stripeChunk, size: stripeRows * stripeChunk, data: dataAt, bitmap: bitmapAt}
			copy(d[md.SuperblockOffset:], sb.bytes())
			copy(d[bitmapAt+8:], other)
			slow.dev[slotDev(slot)+"b"] = d
			slow.busy[slotDev(slot)+"b"] = make(chan struct{}, 1)
		}
		delete(slow.dev, slotDev(0))
		delete(slow.dev, slotDev(0)+"b")
		s := slow.kind(groupR0(), b)
		for start := 1; ; start++ {
			err := lookForAMinute(t, s)
			d := doubt.Of(err)
			if d == nil || start == 9 {
				t.Fatalf("start %d: %v", start, err)
			}
			if err := s.Doubts.SaveDoubt(d); err != nil {
				t.Fatal(err)
			}
			if d.Remaining() == 0 {
				if start < 2 || len(d.Arrays) != 1 || len(d.Arrays[0].Blocks) != 1 || s.Sound(t.Context()) == nil || codeOf(err) != refusal.InDoubt {
					t.Errorf("start %d: %v", start, err)
				}
				return
			}
			if s.Sound(t.Context()) != nil {
				t.Fatalf("start %d: the watcher does not have Pacemaker try again", start)
			}
			if short := err.Error()[:110]; codeOf(err) != refusal.Comparing || !strings.Contains(short, "MiB of a disk are left") {
				t.Errorf("start %d: Pacemaker tells %q", start, short)
			}
		}
	})
}

// Disks with which no start gets further are a person's to judge.
func TestSettleGetsNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowMembers(newMembers(0, 1, 2, 3, 4, 5, 6, 7))
		slow.each = 40 * time.Second
		delete(slow.dev, slotDev(0))
		s := slow.kind(groupR0())
		_, err := s.LookAll(t.Context())
		d := doubt.Of(err)
		if d == nil || !says(err, "[in-doubt] arrays=r0") || !strings.Contains(d.Arrays[0].Unknown, "too slow") {
			t.Fatal(err)
		}
		if err := s.Doubts.SaveDoubt(d); err != nil || s.Sound(t.Context()) == nil {
			t.Errorf("%v, and the watcher has Pacemaker try again", err)
		}
	})
}

// Who accepts any block does not wait for a comparison.
func TestSettleAcceptedUnseen(t *testing.T) {
	m := newMembers(1)
	m.dev[slotDev(1)][at(5)] ^= 0x55
	delete(m.dev, slotDev(0))
	slow := newSlowMembers(m)
	s := slow.kind(groupR0())
	slow.files[doubt.AcceptedFile("home")] = []byte(`{"service": "home", "arrays": [{"name": "r0", "uuid": "` + arrayUUID + `", "events": 9, "unknown": "why"}]}`)
	if v, err := s.LookAll(t.Context()); err != nil || !v[0].DirtyDegraded || slow.reads.Load() > 0 {
		t.Errorf("%v, %d reads", err, slow.reads.Load())
	}
}
