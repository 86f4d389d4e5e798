package nodeimage

import (
	_ "embed"
	"slices"
	"strings"

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

// fastRecipe is for nodes that boot the rack's way.
var fastRecipe = recipe{disabledUnits, maskedUnits, maskedGenerators, maskedRules, imageFiles, imageLinks}

// distributionRecipe is for nodes that boot as Debian does. It keeps everything of
// Debian that affects block devices: all udev rules, the units of LVM, md and
// multipath, the hooks and scripts of the initial RAM disk. It removes programs that a
// server under test does not need, and that cost an emulated one seconds.
var distributionRecipe = recipe{
	Disabled: append(below("", "chronyd"), // an alias
		append(below("multi-user.target.wants/", "chrony", "corosync", "logd", "nfs-server", "nfs-client.target", "pacemaker", "rpcbind", "smartmontools",
			"ipmievd", "openipmi", "e2scrub_reap", "grub-common"),
			"remote-fs.target.wants/nfs-client.target", "getty.target.wants/getty@tty1.service", "timers.target.wants")...),
	Masked: []string{
		"getty.target", "systemd-logind.service", "systemd-user-sessions.service",
		"systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
		"systemd-firstboot.service", "systemd-machine-id-commit.service", "systemd-sysusers.service",
		"systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "ldconfig.service",
		"systemd-update-done.service", "systemd-random-seed.service", "systemd-tmpfiles-clean.timer",
		"systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-pcrmachine.service",
		"systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service", "systemd-hibernate-clear.service",
		"systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount",
	},
	Generators: maskedGenerators,
	Files: map[string]string{
		"etc/ssh/sshd_config":                          imageFiles["etc/ssh/sshd_config"],
		"etc/systemd/system/mortar-rack-up.service":    imageFiles["etc/systemd/system/mortar-rack-up.service"],
		"etc/udev/rules.d/60-mortar-rack-zeroes.rules": imageFiles["etc/udev/rules.d/60-mortar-rack-zeroes.rules"],
		"etc/systemd/journald.conf.d/mortar-rack.conf": imageFiles["etc/systemd/journald.conf.d/mortar-rack.conf"],
		"etc/fstab": "UUID=" + hw.DiskUUID + " / ext4 errors=remount-ro 0 1\n",
		"etc/initramfs-tools/conf.d/mortar-rack.conf": "# As in any Debian, said once more; the level is for emulated processors.\nMODULES=most\nCOMPRESSLEVEL=1\n",
	},
	Links: map[string]string{
		"etc/systemd/system/multi-user.target.wants/mortar-rack-up.service": "../mortar-rack-up.service",
		"etc/systemd/system/default.target":                                 "/usr/lib/systemd/system/multi-user.target",
	},
}

// The kernels of the archive. The one for clouds boots faster.
const (
	cloudKernel    = "linux-image-cloud-amd64"
	standardKernel = "linux-image-amd64"
)

// softRoCEFiles and softRoCELinks add an RDMA device to the public network, which is
// the first interface, before a brick's services start, as a card's driver does.
// Source: rdma-link(8).
var (
	softRoCEFiles = map[string]string{
		"etc/systemd/system/mortar-rack-rdma.service": `[Unit]
Description=RDMA on the public network in software (Soft RoCE)
DefaultDependencies=no
Before=multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/modprobe rdma_rxe
ExecStart=/usr/bin/rdma link add rxe0 type rxe netdev eth0
`,
	}
	softRoCELinks = map[string]string{
		"etc/systemd/system/multi-user.target.wants/mortar-rack-rdma.service": "../mortar-rack-rdma.service",
	}
)

// nodePackages returns the Debian packages that a storage server or its client needs.
// The image does not configure or enable them.
func nodePackages(suite string) []string {
	p := []string{
		"systemd", "systemd-sysv", "dbus", "udev", "kmod", "iproute2",
		"openssh-server", "openssh-client", "procps", "psmisc", cloudKernel,
		"mdadm", "lvm2", "multipath-tools", "xfsprogs", "thin-provisioning-tools", "bcache-tools", "fdisk",
		"nfs-kernel-server", "nfs-common", "rpcbind", "sqlite3", "nftables",
		"corosync", "pacemaker", "pacemaker-cli-utils",
		"ipmitool", "snmp", "iputils-arping", "iputils-ping",
		"fio", "gawk", "sg3-utils", "smartmontools", "ethtool", "chrony", "ca-certificates",
		// For servers that boot the distribution's way.
		"initramfs-tools", "zstd", "busybox", "e2fsprogs", "grub-pc", "ifupdown",
	}
	d, _ := distro.OfSuite(suite)
	return slices.Concat(p, []string{"resource-agents"}, d.Packages.FenceAgents)
}

// unpackExcludes are paths that dpkg does not unpack: documentation.
var unpackExcludes = []string{
	"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*",
	"/usr/share/lintian/*",
}

// imageExcludes are regular expressions (mkfs.erofs --exclude-regex) of files of the
// unpacked system that the image omits.
var imageExcludes = []string{
	`^boot/.`, `^var/cache/.+/.`, `^var/lib/apt/lists/.`, `^var/log/.+\.log$`,
	// ipmitool reads all of it, 5 MB, at each call: 0.6 s emulated.
	`^usr/share/misc/enterprise-numbers\.txt`,
	`^usr/lib/udev/hwdb\.(bin|d)`, `^usr/lib/python3/dist-packages/botocore/data`,
	// Scripts of System V, which all have systemd units. For each script of an
	// enabled unit, systemctl runs update-rc.d, which makes systemd reload all
	// units.
	`^etc/init\.d/.`, `^etc/rc[0-9S]\.d/.`,
	// Generators for features that a rack lacks; systemd runs them whenever it reads
	// its units.
	`^usr/lib/systemd/system-generators/systemd-(bless-boot|cryptsetup|debug|getty|gpt-auto|hibernate-resume|import|integritysetup|rc-local|run|ssh|system-update|sysv|tpm2|veritysetup)-generator`,
}

// disabledUnits are links below etc/systemd/system that Debian packages make and the
// image removes. apply enables those that a brick needs, as on a real server. The
// others would only cost time at boot.
var disabledUnits = slices.Concat(
	below("multi-user.target.wants/", "corosync", "logd", "nfs-server", "nfs-client.target", "pacemaker", "rpcbind", "smartmontools",
		"ipmievd", "openipmi", "e2scrub_reap", "ssh", "networking"),
	below("network-online.target.wants/", "networking"),
	below("remote-fs.target.wants/", "nfs-client.target"),
	below("nfs-client.target.wants/", "nfs-blkmap"),
	below("sysinit.target.wants/", "blk-availability", "lvm2-monitor", "multipathd", "systemd-pstore"),
	below("sockets.target.wants/", "multipathd.socket", "uuidd.socket"),
	[]string{"ssh.service.wants/sshd-keygen.service", "getty.target.wants/getty@tty1.service", "timers.target.wants",
		// Its socket starts it.
		"../../../usr/lib/systemd/system/multi-user.target.wants/dbus.service",
		// Only a comment, for which a program would run at every boot.
		"../../modules-load.d/modules.conf"},
)

// below returns the paths of units in a directory; one without a type is a service.
func below(dir string, units ...string) []string {
	for i, u := range units {
		if !strings.Contains(u, ".") {
			u += ".service"
		}
		units[i] = dir + u
	}
	return units
}

// maskedUnits do nothing for a machine like this one but cost time at every
// boot, several hundred milliseconds each in emulation.
var maskedUnits = []string{
	// Consoles and logins: the rack is reached over SSH.
	"getty.target", "systemd-logind.service", "systemd-user-sessions.service",
	"systemd-ask-password-console.path", "systemd-ask-password-wall.path",
	"systemd-initctl.socket", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
	// First boot and updates: the image is complete.
	"systemd-firstboot.service", "systemd-machine-id-commit.service", "systemd-sysusers.service",
	"systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "ldconfig.service",
	"systemd-update-done.service", "systemd-remount-fs.service", "systemd-random-seed.service",
	"systemd-journal-flush.service", "systemd-tmpfiles-clean.timer",
	// Missing hardware.
	"systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-pcrmachine.service",
	"systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service", "systemd-hibernate-clear.service",
	"systemd-pstore.service", "systemd-pcrextend.socket", "systemd-pcrlock.socket",
	"systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount",
	"sys-fs-fuse-connections.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
	"modprobe@drm.service", "modprobe@efi_pstore.service", "modprobe@fuse.service",
	"systemd-creds.socket", "systemd-sysext.socket", "systemd-hostnamed.socket",
	// Unused mounts and their modules. /run/lock is then a directory of /run, and
	// /tmp a directory of the root.
	"sys-kernel-debug.mount", "sys-kernel-config.mount", "modprobe@configfs.service", "dev-mqueue.mount",
	"run-lock.mount", "tmp.mount",
	// The first stage makes the device nodes that load a module.
	"kmod-static-nodes.service", "systemd-tmpfiles-setup-dev-early.service", "systemd-tmpfiles-setup-dev.service",
	"systemd-udev-load-credentials.service",
}

// maskedGenerators would run at every boot and find nothing. These stay:
// systemd-fstab-generator, nfs-server-generator, rpc-pipefs-generator.
var maskedGenerators = []string{
	"systemd-debug-generator", "systemd-getty-generator", "systemd-gpt-auto-generator",
	"systemd-hibernate-resume-generator", "systemd-rc-local-generator", "systemd-run-generator",
	"systemd-ssh-generator", "systemd-system-update-generator", "systemd-sysv-generator",
	"systemd-tpm2-generator", "systemd-cryptsetup-generator", "systemd-veritysetup-generator",
	"systemd-integritysetup-generator", "systemd-bless-boot-generator",
}

// maskedRules are udev rules for hardware that a rack node cannot have, and
// 55-scsi-sg3_id, which repeats the queries of 60-persistent-storage for every path.
var maskedRules = []string{
	"50-firmware", "55-scsi-sg3_id", "58-scsi-sg3_symlink", "60-autosuspend", "60-cdrom_id",
	"60-drm", "60-evdev", "60-fido-id", "60-infiniband", "60-input-id", "60-persistent-alsa",
	"60-persistent-input", "60-persistent-storage-mtd", "60-persistent-storage-tape",
	"60-persistent-v4l", "60-sensor", "60-serial", "70-camera", "70-joystick", "70-memory",
	"70-mouse", "70-power-switch", "70-touchpad", "70-uaccess", "71-seat", "73-seat-late",
	"73-special-net-names", "75-net-description", "75-probe_mtd", "78-sound-card",
	"80-ifupdown", "80-net-setup-link", "81-net-dhcp", "90-iocost", "96-e2scrub",
}

// imageFiles are the files that the image adds or replaces, by path.
var imageFiles = map[string]string{
	// sshd starts as soon as systemd runs, not after everything else. It has a unit
	// of its own because a drop-in cannot remove an After=.
	"etc/systemd/system/ssh.service": `[Unit]
Description=OpenBSD Secure Shell server
DefaultDependencies=no
Before=shutdown.target
Conflicts=shutdown.target

[Service]
ExecStart=/usr/sbin/sshd -D
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
Restart=on-failure
RestartPreventExitStatus=255
RuntimeDirectory=sshd
RuntimeDirectoryMode=0755

[Install]
WantedBy=sysinit.target
Alias=sshd.service
`,
	"etc/ssh/sshd_config": `HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
Subsystem sftp internal-sftp
`,
	// Reports on the console, which the rack reads, that the node is up.
	"etc/systemd/system/mortar-rack-up.service": `[Unit]
Description=Report on the console that the node is up
DefaultDependencies=no
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'read up idle < /proc/uptime; echo "` + MarkPrefix + `multi-user $$up" > /dev/console'
`,
	// The kernel and the first stage have set up all devices except disks.
	"etc/systemd/system/systemd-udev-trigger.service.d/mortar-rack.conf": `[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --subsystem-match=block --subsystem-match=nvme --subsystem-match=net
`,
	// The rack's disks read as zeroes where they were unmapped, being sparse
	// files; QEMU does not say so (LBPRZ).
	"etc/udev/rules.d/60-mortar-rack-zeroes.rules": `ACTION=="add", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="sd*", RUN+="/bin/sh -c 'echo writesame_16_unmap | tee /sys%p/device/scsi_disk/*/zeroing_mode'"
`,
	"etc/systemd/journald.conf.d/mortar-rack.conf": "[Journal]\nStorage=volatile\nRuntimeMaxUse=24M\nRateLimitBurst=0\n",
	"etc/fstab": "# <file system> <mount point> <type> <options> <dump> <pass>\n",
}

// imageLinks are symbolic links that the image adds, by path.
var imageLinks = map[string]string{
	"etc/systemd/system/sysinit.target.wants/ssh.service":               "../ssh.service",
	"etc/systemd/system/sshd.service":                                   "ssh.service",
	"etc/systemd/system/multi-user.target.wants/mortar-rack-up.service": "../mortar-rack-up.service",
	"etc/systemd/system/default.target":                                 "/usr/lib/systemd/system/multi-user.target",
}

// initrdModules are the modules that the node needs for its root, and every driver of
// the rack's hardware, so that udev need not look for one. modulesInOrder skips modules
// built into the kernel.
var initrdModules = []string{
	"virtio_pci", "virtio_blk", "virtio_net", "virtio_scsi", "sd_mod", "sg", "nvme", "i6300esb",
	"crc32c_intel", "crc32c_generic", "ext4", "erofs", "overlay", "af_packet", "dm_mod", "raid1",
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
