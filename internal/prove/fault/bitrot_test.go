package fault

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMembers(t *testing.T) {
	const text = "MD_LEVEL=raid6\nMD_DEVICES=4\nMD_DEVICE_dm_3_ROLE=1\nMD_DEVICE_dm_3_DEV=/dev/dm-3\nMD_DEVICE_dm_1_ROLE=0\nMD_DEVICE_dm_1_DEV=/dev/dm-1\nMD_DEVICE_dm_5_ROLE=spare\nMD_DEVICE_dm_5_DEV=/dev/dm-5\n"
	if d := cmp.Diff([]string{"/dev/dm-1", "/dev/dm-3"}, parseMembers(text)); d != "" {
		t.Error(d)
	}
	if got := parseMembers("mdadm: no array"); len(got) != 0 {
		t.Error(got)
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
