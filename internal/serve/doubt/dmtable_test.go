package doubt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/md"
)

func TestPlaceInVolume(t *testing.T) {
	table, err := ParseDMTable("0 8192 linear 9:127 2048\n8192 4096 striped 2 256 9:126 2048 9:125 4096\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dev       string
		off, want int64 // sectors; -1: no part of the volume
	}{
		{"9:127", 2048, 0},
		{"9:127", 2048 + 8191, 8191},
		{"9:127", 2048 + 8192, -1},
		{"9:127", 2040, -1},
		{"9:126", 2048, 8192},
		{"9:126", 2048 + 255, 8192 + 255},
		{"9:125", 4096 + 3, 8192 + 256 + 3},
		{"9:126", 2048 + 256, 8192 + 512},
		{"9:125", 4096 + 2047, 12287},
		{"9:125", 4096 + 2048, -1},
		{"9:1", 2048, -1},
	} {
		got, ok := table.At(c.dev, c.off*512)
		if want := c.want * 512; ok != (c.want >= 0) || ok && got != want {
			t.Errorf("%s %d is at %d, %t", c.dev, c.off, got/512, ok)
		}
	}
	for _, bad := range []string{"", "0 8 snapshot 1:1 2:2 N 8", "0 8", "0 x linear 9:1 0", "0 8 striped 2 256 9:1 0", "0 8 striped 2 0 9:1 0 9:2 0"} {
		if _, err := ParseDMTable(bad); err == nil {
			t.Errorf("%q is taken for a table", bad)
		}
	}
}

func TestOnlyWhatWasSeenIsAccepted(t *testing.T) {
	seen := ArrayInDoubt{Name: "r0", UUID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Events: 9, Blocks: []int64{4096, 8192}}
	for _, c := range []struct {
		name string
		seen ArrayInDoubt
		now  ArrayInDoubt
		want bool
	}{
		{"the same", seen, seen, true},
		{"fewer", seen, ArrayInDoubt{UUID: md.UUID("0f1e2d3c4b5a69788796a5b4c3d2e1f0"), Events: 9, Blocks: []int64{8192}}, true},
		{"one more", seen, ArrayInDoubt{UUID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Events: 9, Blocks: []int64{0, 4096, 8192}}, false},
		{"after another start", seen, ArrayInDoubt{UUID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Events: 10, Blocks: seen.Blocks}, false},
		{"another array", seen, ArrayInDoubt{UUID: strings.Repeat("a", 32), Events: 9, Blocks: seen.Blocks}, false},
		{"which is no longer known", seen, ArrayInDoubt{UUID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Events: 9, Unknown: "no time"}, false},
		{"any block", ArrayInDoubt{UUID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Events: 9, Unknown: "no time"}, seen, true},
	} {
		if got := c.seen.covers(c.now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestOwnersOfBlocks(t *testing.T) {
	var o Owners
	files := map[uint64]*FileInDoubt{}
	at := func(sectors ...int64) (out []int64) {
		for _, s := range sectors {
			out = append(out, s*512)
		}
		return out
	}
	if err := o.add(fsmapOutput, at(0, 2552, 2560, 2568, 5000, 5008, 200000), files); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]*FileInDoubt{
		262: {Inode: 262, Offsets: at(2040)},
		263: {Inode: 263, Offsets: at(0, 8)},
		300: {Inode: 300, Offsets: at(16)}, // shares a block with 263
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if o.Metadata != 1 || o.Free != 1 {
		t.Errorf("%+v", o)
	}
	for out, say := range map[string]string{
		"0,253,1,0,7,special_0:2,,,8\n":                     "reverse map",
		"0,253,1,8,15,special_88:1,,,8\n":                   "does not say",
		"0,253,1,0,zz,special_88:1,,,8\n":                   "fsmap says",
		"xfs_io: ioctl(FS_IOC_GETFSMAP): not supported\n\n": "does not say",
	} {
		if err := new(Owners).add(out, at(0), files); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", out, err)
		}
	}
}

// What xfs_io of Debian 13 prints on a node of the rack, one question after another.
const fsmapOutput = `EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,2560,4607,inode_263_data,0,2047,2048
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,512,2559,inode_262_data,0,2047,2048
1,253,1,2560,4607,inode_263_data,0,2047,2048
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,0,7,special_88:1,,,8
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,200000,200007,special_0:1,,,8
1,253,1,5000,5007,inode_262_attr,0,7,8
2,253,1,5008,5015,inode_263_data_bmbt,,,8
3,253,1,2560,2567,inode_300_data,16,23,8
`
