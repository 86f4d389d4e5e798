package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/host/gather"
)

// outletsOf adds the four outlets of the example's two servers, as asked by the
// partners, to the facts, after change.
func outletsOf(f Facts, change func(by string, o *gather.Outlet)) {
	for by, port := range map[string]string{"nfs1": "2", "nfs2": "1"} {
		h := f.Hosts[by].Host
		if h == nil {
			continue
		}
		for _, dev := range []string{"fence-pdu-a", "fence-pdu-b"} {
			o := gather.Outlet{OutletAsk: gather.OutletAsk{Device: dev, Port: port}, On: true}
			if change != nil {
				change(by, &o)
			}
			h.Outlets = append(h.Outlets, o)
		}
	}
}

func TestPower(t *testing.T) {
	d := theDesign(t)
	for _, tt := range []struct {
		name   string
		change func(by string, o *gather.Outlet)
		text   string
		want   []string // findings and remedies
	}{
		{"all on", nil, "4 of 4 outlets on", nil},
		{"one off", func(_ string, o *gather.Outlet) { o.On = o.Port != "2" || o.Device != "fence-pdu-b" }, "3 of 4 outlets on",
			[]string{"fault: nfs2 has lost a power feed: outlet 2 of pdu-b (feed B) is off; if the other one fails, nfs2 is off → `mortar outlets-on brick.yaml nfs2`"}},
		{"both off", func(_ string, o *gather.Outlet) { o.On = o.Port != "2" }, "2 of 4 outlets on",
			[]string{"fault: nfs2 has no power: outlet 2 of pdu-a (feed A) and outlet 2 of pdu-b (feed B) are off → `mortar outlets-on brick.yaml nfs2`"}},
		{"a PDU is dead", func(_ string, o *gather.Outlet) {
			if o.Device == "fence-pdu-a" {
				o.On, o.Err = false, "Connection timed out"
			}
		}, "2 of 4 outlets on", []string{
			"unknown: outlet 1 of pdu-a (feed A): nothing is known → ", "unknown: outlet 2 of pdu-a (feed A): nothing is known → ",
			"fault: pdu-a (10.77.3.31) does not answer nfs2: Connection timed out; fencing by the PDUs does not work without it → see that it has power and a link, and that its address and secrets are those of the spec",
			"fault: pdu-a (10.77.3.31) does not answer nfs1: Connection timed out; fencing by the PDUs does not work without it → see that it has power and a link, and that its address and secrets are those of the spec"}},
		{"a server was slow", func(by string, o *gather.Outlet) {
			if by == "nfs1" && o.Device == "fence-pdu-a" {
				o.On, o.Err, o.TimedOut = false, "no answer within 15s", true
			}
		}, "3 of 4 outlets on", []string{"unknown: outlet 2 of pdu-a (feed A): nothing is known → ",
			"unknown: pdu-a (10.77.3.31): nfs1 has no answer: no answer within 15s → "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy(t, d)
			prove(d, f, d.Pairs[0].HA.Fencing)
			outletsOf(f, tt.change)
			s := Judge(d, f)
			var got []string
			s.Each(func(p *Part) {
				if p.Level != OK {
					got = append(got, p.Level.String()+": "+p.Text+" → "+p.Mend)
				}
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, p := range s.Parts {
				if p.Name == "power" && p.Text != tt.text {
					t.Errorf("%q, want %q", p.Text, tt.text)
				}
			}
		})
	}
	// Without answers of PDUs the status has no part power.
	for _, p := range Judge(d, healthy(t, d)).Parts {
		if p.Name == "power" {
			t.Errorf("%+v", p)
		}
	}
}
