package storage

import (
	"encoding/json"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// What a LUN may carry: nothing, or the physical volume of the brick's own
// group. Each other thing is refused by name, and wiped only if its WWN is typed.
func TestLUNsWithForeignData(t *testing.T) {
	const wwn = "600c0ff0000000000000000000000001"
	for _, c := range []struct {
		name, sig, uuid, vg string
		want                string // refusal; "": none
	}{
		{"blank", "", "", "", ""},
		{"its own volume group", "LVM2_member", "x", "nss7", ""},
		{"an orphaned physical volume", "LVM2_member", "x", "", ""},
		{"LVM of another system", "LVM2_member", "x", "oracle", "an LVM physical volume of volume group oracle, not made by this brick"},
		{"a file system", "xfs", "11111111-2222-3333-4444-555555555555", "", "a signature of xfs, not made by this brick"},
		{"a partition table", "gpt", "", "", "a partition table (gpt), not made by this brick"},
		{"a member of an md array", "linux_raid_member", "11111111-2222-3333-4444-555555555555", "", "a member of md array 11111111:22223333:44445555:55555555, not made by this brick"},
	} {
		sys := &resource.Paper{
			Files:  map[string]string{"/dev/sdb": "", "/sys/block/sdb/size": "", "/proc/self/mounts": ""},
			Drives: []resource.DiskFact{{WWN: wwn, Serial: "x", Size: 1 << 40, Paths: []string{"sdb"}, Device: "/dev/sdb"}},
		}
		var found []map[string]string
		if c.sig != "" {
			found = append(found, map[string]string{"device": "sdb", "type": c.sig, "uuid": c.uuid})
		}
		b, err := json.Marshal(map[string]any{"signatures": found})
		if err != nil {
			t.Fatal(err)
		}
		sys.Outputs = map[string]resource.Output{
			"wipefs":  {Stdout: string(b)},
			"lvm pvs": {Stdout: `{"report":[{"pv":[{"pv_name":"/dev/sdb","vg_name":"` + c.vg + `"}]}]}`},
		}
		d := &Disks{Host: "nss1", Check: true, List: []WantedDisk{{
			DiskRef: DiskRef{Serial: wwn, WWN: wwn, Enclosure: "nss7", LUN: "nss7-lun0", Size: 1 << 40}, VG: "nss7",
		}}}
		as, err := resource.Diff(t.Context(), sys, d)
		if c.want != "" {
			wantRefusal(t, as, err, "disks-not-blank", "disks", "nss7-lun0", "typed", "WWN", "found", c.want)
		} else if err != nil || len(as) > 0 {
			t.Errorf("%s: %v, %v", c.name, as, err)
		}
		d.List[0].Wipe = true
		as, err = resource.Diff(t.Context(), sys, d)
		if err != nil || len(as) != min(len(c.want), 1) {
			t.Errorf("%s, with its WWN under wipe: %v, %v", c.name, as, err)
		}
	}
}
