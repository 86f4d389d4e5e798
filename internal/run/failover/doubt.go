package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	indoubt "github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Refused is what a server refused to start a service for.
type Refused struct {
	Node  string
	Doubt *indoubt.Doubt
	raw   []byte // of the server's file
}

// InDoubt reads on each server of a service's pair what it refused the last start of
// the service for. It returns the newest that is complete, or the newest; nil: no server
// has refused.
func InDoubt(ctx context.Context, d *design.Design, f observe.Facts, h Hosts, service string) (*Refused, error) {
	svc, snap, _, err := serviceOf(d, f, service)
	if err != nil {
		return nil, err
	}
	var found *Refused
	for _, node := range d.PairOf(svc.Name).Servers {
		if !able(snap, f, node) {
			continue
		}
		r, err := readDoubt(ctx, h, node, indoubt.DoubtFile(svc.Name))
		if err != nil {
			return nil, err
		}
		if r != nil && (found == nil || r.tellsMore(found)) {
			found = r
		}
	}
	return found, nil
}

// NameDoubt adds to what confirm-doubt has accepted whose the blocks are, as the start that
// accepted them wrote it down. Of a service that ran before it is the newest such list; without
// one p.Doubt stays nil.
func NameDoubt(ctx context.Context, d *design.Design, f observe.Facts, h Hosts, p *Plan) {
	var named *indoubt.Doubt
	why := "no server that answers has written it down"
	if p.Doubt != nil && !slices.ContainsFunc(p.Doubt.Arrays, func(a indoubt.ArrayInDoubt) bool { return len(a.Blocks) > 0 }) {
		why = "any block may be wrong"
	}
	for _, node := range d.PairOf(p.Service).Servers {
		if f.Hosts[node].Host == nil {
			continue
		}
		switch r, err := readDoubt(ctx, h, node, ocf.NamedFile(p.Service)); {
		case err != nil:
			why = err.Error()
		case r == nil || p.Doubt != nil && !r.Doubt.At.Equal(p.Doubt.At): // of another crash
		case named == nil || r.Doubt.At.After(named.At):
			named = r.Doubt
		}
	}
	switch {
	case named != nil:
		if p.Doubt = named; named.Owners != nil {
			nameObjects(ctx, d, h, named.Owners)
		}
	case p.Doubt != nil:
		p.Doubt.Unnamed = why
	}
}

// What nameObjects asks: a client that does not answer is not the only one, and an MDT that
// is down lets all of them hang.
const (
	clientsAsked = 3
	filesAsked   = 256
	namesTime    = 30 * time.Second
)

// nameObjects adds the paths of files that Lustre's servers know by FID only. The first
// client that answers tells them; a file that has been removed has none.
//
// Source: lfs-fid2path(1)
func nameObjects(ctx context.Context, d *design.Design, h Hosts, o *indoubt.Owners) {
	var fids []string
	for _, f := range o.Files {
		if f.Path == "" && f.FID != "" && !slices.Contains(fids, f.FID) {
			fids = append(fids, f.FID)
		}
	}
	if len(fids) == 0 {
		return
	}
	last := errors.New("the spec has no client")
	for _, m := range d.Mounts[:min(len(d.Mounts), clientsAsked)] {
		mctx, cancel := context.WithTimeout(ctx, namesTime/clientsAsked)
		paths, err := pathsOf(mctx, h, m, fids[:min(len(fids), filesAsked)])
		cancel()
		for i := range o.Files {
			o.Files[i].Path = cmp.Or(o.Files[i].Path, paths[o.Files[i].FID])
		}
		if last = err; err == nil {
			if len(fids) > filesAsked {
				last = fmt.Errorf("only the first %d were asked for", filesAsked)
			}
			break
		}
		last = fmt.Errorf("%s: %w", m.Client, err)
	}
	if last != nil {
		o.Unsearched = strings.TrimPrefix(fmt.Sprintf("%s; paths that lfs fid2path on a client did not tell: %v", o.Unsearched, last), "; ")
	}
}

// pathsOf asks one client. A name may have any byte but a slash, so each file is asked for
// alone, and for one of its names. The exit code is the error number.
//
// Source: lfs_fid2path() in lustre/utils/lfs.c
func pathsOf(ctx context.Context, h Hosts, m design.ClientMount, fids []string) (map[string]string, error) {
	paths := map[string]string{}
	mounts, err := h.Session(m.Client).Read(ctx, "/proc/self/mounts")
	if _, mounted := linux.MountAt(linux.ParseMounts(mounts), m.Path); err != nil || !mounted {
		return paths, cmp.Or(err, fmt.Errorf("%s is not mounted", m.Path))
	}
	var other error
	for _, fid := range fids {
		out, err := h.Session(m.Client).Query(ctx, "lfs", "fid2path", "--link", "0", m.Path, fid)
		switch {
		case err != nil:
			return paths, err
		case out.Code == 0:
			paths[fid] = strings.TrimSuffix(out.Stdout, "\n")
		case out.Code != int(unix.ENOENT):
			other = errors.New(strings.TrimSpace(out.Stderr))
		}
	}
	return paths, other
}

// tellsMore says whether a refusal is better to show than another one.
func (r *Refused) tellsMore(than *Refused) bool {
	if whole := r.Doubt.Remaining() == 0; whole != (than.Doubt.Remaining() == 0) {
		return whole
	}
	return r.Doubt.At.After(than.Doubt.At)
}

// readDoubt reads a file of a server; nil: it is not there.
func readDoubt(ctx context.Context, h Hosts, node, file string) (*Refused, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	there, err := h.Session(node).Query(ctx, "ls", path.Dir(file))
	if err == nil && !slices.Contains(strings.Fields(there.Stdout), path.Base(file)) {
		return nil, nil
	}
	var text string
	if err == nil {
		text, err = h.Session(node).Read(ctx, file)
	}
	var d *indoubt.Doubt
	if err == nil {
		d, err = indoubt.ParseDoubt([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", node, file, err)
	}
	return &Refused{Node: node, Doubt: d, raw: []byte(text)}, nil
}

// ConfirmDoubt plans to start a service although the blocks that the agent listed may be
// wrong. Run writes the list to each server that could start the service. The watcher there
// sees the list, and has Pacemaker forget the failure.
func ConfirmDoubt(d *design.Design, f observe.Facts, service string, r *Refused) (*Plan, error) {
	svc, snap, st, err := serviceOf(d, f, service)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "confirm-doubt", Service: svc.Name}
	switch {
	case st.Runs():
		p.Nothing = fmt.Sprintf("service %s runs on %s", svc.Name, st.Server)
		return p, nil
	case r == nil:
		return nil, resource.Refuse("doubt-none", resource.With{"service": svc.Name})
	}
	p.To, p.Via, p.Doubt = r.Node, r.Node, r.Doubt
	var told []string
	for _, node := range d.PairOf(svc.Name).Servers {
		if !able(snap, f, node) {
			continue
		}
		told = append(told, node)
		p.Steps = append(p.Steps, Step{Title: fmt.Sprintf("tell %s that what is in doubt is accepted", node), On: node, Action: &resource.Action{
			Title: "accept what is in doubt", File: &resource.File{Path: indoubt.AcceptedFile(svc.Name), Content: r.raw, Mode: 0o600},
			Why: "the agent starts the service if no other block is in doubt, and removes the file"}})
	}
	p.Steps = append(p.Steps, Step{Title: fmt.Sprintf("wait until %s runs", svc.Name), Until: runsAgain(svc.Name, told, st.Failures), Hint: svc.Floating()})
	return p, nil
}

// able says whether a server could start a service.
func able(snap *observe.Snapshot, f observe.Facts, node string) bool {
	n := snap.Node(node)
	return f.Hosts[node].Host != nil && n.Member() && !n.Standby
}

// runsAgain waits until a service runs. A failure on one of these servers that is not in before
// ends the wait; another one may join meanwhile, and refuse.
func runsAgain(service string, servers []string, before []observe.Failure) func(*observe.Snapshot) (bool, string, error) {
	return func(s *observe.Snapshot) (bool, string, error) {
		st, err := procedure.Current(s, service, func(f observe.Failure) bool {
			return !slices.Contains(before, f) && f.Refusal != refusal.Comparing && slices.Contains(servers, f.Node)
		})
		if err != nil {
			return false, "", err
		}
		switch {
		case st.Runs():
			return true, fmt.Sprintf("%s runs on %s", service, st.Server), nil
		case st.Server == "" || st.Failed:
			return false, service + " is stopped, not yet started", nil
		}
		return false, fmt.Sprintf("%s is %s on %s", service, strings.ToLower(st.Role), st.Server), nil
	}
}
