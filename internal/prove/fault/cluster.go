package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// ClusterProblems describes all differences from a healthy cluster: every node online,
// every resource started, every fence device of a pair started, no failed action.
func ClusterProblems(c *linux.CRM, nodes []string) []string {
	var out []string
	for _, want := range nodes {
		switch n := c.Node(want); {
		case n == nil:
			out = append(out, want+" is no member of the cluster")
		case n.Unclean:
			out = append(out, want+" is unclean (waiting to be fenced)")
		case !n.Online:
			out = append(out, want+" is offline")
		case n.Pending:
			out = append(out, want+" is joining")
		case n.Standby:
			out = append(out, want+" is in standby")
		case n.Maintenance:
			out = append(out, want+" is in maintenance mode")
		}
	}
	fences := 0
	for _, r := range slices.Concat(c.Resources, c.Cloned) {
		if strings.HasPrefix(r.Agent, "stonith:") {
			fences++
		}
		switch {
		case !r.Managed:
			out = append(out, r.ID+" is not managed")
		case r.Failed:
			out = append(out, r.ID+" has failed")
		case len(r.Nodes) > 0 && r.Role != "Started":
			out = append(out, r.ID+" is "+strings.ToLower(r.Role)+" on "+strings.Join(r.NodeNames(), " and "))
		case len(r.Nodes) == 0:
			out = append(out, r.ID+" is not running")
		case len(r.Nodes) > 1:
			out = append(out, r.ID+" runs on "+strings.Join(r.NodeNames(), " and "))
		}
	}
	if fences == 0 && len(nodes) > 1 {
		out = append(out, "no fence device is registered")
	}
	for _, f := range c.Failures {
		t := fmt.Sprintf("failed action: %s on %s: %s", f.Op, f.Node, f.Status)
		if f.Reason != "" {
			t += " (" + f.Reason + ")"
		}
		out = append(out, t)
	}
	return out
}

// ClusterUnderWay says what the cluster has still to do: a server waits to be fenced, or a service
// does not run yet; "": nothing.
func ClusterUnderWay(c *linux.CRM, services []design.Service) string {
	for _, n := range c.Nodes {
		if n.Unclean {
			return n.Name + " is to be fenced"
		}
	}
	for _, s := range services {
		if r := gather.ServiceIn(c, s.Name); r != nil && (r.Role != "Started" || len(r.Nodes) != 1) {
			return r.ID + " is " + strings.ToLower(r.Role)
		}
	}
	return ""
}
