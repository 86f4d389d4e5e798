package gather

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Cluster is a Pacemaker cluster as one of its servers knows it: for status, watch, metrics,
// procedures and drills.
type Cluster struct {
	*linux.CRM // nil: it does not answer
	// Err is why it does not answer. Slow: crm_mon has not ended in time.
	Err            string
	Slow, Starting bool
	CIB            *linux.CIB // nil: it cannot be read, or was not asked for
	// Waits: after a cold start corosync gives no quorum before it has seen every server at
	// once (wait_for_all).
	Waits bool
}

// ClusterRequest asks for a Host.Cluster without CIB and Waits, for which a request has CIB and
// CmdWaits.
func ClusterRequest() Request { return Request{Run: [][]string{strings.Fields(CmdCRM)}} }

// Cluster is the host's cluster.
func (h *Host) Cluster() Cluster {
	c := Cluster{CIB: h.CIB, Waits: linux.ParseWaits(h.Run[CmdWaits].Stdout)}
	r := h.Run[linux.CRMCommand]
	m, err := linux.ParseCRM(r.Stdout)
	switch {
	case err == nil && slices.Contains([]string{"init", "starting_daemons", "wait_for_ping"}, m.Stack.Daemon):
		// It does not know the servers yet.
		c.Err, c.Starting = "pacemaker is starting", true
	case err == nil:
		c.CRM = m
	case r.Err != "":
		c.Err, c.Slow = r.Err, r.Cause == resource.TimedOut
	case strings.TrimSpace(r.Stdout) == "" && r.Stderr != "":
		c.Err = strings.TrimSpace(r.Stderr)
	default:
		c.Err = err.Error()
	}
	return c
}

// ServiceIn finds the cluster resource that runs a service, nil if there is none. The first
// releases named it as the service.
func ServiceIn(c *linux.CRM, service string) *linux.CRMResource {
	return cmp.Or(c.Resource(resource.ServiceID(service)), c.Resource(service))
}

// onlyOwn removes all attributes of nodes except Mortar's, which hold no secrets.
func onlyOwn(c *linux.CIB) *linux.CIB {
	for i := range c.Nodes {
		c.Nodes[i].Attrs = slices.DeleteFunc(c.Nodes[i].Attrs, func(a linux.CIBPair) bool { return !strings.HasPrefix(a.Name, "mortar-") })
	}
	return c
}
