package distro

import "strings"

// rhel is what Red Hat Enterprise Linux would need. Its values are read in
// public documentation and package sources. Mortar never ran there.
//
// Sources: spec files of nfs-utils 2.5.4, fence-agents and mdadm 4.2 as rebuilt
// for Enterprise Linux 9; dracut's 90mdraid/module-setup.sh; dracut(8);
// dracut.conf(5). Not looked up: names of the packages of the cluster and of
// Lustre, the OCF directory and the options of dnf, which are as RHEL 8 has them.
var rhel = []Distro{{
	ID: "rhel", Version: "9", Name: "Red Hat Enterprise Linux 9",
	NotRun: []string{
		"the repository of the High Availability Add-On must be enabled before dnf finds Pacemaker",
		"LVM uses only devices that /etc/lvm/devices/system.devices lists: lvmdevices(8) must add the arrays",
		"rpc.statd keeps its state in /var/lib/nfs/statd, and the resource agent in the directory above",
		"SELinux is enforcing: contexts of the NFS state, of mount points and of /etc/mortar are untried",
		"firewalld blocks the ports of NFS, Corosync and Pacemaker by default",
		"the configuration of dracut is untried; it has arrays ignored by the lines of the host's mdadm.conf",
	},
	Packages: Packages{
		MD: []string{"mdadm"}, LVM: []string{"lvm2"}, Multipath: []string{"device-mapper-multipath"}, XFS: []string{"xfsprogs"},
		NFSServer:   []string{"nfs-utils", "rpcbind", "sqlite"},
		NFSClient:   []string{"nfs-utils", "rpcbind"},
		RDMA:        []string{"rdma-core"},
		Cluster:     []string{"corosync", "pacemaker", "pacemaker-cli", "resource-agents"},
		FenceAgents: []string{"fence-agents-ipmilan", "fence-agents-apc-snmp"},
		Time:        []string{"chrony"},
		FenceTest:   []string{"ipmitool", "iputils"},
		Bench:       []string{"fio"},
		// Source: Lustre Operations Manual, 8.1, table of packages; ldiskfs.
		LustreServer:    []string{"kmod-lustre", "kmod-lustre-osd-ldiskfs", "lustre", "lustre-osd-ldiskfs-mount", "e2fsprogs"},
		LustreClient:    []string{"kmod-lustre-client", "lustre-client"},
		LustreE2fsprogs: "e2fsprogs",
		LustreHeld:      []string{"kmod-lustre*", "lustre*", "e2fsprogs", "kernel*"}, KernelPrefix: "kernel-core-",
		Alike: []string{"pacemaker", "corosync", "nfs-utils"},
		Report: []string{"corosync", "pacemaker", "fence-agents-ipmilan", "fence-agents-apc-snmp",
			"resource-agents", "nfs-utils", "mdadm", "lvm2", "xfsprogs", "device-mapper-multipath"},
	},
	Manager: Manager{
		Query: []string{"rpm", "-qa", "--qf", `%{NAME}\n`}, Installed: lines,
		Install: []string{"dnf", "-q", "-y", "--setopt=install_weak_deps=False", "install"},
		Upgrade: []string{"dnf", "-q", "-y", "upgrade"},
		Pending: []string{"dnf", "-q", "list", "--upgrades"}, Newer: dnfNewer,
		Versions: []string{"rpm", "-q", "--qf", `%{NAME} %{VERSION}-%{RELEASE}\n`},
		Held:     []string{"dnf", "-q", "versionlock", "list"}, Hold: []string{"dnf", "-q", "versionlock", "add"},
	},
	MDConf: MDConf{Main: "/etc/mdadm.conf", Alt: "/etc/mdadm/mdadm.conf", Dir: "/etc/mdadm.conf.d/"},
	Initrd: Initrd{
		Images: "/boot/initramfs-*.img",
		Hook:   "/etc/dracut.conf.d/90-mortar.conf", HookMode: 0o644, HookText: dracutConf,
		Tool: "/usr/bin/dracut", Package: "dracut",
		Rebuild: func(kernel string) []string { return []string{"dracut", "--force", "--kver", kernel} },
	},
	Programs: map[string]string{
		"mdadm": "mdadm", "lvm": "lvm2", "exportfs": "nfs-utils", "rpc.nfsd": "nfs-utils",
		"rpc.mountd": "nfs-utils", "nfsdcld": "nfs-utils", "rpc.statd": "nfs-utils", "sm-notify": "nfs-utils",
		"rpcbind": "rpcbind", "tickle_tcp": "resource-agents", "mount.lustre": "lustre",
	},
	Background: Background{CheckTimers: []string{"raid-check.timer"}}, // of the package mdadm
	OCF:        "/usr/lib/ocf/resource.d",
	PipeFS:     "/var/lib/nfs/rpc_pipefs",
	StatdUser:  "rpcuser",
	TimeUnit:   "chronyd.service",
	Lacks: map[string]string{
		"Suite":             "a virtual rack boots Debian only",
		"Packages.Cache":    "the kernel is built without bcache (CONFIG_BCACHE is not set)",
		"BcacheRules":       "there is no bcache",
		"Manager.Status":    "rpm's database is no text: Query asks it",
		"Manager.Candidate": "dnf list says it, which is not known here yet",
		"Manager.CutOff":    "rpm leaves no mark; dnf itself resumes or reports an interrupted transaction",
		"Manager.Mend":      "see CutOff",
		"Manager.Refresh":   "dnf reads the lists of its repositories when they are too old",
		"Manager.HoldFile":  "packages start no daemon: systemd.preset(5) of RHEL enables none that Mortar installs but rpcbind",
		"Manager.HoldLines": "see HoldFile",

		"Background.CheckCron":    "a timer checks arrays",
		"Background.CheckProgram": "see CheckCron",
		"Background.Upgrader":     "dnf-automatic is not installed by default, and not known here yet",
		"Background.UpgradeConf":  "see Upgrader",
		"Background.UpgradeText":  "see Upgrader",
		"Background.Restarter":    "nothing restarts daemons by itself",
		"Background.RestartConf":  "see Restarter",
		"Background.RestartText":  "see Restarter",
	},
}}

// lines is the set of lines of a text.
func lines(text string) map[string]bool {
	have := map[string]bool{}
	for line := range strings.Lines(text) {
		have[strings.TrimSpace(line)] = true
	}
	return have
}

// dracutConf has images take the host's configuration of mdadm along, which
// says of each array that it is to be ignored.
func dracutConf(header string, _ MDConf, _, files []string) string {
	text := header + "mdadmconf=\"yes\"\n"
	if len(files) > 0 {
		text += "install_items+=\" " + strings.Join(files, " ") + " \"\n"
	}
	return text
}

// dnfNewer reads what dnf list --upgrades says: "NAME.ARCH VERSION REPOSITORY"
// below a heading.
func dnfNewer(pending string) []string {
	var out []string
	for line := range strings.Lines(pending) {
		if f := strings.Fields(line); len(f) == 3 {
			out = append(out, f[0]+" "+f[1])
		}
	}
	return out
}
