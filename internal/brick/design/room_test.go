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
		want    string // "": there is room
	}{
		{"nfs-ha", 1000, "disks of 1MiB leave 0B for the volume of home, which needs 516MiB; make the rack with a larger --scale"},
		{"nfs-ha", 8, "disks of 238MiB leave 472MiB for the volume of home, which needs 516MiB; make the rack with a larger --scale"},
		{"nfs-ha", 7, ""},
		{"nfs-ha-xl", 1000, "disks of 1MiB leave 0B for the volume of home"},
		{"nfs", 1000, "disks of 1MiB leave 0B for the volume of home"},
		{"jbod-ha", 100_000, ""}, // 28 MiB, but many
		{"nss2-ha", 10_000, "disks of 190MiB leave nothing for nss2-lun0 after what the MD3200 nss2 keeps for itself; make the rack with a larger --scale"},
		{"lustre-small", 10_000, ""},
		{"lustre-small", 100_000, "disks of 18MiB leave 32MiB for small-MDT0000, which needs 100MiB; make the rack with a larger --scale"},
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
