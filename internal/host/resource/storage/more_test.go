package storage

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestLogicalVolume(t *testing.T) {
	l := &LogicalVolume{VG: "b-1_home", Name: "data", PVs: []string{"/dev/md/r0", "/dev/md/r1"}, SystemID: "mortar-b", Stripes: 2, StripeSize: 256 << 10, Activate: true}
	const id = `--config global{system_id_source="lvmlocal"} local{system_id="mortar-b"} --devices /dev/md/r0,/dev/md/r1 `
	create := "lvm lvcreate --yes --wipesignatures y --name data --extents 100%FREE --stripes 2 --stripesize 256k " + id + "b-1_home"
	sys := &resource.Paper{Files: map[string]string{}, Outputs: map[string]resource.Output{}}
	wantShow(t, diff(t, l, sys), create) // no arrays yet
	sys.Files["/dev/md/r0"], sys.Files["/dev/md/r1"] = "", ""
	sys.Outputs["lvm lvs"] = resource.Output{Stdout: `{"report":[{"lv":[]}]}`}
	wantShow(t, diff(t, l, sys), create)
	sys.Outputs["lvm lvs"] = resource.Output{Stdout: `{"report":[{"lv":[{"lv_name":"data","vg_name":"b-1_home"}]}]}`}
	wantShow(t, diff(t, l, sys), "lvm lvchange --activate y "+id+"b-1_home/data")
	l.Activate = false
	wantShow(t, diff(t, l, sys), "")
	n := len(sys.Asked)
	sys.Files["/sys/block/dm-3/dm/name"] = "b--1_home-data\n"
	sys.Files["/dev/b-1_home/data"] = ""
	wantShow(t, diff(t, l, sys), "")
	if len(sys.Asked) != n {
		t.Error("LVM is asked although the volume is active")
	}
	sys.Outputs["lvm lvs"] = resource.Output{Code: 5, Stderr: "boom"}
	delete(sys.Files, "/dev/b-1_home/data")
	if _, err := resource.Diff(t.Context(), sys, l); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a failing LVM is taken for an empty one: %v", err)
	}
}

// A running group costs no command: its volume is seen on its arrays.
func TestVolumeGroupInUse(t *testing.T) {
	v := &VolumeGroup{Name: "b_home", LV: "data", PVs: []string{"/dev/md/r0"}}
	sys := &resource.Paper{
		Files: map[string]string{"/dev/md127": "", "/sys/block/md127/holders/dm-3/dm/name": "b_home-data\n"},
		Links: map[string]string{"/dev/md/r0": "/dev/md127"},
	}
	wantShow(t, diff(t, v, sys), "")
	if len(sys.Asked) != 0 {
		t.Errorf("asked %v", sys.Asked)
	}
	sys.Outputs = map[string]resource.Output{"lvm pvs": {Stdout: `{"report":[{"pv":[{"pv_name":"/dev/md127","vg_name":"b_home","vg_systemid":""}]}]}`}}
	v.PVs = append(v.PVs, "/dev/md/r1")
	sys.Links["/dev/md/r1"] = "/dev/md126"
	sys.Files["/dev/md126"] = ""
	wantShow(t, diff(t, v, sys), "lvm vgextend --yes --devices /dev/md/r0,/dev/md/r1 b_home /dev/md/r1")
}
