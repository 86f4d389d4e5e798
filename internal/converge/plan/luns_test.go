package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// arrayFacts are those of servers that see the LUNs of nss4-ha-144 as designed.
func arrayFacts(d *design.Design) Facts {
	f := Facts{Hosts: map[string]resource.HostFacts{}, SCSI: map[string][]linux.SCSIDisk{}}
	a := &d.Arrays[0]
	for _, s := range a.Servers {
		f.Hosts[s] = resource.HostFacts{}
		for i := range a.LUNs {
			l := &a.LUNs[i]
			l.WWN = fmt.Sprintf("600a0b80%024x", i)
			k := linux.SCSIDisk{Device: l.Device, WWN: l.WWN, Vendor: "DELL", Product: "MD32xx", Size: int64(l.Size)}
			for n := range d.PathsTo(a, s) {
				access := "active/non-optimized"
				if n%2 == l.Controller {
					access = "active/optimized"
				}
				k.Paths = append(k.Paths, linux.SCSIPath{Name: fmt.Sprint("sd", i, n), LUN: int64(i), State: "running", Group: 1 + n%2, Access: access})
			}
			f.SCSI[s] = append(f.SCSI[s], k)
		}
	}
	return f
}

// LUNs that are not as designed are refused in the words of mortar array verify.
// What befalls a service that runs is no reason.
func TestRefusesLUNs(t *testing.T) {
	d := testDesign(t, "nss4-ha-144")
	if _, err := Desired(d, arrayFacts(d), testSecrets); err != nil {
		t.Fatal(err)
	}
	serves := resource.HostFacts{Configured: []linux.CRMResource{{ID: resource.ServiceID(d.Services()[0].Name)}}}
	for _, c := range []struct {
		name    string
		spoil   func(f Facts)
		passing bool
	}{
		{"a LUN is missing", func(f Facts) { f.SCSI["nss2"] = f.SCSI["nss2"][1:] }, false},
		{"another size", func(f Facts) { f.SCSI["nss2"][0].Size *= 2 }, false},
		{"another number", func(f Facts) { f.SCSI["nss2"][0].Paths[0].LUN = 7 }, false},
		{"another segment", func(f Facts) { f.SCSI["nss2"][0].Chunk = 64 << 10 }, false},
		{"another RAID level", func(f Facts) { f.SCSI["nss2"][0].FullStripe = 4 << 20 }, false},
		{"one path", func(f Facts) { f.SCSI["nss2"][0].Paths = f.SCSI["nss2"][0].Paths[:1] }, true},
		{"another owner", func(f Facts) {
			for i, access := range []string{"active/non-optimized", "active/optimized", "active/non-optimized", "active/optimized"} {
				f.SCSI["nss2"][0].Paths[i].Access = access
			}
		}, true},
	} {
		f := arrayFacts(d)
		c.spoil(f)
		said := array.Verify(d, f.SCSI).Findings
		if len(said) != 1 {
			t.Fatalf("%s: %v", c.name, said)
		}
		_, err := Desired(d, f, testSecrets)
		if all := (Refusals)(nil); !errors.As(err, &all) || len(all) != 1 || all[0].Host != "nss2" || all[0].What != array.Grouped(said)[0].Sentence(d) || all[0].Mend != said[0].Mend || all[0].Code != said[0].Code {
			t.Errorf("%s: %v, and verify says %v", c.name, err, said[0])
		}
		f.Hosts["nss1"] = serves
		if _, err = Desired(d, f, testSecrets); (err == nil) != c.passing || err != nil && !strings.Contains(err.Error(), said[0].Text) {
			t.Errorf("%s, while the cluster has the service: %v", c.name, err)
		}
	}
}
