package failover

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Confirm plans ConfirmOff from the facts and from Look, and calls ask to confirm
// the plan. A person needs minutes to look at a server, and another administrator may
// switch it on meanwhile. So if ask reports that it asked a person, Confirm
// collects the facts again and makes a new plan. With a nil ask it returns the
// unconfirmed plan, for a dry run.
func Confirm(ctx context.Context, d *design.Design, f observe.Facts, h Hosts, node string, ask func(*Plan) (asked bool, err error)) (*Plan, error) {
	p, err := ConfirmOff(d, f, node, Look(ctx, d, f, h.Session, node))
	if err != nil || p.Nothing != "" || ask == nil {
		return p, err
	}
	asked, err := ask(p)
	if err != nil || !asked {
		return p, err
	}
	f = h.Collect(ctx)
	return ConfirmOff(d, f, node, Look(ctx, d, f, h.Session, node))
}

// ConfirmOff plans to tell the cluster that a server it cannot fence is off. The
// service then starts elsewhere without any other proof. ConfirmOff refuses if the
// cluster does not wait for the server, or if there is any sign of life of the
// server.
//
// After a cold start the cluster waits for the server even without a failed
// fencing: it has no quorum before it has seen both servers. The plan ends that
// wait last, after the server counts as fenced. In the other order the cluster
// would get quorum, try to fence a server that it has never seen, and switch it on
// again.
func ConfirmOff(d *design.Design, f observe.Facts, node string, signs Signs) (*Plan, error) {
	snap, n, err := nodeOf(d, f, node)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "confirm-off", Node: node}
	pair := d.PairWith(node)
	p.To = pair.Other(node)
	p.Via = p.To
	switch {
	case n.Member():
		return nil, resource.Refuse("confirm-member", resource.With{"node": node})
	case !n.Unclean && !snap.Waits:
		p.Nothing = "the cluster knows that " + node + " is off"
		return p, nil
	case len(signs.Life) > 0:
		return nil, resource.Refuse("confirm-lives", resource.With{"node": node, "signs": signs.Life, "to": p.To})
	case f.Hosts[p.Via].Host == nil:
		return nil, resource.Refuse("confirm-partner-silent", resource.With{"host": p.Via})
	}
	if !snap.DC.Present {
		// Without a coordinator the confirmation has no effect; a server that
		// has just booted waits 20 s for others to become one.
		// Source: pacemaker-controld(7), dc-deadtime
		p.Steps = append(p.Steps, Step{Title: "wait until the cluster has elected a coordinator", Until: func(s *observe.Snapshot) (bool, string, error) {
			return s.DC.Present, cmp.Or(s.DC.Name, "none") + " is the coordinator", nil
		}})
	}
	if n.Unclean {
		p.Steps = append(p.Steps, takenForFenced(node)...)
	}
	if snap.Waits {
		p.Steps = append(p.Steps, endWait(node)...)
	}
	for i := range pair.Services {
		svc := &pair.Services[i]
		st := snap.Service(svc.Name)
		if st == nil || st.Resource == "" || st.Role == "Started" && st.Server == p.To {
			continue
		}
		p.Steps = append(p.Steps, Step{Title: fmt.Sprintf("wait until %s runs on %s", svc.Name, p.To), Until: runsOn(svc.Name, p.To, slices.Clone(st.Failures)), Hint: svc.Floating()})
	}
	p.Notes = append(p.Notes, slices.Concat(signs.Off, signs.Unknown)...)
	return p, nil
}

// takenForFenced makes the cluster consider a server fenced.
func takenForFenced(node string) []Step {
	return []Step{
		{Title: fmt.Sprintf("tell the cluster that %s is off", node), Action: &resource.Action{
			Title: "confirm that " + node + " is off", Cmd: []string{"stonith_admin", "--confirm", node},
			Why: "the cluster takes it for fenced, and starts its services elsewhere"}},
		{Title: "wait until the cluster has taken it", Until: func(s *observe.Snapshot) (bool, string, error) {
			n := s.Node(node)
			if n == nil || n.Unclean {
				return false, "it still waits for the fencing of " + node, nil
			}
			return true, "it takes " + node + " for fenced", nil
		}}}
}

// endWait gives the cluster quorum without a server that it has not seen.
//
// Source: cmap_keys(7), quorum.cancel_wait_for_all; votequorum(5), wait_for_all
func endWait(node string) []Step {
	return []Step{
		{Title: fmt.Sprintf("tell the cluster not to wait for %s", node), Action: &resource.Action{
			Title: "end the wait for " + node, Cmd: []string{"corosync-cmapctl", "-s", "quorum.cancel_wait_for_all", "u8", "1"},
			Why: "after a cold start there is no quorum before every server has been seen; this one is off"}},
		{Title: "wait until the cluster has quorum", Until: func(s *observe.Snapshot) (bool, string, error) {
			if !s.DC.Quorum {
				return false, "it has no quorum yet", nil
			}
			return true, "it has quorum", nil
		}}}
}
