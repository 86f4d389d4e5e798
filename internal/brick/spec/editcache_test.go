package spec

import (
	"strings"
	"testing"
)

func TestSetCache(t *testing.T) {
	c := &Cache{Mode: "write-back", Bypass: MiB, SSDs: []DiskList{{Serial: "S1", Size: 400 * GB, Type: "nvme"}, {Serial: "S2", Size: 400 * GB, Type: "nvme", Server: "nfs1"}}}
	block := "cache:\n  ssds:\n    - {serial: \"S1\", size: 400GB, type: nvme}\n    - {serial: \"S2\", size: 400GB, type: nvme, server: nfs1}\n  mode: write-back\n  sequential_bypass: 1MiB\n"
	for _, x := range []struct{ name, src, want, off string }{
		{"in the middle", "name: a\ncache:\n  ssds: [{serial: X}] # old\n\n  mode: write-through\n\n# what follows\nnfs: {}\n", "name: a\n" + block + "\n# what follows\nnfs: {}\n", "name: a\n\n# what follows\nnfs: {}\n"},
		{"on one line", "cache: {ssds: [{serial: X}]}\nnfs: {}\n", block + "nfs: {}\n", "nfs: {}\n"},
		{"at the end", "nfs: {}\ncache:\n  mode: write-back", "nfs: {}\n" + block, "nfs: {}\n"},
		{"none yet", "nfs: {}", "nfs: {}\n\n" + block, "nfs: {}"},
	} {
		got, err := SetCache([]byte(x.src), c)
		if err != nil || string(got) != x.want {
			t.Errorf("%s: %v\n%s", x.name, err, got)
		}
		if got, err = SetCache([]byte(x.src), nil); err != nil || string(got) != x.off {
			t.Errorf("%s, off: %v\n%s", x.name, err, got)
		}
		again, err := SetCache([]byte(x.want), c)
		if err != nil || string(again) != x.want {
			t.Errorf("%s: not the same the second time\n%s", x.name, again)
		}
	}
	if l, err := (&Cache{SSDs: []DiskList{{Serial: "S[1-3]", Size: GB}}}).Single(); err != nil || len(l) != 3 || l[2].Serial != "S3" || strings.Contains(l[0].Serial, "[") {
		t.Errorf("%v, %v", l, err)
	}
}
