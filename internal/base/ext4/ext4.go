// Package ext4 reads an ext4 (or ldiskfs) file system that is not mounted: whose some of
// its blocks are, and the extended attributes of those inodes. Tools of e2fsprogs compare
// each block in use with each block asked for, which takes hours on a large target; this
// walks over the extents once. It only reads, knows nothing of Lustre, and does not replay a
// journal.
//
// Source: the kernel's Documentation/filesystems/ext4
package ext4

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// BlockBytes is the size of a block. Other sizes are refused.
const BlockBytes = 4096

// Read reads n bytes at an offset; both are multiples of BlockBytes.
type Read func(off int64, n int) ([]byte, error)

// Owners are whose the blocks asked for are.
type Owners struct {
	Inodes []Inode // by number
	// Own and Free count blocks in use that no inode of a file has, such as the file
	// system's own, and blocks that nobody uses.
	Own, Free int
	// Unread counts inodes whose map of extents cannot be read; blocks that they have are in
	// Own.
	Unread int
}

// Inode is one with blocks that were asked for.
type Inode struct {
	Number  uint64
	Offsets []int64 // in the file, bytes; empty: its map of extents, or its attributes
	// Attributes are those of the name space trusted, by the rest of the name.
	Attributes map[string][]byte
}

var le = binary.LittleEndian

// fileSystem is what the superblock and the group descriptors tell.
type fileSystem struct {
	read           Read
	blocks         int64
	perGroup       int64 // blocks
	inodesPerGroup int64
	inodeSize      int64
	groups         []group
}

type group struct {
	bitmap, table int64 // blocks
	inodes        int64 // that may be in use
	blank         bool  // no block of a file is in use
}

// Features, flags and magic numbers.
const (
	magic                                 = 0xef53
	needsRecovery, metaBG, incompat64     = 0x4, 0x10, 0x80
	gdtChecksum, metadataChecksum         = 0x10, 0x400
	inodesUninitialized, blocksUninit     = 0x1, 0x2
	hasExtents, hasInlineData             = 0x80000, 0x10000000
	extentMagic, attrMagic                = 0xf30a, 0xea020000
	typeMask, directory, regular, symlink = 0xf000, 0x4000, 0x8000, 0xa000
	trusted                               = 4 // name space of attributes
)

// firstInode is the first inode of a file. Those below are the file system's own: its
// root, journal and quotas.
const firstInode = 11

func open(read Read) (*fileSystem, error) {
	b, err := read(0, BlockBytes)
	if err != nil {
		return nil, err
	}
	sb := b[1024:2048]
	incompat, roCompat := le.Uint32(sb[0x60:]), le.Uint32(sb[0x64:])
	switch {
	case le.Uint16(sb[0x38:]) != magic:
		return nil, errors.New("there is no ext4 superblock")
	case le.Uint32(sb[0x18:]) != 2:
		return nil, fmt.Errorf("its blocks are not of %d bytes", BlockBytes)
	case incompat&needsRecovery != 0:
		return nil, errors.New("its journal has not been replayed")
	case incompat&metaBG != 0:
		return nil, errors.New("it has meta block groups (meta_bg)")
	}
	fs := &fileSystem{read: read, blocks: int64(le.Uint32(sb[0x4:])), perGroup: int64(le.Uint32(sb[0x20:])),
		inodesPerGroup: int64(le.Uint32(sb[0x28:])), inodeSize: int64(le.Uint16(sb[0x58:]))}
	descriptor := int64(32)
	if incompat&incompat64 != 0 {
		fs.blocks |= int64(le.Uint32(sb[0x150:])) << 32
		descriptor = int64(le.Uint16(sb[0xfe:]))
	}
	const most = 1 << 38 // a PiB
	if fs.blocks > most || fs.perGroup != 8*BlockBytes || fs.inodesPerGroup == 0 || fs.inodeSize < 128 || fs.inodeSize > BlockBytes || BlockBytes%fs.inodeSize != 0 ||
		descriptor < 32 || BlockBytes%descriptor != 0 {
		return nil, errors.New("its superblock is damaged")
	}
	return fs, fs.descriptors(descriptor, roCompat&(gdtChecksum|metadataChecksum) != 0)
}

// descriptors reads the group descriptors, each of size bytes. counted: they tell which
// inodes were never used.
func (fs *fileSystem) descriptors(size int64, counted bool) error {
	n := (fs.blocks + fs.perGroup - 1) / fs.perGroup
	b, err := fs.read(BlockBytes, int((n*size+BlockBytes-1)/BlockBytes*BlockBytes))
	if err != nil {
		return err
	}
	for d := range slices.Chunk(b[:n*size], int(size)) {
		g := group{bitmap: int64(le.Uint32(d)), table: int64(le.Uint32(d[0x8:])), inodes: fs.inodesPerGroup}
		unused := int64(le.Uint16(d[0x1c:]))
		if size >= 64 {
			g.bitmap |= int64(le.Uint32(d[0x20:])) << 32
			g.table |= int64(le.Uint32(d[0x28:])) << 32
			unused |= int64(le.Uint16(d[0x32:])) << 16
		}
		if flags := le.Uint16(d[0x12:]); counted {
			g.blank = flags&blocksUninit != 0
			if g.inodes -= unused; flags&inodesUninitialized != 0 {
				g.inodes = 0
			}
		}
		if g.bitmap >= fs.blocks || g.table >= fs.blocks || g.inodes < 0 {
			return errors.New("its group descriptors are damaged")
		}
		fs.groups = append(fs.groups, g)
	}
	return nil
}

// tablePart is how much of a table of inodes is read at once.
const tablePart = 1 << 20

// OwnersOf finds whose blocks are, by their offsets in bytes, in order.
func OwnersOf(ctx context.Context, read Read, offsets []int64) (*Owners, error) {
	fs, err := open(read)
	if err != nil {
		return nil, err
	}
	w := &walk{fileSystem: fs, taken: make([]bool, len(offsets))}
	for _, off := range offsets {
		w.asked = append(w.asked, off/BlockBytes)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8 * runtime.NumCPU()) // they wait for disks
	for i, x := range fs.groups {
		for from := int64(0); from < x.inodes*fs.inodeSize; from += tablePart {
			n := min(tablePart, (x.inodes*fs.inodeSize-from+BlockBytes-1)/BlockBytes*BlockBytes)
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				b, err := read(x.table*BlockBytes+from, int(n))
				if err != nil {
					return err
				}
				return w.inodes(ctx, int64(i)*fs.inodesPerGroup+from/fs.inodeSize+1, b)
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return w.result()
}

// walk is one over all inodes.
type walk struct {
	*fileSystem
	asked []int64 // blocks, in order

	mu     sync.Mutex
	taken  []bool // of asked: an inode has it
	found  []Inode
	own    int
	unread int
}

// result counts the blocks that no inode has.
func (w *walk) result() (*Owners, error) {
	slices.SortFunc(w.found, func(a, b Inode) int { return int(int64(a.Number) - int64(b.Number)) })
	o := &Owners{Inodes: w.found, Own: w.own, Unread: w.unread}
	for i, block := range w.asked {
		if w.taken[i] {
			continue
		}
		used, err := w.used(block)
		if err != nil {
			return nil, err
		}
		if used {
			o.Own++
		} else {
			o.Free++
		}
	}
	return o, nil
}

func (fs *fileSystem) used(block int64) (bool, error) {
	if block >= fs.blocks || fs.groups[block/fs.perGroup].blank {
		return false, nil
	}
	b, err := fs.read(fs.groups[block/fs.perGroup].bitmap*BlockBytes, BlockBytes)
	if err != nil {
		return false, err
	}
	bit := block % fs.perGroup
	return b[bit/8]>>(bit%8)&1 != 0, nil
}

// inodes looks at a part of a table, which begins with an inode.
func (w *walk) inodes(ctx context.Context, first int64, table []byte) error {
	for i := int64(0); (i+1)*w.inodeSize <= int64(len(table)); i++ {
		raw := table[i*w.inodeSize:][:w.inodeSize]
		mode, links, blocks := le.Uint16(raw), le.Uint16(raw[0x1a:]), le.Uint32(raw[0x1c:])
		if mode == 0 || links == 0 && blocks == 0 { // free, or removed
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		x := holding{walk: w, offsets: []int64{}}
		err := x.read(raw)
		if damaged := (*damage)(nil); err != nil && !errors.As(err, &damaged) {
			return err
		}
		w.add(uint64(first+i), raw, &x, err != nil && first+i >= firstInode)
	}
	return nil
}

func (w *walk) add(number uint64, raw []byte, x *holding, damaged bool) {
	if len(x.has) == 0 && !damaged {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if damaged {
		w.unread++
	}
	for _, i := range x.has {
		w.taken[i] = true
	}
	switch {
	case len(x.has) == 0:
	case number < firstInode:
		w.own += len(x.has)
	default:
		w.found = append(w.found, Inode{number, x.offsets, w.attributes(raw)})
	}
}

// holding is what an inode has of the blocks asked for.
type holding struct {
	*walk
	has     []int // indexes of asked
	offsets []int64
}

// damage is an error of one inode.
type damage struct{ what string }

func (d *damage) Error() string { return d.what }

// read follows the inode's map of extents.
func (x *holding) read(raw []byte) error {
	kind, flags := le.Uint16(raw)&typeMask, le.Uint32(raw[0x20:])
	if acl := attributeBlock(raw); acl != 0 {
		x.take(acl, 1, -1)
	}
	switch {
	case flags&hasExtents != 0:
		return x.node(raw[0x28:][:60], -1)
	case flags&hasInlineData != 0, kind == symlink, kind != regular && kind != directory, le.Uint32(raw[0x1c:]) == 0:
		return nil // in the inode, or nothing
	}
	return &damage{"its blocks are not in extents"}
}

// attributeBlock is the block of the inode's attributes that do not fit into it.
func attributeBlock(raw []byte) int64 {
	return int64(le.Uint32(raw[0x68:])) | int64(le.Uint16(raw[0x76:]))<<32
}

// take notes which blocks of a range were asked for. logical is the range's first block in
// the file; -1: it holds no data.
func (x *holding) take(start, length, logical int64) {
	i, _ := slices.BinarySearch(x.asked, start)
	for ; i < len(x.asked) && x.asked[i] < start+length; i++ {
		x.has = append(x.has, i)
		if logical >= 0 {
			x.offsets = append(x.offsets, (logical+x.asked[i]-start)*BlockBytes)
		}
	}
}

// node reads a node of the map. depth is that of the node above less one; -1: it is the
// root.
func (x *holding) node(b []byte, depth int) error {
	entries, d := int(le.Uint16(b[2:])), int(le.Uint16(b[6:]))
	if le.Uint16(b) != extentMagic || 12*(entries+1) > len(b) || d > 5 || depth >= 0 && d != depth {
		return &damage{"its map of extents is damaged"}
	}
	for e := range slices.Chunk(b[12:12*(entries+1)], 12) {
		if d == 0 {
			const longest = 32768 // more: allocated, and not written
			length := int64(le.Uint16(e[4:]))
			if length > longest {
				length -= longest
			}
			x.take(int64(le.Uint16(e[6:]))<<32|int64(le.Uint32(e[8:])), length, int64(le.Uint32(e)))
			continue
		}
		below := int64(le.Uint32(e[4:])) | int64(le.Uint16(e[8:]))<<32
		if below >= x.blocks {
			return &damage{"its map of extents leads out of the file system"}
		}
		x.take(below, 1, -1)
		next, err := x.walk.read(below*BlockBytes, BlockBytes)
		if err != nil {
			return err
		}
		if err := x.node(next, d-1); err != nil {
			return err
		}
	}
	return nil
}

// attributes reads an inode's trusted attributes, in it and in a block. What is damaged is
// left out.
func (fs *fileSystem) attributes(raw []byte) map[string][]byte {
	all := map[string][]byte{}
	if len(raw) > 130 {
		if at := 128 + int(le.Uint16(raw[128:])); at+4 <= len(raw) && le.Uint32(raw[at:]) == attrMagic {
			entries(raw[at+4:], raw[at+4:], all)
		}
	}
	if block := attributeBlock(raw); block != 0 && block < fs.blocks {
		if b, err := fs.read(block*BlockBytes, BlockBytes); err == nil && le.Uint32(b) == attrMagic {
			entries(b[32:], b, all)
		}
	}
	return all
}

// entries reads a list of attributes, whose values are at offsets in b.
func entries(list, b []byte, all map[string][]byte) {
	for len(list) >= 16 && le.Uint32(list) != 0 {
		name, value, size := int(list[0]), int(le.Uint16(list[2:])), int(le.Uint32(list[8:]))
		if 16+name > len(list) {
			return
		}
		if list[1] == trusted && le.Uint32(list[4:]) == 0 && size >= 0 && value+size <= len(b) {
			all[string(list[16:16+name])] = slices.Clone(b[value : value+size])
		}
		list = list[min(len(list), (16+name+3)/4*4):]
	}
}
