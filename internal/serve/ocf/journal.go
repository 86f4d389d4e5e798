package ocf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/raid6"
)

// Tags of the volume group, which is on the disks: what a start has to know of a
// journal, and superblocks do not tell.
const (
	tagPrefix = "mortar-"
	// tagSynced and an array's name: its parity was computed to the end.
	tagSynced = tagPrefix + "synced-"
	// tagOut and a slot of the mirror: its SSD has not the newest entries.
	tagOut = tagPrefix + "journal-out-"
)

// partitionWait is how long the kernel may take to find the partitions of a mirror.
const partitionWait = 10 * time.Second

// startMirror assembles the mirror of the journals, and adds to each verdict the
// partition that is the array's journal.
//
// An array with a journal replays it when it is assembled, read-only or not: it writes
// to its disks. So who owns the volume was read before, from the disks themselves
// (journalSound).
//
// Source: drivers/md/md.c, do_md_run; drivers/md/raid5-cache.c, r5l_start
func (s *mdKind) startMirror(ctx context.Context, mirror *verdict, verdicts []verdict) error {
	for _, n := range mirror.Notes {
		s.log.note("journal %s: %s", s.cfg.Journal.Name, n)
	}
	if err := s.assemble(ctx, *s.cfg.Journal, *mirror, false); err != nil {
		return err
	}
	for i, want := range s.cfg.Arrays {
		if want.Journal == 0 {
			continue
		}
		dev, err := s.journalOf(ctx, want, &verdicts[i])
		if err != nil {
			return &refusal{err}
		}
		verdicts[i].Members = append(verdicts[i].Members, dev)
	}
	return nil
}

// journalSound judges owner, mirror and arrays by what the disks say, before anything
// is assembled. It takes back the doubt of arrays that have been in sync.
func (s *mdKind) journalSound(mirror *verdict, verdicts []verdict) error {
	m, err := s.metaOnMembers(verdicts)
	if err != nil {
		return fmt.Errorf("who owns volume group %s cannot be read from the disks, and the journal is not replayed before: %w", s.cfg.VG, err)
	}
	if err := s.mayTake(m.SystemID); err != nil {
		return err
	}
	if err := s.newestJournal(mirror, m.Tags); err != nil {
		return err
	}
	for i, want := range s.cfg.Arrays {
		settleByJournal(want, &verdicts[i], m.Tags)
	}
	return nil
}

// newestJournal refuses a mirror of which only SSDs are here that left it while it was
// in use: what they hold would be replayed over newer data. Their own superblocks do
// not tell.
func (s *mdKind) newestJournal(mirror *verdict, tags []string) error {
	for slot, m := range mirror.Slots {
		if m.SB != nil && !slices.Contains(tags, fmt.Sprint(tagOut, slot)) {
			return nil
		}
	}
	return fmt.Errorf("journal %s: the SSD that is here left the mirror while it was in use, and the other one, which has the newest entries, is missing%s; "+
		"see that both SSDs are connected and powered", s.cfg.Journal.Name, because(mirror.Notes))
}

// settleByJournal takes back the doubt of an array whose parity was complete: whatever
// was written since then is in the journal, or whole on the disks.
func settleByJournal(want Array, v *verdict, tags []string) {
	if v.Doubt == nil || want.Journal == 0 || !slices.Contains(tags, tagSynced+want.Name) {
		return
	}
	v.Doubt = nil
	v.Notes = append(v.Notes, "lacks a member; its parity was complete, and what was being written is in its journal")
}

// journalOf finds the journal of an array on the mirror, and judges it as mdadm does.
// Without its journal an array is not started: md would take the data for clean.
//
// Source: mdadm, Assemble.c, journal_clean
func (s *mdKind) journalOf(ctx context.Context, want Array, v *verdict) (dev string, err error) {
	all, err := s.arrays()
	if err != nil {
		return "", err
	}
	mirror, ok := all[md.Hex(s.cfg.Journal.UUID)]
	if !ok {
		return "", fmt.Errorf("journal %s is not there although mdadm assembled it", s.cfg.Journal.Name)
	}
	dev = fmt.Sprintf("/dev/%sp%d", mirror.Dev, want.Journal)
	sb, err := s.superblock(ctx, dev)
	for waited := time.Duration(0); errors.Is(err, fs.ErrNotExist) && waited < partitionWait; waited += 100 * time.Millisecond {
		// The kernel looks for partitions when a process opens the mirror.
		if _, err := s.k.ReadBlocks("/dev/"+mirror.Dev, 0, 4096); err != nil {
			return "", fmt.Errorf("journal %s: %w", s.cfg.Journal.Name, err)
		}
		if s.k.Sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
		sb, err = s.superblock(ctx, dev)
	}
	switch newest := v.Newest.Events; {
	case err != nil:
		return "", fmt.Errorf("array %s: its write journal, partition %d of %s, cannot be read: %w", want.Name, want.Journal, s.cfg.Journal.Name, err)
	case sb.UUID != md.Hex(want.UUID) || sb.Role() != md.RoleJournal:
		return "", fmt.Errorf("array %s: partition %d of %s is not its write journal, but of array %s (%q)", want.Name, want.Journal, s.cfg.Journal.Name, sb.UUID, sb.Name)
	case md.Stale(sb.Events, newest):
		return "", fmt.Errorf("array %s: its write journal is out of date (event %d, the array is at %d): what was being written is not in it", want.Name, sb.Events, newest)
	}
	return dev, nil
}

// hasJournal says whether an assembled array that has a journal can use it. md lets it
// take no writes otherwise. Source: md(4), dirty stripe journal
func (s *mdKind) hasJournal(want Array, a mdArray) error {
	if want.Journal == 0 {
		return nil
	}
	members, err := linux.MDMembers(tree{s.k}, a.Dev)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Is("journal") && !m.Is("faulty") }) {
		return fmt.Errorf("array %s (%s) has lost its write journal: it takes no writes", want.Name, a.Dev)
	}
	return nil
}

// note keeps the tags of the volume group true.
func (s *mdKind) note(ctx context.Context) error {
	if s.cfg.Journal == nil {
		return nil
	}
	devices, err := s.devices()
	if err != nil {
		return err
	}
	m, err := s.metaOf(devices)
	if err != nil {
		return err
	}
	all, err := s.arrays()
	if err != nil {
		return err
	}
	want, err := s.tags(all)
	if err != nil {
		return err
	}
	argv := []string{"vgchange", "--quiet"}
	for _, t := range want {
		if !slices.Contains(m.Tags, t) {
			argv = append(argv, "--addtag", t)
		}
	}
	for _, t := range m.Tags {
		if strings.HasPrefix(t, tagOut) && !slices.Contains(want, t) {
			argv = append(argv, "--deltag", t)
		}
	}
	if len(argv) == 2 {
		return nil
	}
	s.log.note("volume group %s: %s", s.cfg.VG, strings.Join(argv[2:], " "))
	if err := s.lvmConfig(); err != nil {
		return err
	}
	return s.lvm(ctx, devices, "", append(argv, s.cfg.VG)...)
}

// tags are those that the volume group should have, by the arrays as they run. An SSD is
// out only if the kernel says so: with both marked as out no server would start.
func (s *mdKind) tags(all map[string]mdArray) (want []string, err error) {
	for _, w := range s.cfg.Arrays {
		// Source: Documentation/admin-guide/md.rst, resync_start
		if a, ok := all[md.Hex(w.UUID)]; ok && w.Journal > 0 && s.line("/sys/block/"+a.Dev+"/md/resync_start") == "none" {
			want = append(want, tagSynced+w.Name)
		}
	}
	name := s.cfg.Journal.Name
	a, ok := all[md.Hex(s.cfg.Journal.UUID)]
	if !ok {
		return nil, fmt.Errorf("journal %s is not assembled", name)
	}
	members, err := linux.MDMembers(tree{s.k}, a.Dev)
	if err != nil {
		return nil, fmt.Errorf("which SSDs journal %s has cannot be read: %w", name, err)
	}
	present := linux.MDPresent(a.RaidDisks, members, nil)
	if !slices.Contains(present, true) {
		return nil, fmt.Errorf("journal %s runs, and /sys shows none of its SSDs in sync", name)
	}
	for slot, in := range present {
		if !in {
			want = append(want, fmt.Sprint(tagOut, slot))
		}
	}
	return want, nil
}

// metaOnMembers is the newest metadata of the volume group, read from the members of
// arrays that are not assembled.
func (s *mdKind) metaOnMembers(verdicts []verdict) (*vgMeta, error) {
	var from []pvReader
	for i, want := range s.cfg.Arrays {
		v := &verdicts[i]
		from = append(from, pvReader{"array " + want.Name, func(off int64, n int) ([]byte, error) { return s.readMembers(v, off, n) }})
	}
	return s.newestMeta(from)
}

// readMembers reads blocks of an array from its members. What a missing one held is
// computed from the others.
func (s *mdKind) readMembers(v *verdict, off int64, n int) ([]byte, error) {
	sb := v.Newest
	switch {
	case sb.Level != 6 || sb.Layout != raid6.LeftSymmetric || sb.Features&md.FeatureReshape != 0:
		return nil, errors.New("it is no RAID 6 of the layout left-symmetric, or its geometry is being changed")
	case sb.Chunk < raid6.Block || sb.Chunk%raid6.Block != 0:
		return nil, fmt.Errorf("chunks of %d bytes", sb.Chunk)
	}
	out := make([]byte, 0, n)
	for len(out) < n {
		at := off + int64(len(out))
		b, err := s.readChunk(v, at, min(n-len(out), int(sb.Chunk-at%sb.Chunk)))
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// readChunk reads a part of one chunk.
func (s *mdKind) readChunk(v *verdict, off int64, n int) ([]byte, error) {
	disks, chunk := len(v.Slots), v.Newest.Chunk
	number, perRow := off/chunk, int64(disks-2)
	row, z := number/perRow, int(number%perRow)
	ip, iq, id := raid6.Layout{Disks: disks}.Row(row)
	read := func(slot int) ([]byte, error) {
		m := v.Slots[slot]
		if m.SB == nil {
			return nil, nil
		}
		b, err := s.k.ReadBlocks(m.Dev, m.SB.Data+row*chunk+off%chunk, n)
		if err != nil {
			err = fmt.Errorf("%s: %w", m.Dev, err)
		}
		return b, err
	}
	if b, err := read(id[z]); err != nil || b != nil {
		return b, err
	}
	p, err1 := read(ip)
	q, err2 := read(iq)
	data := make([][]byte, len(id))
	errs := []error{err1, err2}
	for i, slot := range id {
		var err error
		data[i], err = read(slot)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := raid6.Restore(p, q, data); err != nil {
		return nil, err
	}
	return data[z], nil
}
