package resource

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// twoPathDisks are disks sda/sdb (MA01) and sdc/sdd (MA02), with maps dm-0
// and dm-1 if mapped.
func twoPathDisks(mapped bool) *fakeSys {
	f := &fakeSys{files: map[string]string{"/proc/self/mounts": "/dev/vdb / ext4 rw 0 0\n"}, links: map[string]string{}, outputs: map[string]Output{}}
	for i, serial := range []string{"MA01", "MA02"} {
		wwn := fmt.Sprintf("5000c5000000010%d", i+1)
		a, b := string(rune('a'+2*i)), string(rune('b'+2*i))
		d := DiskFact{Serial: serial, WWN: wwn, Size: 2e9, Paths: []string{"sd" + a, "sd" + b}, Device: "/dev/disk/by-id/wwn-0x" + wwn}
		for _, p := range d.Paths {
			f.files["/sys/block/"+p+"/queue/scheduler"] = "[none] mq-deadline\n"
			f.files["/sys/block/"+p+"/queue/nr_requests"] = "64\n"
			f.files["/dev/"+p] = ""
		}
		f.links[d.Device] = "/dev/" + d.Paths[0]
		if mapped {
			dm := fmt.Sprintf("dm-%d", i)
			d.Device = "/dev/mapper/3" + wwn
			f.links[d.Device] = "/dev/" + dm
			f.files["/dev/"+dm] = ""
			for _, p := range d.Paths {
				f.files["/sys/block/"+p+"/holders/"+dm+"/dm/uuid"] = "mpath-3" + wwn + "\n"
				f.files["/sys/class/block/"+p+"/holders/"+dm+"/dm/uuid"] = "mpath-3" + wwn + "\n"
			}
			f.files["/sys/block/"+dm+"/queue/scheduler"] = "[none]\n"
			f.files["/sys/block/"+dm+"/queue/nr_requests"] = "128\n"
		}
		f.disks = append(f.disks, d)
	}
	return f
}

var twoRefs = []DiskRef{{Serial: "MA01", Enclosure: "A", Bay: 1, Size: 2e9}, {Serial: "MA02", Enclosure: "B", Bay: 1, Size: 2e9}}

func TestMissingDiskIsNamed(t *testing.T) {
	sys := twoPathDisks(false)
	d := &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: DiskRef{Serial: "MB07", Enclosure: "B", Bay: 7}}}}
	refused(t, d, sys, "disk MB07 (enclosure B, bay 7) is not there", "cabling")
	d.List[0].DiskRef = DiskRef{Serial: "MA01", WWN: "5000c50000000999", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "has WWN 5000c50000000101, not 5000c50000000999")
	d.List[0].DiskRef = DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1, Size: 4e9}
	refused(t, d, sys, "has 2000000000 bytes, less than the 4000000000")
	d.List[0].DiskRef = DiskRef{Serial: "wrong", WWN: "5000c50000000102", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "has serial MA02")

	// One serial, two disks: the WWN decides, or nothing does.
	sys = twoPathDisks(false)
	sys.disks[1].Serial = "MA01"
	d.List[0].DiskRef = DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "2 disks have this serial: /dev/disk/by-id/wwn-0x5000c50000000101 (serial MA01, WWN 5000c50000000101)", "give the wwn")
	d.List[0].WWN = "5000c50000000102"
	fs, err := match(sys.disks, []DiskRef{d.List[0].DiskRef})
	if err != nil || len(fs) != 1 || fs[0].WWN != "5000c50000000102" {
		t.Errorf("%v, %v", fs, err)
	}
	sys.disks[0].WWN = ""
	sys.disks[1].WWN = ""
	refused(t, d, sys, "2 disks have this serial")
	// A map with a path to another disk.
	sys = twoPathDisks(true)
	sys.files["/sys/block/dm-0/slaves/sda/x"], sys.files["/sys/block/dm-0/slaves/sdz/x"] = "", ""
	refused(t, &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0]}}}, sys, "/dev/mapper/35000c50000000101 has path sdz, which is no path to it")
	// Two disks with one WWN would become one map.
	sys = twoPathDisks(false)
	sys.disks[1].WWN = sys.disks[0].WWN
	refused(t, &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0]}}}, sys, "disks with other serials have its WWN")
}

// A disk in use is refused even if it may be wiped: wipefs would not touch
// it, and neither shall anything else.
func TestDiskInUseIsRefused(t *testing.T) {
	d := &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0], Group: "aa", Wipe: true}}}
	sys := twoPathDisks(false)
	sys.files["/proc/self/mounts"] += "/dev/sda /mnt ext4 rw 0 0\n"
	refused(t, d, sys, "disk MA01", "in use by the mount on /mnt")

	sys = twoPathDisks(false)
	sys.files["/sys/class/block/sdb/holders/dm-7/x"] = ""
	sys.files["/sys/class/block/dm-7/dm/name"] = "vgx-lvx\n"
	refused(t, d, sys, "in use by vgx-lvx")

	// An array that udev assembled is stopped if all of it is to be wiped and
	// nothing is on it; else it is in use.
	sys = twoPathDisks(true)
	addArray(sys, "md5", "0123456789abcdef0123456789abcdef", "clean", "dm-0", "dm-1")
	inUse := "in use by md array md5 (01234567:89abcdef:01234567:89abcdef)"
	refused(t, d, sys, inUse)
	d.List = append(d.List, WantedDisk{DiskRef: twoRefs[1], Group: "aa"})
	refused(t, d, sys, inUse)
	d.List[1].Wipe = true
	wantShow(t, diff(t, d, sys), "mdadm --stop /dev/md5")
	d.Arrays = []string{"01234567:89abcdef:01234567:89abcdef"}
	refused(t, d, sys, inUse)
	d.Arrays = nil
	sys.files["/dev/md5"] = ""
	sys.files["/proc/self/mounts"] += "/dev/md5 /old xfs rw 0 0\n"
	refused(t, d, sys, inUse)
}

func addArray(sys *fakeSys, dev, uuid, state string, members ...string) {
	p := "/sys/block/" + dev
	sys.files[p+"/md/uuid"] = uuid + "\n"
	sys.files[p+"/md/level"] = "raid6\n"
	sys.files[p+"/md/array_state"] = state + "\n"
	sys.files[p+"/md/chunk_size"] = "131072\n"
	sys.files[p+"/md/raid_disks"] = "2\n"
	sys.files[p+"/md/degraded"] = "0\n"
	for _, m := range members {
		sys.files[p+"/slaves/"+m+"/x"] = ""
	}
}

func TestMultipathBeforeAndAfter(t *testing.T) {
	m := &Multipath{Brick: "brick1", Disks: twoRefs, Settings: []Setting{{Name: "no_path_retry", Value: "6", Reason: "why"}}}
	as := diff(t, m, twoPathDisks(false))
	wantShow(t, as, `
write /var/lib/mortar/pending-multipath 0644
write /etc/multipath.conf 0644
systemctl enable --now multipathd.service && remove /var/lib/mortar/pending-multipath
udevadm wait --timeout=600 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102`)
	conf := string(as[1].File.Content)
	for _, w := range []string{"user_friendly_names no", "recheck_wwid yes", "no_path_retry 6", `wwid ".*"`, `wwid "35000c50000000101"`, "# why"} {
		if !strings.Contains(conf, w) {
			t.Errorf("multipath.conf lacks %s", w)
		}
	}
	sys := twoPathDisks(true)
	sys.files["/etc/multipath.conf"] = conf
	sys.files["/sys/fs/cgroup/system.slice/multipathd.service/cgroup.procs"] = "12\n"
	wantShow(t, diff(t, m, sys), "")

	// A path that multipathd does not have is put into its map.
	delete(sys.files, "/sys/block/sdd/holders/dm-1/dm/uuid")
	wantShow(t, diff(t, m, sys), "multipath -v1\nudevadm wait --timeout=600 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102")

	// Killed between writing the file and the reload.
	sys = twoPathDisks(true)
	sys.files["/etc/multipath.conf"] = conf
	sys.files["/sys/fs/cgroup/system.slice/multipathd.service/cgroup.procs"] = "12\n"
	sys.files["/var/lib/mortar/pending-multipath"] = ""
	wantShow(t, diff(t, m, sys), `
multipathd reconfigure && remove /var/lib/mortar/pending-multipath
udevadm wait --timeout=600 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102`)
}

const groupUUID = "11111111:22222222:33333333:44444444"

func TestArrayRunning(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs, Assemble: true}
	sys := twoPathDisks(true)
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	wantShow(t, diff(t, a, sys), "udevadm wait --timeout=100 /dev/md/r0")
	sys.files["/dev/md/r0"] = ""
	wantShow(t, diff(t, a, sys), "")

	sys = twoPathDisks(true)
	sys.files["/dev/md/r0"] = ""
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0")
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102")

	// A disk that was dropped because it is slow stays out.
	record := func(d linux.Dropped) {
		sys.files[linux.CIBFile] = fmt.Sprintf(`<cib><configuration><nodes><node uname="nfs2"><instance_attributes><nvpair name=%q value=%q/></instance_attributes></node></nodes></configuration></cib>`, d.Attr(), d)
	}
	record(linux.Dropped{Group: "r0", Serial: "MA02", Device: "/dev/mapper/35000c50000000102"})
	wantShow(t, diff(t, a, sys), "")
	record(linux.Dropped{Group: "r1", Serial: "MA02", Device: "/dev/mapper/35000c50000000102"}) // as a spare of another group
	wantShow(t, diff(t, a, sys), "")
	record(linux.Dropped{Group: "r0", Serial: "MA09", Device: "/dev/mapper/35000c50000000109"})
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102")
	sys.files[linux.CIBFile] = "<cib mortar-dropped-"
	if _, err := Diff(t.Context(), sys, a); err == nil {
		t.Error("a configuration of the cluster that cannot be read says that no disk was dropped")
	}

	// Half-started: stopped and assembled anew, but not behind a cluster's back.
	half := twoPathDisks(true)
	half.outputs["wipefs --no-act --json"] = Output{}
	addArray(half, "md127", "11111111222222223333333344444444", "inactive", "dm-0")
	half.outputs["mdadm --examine"] = Output{Stdout: `/dev/mapper/35000c50000000101:
     Array UUID : 11111111:22222222:33333333:44444444
         Events : 12
   Device Role : Active device 0
`}
	wantShow(t, diff(t, a, half), `
mdadm --stop /dev/md127
mdadm --assemble /dev/md/r0 --uuid=11111111:22222222:33333333:44444444 --run /dev/mapper/35000c50000000101
udevadm wait --timeout=100 /dev/md/r0`)
	a.Assemble = false
	wantShow(t, diff(t, a, half), "")
	a.Assemble = true

	a.Chunk = 256 << 10
	refused(t, a, sys, "array r0 has chunk 131072, not 262144")
}

// The plan of a new brick names devices as they will be, also while the disks
// have no map yet.
// An array that an earlier version gave a write journal is refused, running and stopped: this
// version's agent would not start it. A disk that was out when the journal went tells nothing.
func TestArrayWithJournal(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs}
	up := twoPathDisks(true)
	addArray(up, "md127", groupUUID, "clean", "dm-0", "dm-1")
	up.files["/dev/md/r0"] = ""
	up.files["/sys/block/md127/md/consistency_policy"] = "journal\n"
	refused(t, a, up, "array r0 has a write journal", "nothing is changed", "docs/operations.md")
	up.files["/sys/block/md127/md/consistency_policy"] = "bitmap\n"
	wantShow(t, diff(t, a, up), "")

	examined := func(disk, features string, events int) string {
		return fmt.Sprintf("/dev/mapper/35000c5000000010%s:\n    Feature Map : %s\n     Array UUID : 11111111:22222222:33333333:44444444\n         Events : %d\n   Device Role : Active device %s\n", disk, features, events, disk)
	}
	stopped := twoPathDisks(true)
	stopped.outputs["wipefs --no-act --json"] = Output{}
	stopped.outputs["mdadm --examine"] = Output{Stdout: examined("1", "0x200", 12)}
	refused(t, a, stopped, "array r0 has a write journal")
	stopped.outputs["mdadm --examine"] = Output{Stdout: examined("1", "0x1", 22) + examined("2", "0x200", 12)}
	wantShow(t, diff(t, a, stopped), "")
}

func TestArrayCreation(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs[:1], Spares: twoRefs[1:], Assemble: true}
	sys := twoPathDisks(false)
	sys.outputs["mdadm --examine"] = Output{Code: 1, Stderr: "mdadm: No md superblock detected on /dev/sda.\n"}
	sys.outputs["wipefs --no-act --json"] = Output{}
	wantShow(t, diff(t, a, sys), `
mdadm --create /dev/md/r0 --run --metadata=1.2 --level=6 --raid-devices=1 --chunk=128 --uuid=11111111:22222222:33333333:44444444 --name=r0 --homehost=any --bitmap=internal --spare-devices=1 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102 DESTROYS MA01 MA02
udevadm wait --timeout=100 /dev/md/r0`)
	a.Assemble = false
	refused(t, a, sys, "already set up")

	// Disks that zero by unmapping need no resync, if all paths do.
	a.Assemble = true
	set := func(path, mode string) {
		sys.files["/sys/block/"+path+"/device/scsi_disk/2:0:0:0/zeroing_mode"] = mode + "\n"
	}
	for _, p := range []string{"sda", "sdb", "sdc", "sdd"} {
		set(p, "writesame_16_unmap")
	}
	as := diff(t, a, sys)
	wantShow(t, as, `
sh -ec `+zeroAndRun+` zero 2000000000 1 /dev/mapper/35000c50000000101 mdadm --create /dev/md/r0 --assume-clean --run --metadata=1.2 --level=6 --raid-devices=1 --chunk=128 --uuid=11111111:22222222:33333333:44444444 --name=r0 --homehost=any --bitmap=internal --spare-devices=1 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102 DESTROYS MA01 MA02
udevadm wait --timeout=100 /dev/md/r0`)
	// The program does what it says, also to names that a shell would take apart.
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one disk"), filepath.Join(dir, "$(two)")
	for _, f := range []string{one, two} {
		if err := os.WriteFile(f, []byte("12345678"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("sh", "-ec", zeroAndRun, "zero", "4", "2", one, two, "printf", "%s|", "a b", "$x").CombinedOutput()
	if err != nil || string(out) != "a b|$x|" {
		t.Fatalf("%q, %v", out, err)
	}
	for _, f := range []string{one, two} {
		if b, err := os.ReadFile(f); err != nil || string(b) != "\x00\x00\x00\x005678" {
			t.Errorf("%s: %q, %v", f, b, err)
		}
	}
	if out, err := exec.Command("sh", "-ec", zeroAndRun, "zero", "4", "1", dir+"/none/x", "echo", "ran").CombinedOutput(); err == nil || strings.Contains(string(out), "ran") {
		t.Errorf("a disk that is not there: %q, %v", out, err)
	}
	for _, mode := range []string{"writesame", "write", ""} {
		set("sdd", mode)
		if s := show(diff(t, a, sys)); !strings.HasPrefix(s, "mdadm --create") || strings.Contains(s, "assume-clean") {
			t.Errorf("mode %q: %s", mode, s)
		}
	}
}

func TestBuilt(t *testing.T) {
	sys := twoPathDisks(true)
	b := &Built{VG: "brick1_home", Digest: "abc"}
	wantShow(t, diff(t, b, sys), "mkdir /run/mortar/built 0755\nwrite /run/mortar/built/brick1_home 0644")
	sys.files["/run/mortar/built/brick1_home"] = "abc\n"
	if m, err := built(sys); err != nil || m["brick1_home"] != "abc" {
		t.Errorf("built: %v, %v", m, err)
	}
}

func TestReleaseStorage(t *testing.T) {
	r := &ReleaseStorage{VG: "brick-1_home", LV: "data", SystemID: "mortar-b-building", RestID: "mortar-b", MountPoint: "/srv/home", Arrays: map[string]string{groupUUID: "r0"}}
	sys := twoPathDisks(true)
	wantShow(t, diff(t, r, sys), "")
	addArray(sys, "md127", "11111111222222223333333344444444", "clean", "dm-0", "dm-1")
	addArray(sys, "md5", "01111111222222223333333344444444", "clean", "sdx")
	sys.files["/sys/block/dm-9/dm/name"] = "brick--1_home-data\n"
	sys.files["/dev/brick-1_home/data"] = ""
	sys.files["/proc/self/mounts"] += "/dev/mapper/brick--1_home-data /srv/home xfs rw 0 0\n"
	owned := func(by string) Output {
		return Output{Stdout: `{"report":[{"vg":[{"vg_name":"brick-1_home","vg_systemid":"` + by + `"}]}]}`}
	}
	sys.outputs["lvm vgs"] = owned("mortar-b-building")
	const as = `--config global{system_id_source="lvmlocal"} local{system_id="mortar-b-building"} --devices /dev/md127 brick-1_home`
	wantShow(t, diff(t, r, sys), `
umount /srv/home
lvm vgchange --activate n `+as+`
lvm vgchange --yes --systemid mortar-b `+as+`
mdadm --stop /dev/md127`)
	// Killed after the handing over.
	sys.outputs["lvm vgs"] = owned("mortar-b")
	delete(sys.files, "/sys/block/dm-9/dm/name")
	sys.files["/proc/self/mounts"] = ""
	wantShow(t, diff(t, r, sys), "mdadm --stop /dev/md127")
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
	sys := &fakeSys{files: map[string]string{"/var/lib/dpkg/status": status, "/etc/os-release": osRelease}}
	p := &Packages{Names: []string{"mdadm", "lvm2"}}
	wantShow(t, diff(t, p, sys), "")
	p.Names = append(p.Names, "corosync", "pacemaker")
	wantShow(t, diff(t, p, sys), `
write /usr/sbin/policy-rc.d 0755
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install corosync pacemaker
remove /usr/sbin/policy-rc.d`)
	// The host lost power in the middle of an installation.
	sys.files["/var/lib/dpkg/updates/0001"] = "x"
	wantShow(t, diff(t, p, sys), `
write /usr/sbin/policy-rc.d 0755
dpkg --force-confold --configure -a
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install corosync pacemaker
remove /usr/sbin/policy-rc.d`)
	delete(sys.files, "/var/lib/dpkg/updates/0001")
	// Killed after the installation: daemons may start again.
	sys.files["/usr/sbin/policy-rc.d"] = "#!/bin/sh\n" + Header + "exit 101\n"
	p.Names = p.Names[:2]
	wantShow(t, diff(t, p, sys), "remove /usr/sbin/policy-rc.d")
	// An administrator's own policy stays.
	sys.files["/usr/sbin/policy-rc.d"] = "#!/bin/sh\nexit 101\n"
	wantShow(t, diff(t, p, sys), "")
	p.Fence = []string{"fence-agents"}
	wantShow(t, diff(t, p, sys), `
apt-get -q update
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install fence-agents`)
	sys.files["/etc/os-release"] = "ID=rhel\nVERSION_ID=\"9.4\"\n"
	if as, err := Diff(t.Context(), sys, p); err == nil {
		t.Errorf("packages are installed on a system that was not run: %v", as)
	}
}

func TestUnits(t *testing.T) {
	sys := &fakeSys{outputs: map[string]Output{"systemctl show": {Stdout: `Id=rpcbind.socket
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
	sys.outputs["systemctl show"] = Output{Stdout: "Id=pacemaker.service\nNames=pacemaker.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nJob=0\n"}
	wantShow(t, diff(t, late, sys), "systemctl start --no-block pacemaker.service")
	sys.outputs["systemctl show"] = Output{Stdout: "Id=pacemaker.service\nNames=pacemaker.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nJob=42\n"}
	wantShow(t, diff(t, late, sys), "")
	late.NoWait = false
	wantShow(t, diff(t, late, sys), "systemctl start pacemaker.service")
	if len(sys.asked) != 5 {
		t.Errorf("%d commands for five looks", len(sys.asked))
	}
}

func TestSysctlAndModules(t *testing.T) {
	sys := &fakeSys{files: map[string]string{
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
	sys.files["/etc/sysctl.d/90-mortar.conf"] = string(as[0].File.Content)
	sys.files["/proc/sys/net/ipv4/tcp_rmem"] = "4096\t2621440\t16777216\n"
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

func TestBlockQueue(t *testing.T) {
	sys := twoPathDisks(true)
	addArray(sys, "md127", "11111111222222223333333344444444", "clean", "dm-0", "dm-1")
	sys.files["/sys/block/md127/queue/read_ahead_kb"] = "1024\n"
	q := &BlockQueue{
		Path: "/etc/udev/rules.d/90-mortar-block.rules", Disks: twoRefs, Arrays: []string{groupUUID}, Volumes: []string{"brick-1_home/data"},
		DiskSettings:   []Setting{{"queue/scheduler", "mq-deadline", "fair"}, {"queue/nr_requests", "256", "room"}},
		ArraySettings:  []Setting{{"queue/read_ahead_kb", "4096", "ahead"}},
		VolumeSettings: []Setting{{"queue/read_ahead_kb", "4096", "ahead"}},
	}
	as := diff(t, q, sys)
	wantShow(t, as, `
write /etc/udev/rules.d/90-mortar-block.rules 0644
udevadm control --reload
tee /sys/block/sda/queue/scheduler /sys/block/sdb/queue/scheduler /sys/block/sdc/queue/scheduler /sys/block/sdd/queue/scheduler <<< "mq-deadline"
tee /sys/block/sda/queue/nr_requests /sys/block/sdb/queue/nr_requests /sys/block/sdc/queue/nr_requests /sys/block/sdd/queue/nr_requests /sys/block/dm-0/queue/nr_requests /sys/block/dm-1/queue/nr_requests <<< "256"
tee /sys/block/md127/queue/read_ahead_kb <<< "4096"`)
	rules := string(as[0].File.Content)
	for _, w := range []string{
		`KERNEL=="sd*[!0-9]", ATTR{device/wwid}=="naa.5000c50000000101|naa.5000c50000000102", ATTR{queue/scheduler}="mq-deadline", ATTR{queue/nr_requests}="256", OPTIONS+="nowatch"`,
		`KERNEL=="dm-*", ENV{DM_UUID}=="mpath-35000c50000000101|mpath-35000c50000000102", ATTR{queue/nr_requests}="256"`,
		`KERNEL=="md*", ENV{MD_UUID}=="11111111:22222222:33333333:44444444", ATTR{queue/read_ahead_kb}="4096"`,
		`KERNEL=="dm-*", ENV{DM_NAME}=="brick--1_home-data", ATTR{queue/read_ahead_kb}="4096"`,
	} {
		if !strings.Contains(rules, w) {
			t.Errorf("the rules lack %s:\n%s", w, rules)
		}
	}
}

// A request cannot be larger than the hardware takes: such a device is as wanted
// with its most.
func TestRequestsNoLargerThanTheHardware(t *testing.T) {
	sys := twoPathDisks(false)
	for dev, kb := range map[string][2]string{"sda": {"512", "512"}, "sdb": {"128", "512"}, "sdc": {"1024", "32767"}, "sdd": {"512", "32767"}} {
		sys.files["/sys/block/"+dev+"/queue/max_sectors_kb"] = kb[0] + "\n"
		sys.files["/sys/block/"+dev+"/queue/max_hw_sectors_kb"] = kb[1] + "\n"
	}
	wantShow(t, liveQueue(Look{sys, t.Context()}, Setting{"queue/max_sectors_kb", "1024", "whole chunks"}, []string{"sda", "sdb", "sdc", "sdd"}), `
tee /sys/block/sdb/queue/max_sectors_kb <<< "512"
tee /sys/block/sdd/queue/max_sectors_kb <<< "1024"`)
}

func TestFstabKeepsOtherLines(t *testing.T) {
	const old = "# mine\nUUID=1 / ext4 defaults 0 1\n10.0.0.9:/old /mnt/home nfs soft 0 0\n10.0.0.9:/old /mnt/home/ nfs soft 0 0\n"
	got := setFstab(old, "new /mnt/home nfs hard 0 0", "/mnt/home")
	want := "# mine\nUUID=1 / ext4 defaults 0 1\nnew /mnt/home nfs hard 0 0\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if setFstab(got, "new /mnt/home nfs hard 0 0", "/mnt/home") != got {
		t.Error("a second apply would change")
	}
	if got := setFstab("no newline", "x /y nfs - 0 0", "/y"); got != "no newline\nx /y nfs - 0 0\n" {
		t.Errorf("%q", got)
	}
}

func TestClientMount(t *testing.T) {
	m := &MountPoint{Source: "10.77.1.100:/srv/home/data", Path: "/mnt/home", Type: "nfs", Fstab: true, Options: []string{"vers=4.1", "hard", "rsize=1048576", "_netdev", "bg"}}
	sys := &fakeSys{files: map[string]string{"/proc/self/mounts": "/dev/vdb / ext4 rw 0 0\n", "/etc/fstab": ""}}
	as := diff(t, m, sys)
	wantShow(t, as, "mkdir /mnt/home 0755\nwrite /etc/fstab 0644\nmount -o fg /mnt/home")
	sys.files["/etc/fstab"] = string(as[1].File.Content)
	sys.files["/mnt/home/x"] = ""
	live := "10.77.1.100:/srv/home/data /mnt/home nfs4 rw,relatime,vers=4.1,rsize=262144,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600 0 0\n"
	sys.files["/proc/self/mounts"] = live
	wantShow(t, diff(t, m, sys), "")
	sys.files["/proc/self/mounts"] = strings.Replace(live, "hard", "soft", 1)
	wantShow(t, diff(t, m, sys), "umount /mnt/home\nmount -o fg /mnt/home")
	m.Options = append(m.Options, "proto=rdma", "port=20049")
	sys.files["/etc/fstab"] = m.line() + "\n"
	sys.files["/proc/self/mounts"] = live
	wantShow(t, diff(t, m, sys), "umount /mnt/home\nmount -o fg /mnt/home")
	sys.files["/proc/self/mounts"] = strings.Replace(live, "proto=tcp", "proto=rdma,port=20049", 1)
	wantShow(t, diff(t, m, sys), "")
	sys.files["/proc/self/mounts"] = strings.Replace(live, ".100", ".101", 1)
	refused(t, m, sys, "10.77.1.101:/srv/home/data is mounted on /mnt/home")
}

func TestExportsAndServer(t *testing.T) {
	e := &Exports{Path: "/etc/exports.d/mortar.exports", Lines: []ocf.Export{{Dir: "/srv/home/data", Clients: "10.0.0.0/16", FSID: "aaaa", Options: []string{"rw", "sync"}}}}
	sys := &fakeSys{files: map[string]string{}}
	as := diff(t, e, sys)
	wantShow(t, as, "write /etc/exports.d/mortar.exports 0644\nexportfs -ra")
	sys.files["/etc/exports.d/mortar.exports"] = string(as[0].File.Content)
	sys.files["/var/lib/nfs/etab"] = "/srv/home/data\t10.0.0.0/16(rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,fsid=aaaa,anonuid=65534,anongid=65534,sec=sys,rw,secure,root_squash,no_all_squash)\n"
	wantShow(t, diff(t, e, sys), "")
	sys.files["/var/lib/nfs/etab"] = strings.Replace(sys.files["/var/lib/nfs/etab"], "sync,", "async,", 1)
	wantShow(t, diff(t, e, sys), "exportfs -ra")

	// What an apply left that was killed before exportfs; not what others export.
	sys.files["/var/lib/nfs/etab"] = strings.Replace(sys.files["/var/lib/nfs/etab"], "async,", "sync,", 1) + "/srv/home/old\t*(rw)\n"
	wantShow(t, diff(t, e, sys), "exportfs -ra")
	sys.files["/etc/exports"] = "/srv/home/old *(rw)\n"
	wantShow(t, diff(t, e, sys), "")

	n := &NFSServer{Threads: 256, Versions: []string{"3", "4.1", "4.2"}, Lease: 30, Grace: 30}
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
	for k, v := range map[string]string{"threads": "256", "nfsv4leasetime": "30", "nfsv4gracetime": "30", "versions": "+3 +4 -4.0 +4.1 +4.2"} {
		sys.files["/proc/fs/nfsd/"+k] = v + "\n"
	}
	wantShow(t, diff(t, n, sys), "")
	n.RDMA = 20049
	sys.files["/proc/fs/nfsd/portlist"] = "tcp 2049\n"
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
	sys.files["/proc/fs/nfsd/portlist"] = "rdma 20049\nrdma 20049\ntcp 2049\n"
	wantShow(t, diff(t, n, sys), "")
	sys.files["/proc/fs/nfsd/versions"] = "+3 +4 +4.0 +4.1 +4.2\n"
	wantShow(t, diff(t, n, sys), "systemctl restart nfs-server.service")
}

func TestServiceExports(t *testing.T) {
	const etab = "/srv/home/.mortar/nfs/etab"
	e := &ServiceExports{Service: "home", Agent: "/m", Config: "/c.json", StateDir: "/srv/home/.mortar/nfs", Exports: []ocf.Export{
		{Dir: "/srv/home/data", Clients: "10.0.0.0/16", FSID: "aaaa", Options: []string{"rw", "sync"}}}}
	const change = "/m ocf exports --config /c.json"
	sys := &fakeSys{files: map[string]string{}}
	wantShow(t, diff(t, e, sys), "") // it runs elsewhere
	sys.files[etab] = ""
	wantShow(t, diff(t, e, sys), "") // the volume is mounted, nothing is served
	sys.files["/proc/fs/nfsd/threads"] = "16\n"
	wantShow(t, diff(t, e, sys), change)
	sys.files[etab] = "/srv/home/data\t10.0.0.0/16(rw,sync,wdelay,fsid=aaaa,sec=sys,rw,secure)\n"
	wantShow(t, diff(t, e, sys), "")
	sys.files["/run/mortar/exports-home/pending"] = ""
	wantShow(t, diff(t, e, sys), change)
	delete(sys.files, "/run/mortar/exports-home/pending")
	sys.files[etab] += "/srv/home/old\t*(rw,fsid=b)\n"
	if as := diff(t, e, sys); len(as) != 1 || as[0].Why != "/srv/home/old is exported to *, which is not configured" {
		t.Errorf("%+v", as)
	}
	e.Namespace = "mortar-home"
	wantShow(t, diff(t, e, sys), "") // that nfsd is another one
	sys.files["/run/mortar/mortar-home/nfsd/threads"] = "16\n"
	wantShow(t, diff(t, e, sys), change)
}

func TestCorosync(t *testing.T) {
	c := &Corosync{Cluster: "brick1", TokenMS: 3000, ConsensusMS: 3600, Key: []byte("0123456789"), Nodes: []CorosyncNode{{1, "nfs1", []string{"10.0.1.1", "10.0.2.1"}}}}
	sys := &fakeSys{files: map[string]string{}, info: map[string]FileInfo{"/etc/corosync/authkey": {Mode: 0o400}}}
	delete(sys.info, "/etc/corosync/authkey")
	as := diff(t, c, sys)
	wantShow(t, as, "write /etc/corosync/authkey 0400\nwrite /etc/corosync/corosync.conf 0644")
	if !as[0].Secret {
		t.Error("the key would be shown")
	}
	sys.files["/etc/corosync/authkey"] = "0123456789"
	sys.info = map[string]FileInfo{"/etc/corosync/authkey": {Mode: 0o400}}
	sys.files["/etc/corosync/corosync.conf"] = c.Text()
	sys.files["/sys/fs/cgroup/system.slice/corosync.service/cgroup.procs"] = "7\n"
	wantShow(t, diff(t, c, sys), "")
	c.TokenMS = 5000
	wantShow(t, diff(t, c, sys), `
write /var/lib/mortar/pending-corosync 0644
write /etc/corosync/corosync.conf 0644
corosync-cfgtool -R && remove /var/lib/mortar/pending-corosync`)
	c.Key = []byte("another key")
	refused(t, c, sys, "another key")
}

func TestFileSymlinkDirectory(t *testing.T) {
	sys := &fakeSys{
		files: map[string]string{"/etc/x": "hello\n", "/usr/local/lib/mortar/mortar-1": "ELF", "/etc/passwd": "statd:x:107:65534::/:/bin/false\n", "/d/f": ""},
		links: map[string]string{"/usr/local/sbin/mortar": "/usr/local/lib/mortar/mortar-1", "/l": "/usr/local/sbin/mortar"},
		info:  map[string]FileInfo{},
	}
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n")}, sys), "")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hullo\n")}, sys), "write /etc/x 0644")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n"), Secret: true}, sys), "write /etc/x 0600")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Content: []byte("hello\n"), Owner: "statd"}, sys), "write /etc/x 0644")
	wantShow(t, diff(t, &TextFile{Path: "/etc/x", Absent: true}, sys), "remove /etc/x")
	wantShow(t, diff(t, &TextFile{Path: "/etc/y", Absent: true}, sys), "")
	refused(t, &TextFile{Path: "/d"}, sys, "is a directory")
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
	sys := &fakeSys{files: map[string]string{"/proc/self/status": "Name:\tmortar\nUid:\t0\t0\t0\t0\n"}}
	wantShow(t, diff(t, h, sys), "")
	h.NodeName = true
	sys.files["/proc/sys/kernel/hostname"] = "debian\n"
	refused(t, h, sys, "reached as nfs1 calls itself debian")
	sys.files["/proc/sys/kernel/hostname"] = "nfs1\n"
	wantShow(t, diff(t, h, sys), "")
	h.MTUs = []WantedMTU{{"public", "10.77.1.11", 9000}, {"private", "10.77.2.11", 1500}, {"management", "10.9.9.9", 9000}}
	sys.outputs = map[string]Output{"ip -json address show": {Stdout: `[{"ifindex":1,"ifname":"lo","mtu":65536,"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},` +
		`{"ifindex":2,"ifname":"eth0","mtu":1500,"addr_info":[{"family":"inet","local":"10.77.1.11","prefixlen":24},{"family":"inet6","local":"fe80::1","prefixlen":64}]},` +
		`{"ifindex":3,"ifname":"eth1","mtu":1500,"addr_info":[{"family":"inet","local":"10.77.2.11","prefixlen":24}]},{"ifindex":4,"ifname":"eth2","mtu":1500,"addr_info":[]}]`}}
	refused(t, h, sys, "interface eth0 of nfs1 (10.77.1.11, network public) has MTU 1500, the spec says 9000", "`ip link set eth0 mtu 9000`")
	h.MTUs[0].MTU = 1500
	wantShow(t, diff(t, h, sys), "")
	h.RDMA = true
	refused(t, h, sys, "nfs1 has no RDMA device", "rdma link show")
	sys.files["/sys/class/infiniband/mlx5_0"] = ""
	wantShow(t, diff(t, h, sys), "")
	sys.files["/proc/self/status"] = "Uid:\t1000\t1000\t1000\t1000\n"
	refused(t, h, sys, "root")
}

func TestOCFConfigHasDevices(t *testing.T) {
	o := &OCFConfig{Path: "/etc/mortar/service-home.json", Template: []byte(`{"service":"home","arrays":[{"name":"r0","uuid":"x","members":null}]}`), Members: [][]DiskRef{twoRefs}}
	sys := twoPathDisks(false)
	as := diff(t, o, sys)
	wantShow(t, as, "write /etc/mortar/service-home.json 0600")
	if c := string(as[0].File.Content); !strings.Contains(c, `"/dev/mapper/35000c50000000102"`) || strings.Contains(c, "enclosures") {
		t.Error(c)
	}
	two := &OCFConfig{Path: o.Path, Template: []byte(`{"arrays":[{"name":"r0"},{"name":"r1"}]}`), Members: [][]DiskRef{twoRefs[:1], twoRefs[1:]}}
	if c := strings.Join(strings.Fields(string(diff(t, two, sys)[0].File.Content)), ""); !strings.Contains(c, `{"enclosures":["B"],"members":["/dev/mapper/35000c50000000102"],"name":"r1"}`) {
		t.Error(c)
	}
	if c := string(as[0].File.Content); strings.Contains(c, "MA01") {
		t.Error(c)
	}
	// Slow disks are dropped by their serial numbers.
	slow := &OCFConfig{Path: o.Path, Template: []byte(`{"service":"home","drop_slow_disks":true,"arrays":[{"name":"r0","uuid":"x","members":null}]}`), Members: o.Members}
	if c := strings.Join(strings.Fields(string(diff(t, slow, sys)[0].File.Content)), ""); !strings.Contains(c, `"members":["/dev/mapper/35000c50000000101","/dev/mapper/35000c50000000102"],"name":"r0","serials":["MA01","MA02"]`) || strings.Contains(c, "failed") {
		t.Error(c)
	}
	out := slices.Clone(twoRefs)
	out[1].Failed = true
	slow.Members = [][]DiskRef{out}
	if c := strings.Join(strings.Fields(string(diff(t, slow, sys)[0].File.Content)), ""); !strings.Contains(c, `{"failed":["MA02"],"members":`) {
		t.Error(c)
	}
	// Of a brick that runs: exports are tried before they are written.
	sys.files = map[string]string{o.Path: string(as[0].File.Content)}
	o.Agent, o.Template = "/m", []byte(`{"service":"home","exports":[{"dir":"/a"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	as = diff(t, o, sys)
	if len(as) != 1 || !slices.Equal(as[0].Cmd, []string{"/m", "ocf", "configure", "--config", o.Path}) {
		t.Fatalf("%+v", as)
	}
	sys.files[o.Path] = string(as[0].Stdin)
	o.Template = []byte(`{"service":"hom","exports":[{"dir":"/a"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	wantShow(t, diff(t, o, sys), "write /etc/mortar/service-home.json 0600")
	// Nothing of the service vanishes.
	o.Template = []byte(`{"service":"home","exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	for was, want := range map[string]string{
		`{"exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"x"},{"name":"r1","uuid":"y"}]}`:            "array r1 y",
		`{"exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"z"}]}`:                                     "array r0 z",
		`{"exports":[{"dir":"/a","clients":"*"},{"dir":"/b","clients":"10.0.0.0/8"}],"arrays":[{"name":"r0","uuid":"x"}]}`: "export /b 10.0.0.0/8",
		`{"luns":[{"wwid":"36"}],"targets":[{"kind":"ost","index":3}]}`:                                                    "LUN 36, target ost 3",
	} {
		sys.files[o.Path] = was
		refused(t, o, sys, want, "older than the brick")
	}
	sys.files[o.Path] = `{"exports":[{"dir":"/a","clients":"*"},{"dir":"/b","clients":"10.0.0.0/8"}],"arrays":[{"name":"r0","uuid":"x"}]}`
	o.Unexport = []string{"/b"}
	if as := diff(t, o, sys); len(as) != 1 {
		t.Errorf("%+v", as)
	}
	// Without reservations a partner could not take over LUNs that are reserved.
	sys.files[o.Path] = `{"service":"home","reservations":{"a":"0x1"}}`
	if _, err := Diff(t.Context(), sys, o); err == nil || !strings.Contains(err.Error(), "ha.reservations: off") {
		t.Errorf("reservations are turned off: %v", err)
	}
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
		sys := &fakeSys{files: map[string]string{"/etc/hosts": c.have}}
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
		sys.files["/etc/hosts"] = c.want
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

// assembling is a host on which Pacemaker puts the array together while it is
// looked at.
type assembling struct {
	*fakeSys
	looks int
}

func (a *assembling) Glob(pattern string) ([]string, error) {
	if pattern == "/sys/block/*" { // of linux.MDArrays
		if a.looks++; a.looks == 3 {
			addArray(a.fakeSys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
		}
	}
	return a.fakeSys.Glob(pattern)
}

func TestDisksOfAnArrayThatIsBeingAssembled(t *testing.T) {
	sys := &assembling{fakeSys: twoPathDisks(true)}
	addArray(sys.fakeSys, "md127", "00000000-0000-0000-0000-000000000000", "inactive", "dm-0")
	d := &Disks{Host: "nfs1", Check: true}
	for _, r := range twoRefs {
		d.List = append(d.List, WantedDisk{DiskRef: r, Group: groupUUID})
	}
	as, err := Diff(t.Context(), sys, d)
	if err != nil || len(as) > 0 {
		t.Errorf("%v, %v", as, err)
	}
	// A spare of another group of the service may stand in.
	moved := twoPathDisks(true)
	addArray(moved, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	lent := &Disks{Host: "nfs1", Check: true, List: []WantedDisk{{DiskRef: twoRefs[0], Group: groupUUID, Set: "home"}, {DiskRef: twoRefs[1], Group: "99999999:22222222:33333333:44444444", Set: "home"}}, Arrays: []string{groupUUID}}
	refused(t, lent, moved, "in use by md array md127") // nothing is where the second group should be
	// Another host's array is refused all the same.
	other := twoPathDisks(true)
	addArray(other, "md127", "99999999-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	refused(t, d, other, "in use by md array md127")
}
