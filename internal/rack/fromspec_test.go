package rack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
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

// TestFromSpec: the rack of the shipped nfs-ha example has the hardware the
// example lists, and the same each time.
func TestFromSpec(t *testing.T) {
	s := parsed(t, "nfs-ha")
	c, err := hw.FromSpec(s)
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
		if n.Role == hw.RoleServer && (n.BMC == nil || len(n.Feeds) != 2 || len(n.NICs) != 3) {
			t.Errorf("server %s: BMC %v, feeds %v, %d NICs", n.Name, n.BMC, n.Feeds, len(n.NICs))
		}
	}
	// Faults take the spec's names too.
	d, e := c.Enclosures[0].Disks[0], c.Enclosures[1]
	for in, want := range map[string]string{d.Name: d.Name, d.Serial: d.Name, "nothing": "nothing"} {
		if got := c.DiskName(in); got != want {
			t.Errorf("disk %s is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{e.Name: e.Name, s.Enclosures[1].Name: e.Name, "nothing": "nothing"} {
		if got := c.EnclosureName(in); got != want {
			t.Errorf("enclosure %s is %s, want %s", in, got, want)
		}
	}
}

// A rack gives its nodes addresses, so that it refuses a spec that has host names there.
func TestFromSpecNames(t *testing.T) {
	s := parsed(t, "nfs-ha", "address: 10.77.3.11", "address: nfs1.example.org", "address: 10.77.3.51", "address: c1.example.org")
	_, err := hw.FromSpec(s)
	var refused *tool.RefusedError
	if !errors.As(err, &refused) || len(refused.Problems) != 2 {
		t.Errorf("got %v", err)
	}
}

// A PDU has the spec's SNMPv3 user or community.
func TestFromSpecPDU(t *testing.T) {
	s := parsed(t, "nfs-ha", "snmp: {user: mortar, auth_file: secrets/pdu-b-auth, privacy_file: secrets/pdu-b-privacy}", "community_file: /c/pdu-b")
	c, err := hw.FromSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Dir(s.File)
	if a := c.PDUs[0].SNMP; a == nil || *a != (hw.SNMP{User: "mortar", Auth: "SHA", AuthFile: at + "/secrets/pdu-a-auth", Privacy: "AES", PrivacyFile: at + "/secrets/pdu-a-privacy"}) || c.PDUs[0].CommunityFile != "" {
		t.Errorf("%+v", c.PDUs[0])
	}
	if b := c.PDUs[1]; b.SNMP != nil || b.CommunityFile != "/c/pdu-b" {
		t.Errorf("%+v", b)
	}
}
