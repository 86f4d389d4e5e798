package ext4

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A block of MMP as a kernel leaves it whose power goes is clean for e2fsprogs after the write.
// Its tools refuse a block with a wrong checksum, and mkfs makes one with a right one.
func TestUnmountedMMP(t *testing.T) {
	for name, features := range map[string]string{
		"checksums": "mmp,metadata_csum,^metadata_csum_seed", "a seed": "mmp,metadata_csum,metadata_csum_seed", "no checksums": "mmp,^metadata_csum",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "image")
			run(t, "mkfs.ext4", "-qF", "-b", "4096", "-O", features, file, "32M")
			image, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			off, block, err := UnmountedMMP(reader(image, nil))
			if err != nil || block != nil {
				t.Fatalf("as made: %d bytes, %v", len(block), err)
			}
			seed := ^crc32.Checksum(image[1024+0x68:1024+0x78], crc32.MakeTable(crc32.Castagnoli))
			if name == "a seed" {
				seed = le.Uint32(image[1024+0x270:])
			}
			mmp := image[off : off+BlockBytes]
			for seq, write := range map[uint32]bool{mmpFsck: false, 0x1234: true} {
				le.PutUint32(mmp[mmpSequence:], seq)
				if name != "no checksums" {
					le.PutUint32(mmp[mmpSum:], ^crc32.Update(^seed, crc32.MakeTable(crc32.Castagnoli), mmp[:mmpSum]))
				}
				at, block, err := UnmountedMMP(reader(image, nil))
				if err != nil || at != off || (block != nil) != write {
					t.Fatalf("%x: %d bytes at %d, %v", seq, len(block), at, err)
				}
				if !write {
					continue
				}
				if err := os.WriteFile(file, append(append(image[:off:off], block...), image[off+BlockBytes:]...), 0o600); err != nil {
					t.Fatal(err)
				}
				if said := run(t, "debugfs", "-R", "dump_mmp", file); !strings.Contains(said, "sequence: ff4d4d50") {
					t.Error(said)
				}
			}
			for at, x := range map[int64]byte{off: 0, 1024 + 0x38: 0, 1024 + 0x61: 0} {
				if _, _, err := UnmountedMMP(reader(image, map[int64]byte{at: x})); err == nil {
					t.Errorf("byte %d is %d, and nothing is refused", at, x)
				}
			}
		})
	}
}
