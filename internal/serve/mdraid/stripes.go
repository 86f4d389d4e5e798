package mdraid

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// stripesTime is how long a comparison may stand still before the start is refused. While it
// gets on, the start waits for it: nothing else can bring the arrays up. A start that ends
// early leaves the rest to the next one on this server.
const stripesTime = time.Minute

// Settle looks whether a RAID 6 that was being written, and lacks one member, is
// whole all the same. Only what the write-intent bitmap calls dirty can be torn.
// There, P and Q each tell what the missing member held: where both tell the
// same, the stripe was written whole or not at all. A stripe whose P or Q is what
// is missing has all its data.
//
// It only reads. If nothing is in doubt, or a person has accepted what is, the array
// may be started, and md, which takes the missing data from P as well, brings its
// parities up to date; settle then takes back v.Doubt. Else it returns what is in doubt.
// It tells got of what no start has compared before.
func (s *stripes) Settle(ctx context.Context, a Array, v *Verdict, got *Reached) *doubt.ArrayInDoubt {
	if v.Doubt == nil {
		return nil
	}
	d := &doubt.ArrayInDoubt{Name: a.Name, UUID: md.Hex(a.UUID), Events: v.Newest.Events, Missing: v.Missing}
	started := func() bool { // a person has accepted d
		if !s.Doubts.Accepted(*d) {
			return false
		}
		v.Notes = append(v.Notes, "may have wrong data, and is started because a person has accepted that: "+(&doubt.Doubt{Arrays: []doubt.ArrayInDoubt{*d}}).String())
		v.Doubt = nil
		return true
	}
	if d.Unknown = "a person has accepted any block"; started() {
		return nil
	}
	d.Unknown = ""
	t, err := s.torn(ctx, a, v)
	if err == nil {
		err = s.compare(ctx, t, d, got)
	}
	switch {
	case d.Remaining > 0:
		d.Blocks, d.Unknown = nil, fmt.Sprintf("of %d MiB of each disk %d are compared so far; the next start goes on", t.bytes(0)>>20, (t.bytes(0)-d.Remaining)>>20)
	case err != nil:
		d.Blocks, d.Unknown = nil, err.Error()
	case len(d.Blocks) == 0:
		s.Log.Found(unit.NotedWhole, a.Name, "array %s: was being written when its server died, and lacks a member; where its bitmap says so, %d MiB of each disk, its parities agree: nothing is in doubt", a.Name, t.bytes(0)>>20)
		v.Doubt = nil
		return nil
	}
	if started() {
		return nil
	}
	return d
}

// tornArray is a RAID 6 that lacks one member, and where its stripes may be torn.
type tornArray struct {
	slots   []Member // one without a superblock
	chunk   int64
	missing int
	parts   [][2]int64 // of each member, bytes
}

// bytes is how much of each member is compared from a row on.
func (t *tornArray) bytes(from int64) (n int64) {
	for _, p := range t.parts {
		n += max(0, p[1]-max(p[0], from*t.chunk))
	}
	return n
}

// compared is how far starts on this server have compared an array, and what they found.
// It holds while the array is as it was: it was not started since.
type compared struct {
	UUID    string  `json:"uuid"` // 32 hex digits
	Events  uint64  `json:"events"`
	Missing int     `json:"missing_slot"`
	Next    int64   `json:"next_row"`
	Bad     []int64 `json:"bad"` // offsets in the array, bytes
}

// compare compares what no start has compared yet. If time runs out, d.Remaining tells how
// much of each disk is left.
func (s *stripes) compare(ctx context.Context, t *tornArray, d *doubt.ArrayInDoubt, got *Reached) error {
	now := compared{UUID: d.UUID, Events: d.Events, Missing: t.missing}
	notes := func() (all []compared) {
		s.Log.NoteErr(s.Doubts.ComparedNote().Load(&all), "")
		return all
	}
	for _, c := range notes() {
		if c.UUID == now.UUID && c.Events == now.Events && c.Missing == now.Missing {
			now = c
		}
	}
	last := t.bytes(now.Next)
	got.add(0, last)
	err := t.compare(ctx, &now, s.K.ReadBlocks, func() {
		s.saving.Lock()
		defer s.saving.Unlock()
		others := slices.DeleteFunc(notes(), func(c compared) bool { return c.UUID == now.UUID })
		s.Log.NoteErr(s.Doubts.ComparedNote().Save(append(others, now)), "the next start has to compare array %s anew", d.Name)
		left := t.bytes(now.Next)
		got.add(last-left, 0)
		last = left
	})
	if d.Blocks = now.Bad; err != nil && ctx.Err() != nil {
		d.Remaining = t.bytes(now.Next)
	}
	return err
}

// Reached is how far the comparison of all arrays is.
type Reached struct {
	done, of atomic.Int64 // bytes of a member of each array
	Moved    func()       // called when it gets on
}

func (r *Reached) add(done, of int64) {
	r.of.Add(of)
	if r.done.Add(done); done > 0 {
		r.Moved()
	}
}

func (r *Reached) String() string {
	return fmt.Sprintf("%d of %d MiB of a disk of each array", r.done.Load()>>20, r.of.Load()>>20)
}

// torn reads the bitmaps of all members. An error says why they tell nothing.
//
// A bitmap may be one event behind its member: when md has nothing more to write it takes
// the event of its last write back, first in the bitmaps. A disk that does not answer then
// holds up the superblocks. No bit is cleared by that, and md writes no data before the
// superblocks are written.
//
// Source: the kernel's drivers/md/md.c, md_update_sb
func (s *stripes) torn(ctx context.Context, a Array, v *Verdict) (*tornArray, error) {
	sb := v.Newest
	t := &tornArray{slots: v.Slots, chunk: sb.Chunk, missing: -1}
	switch {
	case sb.Level != 6 || sb.Layout != raid6.LeftSymmetric || v.Missing != 1:
		return nil, fmt.Errorf("it takes a RAID 6 of the layout left-symmetric that lacks one member")
	case sb.Features&md.FeatureReshape != 0:
		return nil, errors.New("its geometry is being changed")
	case sb.Bitmap == 0:
		return nil, errors.New("it has no write-intent bitmap")
	case sb.Chunk < raid6.Block || sb.Chunk%raid6.Block != 0 || sb.Size < sb.Chunk || sb.Size%sb.Chunk != 0:
		return nil, fmt.Errorf("chunks of %d bytes, %d bytes of each member", sb.Chunk, sb.Size)
	}
	var head *md.Bitmap
	var copies [][]byte
	var asked []Member
	for i, m := range t.slots {
		if m.SB == nil {
			t.missing = i
			continue
		}
		if m.SB.Data%raid6.Block != 0 || m.SB.Bitmap%raid6.Block != 0 {
			return nil, fmt.Errorf("%s: its data begin at %d, its bitmap at %d", m.Dev, m.SB.Data, m.SB.Bitmap)
		}
		if m.SB.Events == sb.Events { // or it is one event behind, and its bitmap may be, too
			asked = append(asked, m)
		}
	}
	heads, bits, err := s.bitmaps(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i, m := range asked {
		h, b := heads[i], bits[i]
		switch {
		case h.Lost || h.UUID != md.Hex(a.UUID) || h.Events+1 < sb.Events || h.Size != sb.Size || head != nil && h.Chunk != head.Chunk:
			return nil, fmt.Errorf("%s: its bitmap is out of date", m.Dev)
		}
		head, copies = h, append(copies, b)
	}
	if t.missing < 0 || head == nil {
		return nil, errors.New("no member has a bitmap that is up to date")
	}
	t.parts = head.Dirtied(copies...)
	return t, nil
}

// bitmaps reads the bitmaps of members side by side: the heads first, which tell the sizes.
func (s *disks) bitmaps(ctx context.Context, members []Member) (heads []*md.Bitmap, bits [][]byte, err error) {
	sizes := make([]int, len(members))
	ask := func() error {
		var all []kernel.Question
		for i, m := range members {
			all = append(all, kernel.Question{Dev: m.Dev, Off: m.SB.Bitmap, N: max(sizes[i], raid6.Block)})
		}
		bits = nil
		for i, a := range s.K.Ask(ctx, kernel.AskLimit, all) {
			if a.Err != nil {
				return fmt.Errorf("%s: %w", members[i].Dev, a.Err)
			}
			bits = append(bits, a.Data)
		}
		return nil
	}
	if err := ask(); err != nil {
		return nil, nil, err
	}
	large := false
	for i, m := range members {
		h, err := md.ParseBitmap(bits[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Dev, err)
		}
		heads = append(heads, h)
		sizes[i] = (int(h.Bytes()) + raid6.Block - 1) / raid6.Block * raid6.Block
		large = large || sizes[i] > raid6.Block
	}
	if large {
		err = ask()
	}
	return heads, bits, err
}

// rowsAtOnce is how many rows are compared before that is written down.
const rowsAtOnce = 8

// compare goes on with a comparison: it adds blocks of which P and Q do not tell the same,
// and calls save each time that it has got further.
func (t *tornArray) compare(ctx context.Context, c *compared, read func(dev string, off int64, n int) ([]byte, error), save func()) error {
	var rows []int64
	flush := func(next int64) error {
		if len(rows) == 0 {
			return nil
		}
		bad, err := t.compareRows(ctx, rows, read)
		if err != nil {
			return err
		}
		rows, c.Next, c.Bad = rows[:0], next, append(c.Bad, bad...)
		save()
		return nil
	}
	next := c.Next
	for _, part := range t.parts {
		for row := max(next, part[0]/t.chunk); row*t.chunk < part[1]; row++ { // two parts may share a row
			next = row + 1
			if ip, iq, _ := (raid6.Layout{Disks: len(t.slots)}).Row(row); t.missing == ip || t.missing == iq {
				continue
			}
			if rows = append(rows, row); len(rows) == rowsAtOnce {
				if err := flush(next); err != nil {
					return err
				}
			}
		}
	}
	return flush(next)
}

// compareRows compares some rows beside each other.
func (t *tornArray) compareRows(ctx context.Context, rows []int64, read func(dev string, off int64, n int) ([]byte, error)) (bad []int64, err error) {
	found := make([][]int64, len(rows))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for i, row := range rows {
		g.Go(func() (err error) {
			if err = gctx.Err(); err == nil {
				found[i], err = t.compareRow(read, row)
			}
			return err
		})
	}
	err = g.Wait() // of a row that begins too late
	return slices.Concat(found...), err
}

// compareRow compares a row of chunks.
func (t *tornArray) compareRow(read func(string, int64, int) ([]byte, error), row int64) (bad []int64, err error) {
	ip, iq, id := raid6.Layout{Disks: len(t.slots)}.Row(row)
	bufs := make([][]byte, len(t.slots))
	var g errgroup.Group
	for i, m := range t.slots {
		if i == t.missing {
			bufs[i] = make([]byte, t.chunk)
			continue
		}
		g.Go(func() (err error) {
			if bufs[i], err = read(m.Dev, m.SB.Data+row*t.chunk, int(t.chunk)); err != nil {
				err = fmt.Errorf("%s: %w", m.Dev, err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	data := make([][]byte, len(id))
	lost := 0
	for z, slot := range id {
		data[z] = bufs[slot]
		if slot == t.missing {
			lost = z
		}
	}
	blocks, err := raid6.Disagree(bufs[ip], bufs[iq], data, lost)
	for _, b := range blocks {
		bad = append(bad, (row*int64(len(id))+int64(lost))*t.chunk+int64(b)*raid6.Block)
	}
	return bad, err
}

// Marks are the superblocks and bitmaps of the members: md changes them soon after a write to
// an array that was at rest, and as long as other parts of it are written.
func (s *Kind) Marks(ctx context.Context) map[string]string {
	var names, devs []string
	for _, a := range s.Cfg.Arrays {
		for _, dev := range a.Members {
			names, devs = append(names, dev+" of array "+a.Name), append(devs, dev)
		}
	}
	all := map[string]string{}
	sbs, errs := s.superblocksOf(ctx, devs...)
	for i, name := range names {
		switch all[name] = ""; {
		case errs[i] != nil:
		case sbs[i].Bitmap == 0:
			all[name] = fmt.Sprintf("%d %d", sbs[i].Events, sbs[i].ResyncedTo)
		default:
			if _, bits, err := s.bitmaps(ctx, []Member{{Dev: devs[i], SB: sbs[i]}}); err == nil {
				sum := fnv.New64a()
				sum.Write(bits[0])
				all[name] = fmt.Sprintf("%d %d %x", sbs[i].Events, sbs[i].ResyncedTo, sum.Sum64())
			}
		}
	}
	return all
}
