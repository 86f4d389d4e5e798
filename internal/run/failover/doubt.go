package failover

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Refused is what a server refused to start a service for.
type Refused struct {
	Node  string
	Doubt *ocf.Doubt
	raw   []byte // of the server's file
}

// InDoubt reads on each server of a service's pair what it refused the last start of
// the service for. It returns the newest; nil: no server has refused.
func InDoubt(ctx context.Context, d *design.Design, f observe.Facts, h Hosts, service string) (*Refused, error) {
	svc, err := pick(d, service)
	if err != nil {
		return nil, err
	}
	pair := d.PairOf(svc.Name)
	snap := observe.ClusterOf(d, pair, f)
	if snap == nil {
		return nil, nil
	}
	var found *Refused
	for _, node := range pair.Servers {
		if n := snap.Node(node); f.Hosts[node].Host == nil || n == nil || !n.Online || n.Standby {
			continue // could not start it now
		}
		r, err := refusedBy(ctx, h, node, svc.Name)
		if err != nil {
			return nil, err
		}
		if r != nil && (found == nil || r.Doubt.At.After(found.Doubt.At)) {
			found = r
		}
	}
	return found, nil
}

func refusedBy(ctx context.Context, h Hosts, node, service string) (*Refused, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	file := ocf.DoubtFile(service)
	there, err := h.Session(node).Query(ctx, "ls", path.Dir(file))
	if err == nil && !slices.Contains(strings.Fields(there.Stdout), path.Base(file)) {
		return nil, nil
	}
	var text string
	if err == nil {
		text, err = h.Session(node).Read(ctx, file)
	}
	var d *ocf.Doubt
	if err == nil {
		d, err = ocf.ParseDoubt([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", node, file, err)
	}
	return &Refused{Node: node, Doubt: d, raw: []byte(text)}, nil
}

// ConfirmDoubt plans to start a service although blocks of its arrays may be wrong: those
// that the agent found, and no others. The watcher of the server sees that it is accepted, and
// has Pacemaker forget the failure.
func ConfirmDoubt(d *design.Design, f observe.Facts, service string, r *Refused) (*Plan, error) {
	svc, err := pick(d, service)
	if err != nil {
		return nil, err
	}
	snap := observe.ClusterOf(d, d.PairOf(svc.Name), f)
	if snap == nil {
		return nil, refuse("see `mortar status`", "no server's cluster answers")
	}
	st := snap.Service(svc.Name)
	if st == nil || st.Resource == "" {
		return nil, refuse("run `mortar apply`", "the cluster does not know service %s", svc.Name)
	}
	p := &Plan{What: "confirm-doubt", Service: svc.Name}
	switch {
	case st.Role == "Started":
		p.Nothing = fmt.Sprintf("service %s runs on %s", svc.Name, st.Server)
		return p, nil
	case r == nil:
		return nil, refuse("see `mortar status`", "no server that could start service %s has refused it because blocks are in doubt", svc.Name)
	}
	p.To, p.Via = r.Node, r.Node
	p.Steps = []Step{
		{Title: fmt.Sprintf("tell %s that what is in doubt is accepted", r.Node), Action: &resource.Action{
			Title: "accept what is in doubt", File: &resource.File{Path: ocf.AcceptedFile(svc.Name), Content: r.raw, Mode: 0o600},
			Why: "the agent starts the service if no other block is in doubt, and removes the file"}},
		{Title: fmt.Sprintf("wait until %s runs on %s", svc.Name, r.Node), until: runsOn(svc.Name, r.Node, st.Failures), hint: svc.Floating()},
	}
	return p, nil
}
