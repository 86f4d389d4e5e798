package doubt

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/mortarhpc/mortar/internal/base/ext4"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// Whose blocks of ldiskfs are in doubt: its inodes tell, and what Lustre has stored with an
// inode tells the file that it is an object of. The file's name is known to the MDS only.

// Ext4Owners reads a device beside its mount.
func Ext4Owners(ctx context.Context, k kernel.Host, device string, blocks []int64) (*Owners, error) {
	read := func(off int64, n int) ([]byte, error) { return k.ReadBlocks(device, off, n) }
	found, err := ext4.OwnersOf(ctx, read, blocks)
	if err != nil {
		return nil, err
	}
	o := &Owners{Metadata: found.Own, Free: found.Free}
	for _, x := range found.Inodes {
		o.Files = append(o.Files, FileInDoubt{Inode: x.Number, FID: fidOf(x.Attributes), Offsets: x.Offsets})
	}
	if found.Unread > 0 {
		o.Unsearched = fmt.Sprintf("files or places may be missing, inodes whose map cannot be trusted: %d", found.Unread)
	}
	return o, nil
}

// fidOf is the file that an object of an OST is part of, as lfs writes it, by the inode's
// attributes: trusted.fid, or for a small inode trusted.lma. "": of none.
//
// Source: lustre-release, lustre/include/uapi/linux/lustre/lustre_user.h, struct
// filter_fid, lustre_ost_attrs, enum lma_compat
func fidOf(attributes map[string][]byte) string {
	const hasParent, parentAt, firstNormal = 0x10, 24, 0x200000400
	le := binary.LittleEndian
	b := attributes["fid"]
	if lma := attributes["lma"]; len(b) == 0 && len(lma) >= parentAt+16 && le.Uint32(lma)&hasParent != 0 {
		b = lma[parentAt:]
	}
	if len(b) < 16 || le.Uint64(b) < firstNormal {
		return ""
	}
	return fmt.Sprintf("[%#x:%#x:0x0]", le.Uint64(b), le.Uint32(b[8:]))
}
