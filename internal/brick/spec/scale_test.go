package spec

import (
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// A scaled SSD still has room for a cache's metadata.
func TestScaleCache(t *testing.T) {
	src, err := examples.FS.ReadFile("nfs-dfc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("nfs-dfc.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Scale(1000); err != nil {
		t.Fatal(err)
	}
	if ssd, disk := s.Cache.SSDs[0].Size, s.Enclosures[0].Disks[0].Size; ssd != GB || disk != 2861*MiB {
		t.Errorf("an SSD of %s, a disk of %s", ssd, disk)
	}
}
