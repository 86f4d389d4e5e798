package spec

import (
	"strings"
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

// A server's memory grows with the disks of JBODs that it sees.
func TestScaleMemory(t *testing.T) {
	src, err := examples.FS.ReadFile("jbod-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("jbod-ha.yaml", src)
	if err == nil {
		err = s.Scale(1000)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Servers[0].Memory, (1280+6*Bytes(len(s.allDisks())))*MiB; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A scaled rack speaks TCP unless rack.rdma asks for verbs; a brick without RDMA refuses it.
func TestScaleLNET(t *testing.T) {
	src, err := examples.FS.ReadFile("lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ lnet, rack, want string }{
		{"o2ib", "", "tcp"}, {"o2ib", "\nrack:\n  rdma: on\n", "o2ib"}, {"tcp", "\nrack:\n  rdma: on\n", ""},
	} {
		text := strings.Replace(string(src), "lnet: tcp", "lnet: "+c.lnet, 1) + c.rack
		s, err := Parse("lustre-small.yaml", []byte(text))
		if err == nil {
			err = s.Scale(1000)
		}
		if c.want == "" {
			if err == nil {
				t.Errorf("tcp with rack.rdma: %v", err)
			}
			continue
		}
		if err != nil || s.Lustre.LNET != c.want || s.SoftRoCE() != (c.want == "o2ib") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestMbits(t *testing.T) {
	for speed, want := range map[string]float64{"10Gb/s": 10000, "100Gb/s": 100000, "2.5Gb/s": 2500, "100Mb/s": 100, "": 0, "fast": 0, "10": 0, "Gb/s": 0, "b/s": 0, "10Gb/sx": 0} {
		if got := (&Network{Speed: speed}).Mbits(); got != want {
			t.Errorf("%q: %g, want %g", speed, got, want)
		}
	}
}
