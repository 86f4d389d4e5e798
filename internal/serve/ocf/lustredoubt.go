package ocf

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Whose blocks of ldiskfs are in doubt: e2fsprogs tells the inode, and what Lustre has
// stored with it tells the file that it is an object of. The file's name is known to the
// MDS only.

// owners reads the target without mounting it.
func (s *lustreKind) owners(ctx context.Context, device, _ string, blocks []int64) (*Owners, error) {
	return (&ext4Reader{s.k, device}).owners(ctx, blocks)
}

// ext4Reader asks debugfs(8) about a file system that is not mounted.
type ext4Reader struct {
	k      kernel
	device string
}

// firstInode is the first inode of a file. Those below are the file system's own: its
// root, journal and quotas.
// Source: fs/ext4/ext4.h of the kernel, EXT4_GOOD_OLD_FIRST_INO
const firstInode = 11

func (e *ext4Reader) owners(ctx context.Context, offsets []int64) (*Owners, error) {
	// The target was not unmounted: MMP would have each tool wait for longer than there is
	// time. tune2fs replays the journal, too.
	if _, err := e.k.Run(ctx, command{argv: []string{"tune2fs", "-f", "-E", "clear_mmp", e.device}}); err != nil {
		return nil, fmt.Errorf("its file system is not whole enough to be read: %w", err)
	}
	b, err := e.k.ReadBlocks(e.device, 0, 4096)
	if err != nil {
		return nil, err
	}
	if size := 1024 << binary.LittleEndian.Uint32(b[1024+0x18:]); size != BlockBytes {
		return nil, fmt.Errorf("its file system has blocks of %d bytes", size)
	}
	o := &Owners{}
	inodes, nobodys, err := e.inodes(ctx, offsets)
	if err != nil {
		return nil, err
	}
	free, err := e.free(ctx, nobodys)
	if err != nil {
		return nil, err
	}
	o.Free, o.Metadata = free, len(nobodys)-free
	for _, n := range slices.Sorted(maps.Keys(inodes)) {
		if n < firstInode {
			o.Metadata += len(inodes[n])
			continue
		}
		o.Files = append(o.Files, FileInDoubt{Inode: n, Offsets: []int64{}})
	}
	return o, e.describe(ctx, o.Files, inodes)
}

// ask has debugfs answer requests. It answers each that it understands, and exits with 0
// whatever it finds.
func (e *ext4Reader) ask(ctx context.Context, requests []string) (string, error) {
	if len(requests) == 0 {
		return "", nil
	}
	return e.k.Run(ctx, command{argv: []string{"debugfs", "-f", "-", e.device}, stdin: strings.Join(requests, "\n") + "\n", limit: wholeOutput})
}

// inodes finds the inodes of blocks by one walk over all inodes: the offsets of blocks of
// each inode, and those of no inode.
func (e *ext4Reader) inodes(ctx context.Context, offsets []int64) (of map[uint64][]int64, nobodys []int64, err error) {
	const most = 8000 // blocks of one request: an argument has 128 KiB at most
	of = map[uint64][]int64{}
	for part := range slices.Chunk(offsets, most) {
		request := "icheck"
		for _, off := range part {
			request += " " + strconv.FormatInt(off/BlockBytes, 10)
		}
		out, err := e.k.Run(ctx, command{argv: []string{"debugfs", "-R", request, e.device}, limit: wholeOutput})
		if err != nil {
			return nil, nil, err
		}
		owner := map[string]string{}
		for line := range strings.Lines(out) {
			block, who, _ := strings.Cut(strings.TrimSpace(line), "\t")
			owner[block] = who
		}
		for _, off := range part {
			who, known := owner[strconv.FormatInt(off/BlockBytes, 10)]
			n, err := strconv.ParseUint(who, 10, 64)
			switch {
			case err == nil:
				of[n] = append(of[n], off)
			case known && who == "<block not found>":
				nobodys = append(nobodys, off)
			default:
				return nil, nil, fmt.Errorf("debugfs does not say whose the block at %d of the volume is: %q", off, who)
			}
		}
	}
	return of, nobodys, nil
}

// free counts the blocks that are not in use.
func (e *ext4Reader) free(ctx context.Context, offsets []int64) (n int, err error) {
	var requests []string
	for _, off := range offsets {
		if off >= BlockBytes { // the superblock is in the first; testb refuses its number
			requests = append(requests, fmt.Sprintf("testb %d 1", off/BlockBytes))
		}
	}
	out, err := e.ask(ctx, requests)
	if err != nil {
		return 0, err
	}
	n = strings.Count(out, " not in use")
	if used := strings.Count(out, " marked in use"); n+used != len(requests) {
		return 0, fmt.Errorf("debugfs tells of %d blocks whether they are in use, not of %d", n+used, len(requests))
	}
	return n, nil
}

// describe adds to each file where its blocks are in it, and whose object it is.
func (e *ext4Reader) describe(ctx context.Context, files []FileInDoubt, blocks map[uint64][]int64) error {
	var requests []string
	for _, f := range files {
		for _, r := range []string{"ex <%d>", "ea_get -x <%d> " + xattrParent, "ea_get -x <%d> " + xattrLMA} {
			requests = append(requests, fmt.Sprintf(r, f.Inode))
		}
	}
	out, err := e.ask(ctx, requests)
	if err != nil {
		return err
	}
	at := map[uint64]*FileInDoubt{}
	for i := range files {
		at[files[i].Inode] = &files[i]
	}
	var f *FileInDoubt
	for line := range strings.Lines(out) {
		if m := asked.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 64)
			f = at[n]
		}
		if f == nil {
			continue
		}
		if m := leaf.FindStringSubmatch(line); m != nil {
			f.add(m[1:], blocks[f.Inode])
		}
		if m := xattr.FindStringSubmatch(line); m != nil && f.FID == "" {
			f.FID = fidOf(m[1], m[2])
		}
	}
	return nil
}

var (
	// asked is debugfs' echo of a request about an inode.
	asked = regexp.MustCompile(`^debugfs: .* ?<(\d+)>`)
	// leaf is a line of ex about an extent: first and last block in the file, and on the
	// device. A node further up has one block there.
	leaf = regexp.MustCompile(`^ *\d+/ *\d+ +\d+/ *\d+ +(\d+) - +(\d+) +(\d+) - +(\d+) `)
	// xattr is what ea_get -x prints.
	xattr = regexp.MustCompile(`^(trusted\.\w+) \(\d+\) = ([0-9a-f ]+)`)
)

// add adds where a file has blocks in doubt, of those in an extent. A block in no extent
// holds its map of extents, or extended attributes.
func (f *FileInDoubt) add(extent []string, offsets []int64) {
	var n [3]int64 // logical, last logical, physical
	for i := range n {
		n[i], _ = strconv.ParseInt(extent[i], 10, 64)
	}
	for _, off := range offsets {
		if in := off - n[2]*BlockBytes; in >= 0 && in < (n[1]-n[0]+1)*BlockBytes {
			f.Offsets = append(f.Offsets, n[0]*BlockBytes+in)
		}
	}
}

const (
	xattrParent = "trusted.fid" // of an object of an OST: the file
	xattrLMA    = "trusted.lma" // the inode's own FID; of an object with a small inode also the file
)

// fidOf is the file that an extended attribute tells of, as lfs writes it: "" if of none.
//
// Source: lustre-release, lustre/include/uapi/linux/lustre/lustre_user.h, struct
// filter_fid, lustre_ost_attrs, lustre_mdt_attrs, enum lma_compat
func fidOf(name, value string) string {
	const onOST, hasParent, firstNormal = 0x8, 0x10, 0x200000400
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(value), " ", ""))
	le := binary.LittleEndian
	if name == xattrLMA && err == nil && len(b) >= 24 {
		switch compat := le.Uint32(b); {
		case compat&hasParent != 0 && len(b) >= 40:
			b = b[24:]
		case compat&onOST == 0:
			b = b[8:]
		default:
			return ""
		}
	}
	if err != nil || len(b) < 16 || le.Uint64(b) < firstNormal {
		return ""
	}
	return fmt.Sprintf("[%#x:%#x:0x0]", le.Uint64(b), le.Uint32(b[8:]))
}
