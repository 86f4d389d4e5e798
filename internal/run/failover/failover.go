// Package failover moves services between the servers of a brick gracefully and
// puts servers in standby. It refuses moves that would fail, and plans the cluster's own
// commands, waits for their effect, and the removal of each constraint; package procedure
// carries the plans out.
//
// Its files fencetest*.go prove fencing before it is needed. ProveFencing uses each
// level of each server alone, through the cluster's own fencer, and checks the
// effect independently of the device's report. It powers servers off and on. So it
// moves services away first, keeps a mark in the cluster while a server is off, and
// restores everything even after an error.
//
// The package does not judge health (observe does) and prints nothing.
package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// Plan and Step are those of package procedure, which carries a plan out.
type (
	Plan = procedure.Plan
	Step = procedure.Step
)

// Hosts are the hosts that a plan is made from and carried out on; *observe.Collector implements
// it. Tests have a fake cluster.
type Hosts interface {
	procedure.Hosts
	// Collect returns all facts of all servers.
	Collect(ctx context.Context) observe.Facts
}

// Service plans the move of a service; to "" means the other server. Its
// errors are refusals: nothing was changed.
func Service(d *design.Design, f observe.Facts, service, to string) (*Plan, error) {
	svc, _, st, err := serviceOf(d, f, service)
	if err != nil {
		return nil, err
	}
	pair := d.PairOf(svc.Name)
	if to == "" {
		to = pair.Other(st.Server)
		if st.Server == "" {
			return nil, resource.Refuse("service-runs-nowhere", resource.With{"service": svc.Name})
		}
	}
	if !slices.Contains(pair.Servers, to) {
		return nil, resource.Refuse("server-no-such", resource.With{"server": to, "servers": pair.Servers})
	}
	p := &Plan{What: "failover", Service: svc.Name, From: st.Server, To: to, Via: to}
	clear := Step{Title: "take the constraint of the move away again",
		Action: &resource.Action{Title: "clear the move's constraint", Cmd: []string{"crm_resource", "--resource", st.Resource, "--clear"},
			Why: "left there, it would tie the service to " + to}, Always: true}
	if st.Server == to && st.Role == "Started" {
		p.Nothing = fmt.Sprintf("service %s runs on %s already", svc.Name, to)
		if len(st.Leftover) > 0 {
			p.Nothing = ""
			clear.Title = "take away the constraint an earlier move left (" + strings.Join(st.Leftover, ", ") + ")"
			p.Steps = []Step{clear}
		}
		return p, nil
	}
	if pair.HA.Failback == "auto" && to != svc.Preferred {
		return nil, resource.Refuse("failback-auto", resource.With{"service": svc.Name, "preferred": svc.Preferred})
	}
	why := observe.NotReady(d, f, svc.Name, to)
	// The first step removes a leftover ban.
	if why = slices.DeleteFunc(why, func(o observe.Obstacle) bool { return o.Code == observe.MoveLeftover }); len(why) > 0 {
		return nil, resource.Refuse("takeover-not-ready", resource.With{"server": to, "service": svc.Name, "why": why.Texts(), "codes": why.Codes()})
	}
	if len(st.Leftover) > 0 {
		first := clear
		first.Title, first.Always = "take away the constraint an earlier move left ("+strings.Join(st.Leftover, ", ")+")", false
		p.Steps = append(p.Steps, first)
	}
	p.Steps = append(p.Steps,
		Step{Title: fmt.Sprintf("tell the cluster to move %s to %s", svc.Name, to),
			Action: &resource.Action{Title: "move " + svc.Name + " to " + to, Cmd: []string{"crm_resource", "--resource", st.Resource, "--move", "--node", to}}},
		Step{Title: fmt.Sprintf("wait until %s runs on %s", svc.Name, to), Until: runsOn(svc.Name, to, st.Failures), Hint: svc.Floating()},
		clear,
		Step{Title: "see that it stays there", Until: runsOn(svc.Name, to, st.Failures), Twice: true})
	p.Notes = []string{"clients wait while the service moves; nothing acknowledged is lost, locks are kept"}
	return p, nil
}

// Failback plans the move of a service to its preferred server.
func Failback(d *design.Design, f observe.Facts, service string) (*Plan, error) {
	svc, err := pick(d, service)
	if err != nil {
		return nil, err
	}
	p, err := Service(d, f, svc.Name, svc.Preferred)
	if p != nil {
		p.What = "failback"
	}
	return p, err
}

// Standby plans to put a server in standby: it gives up its services and takes
// none over.
func Standby(d *design.Design, f observe.Facts, node string) (*Plan, error) {
	snap, n, err := nodeOf(d, f, node)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "standby", Node: node, Via: node}
	if n.Standby {
		p.Nothing = node + " is in standby already"
		return p, nil
	}
	p.To = d.PairWith(node).Other(node)
	p.Via = p.To
	var moving []string
	for _, s := range snap.Services {
		if s.Server != node {
			continue
		}
		if why := observe.NotReady(d, f, s.Name, p.To); len(why) > 0 {
			return nil, resource.Refuse("takeover-not-ready", resource.With{"server": p.To, "service": s.Name, "from": node, "why": why.Texts(), "codes": why.Codes()})
		}
		moving = append(moving, s.Name)
	}
	if h := f.Hosts[p.Via].Host; h == nil {
		p.Via = node // no service moves, so ask the cluster through the node itself
	}
	p.Steps = append(p.Steps, Step{Title: "tell the cluster that " + node + " takes nothing",
		Action: &resource.Action{Title: "standby " + node, Cmd: []string{"crm_attribute", "--node", node, "--name", "standby", "--update", "on", "--lifetime", "forever"},
			Why: "an attribute that lasts over a reboot, until `mortar unstandby`"}})
	p.Steps = append(p.Steps, Step{Title: "wait until " + node + " is in standby and free of services",
		Until: func(s *observe.Snapshot) (bool, string, error) {
			n := s.Node(node)
			if n == nil || !n.Standby {
				return false, node + " is not in standby yet", nil
			}
			for _, name := range moving {
				st := s.Service(name)
				done, state, err := runsOn(name, p.To, snap.Service(name).Failures)(s)
				if err != nil || !done {
					return false, state, err
				}
				if st.Server == node {
					return false, fmt.Sprintf("%s is still on %s", name, node), nil
				}
			}
			for _, st := range s.Services {
				if st.Server == node {
					return false, fmt.Sprintf("%s is still on %s", st.Name, node), nil
				}
			}
			return true, node + " is in standby", nil
		}})
	p.Notes = []string{fmt.Sprintf("while %s is in standby nothing takes over from %s", node, p.To)}
	return p, nil
}

// Unstandby plans to end the standby of a server.
func Unstandby(d *design.Design, f observe.Facts, node string) (*Plan, error) {
	_, n, err := nodeOf(d, f, node)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "unstandby", Node: node, Via: node}
	if f.Hosts[node].Host == nil {
		p.Via = d.PairWith(node).Other(node)
	}
	if !n.Standby {
		p.Nothing = node + " is not in standby"
		return p, nil
	}
	p.Steps = []Step{
		{Title: "tell the cluster that " + node + " takes services again",
			Action: &resource.Action{Title: "unstandby " + node, Cmd: []string{"crm_attribute", "--node", node, "--name", "standby", "--delete", "--lifetime", "forever"}}},
		{Title: "wait until " + node + " is online",
			Until: func(s *observe.Snapshot) (bool, string, error) {
				n := s.Node(node)
				if n == nil || n.Standby {
					return false, node + " is still in standby", nil
				}
				if !n.Member() {
					return false, node + " is not online", nil
				}
				return true, node + " is online", nil
			}},
	}
	return p, nil
}

func nodeOf(d *design.Design, f observe.Facts, node string) (*observe.Snapshot, *linux.CRMNode, error) {
	if !d.Clustered() {
		return nil, nil, resource.Refuse("brick-one-server", resource.With{"brick": d.Name})
	}
	if err := procedure.IsServer(d, node); err != nil {
		return nil, nil, err
	}
	snap := observe.ClusterOf(d, d.PairWith(node), f)
	if snap == nil {
		return nil, nil, resource.Refuse("cluster-no-answer", nil)
	}
	n := snap.Node(node)
	if n == nil {
		return nil, nil, resource.Refuse("cluster-lacks-node", resource.With{"node": node})
	}
	return snap, n, nil
}

// serviceOf is a service, its cluster, and what that knows of it. "" is the only service.
func serviceOf(d *design.Design, f observe.Facts, service string) (*design.Service, *observe.Snapshot, *observe.ServiceState, error) {
	svc, err := pick(d, service)
	if err != nil {
		return nil, nil, nil, err
	}
	snap := observe.ClusterOf(d, d.PairOf(svc.Name), f)
	if snap == nil {
		return nil, nil, nil, resource.Refuse("cluster-no-answer", nil)
	}
	st := snap.Service(svc.Name)
	if st == nil || st.Resource == "" {
		return nil, nil, nil, resource.Refuse("cluster-lacks-service", resource.With{"service": svc.Name})
	}
	return svc, snap, st, nil
}

func pick(d *design.Design, service string) (*design.Service, error) {
	if !d.Clustered() {
		return nil, resource.Refuse("brick-one-server", resource.With{"brick": d.Name, "why": "there is nothing to move a service to"})
	}
	return procedure.Service(d, service)
}

// runsOn waits until a service runs on node. A failure that is not in before ends
// the wait.
func runsOn(service, node string, before []observe.Failure) func(*observe.Snapshot) (bool, string, error) {
	return func(s *observe.Snapshot) (bool, string, error) {
		st, err := procedure.Current(s, service, func(f observe.Failure) bool { return !slices.Contains(before, f) })
		if err != nil {
			return false, "", err
		}
		switch {
		case st.Server == node && st.Runs():
			return true, fmt.Sprintf("%s runs on %s", service, node), nil
		case st.Server == "":
			return false, fmt.Sprintf("%s is stopped, not yet started on %s", service, node), nil
		}
		return false, fmt.Sprintf("%s is %s on %s", service, strings.ToLower(st.Role), st.Server), nil
	}
}
