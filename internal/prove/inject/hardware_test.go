package inject

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
)

func TestPathsOf(t *testing.T) {
	of := []design.Reached{{Name: "MA01"}, {Name: "MA02"}, {Name: "lun0", WWN: "600C0FF"}}
	disks := []resource.DiskFact{
		{Serial: "MA01", Paths: []string{"sdb", "sdd"}}, {Serial: "ma02", Paths: []string{"sdc", "sde"}},
		{Serial: "00c0ff", WWN: "600c0ff", Paths: []string{"sdf", "sdg"}}, // a LUN goes by its WWN
		{Serial: "SYSTEM", Paths: []string{"sda"}},                        // not a disk of the brick: no fault removes it
	}
	where := map[string]string{
		"sda": "/sys/devices/pci0/ata1/host0/target0:0:0/0:0:0:0",
		"sdb": "/sys/devices/pci0/host3/target3:0:0/3:0:0:0", "sdc": "/sys/devices/pci0/host3/target3:0:1/3:0:1:0",
		"sdd": "/sys/devices/pci0/host11/target11:0:0/11:0:0:0", "sde": "/sys/devices/pci0/host11/target11:0:1/11:0:1:0",
		"sdf": "/sys/devices/pci0/host3/target3:0:2/3:0:2:0", "sdg": "/sys/devices/pci0/host11/target11:0:2/11:0:2:0",
	}
	for _, c := range []struct {
		f    fault.Fault
		want []string
	}{
		{fault.Fault{Kind: fault.PathOut, Args: []string{"MA01", "0"}}, []string{"sdb"}},
		{fault.Fault{Kind: fault.PathOut, Args: []string{"MA02", "1"}}, []string{"sde"}},
		{fault.Fault{Kind: fault.HBAOut, Args: []string{"1"}}, []string{"sdd", "sde", "sdg"}},
		{fault.Fault{Kind: fault.PathOut, Args: []string{"lun0", "0"}}, []string{"sdf"}},
		{fault.Fault{Kind: fault.PathsOut}, []string{"sdb", "sdc", "sdd", "sde", "sdf", "sdg"}},
		{fault.Fault{Kind: fault.DiskOut, Args: []string{"MA02"}}, []string{"sdc", "sde"}},
		{fault.Fault{Kind: fault.DiskOut, Args: []string{"SYSTEM"}}, nil},
		{fault.Fault{Kind: fault.HBAOut, Args: []string{"2"}}, nil},
	} {
		if diff := cmp.Diff(c.want, pathsOf(of, disks, where, hbasOf(of, disks, where), c.f)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.f, diff)
		}
	}
}

func TestLinksThatMayBeCut(t *testing.T) {
	h := &Hardware{Design: &design.Design{Spec: &spec.Spec{Servers: []spec.Server{
		{Name: "nfs1", Address: "10.0.3.1", Public: "10.0.1.1", Private: "10.0.2.1"}, {Name: "nfs2", Address: "10.0.1.2", Public: "10.0.1.2"},
		{Name: "nfs3", Address: "nfs3.example.org", Public: "10.0.1.3"}}}}}
	for _, c := range []struct {
		on, network string
		ok          bool
	}{{"nfs1", "public", true}, {"nfs1", "private", true}, {"nfs2", "public", false}, {"nfs2", "private", false}, {"nfs3", "public", false}, {"nfs4", "public", false}} {
		if err := h.Can(fault.Fault{Kind: fault.LinkDown, On: c.on, Args: []string{c.network}}); (err == nil) != c.ok {
			t.Errorf("%s link of %s: %v", c.network, c.on, err)
		}
	}
}

func TestExpendable(t *testing.T) {
	a, b := "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda2", "/sys/devices/pci0000:00/0000:00:1f.2/ata2/host1/target1:0:0/1:0:0:0/block/sdb/sdb2"
	n := "/sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1/block/nvme0n1/nvme0n1p2"
	for name, c := range map[string]struct {
		places      []string
		inUse, want string
	}{
		"both":           {[]string{a, b}, "/dev/md0 / ext4 rw 0 0\nFilename Type\n", "sda"},
		"EFI on one":     {[]string{a, b}, "/dev/md0 / ext4 rw 0 0\n/dev/sda1 /boot/efi vfat rw 0 0\n", "sdb"},
		"swap on one":    {[]string{a, b}, "Filename\tType\n/dev/sda3\tpartition\t1\n", "sdb"},
		"other disks":    {[]string{a, b}, "/dev/sdaa1 /x ext4 rw 0 0\n/dev/sdc /y ext4 rw 0 0\n", "sda"},
		"none":           {[]string{a, b}, "/dev/sda1 /boot/efi vfat\n/dev/sdb1 /boot/efi2 vfat\n", ""},
		"NVMe":           {[]string{n, a}, "/dev/nvme0n1p1 /boot/efi vfat\n", "sda"},
		"NVMe, no other": {[]string{n}, "/dev/nvme0n10 /x xfs\n", "nvme0n1"},
	} {
		got, err := expendable(c.places, c.inUse)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
