package resource

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Cluster is a cluster that is complete: every node is a member, and a
// coordinator is elected. That comes by itself once the daemons run.
type Cluster struct {
	Name    string
	Nodes   []string
	Seconds int // how long it may take, once Pacemaker was started
}

func (c *Cluster) Identity() (kind, id string) { return "cluster", c.Name }

// Settle is how long nodes may take to join.
func (c *Cluster) Settle() time.Duration { return time.Duration(c.Seconds) * time.Second }

// Diff looks at the members as Pacemaker sees them.
func (c *Cluster) Diff(sys Look) ([]Action, error) {
	wait := Action{
		Title: "wait for all nodes of cluster " + c.Name, Cmd: []string{"crmadmin", "--dc_lookup", "--timeout=60s"}, Seconds: 90,
		OKCodes: notYet,
	}
	f, err := clusterFacts(sys.Ctx, sys)
	if sys.Check(err); f == nil {
		return []Action{wait}, nil
	}
	missing := lists.Only(c.Nodes, func(n string) bool { return !f.Node(n).Member() })
	switch {
	case len(missing) > 0:
		wait.Why = strings.Join(missing, ", ") + " has not joined; see journalctl -u corosync -u pacemaker there"
	case !f.DC.Present:
		wait.Why = "no coordinator is elected yet; see journalctl -u pacemaker"
	default:
		return nil, nil
	}
	return []Action{wait}, nil
}

// restsInStandby tells whether a fence device is stopped, and not failed, while a server
// is in standby: that may be the only one that may run it, and to wait for it
// would be in vain.
func restsInStandby(c *linux.CRM, r *linux.CRMResource) bool {
	standby := slices.ContainsFunc(c.Nodes, func(n linux.CRMNode) bool { return n.Standby })
	return standby && strings.HasPrefix(r.Agent, "stonith:") && r.Role == "Stopped" && !r.Failed
}

// notYet are exit codes of Pacemaker's tools while it is starting, or when
// their time is over: whether all is well is told by the next look.
// Source: crm_error -X -l: 1 unspecified, 69 unavailable, 102 no connection,
// 105 not found, 124 timeout.
var notYet = []int{1, 69, 102, 105, 124}

// Running are resources of the cluster that Pacemaker is to have started: a
// service, or the fence devices.
type Running struct {
	Name      string
	Resources []string // IDs in the CIB
	Seconds   int      // how long it may take
}

func (s *Running) Identity() (kind, id string) { return "running", s.Name }

// Settle is how long starting may take.
func (s *Running) Settle() time.Duration { return time.Duration(s.Seconds) * time.Second }

// Diff asks crm_mon; what Pacemaker recorded as failed is the reason given.
func (s *Running) Diff(sys Look) ([]Action, error) {
	// The wait looks again and again. crm_resource --wait would wait until the whole
	// cluster has nothing left to do.
	wait := Action{
		Title: "wait until " + s.Name + " runs", Cmd: []string{"crm_resource", "--locate", "--resource", s.Resources[0]},
		OKCodes: notYet, Seconds: 60,
	}
	f, err := clusterFacts(sys.Ctx, sys)
	if sys.Check(err); f == nil {
		return []Action{wait}, nil
	}
	var down []string
	var as []Action
	for _, id := range s.Resources {
		r := f.Resource(id)
		switch {
		case r == nil:
			down = append(down, id+" is not running")
			continue
		case restsInStandby(f, r):
			continue
		}
		// While Pacemaker tries another server, its try is waited for.
		idle := r.Role != "Started" && r.Role != "Starting"
		if failed := failedToStart(f, id); idle && strings.HasPrefix(r.Agent, "stonith:") && failed != "" {
			as = append(as, Action{
				Title: "have Pacemaker start " + id + " again",
				Why:   "its device did not answer in time; Pacemaker would try again after 10 minutes",
				Cmd:   []string{"crm_resource", "--cleanup", "--resource", id}, Occasion: failed, OKCodes: notYet, Seconds: 60,
			})
		}
		if r.Role != "Started" || r.Node() == "" || r.Failed {
			down = append(down, notRunning(r))
		}
	}
	if len(down) == 0 {
		return nil, nil
	}
	wait.Why = strings.Join(down, ", ")
	var why []string
	for _, x := range f.Failures {
		if t := x.Op + " on " + x.Node + ": " + cmp.Or(x.Reason, x.Status); !slices.Contains(why, t) {
			why = append(why, t)
		}
	}
	if len(why) > 0 {
		wait.Why += fmt.Sprintf(" (%s; when mended: crm_resource --cleanup)", strings.Join(why, "; "))
	}
	return append(as, wait), nil
}

// notRunning says what Pacemaker does with a resource that does not run.
func notRunning(r *linux.CRMResource) string {
	switch {
	case r.Failed:
		return r.ID + " has failed"
	case r.Blocked:
		return r.ID + " is blocked: Pacemaker does nothing with it until an administrator acts"
	case r.Role == "Starting" && r.Node() != "":
		return r.ID + " is still starting on " + r.Node() + " (see journalctl -u pacemaker there)"
	}
	return r.ID + " is not running"
}

// Everywhere is a clone that is to run on each server that is online and not in
// standby.
type Everywhere struct {
	Resource string // ID in the CIB
	// Able are resources that each server must be able to run: services.
	Able    []string `json:",omitempty"`
	Servers []string
	Seconds int // how long it may take
}

func (e *Everywhere) Identity() (kind, id string) { return "everywhere", e.Resource }

// Settle is how long starting may take.
func (e *Everywhere) Settle() time.Duration { return time.Duration(e.Seconds) * time.Second }

// Diff asks crm_mon. Pacemaker remembers of a server that joined before its agents
// were there that it cannot run them ("not installed"), and never asks again by
// itself, nor when the server leaves standby.
func (e *Everywhere) Diff(sys Look) ([]Action, error) {
	wait := func(server string) Action {
		return Action{
			Title: "wait until " + e.Resource + " runs on " + server, Cmd: []string{"crm_resource", "--locate", "--resource", e.Resource}, OKCodes: notYet, Seconds: 60,
		}
	}
	f, err := clusterFacts(sys.Ctx, sys)
	if sys.Check(err); f == nil {
		return []Action{wait(e.Servers[0])}, nil // it is started before
	}
	var as []Action
	for _, server := range e.Servers {
		n := f.Node(server)
		if !n.Member() {
			continue
		}
		runs := slices.ContainsFunc(f.Cloned, func(r linux.CRMResource) bool {
			return r.ID == e.Resource && r.Node() == server && r.Role == "Started"
		})
		lacking := f.Lacking(server)
		again := 0
		for _, id := range append([]string{e.Resource}, e.Able...) {
			if slices.Contains(lacking, id) {
				again++
				as = append(as, Action{
					Title: "have Pacemaker look at " + id + " on " + server + " again", Why: "when it looked, the agent was not there, and it would never start it there",
					Cmd: []string{"crm_resource", "--refresh", "--resource", id, "--node", server}, OKCodes: notYet, Seconds: 60,
				})
			}
		}
		if !runs && again == 0 && !n.Standby {
			as = append(as, wait(server))
		}
	}
	return as, nil
}

// failedToStart says on which servers, and when, Pacemaker could not start a resource;
// "" if it remembers no such failure.
func failedToStart(c *linux.CRM, id string) string {
	var all []string
	for _, f := range c.Failures {
		if f.Op == id+"_start_0" {
			all = append(all, f.Node+" "+f.When)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
