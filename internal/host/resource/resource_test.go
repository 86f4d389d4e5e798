package resource

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

func TestBuilt(t *testing.T) {
	sys := &Paper{Files: map[string]string{}}
	b := &Built{VG: "brick1_home", Digest: "abc"}
	wantShow(t, diff(t, b, sys), "mkdir /run/mortar/built 0755\nwrite /run/mortar/built/brick1_home 0644")
	sys.Files["/run/mortar/built/brick1_home"] = "abc\n"
	if m, err := builtNotes(sys); err != nil || m["brick1_home"] != "abc" {
		t.Errorf("built: %v, %v", m, err)
	}
}

func TestPackages(t *testing.T) {
	const status = `Package: mdadm
Status: install ok installed
Version: 4.4-11

Package: corosync
Status: deinstall ok config-files

Package: lvm2
Status: hold ok installed
`
	sys := &Paper{Files: map[string]string{"/var/lib/dpkg/status": status, "/etc/os-release": osRelease}}
	p := &Packages{Names: []string{"mdadm", "lvm2"}}
	wantShow(t, diff(t, p, sys), "")
	p.Names = append(p.Names, "corosync", "pacemaker")
	wantShow(t, diff(t, p, sys), `
write /usr/sbin/policy-rc.d 0755
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install corosync pacemaker
remove /usr/sbin/policy-rc.d`)
	// The host lost power in the middle of an installation.
	sys.Files["/var/lib/dpkg/updates/0001"] = "x"
	wantShow(t, diff(t, p, sys), `
write /usr/sbin/policy-rc.d 0755
dpkg --force-confold --configure -a
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install corosync pacemaker
remove /usr/sbin/policy-rc.d`)
	delete(sys.Files, "/var/lib/dpkg/updates/0001")
	// Killed after the installation: daemons may start again.
	sys.Files["/usr/sbin/policy-rc.d"] = "#!/bin/sh\n" + Header + "exit 101\n"
	p.Names = p.Names[:2]
	wantShow(t, diff(t, p, sys), "remove /usr/sbin/policy-rc.d")
	// An administrator's own policy stays.
	sys.Files["/usr/sbin/policy-rc.d"] = "#!/bin/sh\nexit 101\n"
	wantShow(t, diff(t, p, sys), "")
	p.Fence = []string{"fence-agents"}
	wantShow(t, diff(t, p, sys), `
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install fence-agents`)
	sys.Files["/etc/os-release"] = "ID=rhel\nVERSION_ID=\"9.4\"\n"
	if as, err := Diff(t.Context(), sys, p); err == nil {
		t.Errorf("packages are installed on a system that was not run: %v", as)
	}
}

func TestUnits(t *testing.T) {
	sys := &Paper{Outputs: map[string]Output{"systemctl show": {Stdout: `Id=rpcbind.socket
Names=rpcbind.socket
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=nfs-server.service
Names=nfs-server.service nfs-kernel-server.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=corosync.service
Names=corosync.service
LoadState=masked
ActiveState=inactive
UnitFileState=masked

Id=gone.service
Names=gone.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
`}}}
	u := &Units{Name: "x", List: []Unit{
		{Name: "rpcbind.socket", Enabled: true, Active: true},
		{Name: "nfs-server.service", Masked: true},
		{Name: "corosync.service", Enabled: true, Active: true},
		{Name: "gone.service", Masked: true, Optional: true},
	}}
	wantShow(t, diff(t, u, sys), `
systemctl stop nfs-server.service
systemctl unmask corosync.service
systemctl mask nfs-server.service
systemctl enable corosync.service
systemctl start corosync.service`)
	u.List = u.List[:1]
	wantShow(t, diff(t, u, sys), "")

	// Units that come up while other steps go on.
	late := &Units{Name: "late", NoWait: true, List: []Unit{{Name: "pacemaker.service", Enabled: true, Active: true}}}
	sys.Outputs["systemctl show"] = Output{Stdout: "Id=pacemaker.service\nNames=pacemaker.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nJob=0\n"}
	wantShow(t, diff(t, late, sys), "systemctl start --no-block pacemaker.service")
	sys.Outputs["systemctl show"] = Output{Stdout: "Id=pacemaker.service\nNames=pacemaker.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nJob=42\n"}
	wantShow(t, diff(t, late, sys), "")
	late.NoWait = false
	wantShow(t, diff(t, late, sys), "systemctl start pacemaker.service")
	if len(sys.Asked) != 5 {
		t.Errorf("%d commands for five looks", len(sys.Asked))
	}
}

func TestSysctlAndModules(t *testing.T) {
	sys := &Paper{Files: map[string]string{
		"/proc/sys/net/ipv4/tcp_rmem":                  "4096\t131072\t6291456\n",
		"/proc/sys/vm/dirty_ratio":                     "20\n",
		"/proc/sys/kernel/osrelease":                   "6.12\n",
		"/lib/modules/6.12/modules.builtin":            "kernel/crypto/xor-blocks.ko\n",
		"/sys/module/nfs/parameters/max_session_slots": "64\n",
		"/sys/module/nfs/parameters/delay_retrans":     "-1\n",
	}}
	s := &Sysctl{Path: "/etc/sysctl.d/90-mortar.conf", Settings: []Setting{
		{"net.ipv4.tcp_rmem", "4096 2621440 16777216", "long links"}, {"vm.dirty_ratio", "20", ""}, {"fs.nfs.nlm_grace_period", "30", ""},
	}}
	as := diff(t, s, sys)
	wantShow(t, as, `
write /etc/sysctl.d/90-mortar.conf 0644
sysctl --quiet --write net.ipv4.tcp_rmem=4096 2621440 16777216`)
	sys.Files["/etc/sysctl.d/90-mortar.conf"] = string(as[0].File.Content)
	sys.Files["/proc/sys/net/ipv4/tcp_rmem"] = "4096\t2621440\t16777216\n"
	wantShow(t, diff(t, s, sys), "")

	m := &Modules{Names: []string{"nfs", "xor-blocks", "raid456"}, Options: []Setting{{"nfs.max_session_slots", "128", "more in flight"}}}
	as = diff(t, m, sys)
	wantShow(t, as, `
write /etc/modprobe.d/mortar.conf 0644
write /etc/modules-load.d/mortar.conf 0644
modprobe --all raid456
tee /sys/module/nfs/parameters/max_session_slots <<< "128\n"`)
	if c := string(as[0].File.Content); !strings.Contains(c, "# more in flight\noptions nfs max_session_slots=128\n") {
		t.Errorf("modprobe.d: %s", c)
	}
}

func TestExportsAndServer(t *testing.T) {
	e := &Exports{Path: "/etc/exports.d/mortar.exports", Lines: []nfs.Export{{Dir: "/srv/home/data", Clients: "10.0.0.0/16", FSID: "aaaa", Options: []string{"rw", "sync"}}}}
	sys := &Paper{Files: map[string]string{}}
	as := diff(t, e, sys)
	wantShow(t, as, "write /etc/exports.d/mortar.exports 0644\nexportfs -ra")
	sys.Files["/etc/exports.d/mortar.exports"] = string(as[0].File.Content)
	sys.Files["/var/lib/nfs/etab"] = "/srv/home/data\t10.0.0.0/16(rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,fsid=aaaa,anonuid=65534,anongid=65534,sec=sys,rw,secure,root_squash,no_all_squash)\n"
	wantShow(t, diff(t, e, sys), "")
	sys.Files["/var/lib/nfs/etab"] = strings.Replace(sys.Files["/var/lib/nfs/etab"], "sync,", "async,", 1)
	wantShow(t, diff(t, e, sys), "exportfs -ra")

	// What an apply left that was killed before exportfs; not what others export.
	sys.Files["/var/lib/nfs/etab"] = strings.Replace(sys.Files["/var/lib/nfs/etab"], "async,", "sync,", 1) + "/srv/home/old\t*(rw)\n"
	wantShow(t, diff(t, e, sys), "exportfs -ra")
	sys.Files["/etc/exports"] = "/srv/home/old *(rw)\n"
	wantShow(t, diff(t, e, sys), "")

	n := &NFSServer{Threads: 256, Connections: 65536, Versions: []string{"3", "4.1", "4.2"}, Lease: 30, Grace: 30}
	const dropIn = "/etc/systemd/system/nfs-server.service.d/mortar.conf"
	as = diff(t, n, sys)
	wantShow(t, as, "write "+dropIn+" 0644\nsystemctl daemon-reload\nsystemctl restart nfs-server.service")
	sys.Files[dropIn] = string(as[0].File.Content)
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
	for k, v := range map[string]string{"threads": "256", "nfsv4leasetime": "30", "nfsv4gracetime": "30", "versions": "+3 +4 -4.0 +4.1 +4.2"} {
		sys.Files["/proc/fs/nfsd/"+k] = v + "\n"
	}
	wantShow(t, diff(t, n, sys), "")
	// The limit of connections changes while nfsd runs, where the kernel has one.
	sys.Files["/proc/fs/nfsd/max_connections"] = "0\n"
	wantShow(t, diff(t, n, sys), "tee /proc/fs/nfsd/max_connections <<< \"65536\\n\"")
	sys.Files["/proc/fs/nfsd/max_connections"] = "65536\n"
	wantShow(t, diff(t, n, sys), "")
	n.RDMA = 20049
	sys.Files["/proc/fs/nfsd/portlist"] = "tcp 2049\n"
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
	sys.Files["/proc/fs/nfsd/portlist"] = "rdma 20049\nrdma 20049\ntcp 2049\n"
	wantShow(t, diff(t, n, sys), "")
	sys.Files["/proc/fs/nfsd/versions"] = "+3 +4 +4.0 +4.1 +4.2\n"
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
}

func TestServiceExports(t *testing.T) {
	const etab = "/srv/home/.mortar/nfs/etab"
	e := &ServiceExports{Service: "home", Agent: "/m", Config: "/c.json", StateDir: "/srv/home/.mortar/nfs", Exports: []nfs.Export{
		{Dir: "/srv/home/data", Clients: "10.0.0.0/16", FSID: "aaaa", Options: []string{"rw", "sync"}}}}
	const change = "/m ocf exports --config /c.json"
	sys := &Paper{Files: map[string]string{}}
	wantShow(t, diff(t, e, sys), "") // it runs elsewhere
	sys.Files[etab] = ""
	wantShow(t, diff(t, e, sys), "") // the volume is mounted, nothing is served
	sys.Files["/proc/fs/nfsd/threads"] = "16\n"
	wantShow(t, diff(t, e, sys), change)
	sys.Files[etab] = "/srv/home/data\t10.0.0.0/16(rw,sync,wdelay,fsid=aaaa,sec=sys,rw,secure)\n"
	wantShow(t, diff(t, e, sys), "")
	sys.Files["/run/mortar/exports-home/pending"] = ""
	wantShow(t, diff(t, e, sys), change)
	delete(sys.Files, "/run/mortar/exports-home/pending")
	sys.Files[etab] += "/srv/home/old\t*(rw,fsid=b)\n"
	if as := diff(t, e, sys); len(as) != 1 || as[0].Why != "/srv/home/old is exported to *, which is not configured" {
		t.Errorf("%+v", as)
	}
	e.Namespace = "mortar-home"
	wantShow(t, diff(t, e, sys), "") // that nfsd is another one
	sys.Files["/run/mortar/mortar-home/nfsd/threads"] = "16\n"
	wantShow(t, diff(t, e, sys), change)
}

func TestCorosync(t *testing.T) {
	c := &Corosync{Cluster: "brick1", TokenMS: 3000, ConsensusMS: 3600, Key: []byte("0123456789"), Nodes: []CorosyncNode{{1, "nfs1", []string{"10.0.1.1", "10.0.2.1"}}}}
	sys := &Paper{Files: map[string]string{}, Info: map[string]FileInfo{"/etc/corosync/authkey": {Mode: 0o400}}}
	delete(sys.Info, "/etc/corosync/authkey")
	as := diff(t, c, sys)
	wantShow(t, as, "write /etc/corosync/authkey 0400\nwrite /etc/corosync/corosync.conf 0644")
	if !as[0].Secret {
		t.Error("the key would be shown")
	}
	sys.Files["/etc/corosync/authkey"] = "0123456789"
	sys.Info = map[string]FileInfo{"/etc/corosync/authkey": {Mode: 0o400}}
	sys.Files["/etc/corosync/corosync.conf"] = c.Text()
	sys.Files["/sys/fs/cgroup/system.slice/corosync.service/cgroup.procs"] = "7\n"
	wantShow(t, diff(t, c, sys), "")
	c.TokenMS = 5000
	wantShow(t, diff(t, c, sys), `
write /var/lib/mortar/pending-corosync 0644
write /etc/corosync/corosync.conf 0644
corosync-cfgtool -R && remove /var/lib/mortar/pending-corosync`)
	c.Key = []byte("another key")
	refused(t, c, sys, "corosync-other-key")
}

func TestFileSymlinkDirectory(t *testing.T) {
	sys := &Paper{
		Files: map[string]string{"/etc/x": "hello\n", "/usr/local/lib/mortar/mortar-1": "ELF", "/etc/passwd": "statd:x:107:65534::/:/bin/false\n", "/d/f": ""},
		Links: map[string]string{"/usr/local/sbin/mortar": "/usr/local/lib/mortar/mortar-1", "/l": "/usr/local/sbin/mortar"},
		Info:  map[string]FileInfo{},
	}
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n")}, sys), "")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hullo\n")}, sys), "write /etc/x 0644")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n"), Secret: true}, sys), "write /etc/x 0600")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n"), Owner: "statd"}, sys), "write /etc/x 0644")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Absent: true}, sys), "remove /etc/x")
	wantShow(t, diff(t, &TextFile{Path: "/etc/y", Absent: true}, sys), "")
	refused(t, &TextFile{Path: "/d"}, sys, "path-is-directory", "path", "/d")
	wantShow(t, diff(t, &Symlink{Path: "/l", Target: "/usr/local/sbin/mortar"}, sys), "")
	wantShow(t, diff(t, &Symlink{Path: "/m", Target: "/usr/local/sbin/mortar"}, sys), "link /m /usr/local/sbin/mortar")
	wantShow(t, diff(t, &Directory{Path: "/d"}, sys), "")
	wantShow(t, diff(t, &Directory{Path: "/d", Mode: 0o700}, sys), "mkdir /d 0700")
	wantShow(t, diff(t, &Directory{Path: "/d", Mode: 0o700, Keep: true}, sys), "")
	wantShow(t, diff(t, &Directory{Path: "/new"}, sys), "mkdir /new 0755")
	wantShow(t, diff(t, &TextFile{Path: "/none", Content: []byte("a\n"), IfThere: true}, sys), "")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("a\n"), IfThere: true}, sys), "write /etc/x 0644")
}

func TestHost(t *testing.T) {
	h := &Host{Name: "nfs1"}
	sys := &Paper{Files: map[string]string{"/proc/self/status": "Name:\tmortar\nUid:\t0\t0\t0\t0\n"}}
	wantShow(t, diff(t, h, sys), "")
	h.NodeName = true
	sys.Files["/proc/sys/kernel/hostname"] = "debian\n"
	refused(t, h, sys, "host-other-name", "host", "nfs1", "name", "debian")
	sys.Files["/proc/sys/kernel/hostname"] = "nfs1\n"
	wantShow(t, diff(t, h, sys), "")
	h.MTUs = []WantedMTU{{"public", "10.77.1.11", 9000}, {"private", "10.77.2.11", 1500}, {"management", "10.9.9.9", 9000}}
	sys.Outputs = map[string]Output{"ip -json address show": {Stdout: `[{"ifindex":1,"ifname":"lo","mtu":65536,"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},` +
		`{"ifindex":2,"ifname":"eth0","mtu":1500,"addr_info":[{"family":"inet","local":"10.77.1.11","prefixlen":24},{"family":"inet6","local":"fe80::1","prefixlen":64}]},` +
		`{"ifindex":3,"ifname":"eth1","mtu":1500,"addr_info":[{"family":"inet","local":"10.77.2.11","prefixlen":24}]},{"ifindex":4,"ifname":"eth2","mtu":1500,"addr_info":[]}]`}}
	refused(t, h, sys, "host-mtu", "found", "interface eth0 of nfs1 (10.77.1.11, network public) has MTU 1500, the spec says 9000", "commands", "`ip link set eth0 mtu 9000`")
	h.MTUs[0].MTU = 1500
	wantShow(t, diff(t, h, sys), "")
	h.RDMA = true
	refused(t, h, sys, "host-no-rdma", "host", "nfs1")
	sys.Files["/sys/class/infiniband/mlx5_0"] = ""
	wantShow(t, diff(t, h, sys), "")
	sys.Files["/proc/self/status"] = "Uid:\t1000\t1000\t1000\t1000\n"
	refused(t, h, sys, "host-not-root")
}

// An entry of /etc/hosts replaces other lines of its address, leaves the
// rest, and is not written twice.
func TestHostsEntry(t *testing.T) {
	h := &HostsEntry{Address: "10.0.0.9", Names: []string{"10.0.0.9", "b-home"}}
	const want = "10.0.0.9 10.0.0.9 b-home # written by mortar apply\n"
	for _, c := range []struct{ have, want string }{
		{"", want},
		{"127.0.0.1 localhost\n\n# ten\n", "127.0.0.1 localhost\n\n# ten\n" + want},
		{"10.0.0.9 old # x\n10.0.0.90 other\n", "10.0.0.90 other\n" + want},
		{"10.0.0.9\t10.0.0.9  b-home\n::1 ip6\n", "10.0.0.9\t10.0.0.9  b-home\n::1 ip6\n"},
		{"10.0.0.9 10.0.0.9 b-home\n10.0.0.9 again\n", "10.0.0.9 10.0.0.9 b-home\n"},
	} {
		sys := &Paper{Files: map[string]string{"/etc/hosts": c.have}}
		as, err := Diff(t.Context(), sys, h)
		if err != nil {
			t.Fatal(err)
		}
		if c.have == c.want {
			if len(as) != 0 {
				t.Errorf("%q: would be written again", c.have)
			}
			continue
		}
		if len(as) != 1 || string(as[0].File.Content) != c.want {
			t.Errorf("%q: got %v", c.have, as)
			continue
		}
		sys.Files["/etc/hosts"] = c.want
		if as, err = Diff(t.Context(), sys, h); err != nil || len(as) != 0 {
			t.Errorf("%q: a second apply would change: %v %v", c.have, as, err)
		}
	}
}

func TestPartOf(t *testing.T) {
	for _, c := range []struct {
		dev, disk string
		want      bool
	}{
		{"sda", "sda", true}, {"sda2", "sda", true}, {"sdaa", "sda", false}, {"sdaa1", "sda", false}, {"sdb", "sda", false},
		{"nvme0n1", "nvme0n1", true}, {"nvme0n1p2", "nvme0n1", true}, {"nvme0n10", "nvme0n1", false}, {"nvme0n1p", "nvme0n1", false}, {"sda", "", false},
	} {
		if got := PartOf(c.dev, c.disk); got != c.want {
			t.Errorf("%s of %q: %v", c.dev, c.disk, got)
		}
	}
}
