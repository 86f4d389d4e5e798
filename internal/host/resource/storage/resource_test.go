package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// twoPathDisks are disks sda/sdb (MA01) and sdc/sdd (MA02), with maps dm-0
// and dm-1 if mapped.
func twoPathDisks(mapped bool) *resource.Paper {
	f := &resource.Paper{Files: map[string]string{"/proc/self/mounts": "/dev/vdb / ext4 rw 0 0\n"}, Links: map[string]string{}, Outputs: map[string]resource.Output{}}
	for i, serial := range []string{"MA01", "MA02"} {
		wwn := fmt.Sprintf("5000c5000000010%d", i+1)
		a, b := string(rune('a'+2*i)), string(rune('b'+2*i))
		d := resource.DiskFact{Serial: serial, WWN: wwn, Size: 2e9, Paths: []string{"sd" + a, "sd" + b}, Device: "/dev/disk/by-id/wwn-0x" + wwn}
		for _, p := range d.Paths {
			f.Files["/sys/block/"+p+"/queue/scheduler"] = "[none] mq-deadline\n"
			f.Files["/sys/block/"+p+"/queue/nr_requests"] = "64\n"
			f.Files["/dev/"+p] = ""
		}
		f.Links[d.Device] = "/dev/" + d.Paths[0]
		if mapped {
			dm := fmt.Sprintf("dm-%d", i)
			d.Device = "/dev/mapper/3" + wwn
			f.Links[d.Device] = "/dev/" + dm
			f.Files["/dev/"+dm] = ""
			for _, p := range d.Paths {
				f.Files["/sys/block/"+p+"/holders/"+dm+"/dm/uuid"] = "mpath-3" + wwn + "\n"
				f.Files["/sys/class/block/"+p+"/holders/"+dm+"/dm/uuid"] = "mpath-3" + wwn + "\n"
			}
			f.Files["/sys/block/"+dm+"/queue/scheduler"] = "[none]\n"
			f.Files["/sys/block/"+dm+"/queue/nr_requests"] = "128\n"
		}
		f.Drives = append(f.Drives, d)
	}
	return f
}

var twoRefs = []DiskRef{{Serial: "MA01", Enclosure: "A", Bay: 1, Size: 2e9}, {Serial: "MA02", Enclosure: "B", Bay: 1, Size: 2e9}}

func TestMissingDiskIsNamed(t *testing.T) {
	sys := twoPathDisks(false)
	d := &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: DiskRef{Serial: "MB07", Enclosure: "B", Bay: 7}}}}
	refused(t, d, sys, "disks-not-there", "disks", "MB07")
	d.List[0].DiskRef = DiskRef{Serial: "MA01", WWN: "5000c50000000999", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "disk-other-wwn", "wwn", "5000c50000000101", "want", "5000c50000000999")
	d.List[0].DiskRef = DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1, Size: 4e9}
	refused(t, d, sys, "disk-too-small", "bytes", "2000000000", "want", "4000000000")
	d.List[0].DiskRef = DiskRef{Serial: "wrong", WWN: "5000c50000000102", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "disk-other-serial", "serial", "MA02")

	// One serial, two Drives: the WWN decides, or nothing does.
	sys = twoPathDisks(false)
	sys.Drives[1].Serial = "MA01"
	d.List[0].DiskRef = DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1}
	refused(t, d, sys, "disk-serial-twice", "count", "2", "devices", "/dev/disk/by-id/wwn-0x5000c50000000101 (serial MA01, WWN 5000c50000000101)")
	d.List[0].WWN = "5000c50000000102"
	fs, err := match(resource.ListDisks(sys.Drives), []DiskRef{d.List[0].DiskRef})
	if err != nil || len(fs) != 1 || fs[0].WWN != "5000c50000000102" {
		t.Errorf("%v, %v", fs, err)
	}
	sys.Drives[0].WWN = ""
	sys.Drives[1].WWN = ""
	refused(t, d, sys, "disk-serial-twice", "count", "2")
	// A map with a path to another disk.
	sys = twoPathDisks(true)
	sys.Files["/sys/block/dm-0/slaves/sda/x"], sys.Files["/sys/block/dm-0/slaves/sdz/x"] = "", ""
	refused(t, &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0]}}}, sys, "disk-map-mixed", "disk", "MA01", "device", "/dev/mapper/35000c50000000101", "path", "sdz")
	// Two disks with one WWN would become one map.
	sys = twoPathDisks(false)
	sys.Drives[1].WWN = sys.Drives[0].WWN
	refused(t, &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0]}}}, sys, "disk-wwn-twice", "disk", "MA01")
}

// A disk in use is refused even if it may be wiped: wipefs would not touch
// it, and neither shall anything else.
func TestDiskInUseIsRefused(t *testing.T) {
	d := &Disks{Host: "nfs1", List: []WantedDisk{{DiskRef: twoRefs[0], Group: "aa", Wipe: true}}}
	sys := twoPathDisks(false)
	sys.Files["/proc/self/mounts"] += "/dev/sda /mnt ext4 rw 0 0\n"
	refused(t, d, sys, "disks-in-use", "disks", "MA01", "found", "the mount on /mnt")

	sys = twoPathDisks(false)
	sys.Files["/sys/class/block/sdb/holders/dm-7/x"] = ""
	sys.Files["/sys/class/block/dm-7/dm/name"] = "vgx-lvx\n"
	refused(t, d, sys, "disks-in-use", "found", "vgx-lvx")

	// An array that udev assembled is stopped if all of it is to be wiped and
	// nothing is on it; else it is in use.
	sys = twoPathDisks(true)
	addArray(sys, "md5", "0123456789abcdef0123456789abcdef", "clean", "dm-0", "dm-1")
	const inUse = "md array md5 (01234567:89abcdef:01234567:89abcdef)"
	refused(t, d, sys, "disks-in-use", "found", inUse)
	d.List = append(d.List, WantedDisk{DiskRef: twoRefs[1], Group: "aa"})
	refused(t, d, sys, "disks-in-use", "found", inUse)
	d.List[1].Wipe = true
	wantShow(t, diff(t, d, sys), "mdadm --stop /dev/md5")
	d.Arrays = []string{"01234567:89abcdef:01234567:89abcdef"}
	refused(t, d, sys, "disks-in-other-group", "found", inUse)
	d.Arrays = nil
	sys.Files["/dev/md5"] = ""
	sys.Files["/proc/self/mounts"] += "/dev/md5 /old xfs rw 0 0\n"
	refused(t, d, sys, "disks-in-use", "found", inUse)
}

func addArray(sys *resource.Paper, dev, uuid, state string, members ...string) {
	p := "/sys/block/" + dev
	sys.Files[p+"/md/uuid"] = uuid + "\n"
	sys.Files[p+"/md/level"] = "raid6\n"
	sys.Files[p+"/md/array_state"] = state + "\n"
	sys.Files[p+"/md/chunk_size"] = "131072\n"
	sys.Files[p+"/md/raid_disks"] = "2\n"
	sys.Files[p+"/md/degraded"] = "0\n"
	for _, m := range members {
		sys.Files[p+"/slaves/"+m+"/x"] = ""
	}
}

func TestMultipathBeforeAndAfter(t *testing.T) {
	m := &Multipath{Brick: "brick1", Disks: twoRefs, Settings: []resource.Setting{{Name: "no_path_retry", Value: "6", Reason: "why"}}}
	as := diff(t, m, twoPathDisks(false))
	wantShow(t, as, `
write /var/lib/mortar/pending-multipath 0644
write /etc/multipath.conf 0644
systemctl enable --now multipathd.service && remove /var/lib/mortar/pending-multipath
udevadm wait --timeout=610 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102`)
	conf := string(as[1].File.Content)
	for _, w := range []string{"user_friendly_names no", "recheck_wwid yes", "no_path_retry 6", `wwid ".*"`, `wwid "35000c50000000101"`, "# why"} {
		if !strings.Contains(conf, w) {
			t.Errorf("multipath.conf lacks %s", w)
		}
	}
	sys := twoPathDisks(true)
	sys.Files["/etc/multipath.conf"] = conf
	sys.Files["/sys/fs/cgroup/system.slice/multipathd.service/cgroup.procs"] = "12\n"
	wantShow(t, diff(t, m, sys), "")

	// A path that multipathd does not have is put into its map.
	delete(sys.Files, "/sys/block/sdd/holders/dm-1/dm/uuid")
	wantShow(t, diff(t, m, sys), "multipath -v1\nudevadm wait --timeout=610 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102")

	// Killed between writing the file and the reload.
	sys = twoPathDisks(true)
	sys.Files["/etc/multipath.conf"] = conf
	sys.Files["/sys/fs/cgroup/system.slice/multipathd.service/cgroup.procs"] = "12\n"
	sys.Files["/var/lib/mortar/pending-multipath"] = ""
	wantShow(t, diff(t, m, sys), `
multipathd reconfigure && remove /var/lib/mortar/pending-multipath
udevadm wait --timeout=610 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102`)
}

// A configuration of the site, and a system disk that multipathd looks after, end in a refusal.
func TestMultipathOfTheSite(t *testing.T) {
	m := &Multipath{Brick: "brick1", Disks: twoRefs}
	sys := twoPathDisks(false)
	sys.Files["/etc/multipath.conf"] = "# comments only, as some packages ship it\n\n"
	wantShow(t, diff(t, m, sys)[1:2], "write /etc/multipath.conf 0644")
	sys.Files["/etc/multipath.conf"] = "defaults {\n\tfind_multipaths yes\n}\n"
	refused(t, m, sys, "multipath-conf-foreign", "path", "/etc/multipath.conf")
	delete(sys.Files, "/etc/multipath.conf")
	sys.Files["/etc/multipath/conf.d/site.conf"] = "blacklist { }\n"
	refused(t, m, sys, "multipath-conf-foreign", "path", "/etc/multipath/conf.d/site.conf")

	// / is a logical volume on a partition of a map.
	system := func(mounts, swaps string) *resource.Paper {
		sys := twoPathDisks(true)
		sys.Files["/proc/self/mounts"], sys.Files["/proc/swaps"] = mounts, "Filename\tType\n"+swaps
		for dev, slave := range map[string]string{"dm-9": "dm-8", "dm-8": "dm-7", "dm-7": "sdx"} {
			sys.Links["/dev/mapper/"+dev], sys.Files["/dev/"+dev] = "/dev/"+dev, ""
			sys.Files["/sys/class/block/"+dev+"/slaves/"+slave+"/x"] = ""
		}
		sys.Files["/sys/class/block/dm-7/dm/uuid"], sys.Files["/sys/class/block/dm-7/dm/name"] = "mpath-3600\n", "mpatha\n"
		return sys
	}
	refused(t, m, system("/dev/mapper/dm-9 / ext4 rw 0 0\n", ""), "multipath-system-disk", "target", "/", "map", "mpatha")
	refused(t, m, system("/dev/vdb / ext4 rw 0 0\n", "/dev/mapper/dm-8 partition 8 0 -2\n"), "multipath-system-disk", "target", "swap", "map", "mpatha")
	// An old disk of the brick may still be below its mount.
	wantShow(t, diff(t, m, system("/dev/vdb / ext4 rw 0 0\n/dev/mapper/dm-9 /srv/home xfs rw 0 0\n", ""))[1:2], "write /etc/multipath.conf 0644")
}

const groupUUID = "11111111:22222222:33333333:44444444"

func TestArrayRunning(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs, Assemble: true}
	sys := twoPathDisks(true)
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	wantShow(t, diff(t, a, sys), "udevadm wait --timeout=100 /dev/md/r0")
	sys.Files["/dev/md/r0"] = ""
	wantShow(t, diff(t, a, sys), "")

	sys = twoPathDisks(true)
	sys.Files["/dev/md/r0"] = ""
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0")
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102")

	// A disk that was dropped because it is slow stays out.
	record := func(d linux.Dropped) {
		sys.Files[linux.CIBFile] = fmt.Sprintf(`<cib><configuration><nodes><node uname="nfs2"><instance_attributes><nvpair name=%q value=%q/></instance_attributes></node></nodes></configuration></cib>`, d.Attr(), d)
	}
	record(linux.Dropped{Group: "r0", Serial: "MA02", Device: "/dev/mapper/35000c50000000102"})
	wantShow(t, diff(t, a, sys), "")
	record(linux.Dropped{Group: "r1", Serial: "MA02", Device: "/dev/mapper/35000c50000000102"}) // as a spare of another group
	wantShow(t, diff(t, a, sys), "")
	record(linux.Dropped{Group: "r0", Serial: "MA09", Device: "/dev/mapper/35000c50000000109"})
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102")
	sys.Files[linux.CIBFile] = "<cib mortar-dropped-"
	if _, err := resource.Diff(t.Context(), sys, a); err == nil {
		t.Error("a configuration of the cluster that cannot be read says that no disk was dropped")
	}

	// Half-started: stopped and assembled anew, but not behind a cluster's back.
	half := twoPathDisks(true)
	half.Outputs["wipefs --no-act --json"] = resource.Output{}
	addArray(half, "md127", "11111111222222223333333344444444", "inactive", "dm-0")
	half.Outputs["mdadm --examine"] = resource.Output{Stdout: `/dev/mapper/35000c50000000101:
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
	refused(t, a, sys, "array-geometry", "array", "r0", "property", "chunk", "have", "131072", "want", "262144")
}

// The plan of a new brick names devices as they will be, also while the disks
// have no map yet.
// An array that an earlier version gave a write journal is refused, running and stopped: this
// version's agent would not start it. A disk that was out when the journal went tells nothing.
func TestArrayWithJournal(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs}
	up := twoPathDisks(true)
	addArray(up, "md127", groupUUID, "clean", "dm-0", "dm-1")
	up.Files["/dev/md/r0"] = ""
	up.Files["/sys/block/md127/md/consistency_policy"] = "journal\n"
	refused(t, a, up, "array-journal", "array", "r0")
	up.Files["/sys/block/md127/md/consistency_policy"] = "bitmap\n"
	wantShow(t, diff(t, a, up), "")

	examined := func(disk, features string, events int) string {
		return fmt.Sprintf("/dev/mapper/35000c5000000010%s:\n    Feature Map : %s\n     Array UUID : 11111111:22222222:33333333:44444444\n         Events : %d\n   Device Role : Active device %s\n", disk, features, events, disk)
	}
	stopped := twoPathDisks(true)
	stopped.Outputs["wipefs --no-act --json"] = resource.Output{}
	stopped.Outputs["mdadm --examine"] = resource.Output{Stdout: examined("1", "0x200", 12)}
	refused(t, a, stopped, "array-journal", "array", "r0")
	stopped.Outputs["mdadm --examine"] = resource.Output{Stdout: examined("1", "0x1", 22) + examined("2", "0x200", 12)}
	wantShow(t, diff(t, a, stopped), "")
}

func TestArrayCreation(t *testing.T) {
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs[:1], Spares: twoRefs[1:], Assemble: true}
	sys := twoPathDisks(false)
	sys.Outputs["mdadm --examine"] = resource.Output{Code: 1, Stderr: "mdadm: No md superblock detected on /dev/sda.\n"}
	sys.Outputs["wipefs --no-act --json"] = resource.Output{}
	wantShow(t, diff(t, a, sys), `
mdadm --create /dev/md/r0 --run --metadata=1.2 --level=6 --raid-devices=1 --chunk=128 --uuid=11111111:22222222:33333333:44444444 --name=r0 --homehost=any --bitmap=internal --spare-devices=1 /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102 DESTROYS MA01 MA02
udevadm wait --timeout=100 /dev/md/r0`)
	a.Assemble = false
	refused(t, a, sys, "array-was-built", "array", "r0")

	// Disks that zero by unmapping need no resync, if all paths do.
	a.Assemble = true
	set := func(path, mode string) {
		sys.Files["/sys/block/"+path+"/device/scsi_disk/2:0:0:0/zeroing_mode"] = mode + "\n"
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

func TestReleaseStorage(t *testing.T) {
	r := &ReleaseStorage{VG: "brick-1_home", LV: "data", SystemID: "mortar-b-building", RestID: "mortar-b", MountPoint: "/srv/home", Arrays: map[string]string{groupUUID: "r0"}}
	sys := twoPathDisks(true)
	wantShow(t, diff(t, r, sys), "")
	addArray(sys, "md127", "11111111222222223333333344444444", "clean", "dm-0", "dm-1")
	addArray(sys, "md5", "01111111222222223333333344444444", "clean", "sdx")
	sys.Files["/sys/block/dm-9/dm/name"] = "brick--1_home-data\n"
	sys.Files["/dev/brick-1_home/data"] = ""
	sys.Files["/proc/self/mounts"] += "/dev/mapper/brick--1_home-data /srv/home xfs rw 0 0\n"
	owned := func(by string) resource.Output {
		return resource.Output{Stdout: `{"report":[{"vg":[{"vg_name":"brick-1_home","vg_systemid":"` + by + `"}]}]}`}
	}
	sys.Outputs["lvm vgs"] = owned("mortar-b-building")
	const as = `--config global{system_id_source="lvmlocal"} local{system_id="mortar-b-building"} --devices /dev/md127 brick-1_home`
	wantShow(t, diff(t, r, sys), `
umount /srv/home
lvm vgchange --activate n `+as+`
lvm vgchange --yes --systemid mortar-b `+as+`
mdadm --stop /dev/md127`)
	// Killed after the handing over.
	sys.Outputs["lvm vgs"] = owned("mortar-b")
	delete(sys.Files, "/sys/block/dm-9/dm/name")
	sys.Files["/proc/self/mounts"] = ""
	wantShow(t, diff(t, r, sys), "mdadm --stop /dev/md127")
}

func TestBlockQueue(t *testing.T) {
	sys := twoPathDisks(true)
	addArray(sys, "md127", "11111111222222223333333344444444", "clean", "dm-0", "dm-1")
	sys.Files["/sys/block/md127/queue/read_ahead_kb"] = "1024\n"
	q := &BlockQueue{
		Path: "/etc/udev/rules.d/90-mortar-block.rules", Disks: twoRefs, Arrays: []string{groupUUID}, Volumes: []string{"brick-1_home/data"},
		DiskSettings:   []resource.Setting{{Name: "queue/scheduler", Value: "mq-deadline", Reason: "fair"}, {Name: "queue/nr_requests", Value: "256", Reason: "room"}},
		ArraySettings:  []resource.Setting{{Name: "queue/read_ahead_kb", Value: "4096", Reason: "ahead"}},
		VolumeSettings: []resource.Setting{{Name: "queue/read_ahead_kb", Value: "4096", Reason: "ahead"}},
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

// An NVMe disk is found by its serial: it has no SCSI identifier, and its namespace may have
// several controllers.
func TestBlockQueueNVMe(t *testing.T) {
	q := &BlockQueue{Path: "/etc/udev/rules.d/90-mortar-block.rules", Disks: []DiskRef{{Serial: "AN01"}, {Serial: "AN02"}},
		DiskSettings: []resource.Setting{{Name: "queue/scheduler", Value: "none", Reason: "it sorts by itself"}}}
	rules := q.rules([]foundDisk{{DiskFact: resource.DiskFact{Serial: "AN01", Paths: []string{"nvme0n1"}}}, {DiskFact: resource.DiskFact{Serial: "AN02", Paths: []string{"nvme1n1"}}}})
	if want := `KERNEL=="nvme*n[0-9]|nvme*n[0-9][0-9]", ATTRS{serial}=="AN01|AN02", ATTR{queue/scheduler}="none", OPTIONS+="nowatch"`; !strings.Contains(rules, want) || strings.Contains(rules, `"sd`) {
		t.Errorf("the rules lack %s:\n%s", want, rules)
	}
}

// A request cannot be larger than the hardware takes: such a device is as wanted
// with its most.
func TestRequestsNoLargerThanTheHardware(t *testing.T) {
	sys := twoPathDisks(false)
	for dev, kb := range map[string][2]string{"sda": {"512", "512"}, "sdb": {"128", "512"}, "sdc": {"1024", "32767"}, "sdd": {"512", "32767"}, "sde": {"128", "32767"}, "dm-0": {"256", "32767"}} {
		sys.Files["/sys/block/"+dev+"/queue/max_sectors_kb"] = kb[0] + "\n"
		sys.Files["/sys/block/"+dev+"/queue/max_hw_sectors_kb"] = kb[1] + "\n"
	}
	// An array's LUN that takes 256 KiB at once, and a map of it; sysfs tells the adapter's limit only.
	sys.Files["/sys/block/sde/device/vpd_pgb0"] = "\x00\xb0\x00\x3c\x01\x01\x01\x00\x00\x00\x02\x00"
	sys.Files["/sys/block/sde/queue/logical_block_size"] = "512\n"
	sys.Files["/sys/block/dm-0/slaves/sde"] = ""
	wantShow(t, liveQueue(resource.Look{Sys: sys, Ctx: t.Context()}, resource.Setting{Name: "queue/max_sectors_kb", Value: "1024", Reason: "whole chunks"}, []string{"sda", "sdb", "sdc", "sdd", "sde", "dm-0"}), `
tee /sys/block/sdb/queue/max_sectors_kb <<< "512"
tee /sys/block/sdd/queue/max_sectors_kb <<< "1024"
tee /sys/block/sde/queue/max_sectors_kb <<< "256"`)
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
	sys := &resource.Paper{Files: map[string]string{"/proc/self/mounts": "/dev/vdb / ext4 rw 0 0\n", "/etc/fstab": ""}}
	as := diff(t, m, sys)
	wantShow(t, as, "mkdir /mnt/home 0755\nwrite /etc/fstab 0644\nmount -o fg /mnt/home")
	sys.Files["/etc/fstab"] = string(as[1].File.Content)
	sys.Files["/mnt/home/x"] = ""
	live := "10.77.1.100:/srv/home/data /mnt/home nfs4 rw,relatime,vers=4.1,rsize=262144,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600 0 0\n"
	sys.Files["/proc/self/mounts"] = live
	wantShow(t, diff(t, m, sys), "")
	sys.Files["/proc/self/mounts"] = strings.Replace(live, "hard", "soft", 1)
	wantShow(t, diff(t, m, sys), "umount /mnt/home\nmount -o fg /mnt/home")
	m.Options = append(m.Options, "proto=rdma", "port=20049")
	sys.Files["/etc/fstab"] = m.line() + "\n"
	sys.Files["/proc/self/mounts"] = live
	wantShow(t, diff(t, m, sys), "umount /mnt/home\nmount -o fg /mnt/home")
	sys.Files["/proc/self/mounts"] = strings.Replace(live, "proto=tcp", "proto=rdma,port=20049", 1)
	wantShow(t, diff(t, m, sys), "")
	sys.Files["/proc/self/mounts"] = strings.Replace(live, ".100", ".101", 1)
	refused(t, m, sys, "mount-other", "source", "10.77.1.101:/srv/home/data", "path", "/mnt/home")
}

func TestOCFConfigHasDevices(t *testing.T) {
	o := &OCFConfig{Path: "/etc/mortar/service-home.json", Template: []byte(`{"service":"home","arrays":[{"name":"r0","uuid":"x","members":null}]}`), Members: [][]DiskRef{twoRefs}}
	sys := twoPathDisks(false)
	as := diff(t, o, sys)
	wantShow(t, as, "write /etc/mortar/service-home.json 0600")
	squeezed := func(o *OCFConfig) string {
		return strings.Join(strings.Fields(string(diff(t, o, sys)[0].File.Content)), "")
	}
	if c := squeezed(o); !strings.Contains(c, `"enclosures":["A","B"],"members":["/dev/mapper/35000c50000000101","/dev/mapper/35000c50000000102"],"name":"r0","serials":["MA01","MA02"]`) || strings.Contains(c, "failed") {
		t.Error(c)
	}
	two := &OCFConfig{Path: o.Path, Template: []byte(`{"arrays":[{"name":"r0"},{"name":"r1"}]}`), Members: [][]DiskRef{twoRefs[:1], twoRefs[1:]}}
	if c := squeezed(two); !strings.Contains(c, `{"enclosures":["B"],"members":["/dev/mapper/35000c50000000102"],"name":"r1","serials":["MA02"]}`) {
		t.Error(c)
	}
	out := slices.Clone(twoRefs)
	out[1].Failed = true
	one := &OCFConfig{Path: o.Path, Template: o.Template, Members: [][]DiskRef{out}}
	if c := squeezed(one); !strings.Contains(c, `"failed":["MA02"],"members":`) {
		t.Error(c)
	}
	// Of a brick that runs: exports are tried before they are written.
	sys.Files = map[string]string{o.Path: string(as[0].File.Content)}
	o.Agent, o.Template = "/m", []byte(`{"service":"home","exports":[{"dir":"/a"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	as = diff(t, o, sys)
	if len(as) != 1 || !slices.Equal(as[0].Cmd, []string{"/m", "ocf", "configure", "--config", o.Path}) {
		t.Fatalf("%+v", as)
	}
	sys.Files[o.Path] = string(as[0].Stdin)
	o.Template = []byte(`{"service":"hom","exports":[{"dir":"/a"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	wantShow(t, diff(t, o, sys), "write /etc/mortar/service-home.json 0600")
	// Nothing of the service vanishes.
	o.Template = []byte(`{"service":"home","exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"x","members":null}]}`)
	for was, want := range map[string]string{
		`{"exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"x"},{"name":"r1","uuid":"y"}]}`:            "array r1 y",
		`{"exports":[{"dir":"/a","clients":"*"}],"arrays":[{"name":"r0","uuid":"z"}]}`:                                     "array r0 z",
		`{"exports":[{"dir":"/a","clients":"*"},{"dir":"/b","clients":"10.0.0.0/8"}],"arrays":[{"name":"r0","uuid":"x"}]}`: "export /b 10.0.0.0/8",
		`{"luns":[{"wwid":"36"}],"targets":[{"kind":"ost","index":3}]}`:                                                    "target ost 3",
	} {
		sys.Files[o.Path] = was
		refused(t, o, sys, "service-loses", "lost", want)
	}
	sys.Files[o.Path] = `{"exports":[{"dir":"/a","clients":"*"},{"dir":"/b","clients":"10.0.0.0/8"}],"arrays":[{"name":"r0","uuid":"x"}]}`
	o.Unexport = []string{"/b"}
	if as := diff(t, o, sys); len(as) != 1 {
		t.Errorf("%+v", as)
	}
	// Without reservations a partner could not take over LUNs that are reserved.
	sys.Files[o.Path] = `{"service":"home","reservations":{"a":"0x1"}}`
	if _, err := resource.Diff(t.Context(), sys, o); err == nil || !strings.Contains(err.Error(), "ha.reservations: off") {
		t.Errorf("reservations are turned off: %v", err)
	}
}

// assembling is a host on which Pacemaker puts the array together while it is
// looked at.
type assembling struct {
	*resource.Paper
	looks int
}

func (a *assembling) Glob(pattern string) ([]string, error) {
	if pattern == "/sys/block/*" { // of linux.MDArrays
		if a.looks++; a.looks == 3 {
			addArray(a.Paper, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
		}
	}
	return a.Paper.Glob(pattern)
}

func TestDisksOfAnArrayThatIsBeingAssembled(t *testing.T) {
	sys := &assembling{Paper: twoPathDisks(true)}
	addArray(sys.Paper, "md127", "00000000-0000-0000-0000-000000000000", "inactive", "dm-0")
	d := &Disks{Host: "nfs1", Check: true}
	for _, r := range twoRefs {
		d.List = append(d.List, WantedDisk{DiskRef: r, Group: groupUUID})
	}
	as, err := resource.Diff(t.Context(), sys, d)
	if err != nil || len(as) > 0 {
		t.Errorf("%v, %v", as, err)
	}
	// A spare of another group of the service may stand in.
	moved := twoPathDisks(true)
	addArray(moved, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	lent := &Disks{Host: "nfs1", Check: true, List: []WantedDisk{{DiskRef: twoRefs[0], Group: groupUUID, Set: "home"}, {DiskRef: twoRefs[1], Group: "99999999:22222222:33333333:44444444", Set: "home"}}, Arrays: []string{groupUUID}}
	refused(t, lent, moved, "disks-in-other-group", "found", "md array md127 (11111111:22222222:33333333:44444444)") // nothing is where the second group should be
	// Another host's array is refused all the same.
	other := twoPathDisks(true)
	addArray(other, "md127", "99999999-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	refused(t, d, other, "disks-in-use", "found", "md array md127 (99999999:22222222:33333333:44444444)")
}

// A volume of a single server that fstab mounts had a file system: its superblock is lost, and no
// mkfs may end the rest.
func TestXFSThatHasLostItsSuperblock(t *testing.T) {
	for name, c := range map[string]struct {
		fstab, at string
		refused   bool
	}{
		"mounted at boot": {"/dev/vg/data /srv/home xfs defaults 0 0\n", "/srv/home", true},
		"never made":      {"/dev/vda1 / ext4 defaults 0 1\n#/dev/vg/data /srv/home xfs defaults 0 0\n", "/srv/home", false},
		"of a pair":       {"/dev/vg/data /srv/home xfs defaults 0 0\n", "", false},
	} {
		sys := &resource.Paper{Files: map[string]string{"/proc/self/mounts": "", "/etc/fstab": c.fstab, "/dev/dm-3": ""}, Links: map[string]string{"/dev/vg/data": "/dev/dm-3"},
			Outputs: map[string]resource.Output{"blkid --probe --output export /dev/vg/data": {Code: 2}}}
		x := &XFS{Device: "/dev/vg/data", UUID: "u", At: c.at}
		if c.refused {
			refused(t, x, sys, "fs-gone", "device", "/dev/vg/data", "path", c.at)
		} else if as := diff(t, x, sys); len(as) != 1 || as[0].Cmd[0] != "mkfs.xfs" {
			t.Errorf("%s: %s", name, show(as))
		}
	}
}

// With many disks udev makes the links of a volume minutes after the volume is there: it has its
// file system all the same.
func TestXFSWhoseLinksAreNotMadeYet(t *testing.T) {
	sys := &resource.Paper{Files: map[string]string{"/proc/self/mounts": "/dev/mapper/size--1-data /srv/home xfs rw 0 0\n", "/dev/dm-3": "", "/sys/block/dm-3/dm/name": "size--1-data\n"},
		Links: map[string]string{"/dev/mapper/size--1-data": "/dev/dm-3"},
		Outputs: map[string]resource.Output{"blkid --probe --output export /dev/dm-3": {Stdout: "TYPE=xfs\nUUID=abf160e0-96e7-57a5-b2b9-e5c5db1ecd36\n"},
			"xfs_db -r -c sb 0 -c print inprogress /dev/dm-3": {Stdout: "inprogress = 0\n"}}}
	x := &XFS{Device: "/dev/size-1/data", UUID: "abf160e0-96e7-57a5-b2b9-e5c5db1ecd36"}
	if as := diff(t, x, sys); len(as) > 0 {
		t.Errorf("%s", show(as))
	}
}

// No command is about more disks than its time is for; what the further ones carry is found.
func TestSignaturesOfManyDisks(t *testing.T) {
	var all []foundDisk
	for i := range 1008 {
		all = append(all, foundDisk{DiskFact: resource.DiskFact{Device: fmt.Sprintf("/dev/sd%d", i)}})
	}
	sys := &manyDisks{Paper: resource.Paper{Files: map[string]string{}}}
	sigs, err := resource.Observe(t.Context(), sys, func(sys resource.Look) ([][]signature, error) { return signatures(sys, all), nil })
	if err != nil || len(sigs) != 1008 || sys.asked != 5 {
		t.Fatalf("%d disks, %d commands, %v", len(sigs), sys.asked, err)
	}
	for i, s := range sigs {
		if len(s) != 1 || s[0].UUID != fmt.Sprint("sd", i) {
			t.Fatalf("disk %d: %+v", i, s)
		}
	}
}

// manyDisks each carry a signature.
type manyDisks struct {
	resource.Paper
	asked int
}

func (m *manyDisks) Query(_ context.Context, argv ...string) (resource.Output, error) {
	if m.asked++; len(argv)-3 > resource.QueryDisks {
		return resource.Output{}, fmt.Errorf("%d disks in one command", len(argv)-3)
	}
	var doc struct {
		Signatures []map[string]string `json:"signatures"`
	}
	for _, dev := range argv[3:] {
		doc.Signatures = append(doc.Signatures, map[string]string{"device": path.Base(dev), "type": "ext4", "uuid": path.Base(dev)})
	}
	b, err := json.Marshal(doc)
	return resource.Output{Stdout: string(b)}, err
}
