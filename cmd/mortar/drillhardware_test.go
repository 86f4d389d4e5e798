package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/drill"
	"github.com/mortarhpc/mortar/internal/resource"
	"github.com/mortarhpc/mortar/internal/spec"
)

func TestPathsOf(t *testing.T) {
	d := &design.Design{Disks: []design.Disk{{Serial: "MA01"}, {Serial: "MA02"}}}
	disks := []resource.DiskFact{
		{Serial: "MA01", Paths: []string{"sdb", "sdd"}}, {Serial: "ma02", Paths: []string{"sdc", "sde"}},
		{Serial: "SYSTEM", Paths: []string{"sda"}}, // no disk of the brick is ever taken
	}
	where := map[string]string{
		"sda": "/sys/devices/pci0/ata1/host0/target0:0:0/0:0:0:0",
		"sdb": "/sys/devices/pci0/host3/target3:0:0/3:0:0:0", "sdc": "/sys/devices/pci0/host3/target3:0:1/3:0:1:0",
		"sdd": "/sys/devices/pci0/host11/target11:0:0/11:0:0:0", "sde": "/sys/devices/pci0/host11/target11:0:1/11:0:1:0",
	}
	for _, c := range []struct {
		f    drill.Fault
		want []string
	}{
		{drill.Fault{Kind: drill.PathOut, Args: []string{"MA01", "0"}}, []string{"sdb"}},
		{drill.Fault{Kind: drill.PathOut, Args: []string{"MA02", "1"}}, []string{"sde"}},
		{drill.Fault{Kind: drill.HBAOut, Args: []string{"1"}}, []string{"sdd", "sde"}},
		{drill.Fault{Kind: drill.PathsOut}, []string{"sdb", "sdc", "sdd", "sde"}},
		{drill.Fault{Kind: drill.DiskOut, Args: []string{"MA02"}}, []string{"sdc", "sde"}},
		{drill.Fault{Kind: drill.DiskOut, Args: []string{"SYSTEM"}}, nil},
		{drill.Fault{Kind: drill.HBAOut, Args: []string{"2"}}, nil},
	} {
		if diff := cmp.Diff(c.want, pathsOf(d, disks, where, c.f)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.f, diff)
		}
	}
}

func TestLinksThatMayBeCut(t *testing.T) {
	h := &hardwareInjector{design: &design.Design{Spec: &spec.Spec{Servers: []spec.Server{
		{Name: "nfs1", Address: "10.0.3.1", Public: "10.0.1.1", Private: "10.0.2.1"}, {Name: "nfs2", Address: "10.0.1.2", Public: "10.0.1.2"}}}}}
	for _, c := range []struct {
		on, network string
		ok          bool
	}{{"nfs1", "public", true}, {"nfs1", "private", true}, {"nfs2", "public", false}, {"nfs2", "private", false}, {"nfs3", "public", false}} {
		if err := h.Can(drill.Fault{Kind: drill.LinkDown, On: c.on, Args: []string{c.network}}); (err == nil) != c.ok {
			t.Errorf("%s link of %s: %v", c.network, c.on, err)
		}
	}
}

func TestInterfaceOf(t *testing.T) {
	const text = `[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"}]},{"ifname":"eth1","addr_info":[{"local":"10.0.2.1"},{"local":"fe80::1"}]}]`
	if dev, err := interfaceOf(text, "10.0.2.1"); err != nil || dev != "eth1" {
		t.Errorf("%q %v", dev, err)
	}
	for _, bad := range [][2]string{{text, "10.0.2.2"}, {"ip: no", "10.0.2.1"}} {
		if dev, err := interfaceOf(bad[0], bad[1]); err == nil {
			t.Errorf("%v gives %q", bad, dev)
		}
	}
}
