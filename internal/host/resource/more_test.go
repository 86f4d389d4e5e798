package resource

import (
	"strings"
	"testing"
)

func TestLogicalVolume(t *testing.T) {
	l := &LogicalVolume{VG: "b-1_home", Name: "data", PVs: []string{"/dev/md/r0", "/dev/md/r1"}, SystemID: "mortar-b", Stripes: 2, StripeSize: 256 << 10, Activate: true}
	const id = `--config global{system_id_source="lvmlocal"} local{system_id="mortar-b"} --devices /dev/md/r0,/dev/md/r1 `
	create := "lvm lvcreate --yes --wipesignatures y --name data --extents 100%FREE --stripes 2 --stripesize 256k " + id + "b-1_home"
	sys := &fakeSys{files: map[string]string{}, outputs: map[string]Output{}}
	wantShow(t, diff(t, l, sys), create) // no arrays yet
	sys.files["/dev/md/r0"], sys.files["/dev/md/r1"] = "", ""
	sys.outputs["lvm lvs"] = Output{Stdout: `{"report":[{"lv":[]}]}`}
	wantShow(t, diff(t, l, sys), create)
	sys.outputs["lvm lvs"] = Output{Stdout: `{"report":[{"lv":[{"lv_name":"data","vg_name":"b-1_home"}]}]}`}
	wantShow(t, diff(t, l, sys), "lvm lvchange --activate y "+id+"b-1_home/data")
	l.Activate = false
	wantShow(t, diff(t, l, sys), "")
	n := len(sys.asked)
	sys.files["/sys/block/dm-3/dm/name"] = "b--1_home-data\n"
	sys.files["/dev/b-1_home/data"] = ""
	wantShow(t, diff(t, l, sys), "")
	if len(sys.asked) != n {
		t.Error("LVM is asked although the volume is active")
	}
	sys.outputs["lvm lvs"] = Output{Code: 5, Stderr: "boom"}
	delete(sys.files, "/dev/b-1_home/data")
	if _, err := Diff(t.Context(), sys, l); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a failing LVM is taken for an empty one: %v", err)
	}
}

// A running group costs no command: its volume is seen on its arrays.
func TestVolumeGroupInUse(t *testing.T) {
	v := &VolumeGroup{Name: "b_home", LV: "data", PVs: []string{"/dev/md/r0"}}
	sys := &fakeSys{
		files: map[string]string{"/dev/md127": "", "/sys/block/md127/holders/dm-3/dm/name": "b_home-data\n"},
		links: map[string]string{"/dev/md/r0": "/dev/md127"},
	}
	wantShow(t, diff(t, v, sys), "")
	if len(sys.asked) != 0 {
		t.Errorf("asked %v", sys.asked)
	}
	sys.outputs = map[string]Output{"lvm pvs": {Stdout: `{"report":[{"pv":[{"pv_name":"/dev/md127","vg_name":"b_home","vg_systemid":""}]}]}`}}
	v.PVs = append(v.PVs, "/dev/md/r1")
	sys.links["/dev/md/r1"] = "/dev/md126"
	sys.files["/dev/md126"] = ""
	wantShow(t, diff(t, v, sys), "lvm vgextend --yes --devices /dev/md/r0,/dev/md/r1 b_home /dev/md/r1")
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := Decode(Kinds, "teapot", []byte("{}")); err == nil {
		t.Error("an unknown kind is accepted")
	}
	if _, err := Decode(Kinds, "file", []byte(`{"Path":"/x","Colour":"red"}`)); err == nil {
		t.Error("an unknown field is accepted")
	}
}
