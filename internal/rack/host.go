package rack

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/internal/rack/vdisk"
)

// hostTools are the programs that a rack needs, with their Debian packages.
var hostTools = []struct{ tool, pkg string }{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"mmdebstrap", "mmdebstrap"},
	{"mkfs.erofs", "erofs-utils"},
	{"mkfs.ext4", "e2fsprogs"},
	{"debugfs", "e2fsprogs"},
	{"cpio", "cpio"},
	{"ipmi_sim", "openipmi"},
	{"snmpd", "snmpd"},
	{"ip", "iproute2"},
	{"ssh", "openssh-client"},
	{"busybox", "busybox-static"},
	{"unshare", "util-linux"},
	{"chroot", "coreutils"},
	{"tar", "tar"},
	{"xz", "xz-utils"},
	{"zstd", "zstd"},
}

const (
	// overheadMiB is the memory of a node's QEMU in addition to the node's memory.
	overheadMiB = 256
	// reserveMiB is the memory that stays free for the host.
	reserveMiB = 512
	// imageBuildMiB is the room an image takes while it is built: the
	// packages, the unpacked system and the finished files.
	imageBuildMiB = 2560
)

// checkHost returns why this host cannot run the rack, nil if it can. It changes
// nothing.
func checkHost(c *hw.Config, dir string, spec nodeimage.Spec) error {
	var bad []string
	var missing []string
	for _, t := range hostTools {
		if tool.Path(t.tool) == t.tool && !slices.Contains(missing, t.pkg) {
			missing = append(missing, t.pkg)
		}
	}
	if bb := tool.Path("busybox"); bb != "busybox" && !isStatic(bb) {
		missing = append(missing, "busybox-static")
	}
	// QEMU's iSCSI client.
	if found, err := filepath.Glob("/usr/lib/*/qemu/block-iscsi.so"); err != nil || len(found) == 0 {
		missing = append(missing, "qemu-block-extra")
	}
	if len(missing) > 0 {
		bad = append(bad, "the rack needs programs that are not installed: apt-get install "+strings.Join(missing, " "))
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		bad = append(bad, "the kernel has no tun device (/dev/net/tun): modprobe tun")
	}

	if err := checkNetns(c, dir); err != nil {
		bad = append(bad, err.Error())
	}

	var needMiB int64
	for _, n := range c.Nodes {
		if tool.Running(dir, n.Name) == nil {
			needMiB += int64(n.MemoryMiB) + overheadMiB
		}
	}
	if tool.Running(dir, hw.Shelves) == nil {
		needMiB += int64(len(c.SharedDisks())+len(c.SSDs)) * vdisk.CacheBlocks * vdisk.CacheBlock >> 20
	}
	for _, e := range c.Arrays() {
		if tool.Running(dir, e.Name) == nil {
			needMiB += int64(hw.ArrayMemoryMiB) + overheadMiB
		}
	}
	available, err := availableMemory()
	if err != nil {
		return err
	}
	if have := available >> 20; needMiB > 0 && have < needMiB+reserveMiB {
		bad = append(bad, fmt.Sprintf("too little memory: the rack's %d nodes and arrays need %d MiB, and %d MiB must stay for the host, but only %d MiB are available",
			len(c.Nodes)+len(c.Arrays()), needMiB, reserveMiB, have))
	}

	// A disk image is sparse, but the host must have space for all of it: a rack
	// that runs out of space breaks in ways that no real rack does.
	need := map[string]int64{}
	files := imageFilesOf(c, dir)
	if c.Sparse {
		files = stateFilesOf(c, dir)
	}
	for file, size := range files {
		need[dir] += size - allocated(file)
	}
	cache, err := nodeimage.CacheDir()
	if err != nil {
		return err
	}
	if nodeimage.Cached(filepath.Join(cache, spec.Key())) == nil || c.Distribution() && !tool.Exists(spec.DiskFile(cache)) {
		need[cache] += imageBuildMiB << 20
	}
	type room struct{ need, free int64 }
	perFS := map[uint64]*room{}
	where := map[uint64]string{}
	for d, n := range need {
		dev, free, err := freeBytes(d)
		if err != nil {
			return err
		}
		if perFS[dev] == nil {
			perFS[dev] = &room{free: free}
			where[dev] = d
		}
		perFS[dev].need += n
	}
	for dev, r := range perFS {
		if r.need > 0 && r.free < r.need+reserveMiB<<20 {
			bad = append(bad, fmt.Sprintf("too little disk space: the rack's disks and images need %d MiB in %s, but only %d MiB are free (--sparse makes disks that cannot be filled)",
				r.need>>20+reserveMiB, where[dev], r.free>>20))
		}
	}
	if len(bad) > 0 {
		return &tool.RefusedError{Problems: bad}
	}
	return nil
}

// availableMemory is this host's, in bytes.
func availableMemory() (int64, error) {
	meminfo, err := os.ReadFile("/proc/meminfo")
	return linux.Memory(string(meminfo), "MemAvailable"), err
}

// stateFilesOf lists the files of the nodes' own layers with their full sizes.
func stateFilesOf(c *hw.Config, dir string) map[string]int64 {
	out := map[string]int64{}
	for i := range c.Nodes {
		for _, d := range hw.SystemDisksOf(dir, &c.Nodes[i]) {
			out[d.Image] = d.Bytes
		}
	}
	for _, e := range c.Arrays() {
		out[hw.ArrayState(dir, e.Name)] = hw.ArrayStateBytes
	}
	return out
}

// imageFilesOf is stateFilesOf with the images of all disks.
func imageFilesOf(c *hw.Config, dir string) map[string]int64 {
	out := stateFilesOf(c, dir)
	for _, d := range c.Images() {
		out[hw.DiskImage(dir, d.Name)] = d.Bytes
	}
	return out
}

// allocated is the space that a file already takes, in bytes.
func allocated(file string) int64 {
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// freeBytes returns the free space of a directory's file system; the directory need
// not exist yet.
func freeBytes(dir string) (dev uint64, free int64, err error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		if err == nil {
			var fsst unix.Statfs_t
			if err := unix.Statfs(dir, &fsst); err != nil {
				return 0, 0, fmt.Errorf("%s: %w", dir, err)
			}
			return st.Dev, int64(fsst.Bavail) * fsst.Bsize, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return 0, 0, fmt.Errorf("%s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

// isStatic reports whether a program needs no dynamic linker: the node's first stage
// has none.
func isStatic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// kvmProbeTime bounds the time to the kernel's first program under KVM. Half a
// second is usual; a slower KVM is no better than emulation.
const kvmProbeTime = 3 * time.Second

// chooseAccel returns the accelerator for the nodes. It boots the kernel with KVM,
// because a nested or restricted /dev/kvm may not be able to run a stock kernel.
func chooseAccel(ctx context.Context, c *hw.Config, img *nodeimage.Image) (string, error) {
	if c.Accel != "" {
		return c.Accel, nil
	}
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return "tcg", nil
	}
	if bootsWith(ctx, "kvm", img, kvmProbeTime) {
		return "kvm", nil
	}
	return "tcg", ctx.Err()
}

// bootsWith reports whether the image's kernel reaches its first program within
// limit.
func bootsWith(ctx context.Context, accel string, img *nodeimage.Image, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	argv := append([]string{"qemu-system-x86_64"}, qemu.BaseArgs()...)
	argv = append(argv, qemu.LoadArgs(img, nodeimage.KernelArgs+" mortar.probe")...)
	argv = append(argv, qemu.AccelArgs(accel, 2)...)
	argv = append(argv, "-m", "256", "-no-reboot", "-serial", "stdio")
	out, err := tool.Output(ctx, nil, argv...)
	return err == nil && bytes.Contains(out, []byte(nodeimage.MarkPrefix+"kernel"))
}
