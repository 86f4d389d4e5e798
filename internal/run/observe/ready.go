package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Snapshot is the cluster's state at one moment, with the services of its pair.
type Snapshot struct {
	gather.Cluster // that answers
	Services       []ServiceState
}

// ServiceState of one service.
type ServiceState struct {
	Name     string
	Resource string // its ID in the cluster
	Server   string // "" if nowhere
	Role     string // Started, Stopped, Starting …
	// Failed: its last action failed, and the cluster has not made up for it. The cluster
	// calls a service Started whose start failed, until it has stopped it.
	Failed   bool
	Failures []Failure
	// Leftover has the constraints that a move left behind.
	Leftover []string
}

// Failure is an action of a service that failed on a server.
type Failure struct {
	Task, Node, Text string
	Refusal          refusal.Code // of the agent; "" if it gave none
}

func (f Failure) String() string { return fmt.Sprintf("%s on %s: %s", f.Task, f.Node, f.Text) }

// Runs says whether the service is started, and its last action did not fail.
func (s *ServiceState) Runs() bool { return s.Role == "Started" && !s.Failed }

// Service returns the state of a service, nil if it has none.
func (s *Snapshot) Service(name string) *ServiceState {
	return lists.Find(s.Services, func(x *ServiceState) bool { return x.Name == name })
}

// Cluster returns the state of the cluster as one host sees it, without its configuration: no
// service has a Leftover. It is much cheaper than Collect, for callers that wait for a change.
func (c *Collector) Cluster(ctx context.Context, host string) (*Snapshot, error) {
	h, err := c.gather(ctx, host, gather.Request{TimeoutMS: int(c.timeout.Milliseconds())}.With(gather.ClusterRequest()))
	if err != nil {
		return nil, err
	}
	cl := h.Cluster()
	if cl.CRM == nil {
		return nil, fmt.Errorf("crm_mon on %s: %s", host, cl.Err)
	}
	return snapshot(c.d.PairWith(host), cl), nil
}

// HasAddress reports whether a host has an address on an interface that is up.
func (c *Collector) HasAddress(ctx context.Context, host, address string) (bool, error) {
	h, err := c.gather(ctx, host, gather.Request{})
	return err == nil && h.HasAddress(address), err
}

func (c *Collector) gather(ctx context.Context, name string, r gather.Request) (gather.Host, error) {
	return host.Ask(ctx, c.Session(name), gather.Op, r)
}

func snapshot(p *design.Pair, c gather.Cluster) *Snapshot {
	s := &Snapshot{Cluster: c}
	for i := range p.Services {
		st := ServiceState{Name: p.Services[i].Name}
		if r := gather.ServiceIn(c.CRM, st.Name); r != nil {
			st.Resource, st.Server, st.Role, st.Failed = r.ID, r.Node(), r.Role, r.Failed
			for _, f := range c.Failures {
				if f.Resource() == r.ID {
					st.Failures = append(st.Failures, Failure{f.Task, f.Node, f.String(), refusal.CodeIn(f.Reason)})
				}
			}
			for _, l := range c.CIB.Moves() {
				if l.Resource == r.ID {
					st.Leftover = append(st.Leftover, l.ID)
				}
			}
		}
		s.Services = append(s.Services, st)
	}
	return s
}

// ClusterOf returns the snapshot of a pair from facts; nil if no server's cluster
// answered.
func ClusterOf(d *design.Design, p *design.Pair, f Facts) *Snapshot {
	v := newView(d, p, f)
	if v.crm == nil {
		return nil
	}
	return snapshot(p, v.crmOf.cluster)
}

// Obstacle is one reason why a server cannot take a service over. Its text has the remedy.
type Obstacle struct {
	Code Code // that of the finding of status, where status has one
	Text string
}

// Obstacles are all reasons.
type Obstacles []Obstacle

// Texts are those of all reasons.
func (o Obstacles) Texts() []string {
	return lists.Map(o, func(x Obstacle) string { return x.Text })
}

// Codes are those of all reasons.
func (o Obstacles) Codes() []string {
	return lists.Map(o, func(x Obstacle) string { return string(x.Code) })
}

// NotReady returns why a server cannot take a service over now, nothing if it can.
func NotReady(d *design.Design, f Facts, service, target string) (why Obstacles) {
	add := func(code Code, format string, args ...any) Obstacles {
		why = append(why, Obstacle{code, fmt.Sprintf(format, args...)})
		return why
	}
	p := d.PairOf(service)
	if p == nil {
		return add("service-unknown", "this brick has no service %s", service)
	}
	v := ha{newView(d, p, f)}
	t := v.byName[target]
	switch {
	case p.HA == nil:
		return add("one-server", "this brick has one server: there is nothing to move a service to")
	case t == nil:
		return add("host-unknown", "%s is not a server of this brick", target)
	case t.host == nil:
		return add(HostSilent, "%s does not answer: %s", target, oneLine(t.err))
	case t.cluster.CRM == nil:
		p := t.noCluster(&Part{})
		return add(p.Code, "%s", p.Text)
	case v.crm == nil:
		return add("cluster-silent", "no server's cluster answers")
	}
	if p := v.member(target); p.Level != OK {
		add(p.Code, "%s", p.Text)
	}
	if !v.crm.DC.Present || !v.crm.DC.Quorum {
		add("no-quorum", "the cluster has no coordinator with quorum: it would not act")
	}
	if v.crm.Options.Maintenance {
		add("maintenance", "the cluster is in maintenance mode: it would not act")
	}
	svc := d.Service(service)
	r := gather.ServiceIn(v.crm, service)
	if svc == nil || r == nil {
		return add("service-not-in-cluster", "the cluster does not know service %s; run `mortar apply`", service)
	}
	from := v.byName[v.where(svc).Server]
	if from != nil && from.host != nil {
		// The target must reach the disks that the service uses now.
		var lost []string
		for i := range d.Disks {
			x := &d.Disks[i]
			if (x.Service == service || x.Service == "") && from.reaches(x) && !t.reaches(x) {
				lost = append(lost, diskName(x))
			}
		}
		if len(lost) > 0 {
			add("disks-out-of-reach", "%s does not reach %s, which %s does", target, health.List(lost), from.name)
		}
	}
	if v.crm.Barred(r.ID, target) {
		add("start-failed", "%s failed to start on %s before; when that is mended: `crm_resource --cleanup --resource %s`", service, target, r.ID)
	}
	if slices.Contains(v.crm.Lacking(target), r.ID) {
		add("agent-missing", "the cluster remembers that %s lacks the agent of %s; `mortar apply` has it look again", target, service)
	}
	for _, b := range v.crm.Bans {
		if b.Resource == r.ID && b.Node == target {
			add(map[bool]Code{true: MoveLeftover, false: "service-banned"}[linux.LeftByMove(b.ID)], "constraint %s keeps %s off %s; take it away with `crm_resource --resource %s --clear`", b.ID, service, target, r.ID)
		}
	}
	if from != nil && from.name != target && !v.fenceable(from.name) {
		add("not-fenceable", "%s cannot be fenced: if its service did not stop, nothing could take it over", from.name)
	}
	return why
}

// fenceable reports whether any fence level of a node works.
func (v ha) fenceable(node string) bool {
	if !v.crm.Options.Stonith {
		return false
	}
	return slices.ContainsFunc(v.pair.HA.Levels(node), func(l *design.FenceLevel) bool {
		return !slices.ContainsFunc(v.devices(l), func(p *Part) bool { return p.Level == Fault })
	})
}

// Timeout is how long the collector waits for a host.
func (c *Collector) Timeout() time.Duration { return c.timeout }
