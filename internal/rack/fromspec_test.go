package rack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func parsed(t *testing.T, example string, oldNew ...string) *spec.Spec {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", "..", "examples", example+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(filepath.Join(t.TempDir(), "brick.yaml"), []byte(strings.NewReplacer(oldNew...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An array is there as its LUNs, with the paths of its cabling; its disks are
// not. Each path has an end of its own.
func TestFromSpecArray(t *testing.T) {
	s := parsed(t, "nss4-ha-144")
	servers := []string{"nss1", "nss2"}
	luns := []LUN{
		{Name: "nss4-LUN0", Array: "nss4", Servers: servers, Paths: 4, Product: "MD32", Bytes: 30e12, Chunk: 512 << 10, FullStripe: 5 << 20},
		{Name: "nss4-LUN1", Array: "nss4", Servers: servers, Paths: 4, Product: "MD32", Bytes: 30e12, WWN: "600508B1001C0001"},
		{Name: "perc-lun2", Array: "perc", Servers: servers[:1], Paths: 1, Product: "PERC", Bytes: 1e12},
	}
	c, err := FromSpec(s, luns...)
	if err != nil {
		t.Fatal(err)
	}
	// The client, whose address is its public one, has one for management, too.
	if n := c.Nodes[2]; n.Name != "node01" || len(n.NICs) != 2 || n.NICs[1].Network != "management" || !strings.HasPrefix(n.NICs[1].Address.String(), "10.22.0.2/") {
		t.Errorf("%+v", n)
	}
	if len(c.Enclosures) != 2 || len(c.sharedDisks()) != 3 {
		t.Fatalf("%+v", c.Enclosures)
	}
	ends := func(server string, h *hardware) (n int) {
		args, err := nodeArgs(&c, "/rack", map[string]int{"nss1": 0, "nss2": 1}[server], &image{}, "tcg", h, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, a := range args {
			var p struct {
				Driver, ID, Bus string
				ScsiID          int    `json:"scsi-id"`
				Port            uint64 `json:"port_wwn"`
			}
			if json.Unmarshal([]byte(a), &p) != nil || p.Driver != "scsi-hd" {
				continue
			}
			n++
			for _, k := range []string{p.ID, fmt.Sprint(p.Bus, "/", p.ScsiID), fmt.Sprint(p.Port)} {
				if seen[k] {
					t.Errorf("%s: two paths with %s", server, k)
				}
				seen[k] = true
			}
		}
		return n
	}
	for _, v := range []struct {
		what string
		h    hardware
		a, b int
	}{
		{"whole", hardware{}, 9, 8},
		{"a controller is out", hardware{ModulesOut: map[string]bool{"enc-nss4/0": true}}, 5, 4},
		{"an HBA of nss2 does not reach LUN 0", hardware{PathsOut: map[string]bool{"nss2/nss4-lun0/1": true}}, 9, 6},
		{"LUN 1 is gone", hardware{DisksOut: map[string]bool{"nss4-lun1": true}}, 5, 4},
	} {
		if a, b := ends("nss1", &v.h), ends("nss2", &v.h); a != v.a || b != v.b {
			t.Errorf("%s: %d and %d paths, want %d and %d", v.what, a, b, v.a, v.b)
		}
	}
	if d := c.Enclosures[0].Disks; d[1].WWN != "600508b1001c0001" || d[0].WWN == "" || d[0].WWN == c.Enclosures[1].Disks[0].WWN {
		t.Errorf("%+v", d)
	}
	luns[0].WWN = "600a0b80000000000000000000000001"
	if _, err := FromSpec(s, luns...); err == nil || !strings.Contains(err.Error(), "leave wwns out") {
		t.Errorf("a WWN no virtual disk can have: %v", err)
	}
}

// TestFromSpec: the rack of the shipped nfs-ha example has the hardware the
// example lists, and the same each time.
func TestFromSpec(t *testing.T) {
	s := parsed(t, "nfs-ha")
	c, err := FromSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Nodes) != len(s.Servers)+len(s.Clients) || len(c.PDUs) != len(s.PDUs) || len(c.Networks) != 3 {
		t.Fatalf("%d nodes, %d PDUs, %d networks", len(c.Nodes), len(c.PDUs), len(c.Networks))
	}
	wwns := map[string]bool{}
	disks := 0
	for _, e := range c.Enclosures {
		for _, d := range e.Disks {
			disks++
			wwns[d.WWN] = true
		}
	}
	if disks == 0 || len(wwns) != disks {
		t.Errorf("%d disks with %d WWNs", disks, len(wwns))
	}
	for _, n := range c.Nodes {
		if n.Role == RoleServer && (n.BMC == nil || len(n.Feeds) != 2 || len(n.NICs) != 3) {
			t.Errorf("server %s: BMC %v, feeds %v, %d NICs", n.Name, n.BMC, n.Feeds, len(n.NICs))
		}
	}
	// Faults take the spec's names too.
	d, e := c.Enclosures[0].Disks[0], c.Enclosures[1]
	for in, want := range map[string]string{d.Name: d.Name, d.Serial: d.Name, "nothing": "nothing"} {
		if got := c.diskName(in); got != want {
			t.Errorf("disk %s is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{e.Name: e.Name, s.Enclosures[1].Name: e.Name, "nothing": "nothing"} {
		if got := c.enclosureName(in); got != want {
			t.Errorf("enclosure %s is %s, want %s", in, got, want)
		}
	}
}

// A PDU has what its users have: a user of SNMPv3, or a community.
func TestFromSpecPDU(t *testing.T) {
	s := parsed(t, "nfs-ha", "snmp: {user: mortar, auth_file: secrets/pdu-b-auth, privacy_file: secrets/pdu-b-privacy}", "community_file: /c/pdu-b")
	c, err := FromSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Dir(s.File)
	if a := c.PDUs[0].SNMP; a == nil || *a != (SNMP{"mortar", "SHA", at + "/secrets/pdu-a-auth", "AES", at + "/secrets/pdu-a-privacy"}) || c.PDUs[0].CommunityFile != "" {
		t.Errorf("%+v", c.PDUs[0])
	}
	if b := c.PDUs[1]; b.SNMP != nil || b.CommunityFile != "/c/pdu-b" {
		t.Errorf("%+v", b)
	}
}
