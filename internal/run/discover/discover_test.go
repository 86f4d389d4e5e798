package discover

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

func disk(serial string, carries ...string) storage.DiskHardware {
	return storage.DiskHardware{
		DiskFact: resource.DiskFact{Serial: serial, WWN: fmt.Sprintf("5000c500%08x", len(serial)*7919+int(serial[len(serial)-1])), Paths: []string{"sda", "sdb"}, Size: 2000000000},
		Vendor:   "QEMU", Product: "QEMU HARDDISK", Rotating: true, Carries: carries,
	}
}

// machine is host number i of the networks of the examples.
func machine(name string, i int, nets ...int) Host {
	h := Host{Name: name, Address: netip.MustParseAddr(fmt.Sprintf("10.77.3.%d", i)), Memory: 1280<<20 - 4096}
	h.CPU = storage.CPU{Model: "Intel(R) Xeon(R) CPU E5-2680 0 @ 2.70GHz", Sockets: 2, Cores: 8}
	for _, n := range nets {
		h.NICs = append(h.NICs, storage.NIC{Name: fmt.Sprintf("eth%d", n), MTU: 1500, Mbps: 10000 * (2 - n%2), Addresses: []string{fmt.Sprintf("10.77.%d.%d/24", n, i)}})
	}
	return h
}

var virtual = storage.DiskHardware{DiskFact: resource.DiskFact{Serial: "root", Paths: []string{"vda"}, Size: 2000000000}}

func pair() ([]Host, []Host) {
	a, b := machine("nfs1", 11, 1, 2, 3), machine("nfs2", 12, 1, 2, 3)
	for _, s := range []string{"MA01", "MA02", "MA03", "MB01", "MB02", "MB03"} {
		a.Disks, b.Disks = append(a.Disks, disk(s)), append(b.Disks, disk(s))
	}
	a.Disks = append(a.Disks, disk("SYS1", "in use by the mount on /"))
	// A virtual system disk: each server has one with this serial.
	a.Disks, b.Disks = append(a.Disks, virtual), append(b.Disks, virtual)
	a.BMC = "10.77.3.21"
	return []Host{a, b}, []Host{machine("c1", 51, 1, 3)}
}

// draft makes the spec of hosts and parses it.
func draft(t *testing.T, servers, clients []Host) (*spec.Spec, string) {
	t.Helper()
	d, err := New("brick1", servers, clients)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.Text()
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := design.New(s); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s, text
}

func TestPair(t *testing.T) {
	s, text := draft(t, first(pair()), second(pair()))
	if s.Flavour != spec.NFSHA || s.Networks.Public.CIDR != "10.77.1.0/24" || s.Networks.Private.CIDR != "10.77.2.0/24" || s.Networks.Management.CIDR != "10.77.3.0/24" {
		t.Errorf("networks: %+v", s.Networks)
	}
	if len(s.Enclosures) != 2 || s.Enclosures[0].Disks[0].Serial != "MA[01-03]" || s.Enclosures[1].Disks[0].Size != 2*spec.GB {
		t.Errorf("enclosures: %+v", s.Enclosures)
	}
	// As in the example nfs-ha, the brick survives the loss of an enclosure.
	if r := s.Storage.RAID; r.Data != 2 || r.Spares != 2 {
		t.Errorf("RAID: %+v", r)
	}
	if s.Servers[0].BMC.Address != "10.77.3.21" || s.Servers[0].CPU.MHz != 2700 || s.Servers[1].Private != "10.77.2.12" || s.Clients[0].Public != "10.77.1.51" {
		t.Errorf("servers: %+v, clients: %+v", s.Servers, s.Clients)
	}
	if strings.Contains(text, `serial: "SYS1"`) || strings.Contains(text, `serial: "root"`) || !strings.Contains(text, "#   nfs1: SYS1, 2GB, nl-sas: in use by the mount on /") {
		t.Errorf("a disk that one server has:\n%s", text)
	}
}

func first(a, _ []Host) []Host  { return a }
func second(_, b []Host) []Host { return b }

// A disk on which one server sees data is not in the layout.
func TestTaken(t *testing.T) {
	servers, clients := pair()
	servers[1].Disks[2].Carries = []string{"an LVM physical volume"}
	s, text := draft(t, servers, clients)
	if !strings.Contains(text, "#   MA03, 2GB, nl-sas: an LVM physical volume") {
		t.Errorf("%s", text)
	}
	for _, e := range s.Enclosures {
		for _, l := range e.Disks {
			if serials, _ := l.Serials(); strings.Contains(strings.Join(serials, " "), "MA03") {
				t.Errorf("MA03 is in the layout: %+v", l)
			}
		}
	}
	if len(s.Wipe) != 0 {
		t.Errorf("wipe: %v", s.Wipe)
	}
}

func TestEnclosuresBySES(t *testing.T) {
	servers, clients := pair()
	for _, s := range servers {
		for i := range s.Disks {
			s.Disks[i].Enclosure, s.Disks[i].Bay = fmt.Sprintf("0x50%d", i%2), 9-i
		}
	}
	s, _ := draft(t, servers, clients)
	if len(s.Enclosures) != 2 || s.Enclosures[0].Disks[0].Serial != "MB02" {
		t.Errorf("not in the order of the bays: %+v", s.Enclosures)
	}
}

func TestOneServer(t *testing.T) {
	servers, _ := pair()
	servers[0].Disks = servers[0].Disks[:6]
	s, _ := draft(t, servers[:1], nil)
	if s.Flavour != spec.NFS || s.Networks.Private != nil {
		t.Errorf("%+v", s)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *Host)
		want   string
	}{
		"few disks": {func(a, b *Host) { b.Disks = b.Disks[:3] }, "discover-disks not_counted="},
		"no heartbeat": {func(a, b *Host) {
			b.NICs = b.NICs[:1]
			b.Address = netip.MustParseAddr("10.77.1.12")
			a.Address = netip.MustParseAddr("10.77.1.11")
		}, "discover-no-private server=nfs1 partner=nfs2"},
		"nothing shared": {func(a, b *Host) { b.NICs = nil }, "discover-no-network"},
		"LUNs": {func(a, b *Host) {
			for i := range a.Disks {
				a.Disks[i].Vendor, a.Disks[i].Product = "DellEMC", "ME4"
			}
		}, "discover-luns maker=an ME4"},
	} {
		servers, clients := pair()
		c.change(&servers[0], &servers[1])
		if _, err := New("brick1", servers, clients); !hosttest.Refuses(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
