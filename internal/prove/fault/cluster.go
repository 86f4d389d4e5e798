package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// crmMonArgv prints Pacemaker's state once.
var crmMonArgv = []string{"crm_mon", "--one-shot", "--output-as=xml"}

// Cluster is the state that crm_mon prints.
type Cluster struct{ *linux.CRM }

// ParseCluster reads the XML of crm_mon(8).
func ParseCluster(text string) (Cluster, error) {
	x, err := linux.ParseCRM(text)
	return Cluster{x}, err
}

// all returns the resources, including those of clones.
func (c Cluster) all() []linux.CRMResource { return slices.Concat(c.Resources, c.Cloned) }

// Service finds the resource that runs a service.
func (c Cluster) Service(name string) (linux.CRMResource, error) {
	id := resource.ServiceID(name)
	if r := c.Resource(id); r != nil {
		return *r, nil
	}
	return linux.CRMResource{}, fmt.Errorf("no resource %s in Pacemaker (mortar apply makes it)", id)
}

// Problems describes all differences from a healthy cluster: every node online,
// every resource started, every fence device of a pair started, no failed action.
func (c Cluster) Problems(nodes []string) []string {
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
	for _, r := range c.all() {
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

// UnderWay says what the cluster has still to do: a server waits to be fenced, or a service
// does not run yet; "": nothing.
func (c Cluster) UnderWay(services []design.Service) string {
	for _, n := range c.Nodes {
		if n.Unclean {
			return n.Name + " is to be fenced"
		}
	}
	for _, s := range services {
		if r, err := c.Service(s.Name); err == nil && (r.Role != "Started" || len(r.Nodes) != 1) {
			return r.ID + " is " + strings.ToLower(r.Role)
		}
	}
	return ""
}
