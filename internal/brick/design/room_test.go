package design

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Disks whose volumes are too small for a file system are refused: in a spec, and where a rack
// makes the disks of a spec so small.
func TestRoomForFileSystems(t *testing.T) {
	for _, c := range []struct {
		example string
		scale   int64
		want    string // the volume or LUN without room; "": there is room
	}{
		{"nfs-ha", 1000, "home"},
		{"nfs-ha", 8, "home"},
		{"nfs-ha", 7, ""},
		{"nfs-ha-xl", 1000, "home"},
		{"nfs", 1000, "home"},
		{"jbod-ha", 100_000, ""}, // 28 MiB, but many
		{"nss2-ha", 10_000, "nss2-lun0"},
		{"lustre-small", 10_000, ""},
		{"lustre-small", 100_000, "small-MDT0000"},
	} {
		src, err := examples.FS.ReadFile(c.example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(c.example+".yaml", src)
		if err == nil {
			err = s.Scale(c.scale)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = Derive(s)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s at 1/%d: %v, want %q", c.example, c.scale, err, c.want)
		}
	}
}
