package failover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/observe"
	"github.com/mortarhpc/mortar/internal/resource"
)

// Signs are what was found out about whether a server is off, before a person
// is asked.
type Signs struct {
	// Life is every sign of life, in words: it answers ping, SSH, or its BMC
	// says that it has power.
	Life []string
	// Off is what says that it has none.
	Off []string
	// Unknown is what could not be found out.
	Unknown []string
}

// ConfirmOff plans to tell the cluster that a server it cannot fence is off:
// the service starts elsewhere on nothing but that word. It is refused for a
// server that the cluster does not wait for, and while anything says that the
// server lives.
func ConfirmOff(d *design.Design, f observe.Facts, node string, signs Signs) (*Plan, error) {
	snap, n, err := nodeOf(d, f, node)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "confirm-off", Node: node}
	for _, other := range d.HA.Nodes {
		if other.Name != node {
			p.To, p.Via = other.Name, other.Name
		}
	}
	switch {
	case n.Online:
		return nil, refuse("nothing has to be confirmed; see `mortar status`", "%s is a member of the cluster: it is not off", node)
	case !n.Unclean:
		p.Nothing = "the cluster knows that " + node + " is off"
		return p, nil
	case len(signs.Life) > 0:
		return nil, refuse(fmt.Sprintf("cut its power by hand first: pull both power cords of %s, or hold its power button", node),
			"%s is not off: %s; if its service started on %s now, two servers would write to the same disks", node, strings.Join(signs.Life, "; "), p.To)
	case f.Hosts[p.Via].Host == nil:
		return nil, refuse("see `mortar status`", "%s, which has to take over, does not answer", p.Via)
	}
	p.Steps = append(p.Steps,
		Step{Title: fmt.Sprintf("tell the cluster that %s is off", node), Action: &resource.Action{
			Title: "confirm that " + node + " is off", Cmd: []string{"stonith_admin", "--confirm", node},
			Why: "the cluster takes it for fenced, and starts its services elsewhere"}},
		Step{Title: "wait until the cluster has taken it", until: func(s *observe.Snapshot) (bool, string, error) {
			n := s.Node(node)
			if n == nil || n.Unclean {
				return false, "it still waits for the fencing of " + node, nil
			}
			return true, "it takes " + node + " for fenced", nil
		}})
	for i := range d.Services {
		svc := &d.Services[i]
		st := snap.Service(svc.Name)
		if st == nil || st.Resource == "" || st.Role == "Started" && st.Server == p.To {
			continue
		}
		p.Steps = append(p.Steps, Step{Title: fmt.Sprintf("wait until %s runs on %s", svc.Name, p.To), until: runsOn(svc.Name, p.To, slices.Clone(st.Failures)), hint: svc.Address})
	}
	p.Notes = append(p.Notes, slices.Concat(signs.Off, signs.Unknown)...)
	return p, nil
}
