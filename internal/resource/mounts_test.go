package resource_test

import (
	"testing"

	"github.com/mortarhpc/mortar/internal/resource"
)

func TestParseMounts(t *testing.T) {
	ms := resource.ParseMounts("10.0.0.1:/srv/home /mnt/a\\040b nfs4 rw,vers=4.1 0 0\nproc /proc proc rw 0 0\n/dev/x /mnt/v xfs rw 0 0\n/dev/y /mnt/v xfs ro 0 0\nshort\n")
	if len(ms) != 4 {
		t.Fatalf("%d mounts", len(ms))
	}
	if m, ok := resource.MountAt(ms, "/mnt/a b"); !ok || m.Source != "10.0.0.1:/srv/home" || m.Type != "nfs4" {
		t.Errorf("%+v %v", m, ok)
	}
	if m, _ := resource.MountAt(ms, "/mnt/v"); m.Source != "/dev/y" {
		t.Errorf("the upper mount is seen, not %+v", m)
	}
}

// Whatever the text is, it does not panic.
func FuzzParseMounts(f *testing.F) {
	f.Add("a /b nfs4 rw 0 0\n")
	f.Fuzz(func(_ *testing.T, text string) { resource.ParseMounts(text) })
}
