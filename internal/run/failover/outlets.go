package failover

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/fence"
)

// OutletsOn plans to switch on the outlets of a server that an interrupted fencing
// has left off. It refuses while the cluster wants to fence the server: the fencing
// switches the outlets off one after the other, and an outlet that comes back in
// between would leave a server running that counts as fenced. secret reads a file
// of the spec.
func OutletsOn(d *design.Design, f observe.Facts, node string, secret func(file string) ([]byte, error)) (*Plan, error) {
	snap, n, err := nodeOf(d, f, node)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "outlets-on", Node: node}
	for _, x := range d.PairWith(node).Servers {
		if f.Hosts[x].Host != nil && (p.Via == "" || x != node) {
			p.Via = x
		}
	}
	if n.Unclean || slices.Contains(snap.Fencing(), node) {
		return nil, resource.Refuse("power-fencing", resource.With{"node": node})
	}
	outlets := observe.OutletsOf(d, f, node)
	for _, o := range outlets {
		what := fmt.Sprintf("outlet %s of %s", o.Port, o.PDU)
		switch {
		case o.Err != "":
			p.Notes = append(p.Notes, fmt.Sprintf("nothing is known of %s: %s", what, o.Err))
		case !o.On:
			s, err := switchOn(o, what, secret)
			if err != nil {
				return nil, resource.Refuse("power-outlet", resource.With{"error": err})
			}
			p.Steps = append(p.Steps, s)
		}
	}
	switch {
	case len(p.Steps) > 0:
		if !n.Member() {
			p.Notes = append(p.Notes, node+" starts if its firmware is set to start with the power")
		}
	case len(outlets) == 0:
		return nil, resource.Refuse("power-no-pdu", resource.With{"node": node})
	case len(p.Notes) > 0:
		return nil, resource.Refuse("power-not-known", resource.With{"note": p.Notes[0]})
	default:
		p.Nothing = "every outlet of " + node + " is on"
	}
	return p, nil
}

// switchOn is the step for one outlet. The agent waits until it is on.
func switchOn(o observe.SupplyOutlet, what string, secret func(file string) ([]byte, error)) (Step, error) {
	params, err := plan.FenceParams(*o.Device, secret)
	if err != nil {
		return Step{}, err
	}
	params["port"] = o.Port
	stdin, err := fence.Input("on", params)
	return Step{Title: "switch " + what + " on", Action: &resource.Action{Title: "switch " + what + " on", Cmd: []string{o.Device.Agent}, Stdin: stdin, Secret: true,
		Why: "the agent reads its parameters, and the secret, from its input"}}, err
}
