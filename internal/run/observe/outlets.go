package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// OutletAsk names an outlet: the fence device that switches it, and the outlet's
// number on that device.
type OutletAsk struct {
	Device string `json:"device"`
	Port   string `json:"port"`
}

// Outlet is a PDU's answer about an outlet.
type Outlet struct {
	OutletAsk
	On       bool   `json:"on"`
	Err      string `json:"err,omitempty"` // why the state is unknown
	TimedOut bool   `json:"timed_out,omitempty"`
}

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
	asks := map[string][]OutletAsk{}
	for _, l := range c.d.Fencing() {
		by := ""
		for _, n := range c.d.PairWith(l.Node).Servers {
			if f.Hosts[n].Host != nil && (by == "" || n != l.Node) {
				by = n
			}
		}
		for i := range l.Devices {
			if port := l.Devices[i].Outlet(l.Node); port != "" && by != "" {
				asks[by] = append(asks[by], OutletAsk{l.Devices[i].ID, port})
			}
		}
	}
	limit := min(c.timeout, outletTime)
	cctx, cancel := context.WithTimeout(ctx, limit+time.Second)
	defer cancel()
	got, failed := host.All(cctx, slices.Collect(maps.Keys(asks)), func(ctx context.Context, by string) (Host, error) {
		return c.gather(ctx, by, Request{Outlets: asks[by], TimeoutMS: int(limit.Milliseconds())})
	})
	for by, h := range got {
		f.Hosts[by].Host.Outlets = h.Outlets
	}
	for by, err := range failed {
		for _, a := range asks[by] {
			f.Hosts[by].Host.Outlets = append(f.Hosts[by].Host.Outlets, Outlet{OutletAsk: a, Err: err.Error(), TimedOut: true})
		}
	}
}

// askOutlets queries the state of outlets with the parameters and the secret that
// Pacemaker uses for fencing.
func askOutlets(ctx context.Context, sys resource.Sys, asks []OutletAsk, timeout time.Duration) []Outlet {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	cib, cibErr := sys.ReadFile(linux.CIBFile)
	out := make([]Outlet, len(asks))
	var wg sync.WaitGroup
	for i, a := range asks {
		out[i].OutletAsk = a
		wg.Go(func() {
			on, err := false, cibErr
			if err == nil {
				on, err = outletOn(ctx, cib, a)
			}
			out[i].On = on
			if err != nil {
				out[i].Err, out[i].TimedOut = err.Error(), ctx.Err() != nil
			}
		})
	}
	wg.Wait()
	return out
}

func outletOn(ctx context.Context, cib []byte, a OutletAsk) (bool, error) {
	name, params, err := fenceParams(cib, a.Device)
	if err != nil {
		return false, err
	}
	params["port"] = a.Port
	out, err := agent.FenceStatus(ctx, name, params)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, err
	case out.Code == 0 || out.Code == 2:
		return out.Code == 0, nil
	}
	return false, errors.New(fenceError(out, params))
}

// fenceParams finds a fence device in the cluster's configuration.
func fenceParams(cib []byte, id string) (name string, params map[string]string, err error) {
	c, err := linux.ParseCIB(cib)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", linux.CIBFile, err)
	}
	for _, p := range c.Primitives {
		if p.ID != id || p.Class != "stonith" {
			continue
		}
		params = map[string]string{}
		for _, a := range p.Params {
			params[a.Name] = a.Value
		}
		return p.Type, params, nil
	}
	return "", nil, fmt.Errorf("fence device %s is not in the cluster's configuration", id)
}

// fenceError is the first error that a fence agent reports, without parameters that
// may be secret.
func fenceError(out resource.Output, params map[string]string) string {
	text := oneLine(strings.TrimSpace(out.Stderr))
	for line := range strings.Lines(out.Stderr) {
		if _, said, ok := strings.Cut(line, "ERROR: "); ok {
			text = strings.TrimSpace(said)
			break
		}
	}
	for _, secret := range []string{"community", "password", "passwd", "snmp_priv_passwd"} {
		if v := params[secret]; v != "" {
			text = strings.ReplaceAll(text, v, "…")
		}
	}
	if text == "" {
		text = fmt.Sprintf("exit code %d", out.Code)
	}
	return text
}

// power checks that all outlets are on and that each PDU answers; nil if no PDU was
// asked.
func (v *view) power() *Part {
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
func (v *view) supply(p *Part, node string, on, off, pdus, unknown []string) {
	code := FeedLost
	switch {
	case len(off) == 0 && len(unknown) > 0:
		p.find(node, "outlets-unknown", with{"host": node, "outlets": unknown})
		return
	case len(off) == 0:
		p.add(node, "%s on", areList(on))
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
func (v *view) outlet(dev *design.FenceDevice, node string) (o *Outlet, by string) {
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
func (v *view) pdu(dev *design.FenceDevice) string {
	for _, p := range v.d.Spec.PDUs {
		if p.Address == dev.Params["ip"] {
			return p.Name
		}
	}
	return dev.ID
}

// fencingNow reports whether the cluster is fencing a node.
func (v *view) fencingNow(node string) bool {
	return v.crm != nil && slices.Contains(v.crm.Fencing(), node)
}

// SupplyOutlet is one of the outlets that power a server.
type SupplyOutlet struct {
	Outlet
	Device *design.FenceDevice
	PDU    string // its name in the spec
}

// OutletsOf returns the outlets of a server that the facts contain.
func OutletsOf(d *design.Design, f Facts, node string) []SupplyOutlet {
	v := newView(d, d.PairWith(node), f)
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
