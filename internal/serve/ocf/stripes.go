package ocf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/raid6"
)

// stripesTime bounds how long a start compares parities: a third of the 180 s
// that it may take.
const stripesTime = time.Minute

// mostDoubts is how many places a message names.
const mostDoubts = 16

// settle looks whether a RAID 6 that was being written, and lacks one member, is
// whole all the same. Only what the write-intent bitmap calls dirty can be torn.
// There, P and Q each tell what the missing member held: where both tell the
// same, the stripe was written whole or not at all. A stripe whose P or Q is what
// is missing has all its data.
//
// It only reads. If nothing is in doubt, or a person has accepted what is, the array
// may be started, and md, which takes the missing data from P as well, brings its
// parities up to date; settle then takes back v.Doubt. Else it returns what is in doubt.
func (s *mdKind) settle(ctx context.Context, a Array, v *verdict) *ArrayInDoubt {
	if v.Doubt == nil {
		return nil
	}
	d := &ArrayInDoubt{Name: a.Name, UUID: md.Hex(a.UUID), Events: v.Newest.Events, Missing: v.Missing}
	if a.Journal > 0 {
		d.Unknown = "it has a journal" // and settleByJournal has decided
		return d
	}
	t, err := s.torn(a, v)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, stripesTime)
		defer cancel()
		d.Blocks, err = t.compare(ctx, s.k.ReadBlocks)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.Blocks, d.Unknown = nil, fmt.Sprintf("%s are not enough to compare %d MiB of each disk", stripesTime, t.bytes()>>20)
	case err != nil:
		d.Blocks, d.Unknown = nil, err.Error()
	case len(d.Blocks) == 0:
		v.Notes = append(v.Notes, fmt.Sprintf("was being written when its server died, and lacks a member; where its bitmap says so, %d MiB of each disk, its parities agree: nothing is in doubt", t.bytes()>>20))
		v.Doubt = nil
		return nil
	}
	if s.accepted(*d) {
		v.Notes = append(v.Notes, "may have wrong data, and is started because a person has accepted that: "+(&Doubt{Arrays: []ArrayInDoubt{*d}}).String())
		v.Doubt = nil
		return nil
	}
	return d
}

// tornArray is a RAID 6 that lacks one member, and where its stripes may be torn.
type tornArray struct {
	slots   []member // one without a superblock
	chunk   int64
	missing int
	parts   [][2]int64 // of each member, bytes
}

func (t *tornArray) bytes() (n int64) {
	for _, p := range t.parts {
		n += p[1] - p[0]
	}
	return n
}

// torn reads the bitmaps of all members. An error says why they tell nothing.
func (s *mdKind) torn(a Array, v *verdict) (*tornArray, error) {
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
	for i, m := range t.slots {
		if m.SB == nil {
			t.missing = i
			continue
		}
		if m.SB.Data%raid6.Block != 0 || m.SB.Bitmap%raid6.Block != 0 {
			return nil, fmt.Errorf("%s: its data begin at %d, its bitmap at %d", m.Dev, m.SB.Data, m.SB.Bitmap)
		}
		if m.SB.Events != sb.Events {
			continue // one event behind, and its bitmap may be, too
		}
		h, b, err := s.bitmap(m)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", m.Dev, err)
		case h.Lost || h.UUID != md.Hex(a.UUID) || h.Events < sb.Events || h.Size != sb.Size || head != nil && h.Chunk != head.Chunk:
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

// bitmap reads the bitmap of a member.
func (s *mdKind) bitmap(m member) (*md.Bitmap, []byte, error) {
	b, err := s.k.ReadBlocks(m.Dev, m.SB.Bitmap, raid6.Block)
	if err != nil {
		return nil, nil, err
	}
	h, err := md.ParseBitmap(b)
	if err != nil {
		return nil, nil, err
	}
	if n := int(h.Bytes()); n > len(b) {
		b, err = s.k.ReadBlocks(m.Dev, m.SB.Bitmap, (n+raid6.Block-1)/raid6.Block*raid6.Block)
	}
	return h, b, err
}

// compare gives the blocks of the array, as offsets in bytes, of which P and Q do
// not tell the same.
func (t *tornArray) compare(ctx context.Context, read func(dev string, off int64, n int) ([]byte, error)) (bad []int64, err error) {
	disks := len(t.slots)
	found := make(chan int64)
	var g errgroup.Group
	g.Go(func() error {
		defer close(found)
		rows, rctx := errgroup.WithContext(ctx)
		rows.SetLimit(runtime.NumCPU())
		last := int64(-1)
		for _, part := range t.parts {
			for row := part[0] / t.chunk; row*t.chunk < part[1]; row++ {
				if row == last { // two parts may share a row
					continue
				}
				last = row
				ip, iq, id := raid6.Layout{Disks: disks}.Row(row)
				if t.missing == ip || t.missing == iq {
					continue
				}
				rows.Go(func() error {
					if err := rctx.Err(); err != nil {
						return err
					}
					return t.compareRow(read, row, ip, iq, id, found)
				})
			}
		}
		return errors.Join(rows.Wait(), ctx.Err())
	})
	for off := range found {
		bad = append(bad, off)
	}
	slices.Sort(bad)
	return bad, g.Wait()
}

// compareRow compares a row of chunks.
func (t *tornArray) compareRow(read func(string, int64, int) ([]byte, error), row int64, ip, iq int, id []int, found chan<- int64) error {
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
		return err
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
		found <- (row*int64(len(id))+int64(lost))*t.chunk + int64(b)*raid6.Block
	}
	return err
}

// places lists the first offsets.
func places(offsets []int64) string {
	var out []string
	for _, o := range offsets[:min(len(offsets), mostDoubts)] {
		out = append(out, fmt.Sprint(o))
	}
	if len(offsets) > mostDoubts {
		out = append(out, "...")
	}
	return strings.Join(out, ", ")
}

// nameFiles finds whose the blocks in doubt are.
func (s *mdKind) nameFiles(ctx context.Context, d *inDoubt, hold func()) {
	if !slices.ContainsFunc(d.Arrays, func(a ArrayInDoubt) bool { return len(a.Blocks) > 0 }) {
		return
	}
	wait := trialTime
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, end.Sub(s.now())-trialRest)
	}
	if wait <= 0 {
		d.Unnamed = "the start has no time left for it"
		return
	}
	tctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	hold()
	err := s.log.step("files-in-doubt", func() (err error) {
		d.Owners, err = s.tryOut(tctx, d)
		return errors.Join(err, s.dropTrial(ctx))
	})
	if err != nil {
		d.Owners, d.Unnamed = nil, err.Error()
	}
}

// tryOut begins a trial, and has the kind of the service look whose the blocks are.
func (s *mdKind) tryOut(ctx context.Context, d *inDoubt) (*Owners, error) {
	if s.cfg.Cache != "" {
		return nil, errors.New("the volume has a cache, without which its file system cannot be read")
	}
	if err := s.k.Save(s.trialMark(), nil); err != nil {
		return nil, err
	}
	for i, a := range s.cfg.Arrays {
		if err := s.assemble(ctx, a, d.verdicts[i], true); err != nil {
			return nil, err
		}
	}
	volume, err := s.readOnlyVolume(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.arrays()
	if err != nil {
		return nil, err
	}
	var blocks []int64
	outside := 0
	for _, a := range d.Arrays {
		dev := s.line("/sys/block/" + all[a.UUID].Dev + "/dev")
		for _, b := range a.Blocks {
			if off, ok := volume.at(dev, b); ok {
				blocks = append(blocks, off)
			} else {
				outside++
			}
		}
	}
	slices.Sort(blocks)
	dev, err := s.snapshot(ctx, volume.bytes())
	if err != nil {
		return nil, err
	}
	o, err := s.kind.owners(ctx, "/dev/"+dev, s.trialDir(), blocks)
	if err == nil {
		o.Outside = outside
	}
	return o, err
}
