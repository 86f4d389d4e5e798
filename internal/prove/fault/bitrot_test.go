package fault

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Members come in the order of their slots, whatever the kernel calls them; a spare has none.
func TestMembersOf(t *testing.T) {
	h := &gather.Host{
		Files: map[string]string{"/sys/block/dm-1/dm/name": "3500a\n", "/sys/block/dm-3/dm/name": "3500b\n"},
		Disks: []resource.DiskFact{{Serial: "A", WWN: "500a"}, {Serial: "B", WWN: "500b"}, {Serial: "C", Paths: []string{"/dev/sdc"}}},
	}
	a := &gather.Array{Members: []linux.MDMember{{Dev: "dm-3", Slot: 1}, {Dev: "dm-5", Slot: -1}, {Dev: "sdc", Slot: 2}, {Dev: "dm-1", Slot: 0}}}
	got, err := membersOf(a, h)
	if d := cmp.Diff([]string{"A", "B", "C"}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	a.Members[1].Slot = 3
	if _, err := membersOf(a, h); err == nil {
		t.Error("a member that is no known disk has a serial")
	}
}

func TestColdRow(t *testing.T) {
	maps := `/srv/home/data/.mortar/r/f.data:
 EXT: FILE-OFFSET      BLOCK-RANGE      TOTAL FLAGS
   0: [0..255]:        448..703           256   0x0
   1: [256..16383]:    4096..20223      16128   0x1
`
	ext := parseFiemap(maps)
	if d := cmp.Diff([]extent{{0, 448 * 512, 256 * 512}, {256 * 512, 4096 * 512, 16128 * 512}}, ext, cmp.AllowUnexported(extent{})); d != "" {
		t.Fatal(d)
	}
	// Chunks of 128 KiB, two of data: rows of 256 KiB; the volume begins 1 MiB
	// into the array.
	got, err := coldRow(ext, "0 8380416 linear 9:127 2048\n", 128<<10, 2)
	if want := int64(2048+4096) * 512; err != nil || got != want {
		t.Errorf("%d %v, want %d", got, err, want)
	}
	for name, table := range map[string]string{"striped": "0 8380416 striped 2 256 9:127 2048 9:126 2048", "nothing": ""} {
		if _, err := coldRow(ext, table, 128<<10, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := coldRow(ext[:1], "0 8380416 linear 9:127 2048", 128<<10, 2); err == nil {
		t.Error("a row that is not full of the file is taken")
	}
}
