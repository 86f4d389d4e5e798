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
	extend := "lvm lvextend --yes --extents +100%PVS --stripes 2 " + args + "--stripesize 256k b_home/data /dev/md/r2 /dev/md/r3"
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
	sys.Links["/dev/b_home/data"] = "/dev/dm-3"
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
