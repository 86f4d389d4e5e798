package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// outletsOf adds the four outlets of the example's two servers, as asked by the
// partners, to the facts, after change.
func outletsOf(f Facts, change func(by string, o *Outlet)) {
	for by, port := range map[string]string{"nfs1": "2", "nfs2": "1"} {
		h := f.Hosts[by].Host
		if h == nil {
			continue
		}
		for _, dev := range []string{"fence-pdu-a", "fence-pdu-b"} {
			o := Outlet{OutletAsk: OutletAsk{dev, port}, On: true}
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
		change func(by string, o *Outlet)
		text   string
		want   []string // findings and remedies
	}{
		{"all on", nil, "4 of 4 outlets on", nil},
		{"one off", func(_ string, o *Outlet) { o.On = o.Port != "2" || o.Device != "fence-pdu-b" }, "3 of 4 outlets on",
			[]string{"fault: nfs2 has lost a power feed: outlet 2 of pdu-b (feed B) is off; if the other one fails, nfs2 is off → `mortar outlets-on brick.yaml nfs2`"}},
		{"both off", func(_ string, o *Outlet) { o.On = o.Port != "2" }, "2 of 4 outlets on",
			[]string{"fault: nfs2 has no power: outlet 2 of pdu-a (feed A) and outlet 2 of pdu-b (feed B) are off → `mortar outlets-on brick.yaml nfs2`"}},
		{"a PDU is dead", func(_ string, o *Outlet) {
			if o.Device == "fence-pdu-a" {
				o.On, o.Err = false, "Connection timed out"
			}
		}, "2 of 4 outlets on", []string{
			"unknown: outlet 1 of pdu-a (feed A): nothing is known → ", "unknown: outlet 2 of pdu-a (feed A): nothing is known → ",
			"fault: pdu-a (10.77.3.31) does not answer nfs2: Connection timed out; fencing by the PDUs does not work without it → see that it has power and a link, and that its address and secrets are those of the spec",
			"fault: pdu-a (10.77.3.31) does not answer nfs1: Connection timed out; fencing by the PDUs does not work without it → see that it has power and a link, and that its address and secrets are those of the spec"}},
		{"a server was slow", func(by string, o *Outlet) {
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

const fenceCIB = `<cib><configuration><resources>
<primitive id="service-home" class="ocf" type="service"/>
<primitive id="fence-pdu-a" class="stonith" type="fence_apc_snmp"><instance_attributes id="x">
<nvpair id="a" name="community" value="hunter2"/><nvpair id="b" name="ip" value="10.77.3.31"/></instance_attributes></primitive>
</resources></configuration></cib>`

func TestFenceParams(t *testing.T) {
	name, params, err := fenceParams([]byte(fenceCIB), "fence-pdu-a")
	if diff := cmp.Diff(map[string]string{"community": "hunter2", "ip": "10.77.3.31"}, params); err != nil || name != "fence_apc_snmp" || diff != "" {
		t.Error(name, err, diff)
	}
	for _, id := range []string{"fence-pdu-b", "service-home"} {
		if _, _, err := fenceParams([]byte(fenceCIB), id); err == nil {
			t.Errorf("%s is a fence device", id)
		}
	}
	// The output of fence_apc_snmp 4.16 for a dead PDU.
	text := fenceError(resource.Output{Code: 1, Stderr: "2026-11-22 18:11:58,882 ERROR: Returned 1: Timeout: No Response from 10.77.3.39:161 (hunter2)\n\n\n2026-11-22 18:11:58,914 ERROR: Please use '-h' for usage\n"}, params)
	if text != "Returned 1: Timeout: No Response from 10.77.3.39:161 (…)" {
		t.Errorf("%q", text)
	}
	// For a device that the cluster does not know, the answer is an error and no
	// program runs.
	got := askOutlets(t.Context(), tree{linux.CIBFile: fenceCIB}, []OutletAsk{{"fence-pdu-b", "1"}}, time.Minute)
	if len(got) != 1 || got[0].On || !strings.Contains(got[0].Err, "fence-pdu-b is not in the cluster's configuration") {
		t.Errorf("%+v", got)
	}
}
