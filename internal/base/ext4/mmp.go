package ext4

import (
	"errors"
	"hash/crc32"
	"slices"
)

// Magic numbers of the block that multiple mount protection (MMP) writes.
// Source: fs/ext4/ext4.h of the kernel, struct mmp_struct
const (
	hasMMP, hasSeed            = 0x100, 0x2000 // of the superblock's incompatible features
	mmpMagic                   = 0x004d4d50
	mmpClean, mmpFsck   uint32 = 0xff4d4d50, 0xe24d4d50
	mmpSequence, mmpSum        = 4, 1020 // offsets
)

// UnmountedMMP gives what a file system's MMP block holds after an unmount, and its offset in
// bytes, so that the next mount need not watch for another server. block is nil if there is
// nothing to write: it holds that already, or e2fsck works on the file system.
func UnmountedMMP(read Read) (off int64, block []byte, err error) {
	sb, incompat, roCompat, err := superblock(read)
	switch {
	case err != nil:
		return 0, nil, err
	case incompat&hasMMP == 0:
		return 0, nil, errors.New("it has no multiple mount protection")
	}
	off = int64(le.Uint64(sb[0x168:])) * BlockBytes
	if block, err = read(off, BlockBytes); err != nil {
		return 0, nil, err
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	seed := ^crc32.Checksum(sb[0x68:0x78], castagnoli) // of the UUID
	if incompat&hasSeed != 0 {
		seed = le.Uint32(sb[0x270:])
	}
	sum := func() uint32 { return ^crc32.Update(^seed, castagnoli, block[:mmpSum]) }
	summed := roCompat&metadataChecksum != 0
	if le.Uint32(block) != mmpMagic || summed && le.Uint32(block[mmpSum:]) != sum() {
		return 0, nil, errors.New("the block of its multiple mount protection is damaged")
	}
	if slices.Contains([]uint32{mmpClean, mmpFsck}, le.Uint32(block[mmpSequence:])) {
		return off, nil, nil
	}
	le.PutUint32(block[mmpSequence:], mmpClean)
	if summed {
		le.PutUint32(block[mmpSum:], sum())
	}
	return off, block, nil
}
