package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// crmMonArgv asks Pacemaker for its state once.
var crmMonArgv = []string{"crm_mon", "--one-shot", "--output-as=xml", "--inactive"}

// cluster is what crm_mon says, as far as a drill needs it.
type cluster struct {
	Nodes     []clusterNode
	Resources []clusterResource
	Failures  []string // in words
}

type clusterNode struct {
	Name                              string
	Online, Unclean, Pending, Standby bool
	Maintenance                       bool
}

type clusterResource struct {
	ID, Agent string
	Role      string
	Managed   bool
	Failed    bool
	Nodes     []string // where it is active
}

// parseCrmMon reads the XML of crm_mon(8).
func parseCrmMon(text string) (cluster, error) {
	x, err := linux.ParseCRM(text)
	if err != nil {
		return cluster{}, err
	}
	var c cluster
	for _, n := range x.Nodes {
		c.Nodes = append(c.Nodes, clusterNode{n.Name, n.Online, n.Unclean, n.Pending, n.Standby, n.Maintenance})
	}
	for _, r := range slices.Concat(x.Resources, x.Cloned) {
		cr := clusterResource{ID: r.ID, Agent: r.Agent, Role: r.Role, Managed: r.Managed, Failed: r.Failed}
		for _, n := range r.Nodes {
			cr.Nodes = append(cr.Nodes, n.Name)
		}
		c.Resources = append(c.Resources, cr)
	}
	for _, f := range x.Failures {
		t := fmt.Sprintf("%s on %s: %s", f.Op, f.Node, f.Status)
		if f.Reason != "" {
			t += " (" + f.Reason + ")"
		}
		c.Failures = append(c.Failures, t)
	}
	return c, nil
}

// service finds the resource that runs a service.
func (c cluster) service(name string) (clusterResource, error) {
	for _, r := range c.Resources {
		if r.ID == resource.ServiceID(name) {
			return r, nil
		}
	}
	return clusterResource{}, fmt.Errorf("no resource %s in Pacemaker (mortar apply makes it)", resource.ServiceID(name))
}

// problems lists what is not as it should be, in words: every node online,
// every resource started, every fence device started, no failed action.
func (c cluster) problems(nodes []string) []string {
	var out []string
	for _, want := range nodes {
		i := slices.IndexFunc(c.Nodes, func(n clusterNode) bool { return n.Name == want })
		if i < 0 {
			out = append(out, want+" is no member of the cluster")
			continue
		}
		switch n := c.Nodes[i]; {
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
	for _, r := range c.Resources {
		if strings.HasPrefix(r.Agent, "stonith:") {
			fences++
		}
		switch {
		case !r.Managed:
			out = append(out, r.ID+" is not managed")
		case r.Failed:
			out = append(out, r.ID+" has failed")
		case len(r.Nodes) > 0 && r.Role != "Started":
			out = append(out, r.ID+" is "+strings.ToLower(r.Role)+" on "+strings.Join(r.Nodes, " and "))
		case len(r.Nodes) == 0:
			out = append(out, r.ID+" is not running")
		case len(r.Nodes) > 1:
			out = append(out, r.ID+" runs on "+strings.Join(r.Nodes, " and "))
		}
	}
	if fences == 0 {
		out = append(out, "no fence device is registered")
	}
	for _, f := range c.Failures {
		out = append(out, "failed action: "+f)
	}
	return out
}
