package design

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Slow disks are dropped only if the spec says so, and never with profile stock,
// which has no ocf:mortar:watch.
func TestDropSlow(t *testing.T) {
	for _, c := range []struct {
		example, old, new string
		want              int // services that drop slow disks
	}{
		{"nfs-ha.yaml", "", "", 0},
		{"nfs-ha.yaml", "storage:\n", "storage:\n  drop_slow_disks: off\n", 0},
		{"nfs-ha.yaml", "storage:\n", "storage:\n  drop_slow_disks: on\n", 1},
		{"nfs-ha.yaml", "storage:\n", "profile: stock\nstorage:\n  drop_slow_disks: on\n", 0},
		{"nfs-ha-xl.yaml", "storage:\n", "storage:\n  drop_slow_disks: on\n", 2},
	} {
		src, err := examples.FS.ReadFile(c.example)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(c.example, []byte(strings.Replace(string(src), c.old, c.new, 1)))
		if err != nil {
			t.Fatal(err)
		}
		d, err := Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, v := range d.Services() {
			if v.Storage.DropSlow {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s with %q: %d services drop slow disks, want %d", c.example, c.new, got, c.want)
		}
	}
}
