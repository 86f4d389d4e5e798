package doubt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Whose blocks of XFS are in doubt: its reverse map tells the inode, a walk over the
// names tells the path.

// mostNames is how many inodes a walk looks for.
const mostNames = 256

// XFSOwners finds whose blocks of a mounted XFS are.
func XFSOwners(ctx context.Context, s *unit.Host, mountPoint string, blocks []int64) (*Owners, error) {
	o, err := mapped(ctx, s, mountPoint, blocks)
	if err != nil {
		return nil, err
	}
	findPaths(ctx, s, mountPoint, o)
	return o, nil
}

// mapped asks XFS whose each block is.
//
// Source: xfs_io(8), fsmap
func mapped(ctx context.Context, s *unit.Host, mountPoint string, blocks []int64) (*Owners, error) {
	const most = 1000 // questions of one command
	o, files := &Owners{}, map[uint64]*FileInDoubt{}
	for part := range slices.Chunk(blocks, most) {
		argv := []string{"xfs_io", "-r"}
		for _, b := range part {
			argv = append(argv, "-c", fmt.Sprintf("fsmap -m -d %d %d", b/512, (b+BlockBytes)/512-1))
		}
		out, err := s.K.Run(ctx, kernel.Command{Argv: append(argv, mountPoint), Limit: kernel.WholeOutput})
		if err != nil {
			return nil, err
		}
		if err := o.add(out, part, files); err != nil {
			return nil, err
		}
	}
	for _, ino := range slices.Sorted(maps.Keys(files)) {
		o.Files = append(o.Files, *files[ino])
	}
	return o, nil
}

// fsmapLine is a line of fsmap -m: a range of the file system, in sectors of 512 bytes
// with both ends, and whose it is.
type fsmapLine struct {
	first, last int64
	owner       string // inode_131_data, inode_131_data_bmbt, special_0:1
	offset      int64  // in the file, sectors
}

// Source: xfsprogs io/fsmap.c, dump_map_machine
func parseFSMap(out string) ([]fsmapLine, error) {
	var all []fsmapLine
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) < 9 || f[0] == "EXT" {
			continue
		}
		l := fsmapLine{owner: f[5]}
		var bad [3]error
		l.first, bad[0] = strconv.ParseInt(f[3], 10, 64)
		l.last, bad[1] = strconv.ParseInt(f[4], 10, 64)
		if f[6] != "" {
			l.offset, bad[2] = strconv.ParseInt(f[6], 10, 64)
		}
		if err := errors.Join(bad[:]...); err != nil {
			return nil, fmt.Errorf("xfs_io's fsmap says %q: %w", strings.TrimSpace(line), err)
		}
		all = append(all, l)
	}
	return all, nil
}

// Owners of blocks that are no inode's.
const (
	freeBlock    = "special_0:1"
	unknownBlock = "special_0:2"
)

// add adds whose the blocks are, as xfs_io printed it.
func (o *Owners) add(out string, blocks []int64, files map[uint64]*FileInDoubt) error {
	lines, err := parseFSMap(out)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		free, meta, known := false, false, false
		for _, l := range lines {
			at := b / 512
			if at < l.first || at > l.last {
				continue
			}
			known = true
			ino, what, _ := strings.Cut(strings.TrimPrefix(l.owner, "inode_"), "_")
			switch n, err := strconv.ParseUint(ino, 10, 64); {
			case l.owner == unknownBlock:
				return errors.New("the file system was made without a reverse map (mkfs.xfs -m rmapbt=1)")
			case l.owner == freeBlock:
				free = true
			case err != nil:
				meta = true
			default:
				if files[n] == nil {
					files[n] = &FileInDoubt{Inode: n, Offsets: []int64{}}
				}
				if off := (l.offset + at - l.first) * 512; what == "data" && !slices.Contains(files[n].Offsets, off) {
					files[n].Offsets = append(files[n].Offsets, off)
				}
			}
		}
		switch {
		case !known:
			return fmt.Errorf("xfs_io's fsmap does not say whose the block at %d of the volume is", b)
		case meta:
			o.Metadata++
		case free:
			o.Free++
		}
	}
	return nil
}

// findPaths walks over the names until the time of ctx is over.
func findPaths(ctx context.Context, s *unit.Host, mountPoint string, o *Owners) {
	if len(o.Files) == 0 {
		return
	}
	argv := []string{"find", mountPoint, "-xdev", "("}
	for i, f := range o.Files[:min(len(o.Files), mostNames)] {
		if i > 0 {
			argv = append(argv, "-o")
		}
		argv = append(argv, "-inum", fmt.Sprint(f.Inode))
	}
	out, err := s.K.Run(ctx, kernel.Command{Argv: append(argv, ")", "-printf", `%i %P\0`), Limit: kernel.WholeOutput})
	for found := range strings.SplitSeq(out, "\x00") {
		ino, name, ok := strings.Cut(found, " ")
		if !ok {
			continue
		}
		for i := range o.Files {
			if f := &o.Files[i]; fmt.Sprint(f.Inode) == ino && f.Path == "" {
				f.Path = mountPoint + "/" + name
			}
		}
	}
	switch {
	case err != nil:
		o.Unsearched = "the search for names was cut short"
		s.Log.Note("%v", err)
	case len(o.Files) > mostNames:
		o.Unsearched = fmt.Sprintf("only the first %d were searched for", mostNames)
	}
}
