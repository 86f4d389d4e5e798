package nodeimage

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// KernelArgs is the kernel command line of every node.
//
//   - norandmaps: TCG translates code again for each address at which a program is
//     mapped. A program at its previous address starts four times as fast (fork and
//     exec of /bin/true: 12 ms instead of 48).
//   - Also for speed in emulation: mitigations, nokaslr, audit, no_timer_check,
//     tsc=reliable, cryptomgr.notests, random.trust_cpu, no security modules that
//     only check (AppArmor, BPF), expedited RCU, no memory accounting by control
//     group.
//   - Stable names: net.ifnames=0 (eth0 is the first NIC), and each NVMe drive is a
//     device of its own (nvme_core.multipath).
//   - nvme_core.io_timeout: QEMU 7.2 sometimes misses a doorbell of an NVMe drive.
//     Then all of the drive's commands wait for twice this time, in seconds.
//   - unknown_nmi_panic: the panic fault is a non-maskable interrupt. A panicked node
//     stays down until it is fenced, as a real server does.
const KernelArgs = "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr norandmaps audit=0 no_timer_check tsc=reliable " +
	"random.trust_cpu=on cryptomgr.notests nmi_watchdog=0 raid=noautodetect net.ifnames=0 systemd.show_status=0 " +
	"nvme_core.multipath=N nvme_core.io_timeout=2 unknown_nmi_panic=1 apparmor=0 lsm=landlock,yama rcupdate.rcu_expedited=1 cgroup_disable=memory"

// The node image's recipe, as data. Everything in this file is part of the
// image's content hash: see Spec.key.

// recipeVersion must change with the code that applies the recipe.
const recipeVersion = 1

// recipe is the list of changes to the unpacked packages.
type recipe struct {
	Disabled   []string // links below etc/systemd/system to remove
	Masked     []string // units
	Generators []string // of systemd, masked
	Rules      []string // of udev, masked
	// Files and Links are added, by path.
	Files, Links map[string]string
}

// fastRecipe is for nodes that boot the rack's way. The kernel and the first stage have set up
// all devices except disks by then, and sshd starts as soon as systemd runs: its unit is
// another one, because a drop-in cannot remove an After=.
func fastRecipe() recipe {
	return recipe{lists()["disabled"], lists()["masked"], lists()["generators"], lists()["rules"], filesBelow("image"), map[string]string{
		"etc/systemd/system/sysinit.target.wants/ssh.service":               "../ssh.service",
		"etc/systemd/system/sshd.service":                                   "ssh.service",
		"etc/systemd/system/multi-user.target.wants/mortar-rack-up.service": "../mortar-rack-up.service",
		"etc/systemd/system/default.target":                                 "/usr/lib/systemd/system/multi-user.target",
	}}
}

// distributionRecipe is for nodes that boot as Debian does.
func distributionRecipe() recipe {
	files := filesBelow("image")
	return recipe{
		Disabled:   lists()["distribution-disabled"],
		Masked:     lists()["distribution-masked"],
		Generators: lists()["generators"],
		Files: map[string]string{
			"etc/ssh/sshd_config":                          files["etc/ssh/sshd_config"],
			"etc/systemd/system/mortar-rack-up.service":    files["etc/systemd/system/mortar-rack-up.service"],
			"etc/udev/rules.d/60-mortar-rack-zeroes.rules": files["etc/udev/rules.d/60-mortar-rack-zeroes.rules"],
			"etc/systemd/journald.conf.d/mortar-rack.conf": files["etc/systemd/journald.conf.d/mortar-rack.conf"],
			"etc/fstab": "UUID=" + hw.DiskUUID + " / ext4 errors=remount-ro 0 1\n",
			"etc/initramfs-tools/conf.d/mortar-rack.conf": "# As in any Debian, said once more; the level is for emulated processors.\nMODULES=most\nCOMPRESSLEVEL=1\n",
		},
		Links: map[string]string{
			"etc/systemd/system/multi-user.target.wants/mortar-rack-up.service": "../mortar-rack-up.service",
			"etc/systemd/system/default.target":                                 "/usr/lib/systemd/system/multi-user.target",
		},
	}
}

// The kernels of the archive. The one for clouds boots faster.
const (
	cloudKernel    = "linux-image-cloud-amd64"
	standardKernel = "linux-image-amd64"
)

// softRoCE adds an RDMA device to the public network, which is
// the first interface, before a brick's services start, as a card's driver does.
// Source: rdma-link(8).
func softRoCE() (files, links map[string]string) {
	return filesBelow("rdma"), map[string]string{
		"etc/systemd/system/multi-user.target.wants/mortar-rack-rdma.service": "../mortar-rack-rdma.service",
	}
}

// nodePackages returns the Debian packages of a node.
func nodePackages(suite string) []string {
	d, _ := distro.OfSuite(suite)
	return slices.Concat(lists()["packages"], []string{"resource-agents"}, d.Packages.FenceAgents)
}

//go:embed recipe.txt
var recipeText string

// lists are the words of recipeText by their section.
var lists = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	section := ""
	for line := range strings.Lines(recipeText) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			out[section] = append(out[section], strings.Fields(line)...)
		}
	}
	return out
})

//go:embed image rdma
var trees embed.FS

// filesBelow are the files of a tree, by path; those of image the image adds or replaces. The rack's disks read as
// zeroes where they were unmapped, being sparse files; QEMU does not say so (LBPRZ), hence the
// rule of udev.
func filesBelow(tree string) map[string]string {
	out := map[string]string{}
	if err := fs.WalkDir(trees, tree, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := trees.ReadFile(name)
		out[strings.TrimPrefix(name, tree+"/")] = string(text)
		return err
	}); err != nil {
		panic(err) // it is part of the program
	}
	return out
}

// MarkPrefix starts every line by which a node reports its progress on the
// console.
const MarkPrefix = "MORTAR-RACK "

// initScript is the first program of the node: the initramfs' /init. It mounts the
// shared read-only root and the node's own layer over it, sets the addresses from the
// node's own disk, and starts systemd. The list of modules replaces @MODULES@.
//
// With "mortar.mirror" on the kernel's command line the node's own layer is on a
// mirror of two disks, the system disks; one of them is enough for the boot. initScript
// finds them by their serial numbers, since a missing disk changes the kernel's names.
// mdadm comes from the root.
//
// initScript makes the mirror at the first boot, when neither disk has a superblock.
// --assume-clean is right: the rack wrote both images byte for byte the same (see
// ensureStateImage). The superblock is at the end (1.0), because the file system
// already exists. With the bitmap md copies, after a disk was out or a mirror lost
// power, only the data written near that time. Its bits are coarse, since each newly
// set bit costs a write of the bitmap before the write itself.
//
// With "mortar.array" it starts the firmware of an array, which uses the root's programs and
// never hands over to an init.
//
// With "mortar.probe" on the kernel's command line initScript reports and switches the
// machine off: bootsWith tests KVM that way.
//
//go:embed init.sh
var initScript string
