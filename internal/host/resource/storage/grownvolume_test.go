package storage

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A volume takes in the arrays of its growths, and its file system the volume,
// wherever an earlier apply ended.
func TestGrownVolume(t *testing.T) {
	g := &GrownVolume{
		VG: "b_home", LV: "data", PVs: []string{"/dev/md/r0", "/dev/md/r1", "/dev/md/r2", "/dev/md/r3"},
		Growths: [][]string{{"/dev/md/r1"}, {"/dev/md/r2", "/dev/md/r3"}},
		Align:   1 << 20, StripeSize: 256 << 10, Slack: 4 << 20, MountPoint: "/srv/home",
	}
	sys := &resource.Paper{
		Files: map[string]string{"/proc/self/mounts": "/dev/mapper/b_home-data /srv/home xfs rw 0 0\n", "/sys/block/dm-3/dm/name": "b_home-data\n", "/dev/b_home/data": "", "/dev/dm-3": "",
			"/dev/md0": "", "/dev/md1": "", "/sys/block/md0/holders/dm-3/dm/name": "b_home-data\n", "/sys/block/md1/holders/dm-3/dm/name": "b_home-data\n"},
		Links:   map[string]string{"/dev/md/r0": "/dev/md0", "/dev/md/r1": "/dev/md1"},
		Outputs: map[string]resource.Output{},
	}
	const args = "--devices /dev/md/r0,/dev/md/r1,/dev/md/r2,/dev/md/r3 "
	extend := "lvm lvextend --yes --extents +100%PVS --stripes 2 --stripesize 256k " + args + "b_home/data /dev/md/r2 /dev/md/r3"
	all := "lvm vgextend --yes --dataalignment 1024k " + args + "b_home /dev/md/r2 /dev/md/r3\n" + extend + "\nxfs_growfs -d /srv/home"
	wantShow(t, diff(t, g, sys), all) // before its arrays are made

	sys.Links["/dev/md/r2"], sys.Links["/dev/md/r3"] = "/dev/md2", "/dev/md3"
	sys.Files["/dev/md2"], sys.Files["/dev/md3"] = "", ""
	pvs := func(r3 string) {
		sys.Outputs["lvm pvs"] = resource.Output{Stdout: `{"report":[{"pv":[{"pv_name":"/dev/md2","vg_name":"b_home"},{"pv_name":"/dev/md3","vg_name":"` + r3 + `"}]}]}`}
	}
	pvs("")
	wantShow(t, diff(t, g, sys), strings.Replace(all, "b_home /dev/md/r2 /dev/md/r3", "b_home /dev/md/r3", 1))
	pvs("b_home")
	wantShow(t, diff(t, g, sys), extend+"\nxfs_growfs -d /srv/home")
	pvs("other")
	if _, err := resource.Diff(t.Context(), sys, g); err == nil || !strings.Contains(err.Error(), "volume group other") {
		t.Errorf("another group's device: %v", err)
	}

	for _, md := range []string{"md2", "md3"} {
		sys.Files["/sys/block/"+md+"/holders/dm-3/dm/name"] = "b_home-data\n"
	}
	sys.Links["/dev/b_home/data"], sys.Links["/dev/mapper/b_home-data"] = "/dev/dm-3", "/dev/dm-3"
	delete(sys.Files, "/dev/b_home/data")
	sys.Files["/sys/block/dm-3/size"] = "16777216\n" // 8 GiB
	info := func(blocks string) {
		sys.Outputs["xfs_info /srv/home"] = resource.Output{Stdout: "meta-data=/dev/dm-3 isize=512\ndata     =                       bsize=4096   blocks=" + blocks + ", imaxpct=25\nlog      =internal log           bsize=4096   blocks=16384, version=2\n"}
	}
	info("1048576")
	wantShow(t, diff(t, g, sys), "xfs_growfs -d /srv/home")
	info("2097151")
	wantShow(t, diff(t, g, sys), "")
	info("1048576")
	sys.Files["/proc/self/mounts"] = ""
	wantShow(t, diff(t, g, sys), "")

	// Over a cache the mounted device has to follow first. The remains of a cache do not.
	sys.Files["/proc/self/mounts"] = "/dev/mapper/b_home.cached /srv/home xfs rw 0 0\n"
	sys.Links["/dev/mapper/b_home.cached"], sys.Files["/dev/dm-7"], sys.Files["/sys/block/dm-7/size"] = "/dev/dm-7", "", "8388608\n"
	if _, err := resource.Diff(t.Context(), sys, g); err == nil || !strings.Contains(err.Error(), "a cache that was turned off") {
		t.Errorf("on the remains of a cache: %v", err)
	}
	g.Cache = "/etc/mortar/cache-home.json"
	wantShow(t, diff(t, g, sys), "/usr/local/sbin/mortar host-cache extend /etc/mortar/cache-home.json\nxfs_growfs -d /srv/home")
	info("2097151")
	wantShow(t, diff(t, g, sys), "")
}

// A volume group of an earlier build has no header: the first growth makes one.
func TestGrowthLeavesRoomForACache(t *testing.T) {
	g := &GrownVolume{VG: "b_home", LV: "data", PVs: []string{"/dev/md/r0", "/dev/md/r1"}, Growths: [][]string{{"/dev/md/r1"}}, StripeSize: 256 << 10, MountPoint: "/srv/home",
		Header: "cacheheader", HeaderBytes: []int64{20 << 20}}
	sys := &resource.Paper{Files: map[string]string{"/proc/self/mounts": "", "/sys/block/dm-3/dm/name": "b_home-data\n", "/dev/b_home/data": "", "/dev/md/r0": ""}, Outputs: map[string]resource.Output{}}
	const args = "--devices /dev/md/r0,/dev/md/r1 "
	grow := "lvm vgextend --yes " + args + "b_home /dev/md/r1\n"
	extend := "lvm lvextend --yes --extents +100%PVS --stripes 1 " + args + "b_home/data /dev/md/r1"
	wantShow(t, diff(t, g, sys), grow+"lvm lvcreate --yes --wipesignatures y --name cacheheader --size 20971520b --stripes 1 "+args+"b_home /dev/md/r1\n"+extend)
	sys.Files["/sys/block/dm-4/dm/name"], sys.Files["/dev/b_home/cacheheader"] = "b_home-cacheheader\n", ""
	wantShow(t, diff(t, g, sys), grow+extend)
}

// The header of a cache comes before the volume, later only where the group has room. Without a
// cache nothing asks for it.
func TestLateHeader(t *testing.T) {
	l := &LogicalVolume{VG: "b_home", Name: "cacheheader", PVs: []string{"/dev/md/r0"}, Size: 20 << 20, Before: "data"}
	sys := &resource.Paper{Files: map[string]string{"/dev/md/r0": ""}, Outputs: map[string]resource.Output{}}
	lvs := func(names ...string) {
		var rows []string
		for _, n := range names {
			rows = append(rows, `{"lv_name":"`+n+`","vg_name":"b_home"}`)
		}
		sys.Outputs["lvm lvs"] = resource.Output{Stdout: `{"report":[{"lv":[` + strings.Join(rows, ",") + `]}]}`}
	}
	const first = "lvm lvcreate --yes --wipesignatures y --name cacheheader --size 20971520b --devices /dev/md/r0 b_home"
	lvs()
	wantShow(t, diff(t, l, sys), first)
	lvs("data")
	wantShow(t, diff(t, l, sys), "")
	l.Late = 2
	for free, want := range map[string]string{"1": "needed, 1 are free", "2": ""} {
		sys.Outputs["lvm vgs"] = resource.Output{Stdout: `{"report":[{"vg":[{"vg_name":"b_home","vg_free_count":"` + free + `"}]}]}`}
		if want == "" {
			wantShow(t, diff(t, l, sys), "lvm lvcreate --yes --wipesignatures y --name cacheheader --extents 2 --devices /dev/md/r0 b_home")
			continue
		}
		if _, err := resource.Diff(t.Context(), sys, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s extents are free: %v", free, err)
		}
	}
	sys.Files["/sys/block/dm-3/dm/name"], sys.Files["/dev/b_home/data"] = "b_home-data\n", ""
	l.Late, sys.Outputs = 0, nil // without a fork
	wantShow(t, diff(t, l, sys), "")
}

// An array of a growth is made while its volume is served here, and never where the
// volume group misses one.
func TestArrayOfGrowth(t *testing.T) {
	a := &Array{Name: "r1", Grow: &Growing{VG: "b_home", LV: "data", PVs: []string{"/dev/md/r0", "/dev/md/r1"}}}
	sys := &resource.Paper{Files: map[string]string{"/dev/md/r0": ""}, Outputs: map[string]resource.Output{}}
	if err := a.mayGrow(resource.Look{Sys: sys, Ctx: t.Context()}); err == nil || !strings.Contains(err.Error(), "not active") {
		t.Errorf("a volume that is not active: %v", err)
	}
	sys.Files["/sys/block/dm-3/dm/name"], sys.Files["/dev/b_home/data"] = "b_home-data\n", ""
	vgs := "lvm vgs --foreign --reportformat json -o vg_name,vg_missing_pv_count --devices /dev/md/r0"
	for missing, want := range map[string]string{"0": "", "1": "misses 1 of its physical volumes"} {
		sys.Outputs[vgs] = resource.Output{Stdout: `{"report":[{"vg":[{"vg_name":"b_home","vg_missing_pv_count":"` + missing + `"}]}]}`}
		if err := a.mayGrow(resource.Look{Sys: sys, Ctx: t.Context()}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s missing: %v", missing, err)
		}
	}
}
