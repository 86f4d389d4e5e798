package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/claim"
)

// Prepared is a plan and the hosts it was made for.
type Prepared struct {
	Plan  *Plan
	Hosts map[string]*host.Session
	// Applied is the spec that was applied before; nil: none was recorded.
	Applied *claim.Applied
}

// Close ends the sessions.
func (p *Prepared) Close() { host.CloseAll(p.Hosts) }

// Served says whether the services ran before anything was applied.
func (p *Prepared) Served() bool {
	return !slices.ContainsFunc(p.Plan.Pending(), func(s Planned) bool { return s.Stage == StageService })
}

// PrepareOptions of Prepare.
type PrepareOptions struct {
	Connect  host.Options
	Keep     bool                    // a cluster key that has to be made is kept
	Progress func(host, what string) // is told what is being done
	// Onto is the generation whose difference to the spec a person has seen and accepts.
	Onto int
	// Unexport are exports, by their paths in the spec as it was, that the user lets go.
	Unexport []string
	// Build is the binary that Connect pushes. AllowDowngrade replaces a newer one.
	Build          release.Build
	AllowDowngrade bool
	// Only keeps the steps for which it is true; nil: all.
	Only func(Step) bool
	// Limit has the hosts whose steps the plan has; nil: all. The servers are asked anyway.
	Limit map[string]bool
}

// Prepare does everything that comes before the first change: it reaches every
// host, observes and compares. An error means that nothing was changed; it is a
// host.ErrUnreachable if a server does not answer. A client that does not is left out.
func Prepare(ctx context.Context, d *design.Design, o PrepareOptions) (*Prepared, error) {
	targets, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, err
	}
	o.Connect.Progress = o.Progress
	return prepare(ctx, d, slices.Sorted(maps.Keys(targets)), func(ctx context.Context, name string) (*host.Session, error) {
		return host.Connect(ctx, targets[name], o.Connect)
	}, o)
}

// prepare is Prepare for hosts that dial connects to.
func prepare(ctx context.Context, d *design.Design, names []string, dial host.Dial, o PrepareOptions) (*Prepared, error) {
	names = slices.DeleteFunc(names, func(n string) bool {
		return o.Limit != nil && !o.Limit[n] && !slices.Contains(d.Servers(), n)
	})
	hosts, failed := host.All(ctx, names, dial)
	p, left := &Prepared{Hosts: hosts}, leftOut{d, hosts, host.Errors{}}
	err := cmp.Or(ctx.Err(), left.leave(failed.Join()))
	if err == nil {
		p.Plan, p.Applied, err = compare(ctx, d, hosts, o, left)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	p.Plan.Left = left.why
	return p, nil
}

// leftOut are the clients that a plan leaves out, because they do not answer.
type leftOut struct {
	d     *design.Design
	hosts map[string]*host.Session
	why   host.Errors
}

// leave takes the clients that do not answer out of the hosts, and out of an error of several
// hosts. What remains is a reason not to go on.
func (l leftOut) leave(err error) error {
	var several host.Errors
	if !errors.As(err, &several) {
		return err
	}
	for n, why := range several {
		if !IsClient(l.d, n) || !doesNotAnswer(why) {
			continue
		}
		if s := l.hosts[n]; s != nil {
			s.Close()
		}
		l.why[n] = why
		delete(l.hosts, n)
		delete(several, n)
	}
	return several.Join()
}

// doesNotAnswer tells whether a host does not answer: it is off, it has gone meanwhile, or something
// hangs on it.
func doesNotAnswer(err error) bool {
	var silent *agent.SilentError
	return errors.Is(err, host.ErrUnreachable) || errors.Is(err, agent.ErrLost) || errors.As(err, &silent)
}

// IsClient tells whether a host is none of the servers.
func IsClient(d *design.Design, name string) bool { return !slices.Contains(d.Servers(), name) }

// compare makes the plan of what the hosts lack, and returns the spec applied before.
func compare(ctx context.Context, d *design.Design, hosts map[string]*host.Session, o PrepareOptions, left leftOut) (_ *Plan, applied *claim.Applied, _ error) {
	binaries := map[string]string{}
	for _, v := range d.Spec.Servers {
		hello, err := hosts[v.Name].Hello(ctx)
		if err != nil {
			return nil, nil, err
		}
		binaries[v.Name] = hello.Binary
	}
	lustre, err := LustreSourceOf(d.Spec)
	if err != nil {
		return nil, nil, err
	}
	o.Progress("", "observing")
	var steps []Step
	var facts Facts
	for try := 0; ; try++ {
		facts, err = Observe(ctx, hosts)
		if err = left.leave(err); err == nil {
			facts.SCSI, err = seeLUNs(ctx, d, hosts)
		}
		if err == nil {
			facts.Software, err = seeSoftware(ctx, d, hosts, &facts)
		}
		if err != nil {
			return nil, nil, err
		}
		facts.Lustre, facts.Unexport, applied = lustre, o.Unexport, facts.Applied
		if err := descends(d.Spec, applied, o.Onto); err != nil {
			return nil, nil, err
		}
		steps, err = Desired(d, facts, Secrets(d.Spec, o.Keep))
		// A service that moves while the servers are asked, one after the other,
		// can look as if two had it.
		if two := (Refusals)(nil); errors.As(err, &two) && try == 0 {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		break
	}
	o.Progress("", "comparing")
	steps = append(binaryLinks(d, facts, binaries, o), steps...)
	steps = slices.DeleteFunc(steps, func(s Step) bool {
		return o.Only != nil && !o.Only(s) || o.Limit != nil && !o.Limit[s.Host]
	})
	for {
		steps = slices.DeleteFunc(steps, func(s Step) bool { return IsClient(d, s.Host) && hosts[s.Host] == nil })
		p, err := Build(ctx, steps, hosts)
		if err == nil {
			if p.Notes, err = prepared.Ask(ctx, d, hosts); err == nil {
				p.DigestKey, err = DigestKey(d.Spec, o.Keep)
			}
			return p, applied, err
		}
		if err = left.leave(err); err != nil { // those that are left once more: an answer is a whole plan's
			return nil, nil, err
		}
	}
}

// Located gives errors of hosts and refusals their place in the spec.
func Located(s *spec.Spec, err error) error {
	var several host.Errors
	var one *host.Error
	var refusals Refusals
	var all spec.Errors
	switch {
	case errors.As(err, &refusals):
		for _, r := range refusals {
			what := r.What
			if !strings.Contains(what, r.Host) {
				what = r.Host + ": " + what
			}
			line, col := locate(s, r.Host, "name", r.Args)
			all = append(all, &spec.Error{File: s.File, Line: line, Col: col, Msg: what, Mend: r.Mend, Identity: r.Identity})
		}
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = host.Errors{one.Host: one}
	default:
		return err
	}
	for _, e := range several {
		if !errors.As(e, &one) {
			return err
		}
		field := "address"
		if errors.Is(one, host.ErrHostKey) {
			field = "host_key"
		}
		line, col := locate(s, one.Host, field, nil)
		bare := *one
		bare.Mend = ""
		all = append(all, &spec.Error{File: s.File, Line: line, Col: col, Msg: bare.Error(), Mend: one.Mend})
	}
	slices.SortStableFunc(all, func(a, b *spec.Error) int { return cmp.Or(a.Line-b.Line, a.Col-b.Col) })
	return all
}

// locate finds where in a spec something stands that went wrong with a host: the first disk
// that a refusal names, or the host's field ("address", "host_key" …), or the host, or the
// beginning of the file.
func locate(s *spec.Spec, host, field string, refused health.Args) (line, col int) {
	named := func(serial string) bool {
		some, _ := refused["disks"].([]string)
		return serial == refused["disk"] || slices.Contains(some, serial)
	}
	for i, e := range s.Enclosures {
		for k, l := range e.Disks {
			// A spec that was parsed has serials without an error.
			if serials, err := l.Serials(); err == nil && slices.ContainsFunc(serials, named) {
				return s.Pos(fmt.Sprintf("enclosures[%d].disks[%d].serial", i, k))
			}
		}
	}
	return s.HostPos(host, field)
}
