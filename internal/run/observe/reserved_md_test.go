package observe

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Status says for which server the disks of a service are reserved, and which are not.
func TestReservedDisks(t *testing.T) {
	d := derived(t, "nfs-ha")
	disks := slices.Concat(d.Groups[0].Members, d.Groups[0].Spares)
	keys, err := pr.ParseServers(d.Pairs[0].HA.Reservations)
	if err != nil {
		t.Fatal(err)
	}
	const active = `<resource id="service-home" role="Started" managed="true"><node name="nfs1"/></resource>`
	for name, c := range map[string]struct {
		crm    string
		holder pr.Key // of the first disk
		more   []pr.Key
		unable bool
		want   string
	}{
		"held":          {active, keys["nfs1"], nil, false, "disks reserved for nfs1"},
		"the partner's": {active, keys["nfs2"], nil, false, "warning: nfs1 has not reserved " + disks[0].Serial},
		"no server's":   {active, 0, nil, false, "warning: nfs1 has not reserved " + disks[0].Serial},
		"a stranger's":  {active, keys["nfs1"], []pr.Key{0xbad}, false, "is used by another machine: reservation key 0x0000000000000bad is registered"},
		"it knows none": {active, 0, nil, true, "know no reservations: nothing but fencing"},
		"stopped":       {"", 0, nil, false, ""},
	} {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range d.Servers() {
			h := &gather.Host{Hostname: s, Reservations: map[string]pr.State{},
				Run: map[string]gather.RunResult{gather.CmdCRM: {Output: resource.Output{Stdout: "<pacemaker-result><resources>" + c.crm + "</resources></pacemaker-result>"}}}}
			for i, k := range d.DisksOf(&d.Pairs[0]) {
				wwn := "5000c500000000" + strings.ToLower(string(rune('a'+i%26))) + string(rune('a'+i/26))
				h.SCSI = append(h.SCSI, linux.SCSIDisk{WWN: wwn, Serial: k.Serial, Device: "/dev/mapper/" + wwn})
				switch st := (pr.State{Holder: keys["nfs1"], Keys: []pr.Key{keys["nfs1"]}}); {
				case k.Serial != disks[0].Serial:
					h.Reservations[wwn] = st
				case c.unable:
					h.Unreservable = []string{wwn}
				default:
					h.Reservations[wwn] = pr.State{Holder: c.holder, Keys: c.more}
				}
			}
			f.Hosts[s] = Answer{Host: h}
		}
		part := mdStorage{newView(d, &d.Pairs[0], f)}.reserved()[0]
		if len(part.Parts) == 0 {
			part.Parts = []*Part{{}}
		}
		if got := part.Parts[0].Text + "\n" + texts(part); !strings.Contains(got, c.want) || c.want == "" && texts(part) != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
