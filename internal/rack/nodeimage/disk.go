package nodeimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// diskKey is the cache key of the disk that buildDisk makes from the packages.
func (s Spec) diskKey() string {
	return hashOf("disk", s.baseKey(), recipeVersion, s.recipe(distributionRecipe()), hw.DiskBytes, grubModules, grubConfig())
}

// DiskFile is the disk's path in the cache.
func (s Spec) DiskFile(cache string) string {
	return filepath.Join(cache, "disk-"+s.diskKey()+".raw")
}

// grubModules are in GRUB's core image; it needs no others to boot.
var grubModules = []string{"biosdisk", "part_msdos", "ext2", "normal", "linux", "echo", "sleep", "serial", "terminal"}

// grubConfig boots the newest kernel, to which Debian's packages maintain links,
// without a menu.
func grubConfig() string {
	args := strings.ReplaceAll(KernelArgs, "raid=noautodetect ", "")
	return "set timeout=0\nset root=hd0,msdos1\n" +
		"linux /vmlinuz root=UUID=" + hw.DiskUUID + " ro " + args + "\n" +
		"initrd /initrd.img\nboot\n"
}

// EnsureDisk returns the base of the nodes' system disks, and builds it if the cache
// does not have it.
func EnsureDisk(ctx context.Context, spec Spec, p *tool.Steps) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	disk := spec.DiskFile(cache)
	if tool.Exists(disk) {
		return disk, touch(disk)
	}
	return disk, building(ctx, cache, func(work string) error {
		if tool.Exists(disk) {
			return nil
		}
		base, err := ensureBase(ctx, spec, cache, work, p)
		if err != nil {
			return err
		}
		return p.Step("system disk", "kernel, initramfs, boot loader, root", func() error {
			part := filepath.Join(work, "disk.raw")
			if err := buildDisk(ctx, spec, base, filepath.Join(work, "root"), part); err != nil {
				return err
			}
			return os.Rename(part, disk)
		})
	})
}

// buildDisk makes the disk from the packages.
func buildDisk(ctx context.Context, spec Spec, base, root, disk string) error {
	if err := unpack(ctx, base, root); err != nil {
		return err
	}
	if err := customize(ctx, root, spec.recipe(distributionRecipe())); err != nil {
		return err
	}
	core, err := installGRUB(ctx, root)
	if err != nil {
		return err
	}
	if err := tool.MakeSparse(disk, hw.DiskBytes); err != nil {
		return err
	}
	if err := tool.Run(ctx, "mkfs.ext4", "-q", "-F", "-U", hw.DiskUUID, "-m", "0", "-J", "size=16",
		"-E", fmt.Sprintf("offset=%d,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", hw.PartitionStart), "-d", root, disk,
		fmt.Sprintf("%dk", (hw.DiskBytes-hw.PartitionStart)>>10)); err != nil {
		return err
	}
	boot, err := os.ReadFile(filepath.Join(root, "usr/lib/grub/i386-pc/boot.img"))
	if err != nil {
		return err
	}
	front, err := diskFront(boot, core)
	if err != nil {
		return err
	}
	return tool.Overwrite(disk, 0, bytes.NewReader(front))
}

// installGRUB installs GRUB below /boot, as grub-install does, and returns the core
// image. grub-install itself needs a block device.
func installGRUB(ctx context.Context, root string) ([]byte, error) {
	grub := filepath.Join(root, "boot/grub")
	if err := errors.Join(os.MkdirAll(grub, 0o755), os.WriteFile(filepath.Join(grub, "grub.cfg"), []byte(grubConfig()), 0o644)); err != nil {
		return nil, err
	}
	const core = "boot/grub/core.img"
	argv := append([]string{"chroot", root, "grub-mkimage", "--format=i386-pc", "--output=/" + core, "--prefix=(hd0,msdos1)/boot/grub"}, grubModules...)
	if err := tool.Run(ctx, argv...); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(root, core))
}

// diskFront is the disk's content before the partition: GRUB's boot sector with the
// partition table, then its core image. Both are unpatched: by default the boot
// sector loads the core from sector 1, and the core's first sector loads the rest
// from sector 2.
//
// Source: grub-core/boot/i386/pc/boot.S and diskboot.S of GRUB.
func diskFront(boot, core []byte) ([]byte, error) {
	if len(boot) != hw.SectorBytes || len(core) < hw.SectorBytes || hw.SectorBytes+len(core) > hw.PartitionStart {
		return nil, fmt.Errorf("GRUB's boot sector has %d bytes and its core %d: want %d, and no more than fits before the partition", len(boot), len(core), hw.SectorBytes)
	}
	const table = 446
	front := append(bytes.Clone(boot), core...)
	clear(front[table:510])
	entry := front[table:]
	entry[0] = 0x80 // active
	// This value means that addresses by cylinder, head and sector are out of
	// range.
	copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
	entry[4] = 0x83 // Linux
	copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], hw.PartitionStart/hw.SectorBytes)
	binary.LittleEndian.PutUint32(entry[12:], (hw.DiskBytes-hw.PartitionStart)/hw.SectorBytes)
	front[510], front[511] = 0x55, 0xaa
	return front, nil
}
