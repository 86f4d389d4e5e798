package rack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A node that boots the distribution's way has one system disk: a partition with the
// whole system, and Debian's GRUB in front of it. SeaBIOS loads GRUB, and GRUB loads
// Debian's kernel and initial RAM disk. The rest of the boot is Debian's own: see
// distributionRecipe.

const (
	// diskBytes is the size of such a disk. The system takes 1 GiB, and there is
	// space for another kernel with its initial RAM disk. The file is sparse.
	diskBytes = 3 << 30
	// partitionStart is the begin of the only partition: 1 MiB, the default of all
	// partitioning tools. GRUB's core image is in the gap before it.
	partitionStart = 1 << 20
	sectorBytes    = 512
	// diskUUID is the UUID of the root file system, the same in every node.
	diskUUID = "6d6f7274-6172-4272-8163-6b726f6f7400"
)

// diskKey is the cache key of the disk that buildDisk makes from the packages.
func (s imageSpec) diskKey() string {
	return hashOf("disk", s.baseKey(), recipeVersion, s.recipe(distributionRecipe), diskBytes, grubModules, grubConfig())
}

// diskFile is the disk's path in the cache.
func (s imageSpec) diskFile(cache string) string {
	return filepath.Join(cache, "disk-"+s.diskKey()+".raw")
}

// grubModules are in GRUB's core image; it needs no others to boot.
var grubModules = []string{"biosdisk", "part_msdos", "ext2", "normal", "linux", "echo", "sleep", "serial", "terminal"}

// grubConfig boots the newest kernel, to which Debian's packages maintain links,
// without a menu.
func grubConfig() string {
	args := strings.ReplaceAll(kernelArgs, "raid=noautodetect ", "")
	return "set timeout=0\nset root=hd0,msdos1\n" +
		"linux /vmlinuz root=UUID=" + diskUUID + " ro " + args + "\n" +
		"initrd /initrd.img\nboot\n"
}

// ensureDisk returns the base of the nodes' system disks, and builds it if the cache
// does not have it.
func ensureDisk(ctx context.Context, spec imageSpec, p *progress) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	disk := spec.diskFile(cache)
	if there(disk) {
		return disk, touch(disk)
	}
	return disk, building(ctx, cache, func(work string) error {
		if there(disk) {
			return nil
		}
		base, err := ensureBase(ctx, spec, cache, work, p)
		if err != nil {
			return err
		}
		return p.step("system disk", "kernel, initramfs, boot loader, root", func() error {
			part := filepath.Join(work, "disk.raw")
			if err := buildDisk(ctx, spec, base, filepath.Join(work, "root"), part); err != nil {
				return err
			}
			return os.Rename(part, disk)
		})
	})
}

// buildDisk makes the disk from the packages.
func buildDisk(ctx context.Context, spec imageSpec, base, root, disk string) error {
	if err := unpack(ctx, base, root); err != nil {
		return err
	}
	if err := customize(ctx, root, spec.recipe(distributionRecipe)); err != nil {
		return err
	}
	core, err := installGRUB(ctx, root)
	if err != nil {
		return err
	}
	if err := makeSparse(disk, diskBytes); err != nil {
		return err
	}
	if err := run(ctx, "mkfs.ext4", "-q", "-F", "-U", diskUUID, "-m", "0", "-J", "size=16",
		"-E", fmt.Sprintf("offset=%d,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", partitionStart), "-d", root, disk,
		fmt.Sprintf("%dk", (diskBytes-partitionStart)>>10)); err != nil {
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
	return overwrite(disk, 0, bytes.NewReader(front))
}

// overwrite writes over a part of a file that exists.
func overwrite(file string, offset int64, content io.Reader) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, offset), content)
	return errors.Join(err, f.Close())
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
	if err := run(ctx, argv...); err != nil {
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
	if len(boot) != sectorBytes || len(core) < sectorBytes || sectorBytes+len(core) > partitionStart {
		return nil, fmt.Errorf("GRUB's boot sector has %d bytes and its core %d: want %d, and no more than fits before the partition", len(boot), len(core), sectorBytes)
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
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sectorBytes)
	binary.LittleEndian.PutUint32(entry[12:], (diskBytes-partitionStart)/sectorBytes)
	front[510], front[511] = 0x55, 0xaa
	return front, nil
}

// ensureSystemDisk makes a node's system disk: a copy of the base with the node's
// identity (names, addresses, keys).
func ensureSystemDisk(ctx context.Context, r *rack, n *Node, base, adminKey string) error {
	img := systemDisksOf(r.dir, n)[0].Image
	if there(img) {
		return nil
	}
	files, err := identity(r, n, adminKey)
	if err != nil {
		return err
	}
	seed, err := os.MkdirTemp(filepath.Dir(img), "seed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(seed)
	commands := "mkdir /root/.ssh\nset_inode_field /root/.ssh mode 040700\n"
	for i, f := range append(files, seedFile{"/etc/network/interfaces", interfacesFile(r.cfg, n), 0o644}) {
		from := filepath.Join(seed, fmt.Sprint(i))
		// Chmod: the mode does not depend on the umask.
		if err := errors.Join(os.WriteFile(from, []byte(f.text), f.mode), os.Chmod(from, f.mode)); err != nil {
			return err
		}
		commands += "write " + from + " " + f.name + "\n"
	}
	script := filepath.Join(seed, "commands")
	if err := os.WriteFile(script, []byte(commands), 0o600); err != nil {
		return err
	}
	part := img + ".part"
	if err := run(ctx, "cp", "--sparse=always", base, part); err != nil {
		return err
	}
	// debugfs(8) exits with 0 even after errors, so read back what it wrote.
	fs := fmt.Sprintf("%s?offset=%d", part, partitionStart)
	if err := run(ctx, "debugfs", "-w", "-f", script, fs); err != nil {
		return err
	}
	if err := run(ctx, "debugfs", "-R", "dump /root/.ssh/authorized_keys "+script, fs); err != nil {
		return err
	}
	if got, err := os.ReadFile(script); err != nil || string(got) != adminKey+"\n" {
		return fmt.Errorf("%s: debugfs did not write the node's files (%v)", part, err)
	}
	return os.Rename(part, img)
}

// interfacesFile is interfaces(5) of a node. Its first network card is eth0:
// see kernelArgs.
func interfacesFile(c *Config, n *Node) string {
	var b strings.Builder
	b.WriteString("auto lo\niface lo inet loopback\n")
	for i, nic := range n.NICs {
		fmt.Fprintf(&b, "auto %s\niface %[1]s inet static\n    address %s\n    mtu %d\n", nicID(i), nic.Address, c.mtu(nic.Network))
	}
	return b.String()
}
