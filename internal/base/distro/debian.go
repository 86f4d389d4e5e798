package distro

import (
	_ "embed"
	"path"
	"strings"
)

// debian is every supported release of Debian, the oldest first.
var debian = []Distro{
	// Debian 12 has all fence agents in one package.
	debianRelease("12", "bookworm", "fence-agents"),
	debianRelease("13", "trixie", "fence-agents-ipmilan", "fence-agents-apc-snmp"),
}

func debianRelease(version, suite string, fenceAgents ...string) Distro {
	return Distro{
		ID: "debian", Version: version, Name: "Debian " + version, Suite: suite,
		Packages: Packages{
			MD: []string{"mdadm"}, LVM: []string{"lvm2"}, Multipath: []string{"multipath-tools"}, XFS: []string{"xfsprogs"},
			NFSServer:   []string{"nfs-kernel-server", "nfs-common", "rpcbind", "sqlite3"},
			NFSClient:   []string{"nfs-common", "rpcbind"},
			RDMA:        []string{"rdma-core"},
			Cluster:     []string{"corosync", "pacemaker", "pacemaker-cli-utils", "resource-agents"},
			FenceAgents: fenceAgents,
			Time:        []string{"chrony"},
			FenceTest:   []string{"ipmitool", "iputils-ping"},
			Bench:       []string{"fio"},
			Cache:       []string{"bcache-tools", "fdisk", "smartmontools"},
			// Source: Lustre Operations Manual, 8.1; names of the project's own packaging for Debian.
			// Mortar's own resource agent mounts targets: lustre-resource-agents is not needed.
			LustreServer:    []string{"lustre-server-modules-" + KernelRelease, "lustre-server-utils", "e2fsprogs"},
			LustreClient:    []string{"lustre-client-modules-" + KernelRelease, "lustre-client-utils"},
			LustreE2fsprogs: "e2fsprogs",
			LustreHeld:      []string{"lustre-*", "e2fsprogs", "linux-image-*"}, KernelPrefix: "linux-image-",
			Alike: []string{"pacemaker", "corosync", "nfs-kernel-server"},
			Report: append(append([]string{"corosync", "pacemaker"}, fenceAgents...),
				"resource-agents", "nfs-kernel-server", "mdadm", "lvm2", "xfsprogs", "multipath-tools"),
		},
		Manager: Manager{
			Status: "/var/lib/dpkg/status", Installed: dpkgInstalled,
			// apt looks for these, too, and refuses to go on: "dpkg was interrupted".
			CutOff:  "/var/lib/dpkg/updates/[0-9]*",
			Mend:    []string{"dpkg", "--force-confold", "--configure", "-a"},
			Refresh: []string{"apt-get", "-q", "update"},
			// A server that was just set up is often busy with upgrades of its own:
			// apt-get alone would fail at once. Source: apt.conf(5), DPkg::Lock.
			Install: []string{"apt-get", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600",
				"-o", "Dpkg::Options::=--force-confold", "install"},
			Upgrade: []string{"apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Options::=--force-confold", "dist-upgrade"},
			Pending: []string{"apt-get", "-s", "dist-upgrade"}, Newer: aptNewer,
			Versions:  []string{"dpkg-query", "-W", "-f", `${Package} ${Version}\n`},
			Candidate: []string{"apt-get", "-s", "--no-install-recommends", "install"},
			Held:      []string{"apt-mark", "showhold"}, Hold: []string{"apt-mark", "hold"},
			// Debian starts a daemon when its package is installed. A cluster stack
			// that runs before it is configured forms a cluster of its own, and nfsd
			// would serve outside Pacemaker: invoke-rc.d is told no.
			HoldFile: "/usr/sbin/policy-rc.d", HoldLines: "exit 101\n",
		},
		MDConf: MDConf{Main: "/etc/mdadm/mdadm.conf", Alt: "/etc/mdadm.conf", Dir: "/etc/mdadm/mdadm.conf.d/"},
		Initrd: Initrd{
			Images: "/boot/initrd.img-*",
			Hook:   "/etc/initramfs-tools/hooks/mortar", HookMode: 0o755, HookText: initramfsToolsHook,
			Tool: "/usr/sbin/update-initramfs", Package: "initramfs-tools",
			Rebuild: func(kernel string) []string { return []string{"update-initramfs", "-u", "-k", kernel} },
		},
		Background: Background{
			// Source: Debian 12's package mdadm 4.2-5 (cron). The timers of Debian 13 are by their names only.
			CheckTimers: []string{"mdcheck_start.timer", "mdcheck_continue.timer"},
			CheckCron:   "/etc/cron.d/mdadm", CheckProgram: "checkarray",
			// Unlike a hold of apt-mark this leaves apt-get alone, by which mortar upgrade
			// and administrators upgrade. Each pattern matches the begin of a name.
			// Source: README of unattended-upgrades, Package-Blacklist; apt.conf(5)
			Upgrader: "/etc/apt/apt.conf.d/50unattended-upgrades", UpgradeConf: "/etc/apt/apt.conf.d/90mortar",
			UpgradeText: `Unattended-Upgrade::Package-Blacklist {
	"corosync"; "pacemaker"; "resource-agents"; "fence-agents";
	"lib(cfg|cmap|corosync|cpg|quorum|sam[0-9]|votequorum|knet|qb|cib|crm|lrmd|pacemaker|pe-|stonithd)";
	"nfs-kernel-server"; "nfs-common"; "rpcbind"; "mdadm"; "lvm2"; "dmsetup"; "libdevmapper"; "multipath-tools"; "bcache-tools";
	"linux-image-"; "lustre-";
};
Unattended-Upgrade::Automatic-Reboot "false";
`,
			// Source: needrestart.conf of Debian, override_rc
			Restarter: "/etc/needrestart/needrestart.conf", RestartConf: "/etc/needrestart/conf.d/mortar.conf",
			RestartText: "$nrconf{override_rc}->{qr(^(corosync|pacemaker|multipathd|mdmonitor|lvm2-|dm-event|rpcbind|rpc-|nfs-|nfsdcld))} = 0;\n1;\n",
		},
		Programs: map[string]string{
			"mdadm": "mdadm", "lvm": "lvm2", "exportfs": "nfs-kernel-server", "rpc.nfsd": "nfs-kernel-server",
			"rpc.mountd": "nfs-kernel-server", "sqlite3": "sqlite3", "rpc.statd": "nfs-common", "sm-notify": "nfs-common",
			"rpcbind": "rpcbind", "tickle_tcp": "resource-agents", "mount.lustre": "lustre-server-utils",
		},
		OCF:         "/usr/lib/ocf/resource.d",
		PipeFS:      "/run/rpc_pipefs", // Source: nfs.conf(5) of Debian, pipefs-directory
		StatdUser:   "statd",
		TimeUnit:    "chrony.service",
		BcacheRules: "/etc/udev/rules.d/69-bcache.rules",
	}
}

// aptNewer reads what apt-get -s says: "Inst NAME [OLD] (NEW …)".
func aptNewer(pending string) []string {
	var out []string
	for line := range strings.Lines(pending) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "Inst" {
			continue
		}
		text := f[1]
		for _, w := range f[2:] {
			if strings.HasPrefix(w, "(") {
				text += " " + strings.TrimPrefix(w, "(")
				break
			}
		}
		out = append(out, text)
	}
	return out
}

// dpkgInstalled reads dpkg's status file: packages that are 'install ok installed', or
// held, and what those packages provide: the modules of Lustre have the
// kernel's version in their name, and servers have the client's programs.
func dpkgInstalled(status string) map[string]bool {
	have := map[string]bool{}
	name := ""
	for line := range strings.Lines(status) {
		field, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch {
		case field == "Package":
			name = value
		case field == "Status" && strings.HasSuffix(value, " ok installed"):
			have[name] = true
		case field == "Provides" && have[name]: // dpkg writes it behind Status
			for p := range strings.SplitSeq(value, ",") {
				virtual, _, _ := strings.Cut(strings.TrimSpace(p), " ")
				have[virtual] = true
			}
		}
	}
	return have
}

// initramfsToolsHook is a script of initramfs-tools(7). It runs after those of
// packages, which are in another directory, and takes out what they say of the
// arrays: of two lines for an array mdadm --assemble --scan follows the one
// that does not ignore it.
func initramfsToolsHook(header string, md MDConf, arrays, files []string) string {
	text := strings.NewReplacer("@HEADER@", header, "@ARRAYS@", strings.Join(arrays, " "), "@MAIN@", md.Main, "@ALT@", md.Alt, "@DIR@", strings.TrimSuffix(md.Dir, "/")).Replace(initramfsHook)
	for _, f := range files {
		text += "mkdir -p \"$DESTDIR" + path.Dir(f) + "\"\ncp -p " + f + " \"$DESTDIR" + f + "\"\n"
	}
	return text
}

//go:embed initramfs-hook.sh
var initramfsHook string
