// Package ext4 finds which inodes have given blocks of an ext4 (or ldiskfs) file system, and
// reads the extended attributes of these inodes. Tools of e2fsprogs compare each block in use
// with each block asked for, which takes hours on a large target; this walks over the extents
// once. It only reads, knows nothing of Lustre, and does not look into the journal: of a file
// system that is mounted it may miss what has changed in the last seconds.
//
// Source: the kernel's Documentation/filesystems/ext4
package ext4

import (
	"cmp"
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
	// system's own, and blocks that are not in use.
	Own, Free int
	// Unread counts inodes whose map of blocks is damaged, or in a block that was asked for;
	// blocks that they have are in Own.
	Unread int
}

// Inode is one with blocks that were asked for.
type Inode struct {
	Number  uint64
	Offsets []int64 // in the file, bytes; empty: itself, its map of blocks, or its attributes
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
	blockBitmap, inodeBitmap, table int64 // blocks

	inodes int64 // that may be in use
	blank  bool  // no block of a file is in use
}

// Features, flags and magic numbers.
const (
	magic                             = 0xef53
	metaBG, incompat64                = 0x10, 0x80
	gdtChecksum, metadataChecksum     = 0x10, 0x400
	bigalloc                          = 0x200
	inodesUninitialized, blocksUninit = 0x1, 0x2
	hasExtents, hasInlineData         = 0x80000, 0x10000000
	extentMagic, attrMagic            = 0xf30a, 0xea020000
	typeMask, directory, regular      = 0xf000, 0x4000, 0x8000
	trusted                           = 4 // name space of attributes
)

// firstInode is the first inode of a file. Those below are the file system's own: its
// root, journal and quotas.
const firstInode = 11

// superblock reads the superblock, and its incompatible and read-only compatible features.
func superblock(read Read) (sb []byte, incompat, roCompat uint32, err error) {
	b, err := read(0, BlockBytes)
	if err != nil {
		return nil, 0, 0, err
	}
	sb = b[1024:2048]
	switch {
	case le.Uint16(sb[0x38:]) != magic:
		return nil, 0, 0, errors.New("there is no ext4 superblock")
	case le.Uint32(sb[0x18:]) != 2:
		return nil, 0, 0, fmt.Errorf("its blocks are not of %d bytes", BlockBytes)
	}
	return sb, le.Uint32(sb[0x60:]), le.Uint32(sb[0x64:]), nil
}

func open(read Read) (*fileSystem, error) {
	sb, incompat, roCompat, err := superblock(read)
	switch {
	case err != nil:
		return nil, err
	case incompat&metaBG != 0:
		return nil, errors.New("it has meta block groups (meta_bg)")
	case roCompat&bigalloc != 0 || le.Uint32(sb[0x20:]) != 8*BlockBytes:
		return nil, errors.New("its block groups are not as mke2fs makes them by default (bigalloc, or -g)")
	}
	fs := &fileSystem{read: read, blocks: int64(le.Uint32(sb[0x4:])), perGroup: int64(le.Uint32(sb[0x20:])),
		inodesPerGroup: int64(le.Uint32(sb[0x28:])), inodeSize: int64(le.Uint16(sb[0x58:]))}
	descriptor := int64(32)
	if incompat&incompat64 != 0 {
		fs.blocks |= int64(le.Uint32(sb[0x150:])) << 32
		descriptor = int64(le.Uint16(sb[0xfe:]))
	}
	const most = 1 << 38 // a PiB
	if fs.blocks > most || fs.inodesPerGroup == 0 || fs.inodesPerGroup > 8*BlockBytes || fs.inodeSize < 128 || fs.inodeSize > BlockBytes || BlockBytes%fs.inodeSize != 0 ||
		descriptor < 32 || descriptor > 64 {
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
		g := group{blockBitmap: int64(le.Uint32(d)), inodeBitmap: int64(le.Uint32(d[0x4:])), table: int64(le.Uint32(d[0x8:])), inodes: fs.inodesPerGroup}
		unused := int64(le.Uint16(d[0x1c:]))
		if size >= 64 {
			g.blockBitmap |= int64(le.Uint32(d[0x20:])) << 32
			g.inodeBitmap |= int64(le.Uint32(d[0x24:])) << 32
			g.table |= int64(le.Uint32(d[0x28:])) << 32
			unused |= int64(le.Uint16(d[0x32:])) << 16
		}
		if flags := le.Uint16(d[0x12:]); counted {
			g.blank = flags&blocksUninit != 0
			if g.inodes -= unused; flags&inodesUninitialized != 0 {
				g.inodes = 0
			}
		}
		if max(g.blockBitmap, g.inodeBitmap, g.table) >= fs.blocks || g.inodes < 0 {
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
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8 * runtime.NumCPU()) // they wait for disks
	for i := range fs.groups {
		for from := int64(0); from < fs.groups[i].inodes && gctx.Err() == nil; from += tablePart / fs.inodeSize {
			g.Go(func() error { return w.inodes(gctx, int64(i), from) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return w.result(ctx)
}

type walk struct {
	*fileSystem
	asked []int64 // blocks, in order

	mu     sync.Mutex
	taken  []bool // of asked: an inode has it
	found  []Inode
	unread int
}

// result counts the blocks that no inode has.
func (w *walk) result(ctx context.Context) (*Owners, error) {
	slices.SortFunc(w.found, func(a, b Inode) int { return cmp.Compare(a.Number, b.Number) })
	o := &Owners{Inodes: w.found, Unread: w.unread}
	var bitmap []byte
	of := int64(-1)
	for i, block := range w.asked {
		if w.taken[i] {
			continue
		}
		group := block / w.perGroup
		if block >= w.blocks || w.groups[group].blank {
			o.Free++
			continue
		}
		if group != of {
			err := ctx.Err()
			if err == nil {
				bitmap, err = w.read(w.groups[group].blockBitmap*BlockBytes, BlockBytes)
			}
			if err != nil {
				return nil, err
			}
			of = group
		}
		if isSet(bitmap, block%w.perGroup) {
			o.Own++
		} else {
			o.Free++
		}
	}
	return o, nil
}

func isSet(bitmap []byte, bit int64) bool { return bitmap[bit/8]>>(bit%8)&1 != 0 }

// inodes looks at a part of a group's table, from an inode of the group on.
func (w *walk) inodes(ctx context.Context, group, from int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g := w.groups[group]
	bitmap, err := w.read(g.inodeBitmap*BlockBytes, BlockBytes)
	if err != nil {
		return err
	}
	n := min(tablePart/w.inodeSize, g.inodes-from)
	at := g.table*BlockBytes + from*w.inodeSize
	table, err := w.read(at, int((n*w.inodeSize+BlockBytes-1)/BlockBytes*BlockBytes))
	if err != nil {
		return err
	}
	for i := range n {
		number := uint64(group*w.inodesPerGroup + from + i + 1)
		// e2fsck frees an inode in the bitmap, and may leave all else of it as it was.
		if number < firstInode || !isSet(bitmap, from+i) {
			continue
		}
		x := holding{walk: w, offsets: []int64{}}
		x.take((at+i*w.inodeSize)/BlockBytes, 1, -1)
		raw := table[i*w.inodeSize:][:w.inodeSize]
		if err := x.follow(ctx, raw); err != nil {
			return err
		}
		w.add(number, raw, &x)
	}
	return nil
}

func (w *walk) add(number uint64, raw []byte, x *holding) {
	var attributes map[string][]byte
	switch {
	case len(x.has) > 0:
		attributes = w.attributes(raw)
	case !x.damaged:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range x.has {
		w.taken[i] = true
	}
	if x.damaged {
		w.unread++
	}
	if len(x.has) > 0 {
		w.found = append(w.found, Inode{number, x.offsets, attributes})
	}
}

// holding is what an inode has of the blocks asked for.
type holding struct {
	*walk
	has     []int // indexes of asked
	offsets []int64
	damaged bool // its map of blocks, or what was to be read of it
}

// follow follows the inode's map of blocks.
func (x *holding) follow(ctx context.Context, raw []byte) error {
	kind, flags := le.Uint16(raw)&typeMask, le.Uint32(raw[0x20:])
	if acl := attributeBlock(raw); acl != 0 {
		x.take(acl, 1, -1)
	}
	switch {
	case flags&hasExtents != 0:
		return x.node(ctx, raw[0x28:][:60], -1)
	case flags&hasInlineData != 0, kind != regular && kind != directory, le.Uint32(raw[0x1c:]) == 0:
		return nil
	}
	return x.oldMap(ctx, raw)
}

// perBlock is how many numbers of blocks a block has.
const perBlock = BlockBytes / 4

// oldMap follows a map without extents: 12 blocks, and three trees of blocks, each a level
// deeper than the one before. Indexes of Lustre have such maps.
func (x *holding) oldMap(ctx context.Context, raw []byte) error {
	const direct = 12
	logical, covers := int64(0), int64(1)
	for i := range direct + 3 {
		depth := max(0, i-direct+1)
		if depth > 0 {
			covers *= perBlock
		}
		if err := x.branch(ctx, int64(le.Uint32(raw[0x28+4*i:])), depth, logical); err != nil {
			return err
		}
		logical += covers
	}
	return nil
}

// branch follows a block of such a map; logical is the first block in the file below it.
func (x *holding) branch(ctx context.Context, block int64, depth int, logical int64) error {
	switch {
	case block == 0:
		return nil
	case block >= x.blocks:
		x.damaged = true
		return nil
	case depth == 0:
		x.take(block, 1, logical)
		return nil
	}
	b, err := x.own(ctx, block)
	if b == nil || err != nil {
		return err
	}
	covers := int64(1)
	for range depth - 1 {
		covers *= perBlock
	}
	for i := range int64(perBlock) {
		if err := x.branch(ctx, int64(le.Uint32(b[4*i:])), depth-1, logical+i*covers); err != nil {
			return err
		}
	}
	return nil
}

// attributeBlock is the block of the inode's attributes that do not fit into it.
func attributeBlock(raw []byte) int64 {
	return int64(le.Uint32(raw[0x68:])) | int64(le.Uint16(raw[0x76:]))<<32
}

// take notes which blocks of a range were asked for, and says whether there are any.
// logical is the range's first block in the file; -1: it holds no data.
func (x *holding) take(start, length, logical int64) (any bool) {
	i, _ := slices.BinarySearch(x.asked, start)
	for ; i < len(x.asked) && x.asked[i] < start+length; i++ {
		any = true
		x.has = append(x.has, i)
		if logical >= 0 {
			x.offsets = append(x.offsets, (logical+x.asked[i]-start)*BlockBytes)
		}
	}
	return any
}

// node reads a node of the map. depth is that of the node above less one; -1: it is the
// root.
func (x *holding) node(ctx context.Context, b []byte, depth int) error {
	entries, d := int(le.Uint16(b[2:])), int(le.Uint16(b[6:]))
	if le.Uint16(b) != extentMagic || 12*(entries+1) > len(b) || d > 5 || depth >= 0 && d != depth {
		x.damaged = true
		return nil
	}
	next := int64(0) // the first block in the file that may come
	for e := range slices.Chunk(b[12:12*(entries+1)], 12) {
		logical := int64(le.Uint32(e))
		start, length := int64(le.Uint32(e[4:]))|int64(le.Uint16(e[8:]))<<32, int64(1)
		if d == 0 {
			const longest = 32768 // more: allocated, and not written
			if length = int64(le.Uint16(e[4:])); length > longest {
				length -= longest
			}
			start = int64(le.Uint16(e[6:]))<<32 | int64(le.Uint32(e[8:]))
		}
		if logical < next || length == 0 || start+length > x.blocks {
			x.damaged = true
			return nil
		}
		next = logical + length
		if d == 0 {
			x.take(start, length, logical)
			continue
		}
		below, err := x.own(ctx, start)
		if err == nil && below != nil {
			err = x.node(ctx, below, d-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own reads a block of the map; nil: it cannot be read. One that was asked for may be wrong.
func (x *holding) own(ctx context.Context, block int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.damaged = x.take(block, 1, -1) || x.damaged
	b, err := x.read(block*BlockBytes, BlockBytes)
	if err != nil {
		x.damaged = true
		return nil, nil
	}
	return b, nil
}

// attributes reads an inode's trusted attributes, in it and in a block. Damaged ones are
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
