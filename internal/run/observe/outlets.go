package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// outletTime bounds the queries of all outlets together. fence_apc_snmp itself gives
// up a dead PDU after 7 s (measured on an emulated server).
const outletTime = 15 * time.Second

// AskOutlets makes Collect also ask the PDUs for the state of the servers' outlets.
// A server's partner asks, since the partner would fence it. Each outlet costs the
// asking server a process.
func (c *Collector) AskOutlets() { c.outlets = true }

// collectOutlets makes each answering server query the outlets of its partner, and
// its own if the partner did not answer.
func (c *Collector) collectOutlets(ctx context.Context, f Facts) {
	asks := map[string][]gather.OutletAsk{}
	for _, l := range c.d.Fencing() {
		by := ""
		for _, n := range c.d.PairWith(l.Node).Servers {
			if f.Hosts[n].Host != nil && (by == "" || n != l.Node) {
				by = n
			}
		}
		for i := range l.Devices {
			if port := l.Devices[i].Outlet(l.Node); port != "" && by != "" {
				asks[by] = append(asks[by], gather.OutletAsk{Device: l.Devices[i].ID, Port: port})
			}
		}
	}
	limit := min(c.timeout, outletTime)
	cctx, cancel := context.WithTimeout(ctx, limit+time.Second)
	defer cancel()
	got, failed := host.All(cctx, slices.Collect(maps.Keys(asks)), func(ctx context.Context, by string) (gather.Host, error) {
		return c.gather(ctx, by, gather.Request{Outlets: asks[by], TimeoutMS: int(limit.Milliseconds())})
	})
	for by, h := range got {
		f.Hosts[by].Host.Outlets = h.Outlets
	}
	for by, err := range failed {
		for _, a := range asks[by] {
			f.Hosts[by].Host.Outlets = append(f.Hosts[by].Host.Outlets, gather.Outlet{OutletAsk: a, Err: err.Error(), TimedOut: true})
		}
	}
}

// power checks that all outlets are on and that each PDU answers; nil if no PDU was
// asked.
func (v ha) power() *Part {
	p := &Part{Name: "power"}
	silent := &Part{} // the PDUs
	told := map[string]bool{}
	on, all := 0, 0
	for _, l := range v.pair.HA.Fencing {
		var off, pdus, unknown, good []string
		for i := range l.Devices {
			dev := &l.Devices[i]
			o, by := v.outlet(dev, l.Node)
			if o == nil {
				continue
			}
			all++
			name := fmt.Sprintf("outlet %s of %s (feed %s)", o.Port, v.pdu(dev), strings.Join(dev.Feeds, "+"))
			switch {
			case o.Err != "":
				unknown = append(unknown, name)
				if key := dev.ID + by; !told[key] {
					told[key] = true
					code := PDUSilent
					if o.TimedOut {
						code = "pdu-late"
					}
					silent.find(v.pdu(dev), code, with{"pdu": v.pdu(dev), "address": dev.Params["ip"], "host": by, "error": oneLine(o.Err)})
				}
			case o.On:
				on++
				good = append(good, name)
			default:
				off, pdus = append(off, name), append(pdus, v.pdu(dev))
			}
		}
		if len(good)+len(off)+len(unknown) > 0 {
			v.supply(p, l.Node, good, off, pdus, unknown)
		}
	}
	if all == 0 {
		return nil
	}
	p.Parts = append(p.Parts, silent.Parts...)
	p.Text = fmt.Sprintf("%d of %d outlets on", on, all)
	return p
}

// supply judges the outlets of one server. Those that are off are on pdus.
func (v ha) supply(p *Part, node string, on, off, pdus, unknown []string) {
	code := FeedLost
	switch {
	case len(off) == 0 && len(unknown) > 0:
		p.find(node, "outlets-unknown", with{"host": node, "outlets": unknown})
		return
	case len(off) == 0:
		text, _ := health.Fill("{on%are} on", with{"on": on})
		p.add(node, "%s", text)
		return
	case len(on)+len(unknown) == 0:
		code = "power-lost"
	}
	f := p.find(node, code, with{"host": node, "outlets": off, "pdus": pdus})
	if c := v.crm.Node(node); c != nil && c.Unclean || v.fencingNow(node) {
		f.Level, f.Mend = Warning, "it is being fenced; look again when that is done"
	}
}

// outlet returns the state of the outlet with which a device switches a server, and
// the server that asked for it.
func (v ha) outlet(dev *design.FenceDevice, node string) (o *gather.Outlet, by string) {
	port := dev.Outlet(node)
	for _, s := range v.servers {
		if s.host == nil || port == "" {
			continue
		}
		for i := range s.host.Outlets {
			if x := &s.host.Outlets[i]; x.Device == dev.ID && x.Port == port {
				return x, s.name
			}
		}
	}
	return nil, ""
}

// pdu is the name of a device's PDU in the spec.
func (v ha) pdu(dev *design.FenceDevice) string {
	for _, p := range v.d.Spec.PDUs {
		if p.Address == dev.Params["ip"] {
			return p.Name
		}
	}
	return dev.ID
}

// fencingNow reports whether the cluster is fencing a node.
func (v ha) fencingNow(node string) bool {
	return v.crm != nil && slices.Contains(v.crm.Fencing(), node)
}

// SupplyOutlet is one of the outlets that power a server.
type SupplyOutlet struct {
	gather.Outlet
	Device *design.FenceDevice
	PDU    string // its name in the spec
}

// OutletsOf returns the outlets of a server that the facts contain.
func OutletsOf(d *design.Design, f Facts, node string) []SupplyOutlet {
	v := ha{newView(d, d.PairWith(node), f)}
	var out []SupplyOutlet
	for _, l := range v.pair.HA.Fencing {
		for i := range l.Devices {
			if o, _ := v.outlet(&l.Devices[i], node); o != nil && l.Node == node {
				out = append(out, SupplyOutlet{*o, &l.Devices[i], v.pdu(&l.Devices[i])})
			}
		}
	}
	return out
}
