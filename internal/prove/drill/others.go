package drill

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// service returns the service under test: Env.Service, or the design's first.
func (env Env) service() (*design.Service, error) {
	if env.Service == "" {
		return env.Design.Pairs[0].First(), nil
	}
	var names []string
	for _, s := range env.Design.Services() {
		if s.Name == env.Service {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, &Refused{fmt.Sprintf("there is no service %q; there are: %v", env.Service, names)}
}

// other is a service other than the one under test. It gets the same load, and
// the drill judges it too.
type other struct {
	service *design.Service
	on      string // server of the service at the time of the fault

	looks    map[string][]look
	location []string // in the end
	stall    float64  // longest stall of its clients' writers and readers, seconds
}

// others returns all other services of a service's pair. Another pair has a
// cluster of its own.
func others(d *design.Design, but string) []*other {
	var out []*other
	all := d.PairOf(but).Services
	for i := range all {
		if all[i].Name != but {
			out = append(out, &other{service: &all[i]})
		}
	}
	return out
}

// second is the service on another pair that a drill with Variant.Second is about too.
type second struct {
	service          *design.Service
	servers          []string
	others           []*other
	resource         string // of the service, in Pacemaker
	active, survivor string
	fault            int64 // of its server; administrator's clock, ns
}

// evidence is that of the second service: its own, and what is the same for both.
func (s *second) evidence(of *evidence) *evidence {
	return &evidence{mounted: s.service.MountPoints()[0], drill: of.drill, expect: of.expect, fault: cmp.Or(s.fault, of.fault), active: s.active, survivor: s.survivor, resource: s.resource,
		nodes: s.servers, service: s.service.Name, others: s.others}
}

// opposite returns the first service of the first pair whose role is another one: the
// first OST for an MDS, the MDS for an OST.
func opposite(d *design.Design, s *design.Service) (*design.Service, error) {
	if !kind.Of(d).NamesApart() {
		return nil, errNoLustre
	}
	role := d.PairOf(s.Name).Role
	for i := range d.Pairs {
		if p := &d.Pairs[i]; p.Role != role {
			return p.First(), nil
		}
	}
	return nil, fmt.Errorf("every pair of the brick has the role %q", role)
}

// elsewhere returns the services under watch on other pairs.
func (e *engine) elsewhere() []*second {
	if e.second == nil {
		return e.bystanders
	}
	return append([]*second{e.second}, e.bystanders...)
}

// elsewhere is the evidence of other pairs.
func (e *evidence) elsewhere() []*evidence {
	if e.second == nil {
		return e.bystanders
	}
	return append([]*evidence{e.second}, e.bystanders...)
}

// elsewhere is what must happen on a pair that the drill is not about: nothing, but
// for faults of the whole rack.
func (x Expect) elsewhere(steps []Step) Expect {
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.Fault.Kind == FeedOff || s.Fault.Kind == SwitchDown }) {
		return Expect{Where: Stays, Fencing: Nobody}
	}
	out := Expect{Where: x.Where, Fencing: x.Fencing}
	if out.Where == Moves {
		out.Where = Anywhere
	}
	if out.Fencing == Victim {
		out.Fencing = Allow
	}
	return out
}

// judgeBystander sums up the checks of a pair that the drill is not about.
func (e *evidence) judgeBystander() report.Check {
	c := report.Check{Name: "servers " + strings.Join(e.nodes, ", "), OK: true}
	var right, wrong []string
	for _, x := range e.judgePair() {
		if x.OK {
			right = append(right, x.Name)
		} else {
			wrong = append(wrong, x.Name+": "+x.Detail)
		}
	}
	if c.Detail = "right: " + strings.Join(right, ", "); len(wrong) > 0 {
		c.OK, c.Detail = false, strings.Join(wrong, "; ")
	}
	return c
}

// everyOther returns the services that the drill judges beside those that it is about.
func (e *engine) everyOther() []*other {
	out := slices.Clone(e.others)
	for _, x := range e.elsewhere() {
		out = append(out, x.others...)
	}
	return out
}

// ofHosts returns the events that hosts logged.
func ofHosts(events []report.Event, hosts []string) []report.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e report.Event) bool { return !slices.Contains(hosts, e.Host) })
}

// where is the server of a service at the time of the fault.
func (e *engine) where(service string) string {
	for _, o := range e.others {
		if o.service.Name == service {
			return o.on
		}
	}
	return e.active
}

// places returns the servers that another service may end on. The fate of its
// server decides: a service on the partner stays there. A service on the server
// of the service under test goes where that goes, unless a command moved only
// that one.
func (e *evidence) places(o *other) []string {
	switch {
	case e.expect.Where == Anywhere:
		return e.nodes
	case o.on == e.active && e.expect.Where == Moves && !e.byCommand:
		return []string{e.survivor}
	}
	return []string{o.on}
}

// judgeOthers checks the services other than the one under test.
func (e *evidence) judgeOthers(fenced map[string]int64) (checks []report.Check) {
	// The agents' logs are those of the service under test.
	own := slices.DeleteFunc(slices.Clone(e.events), func(ev report.Event) bool { return ev.Source == "ocf" })
	for _, o := range e.others {
		want := e.places(o)
		again, restarted := firstRestart(own, e.fault, resource.ServiceID(o.service.Name))
		c := report.Check{Name: "service " + o.service.Name, OK: len(o.location) == 1 && slices.Contains(want, o.location[0])}
		switch {
		case !c.OK:
			c.Detail = fmt.Sprintf("it runs on %v, not on %v", o.location, want)
		case e.expect.Where == Stays && restarted:
			c.OK, c.Detail = false, e.restart(o.location[0], again)
		case o.location[0] == o.on:
			c.Detail = fmt.Sprintf("it stayed on %s; its clients' longest stall was %s", o.on, report.Seconds(o.stall))
		default:
			c.Detail = fmt.Sprintf("it moved from %s to %s as well; its clients' longest stall was %s", o.on, o.location[0], report.Seconds(o.stall))
		}
		checks = append(checks, c)
		if early := unreleased(own, o.looks, e.fault, o.on, resource.ServiceID(o.service.Name)); early != "" {
			checks = append(checks, report.Check{Name: "let go before taken over (" + o.service.Name + ")", Detail: early})
		}
		c = report.Check{Name: "volume of " + o.service.Name}
		n := 0
		for _, h := range e.nodes {
			n += len(o.looks[h])
		}
		switch twice := doubleMount(o.looks, fenced); {
		case twice != "":
			c.Detail = twice
		case n == 0:
			c.Detail = "the servers' mounts could not be read"
		default:
			c.OK, c.Detail = true, fmt.Sprintf("%d looks at the servers' mounts found it on one server at most", n)
		}
		checks = append(checks, c)
	}
	return checks
}

// of returns the results of the workers on a service's mounts.
func of(ls []loaded, service string) []loaded {
	if service == "" {
		return ls
	}
	var out []loaded
	for _, l := range ls {
		mine := func(worker string) bool {
			m := l.mounts[worker]
			return kind.For(m).Uses(m, service)
		}
		r := l.result
		r.Workers = nil
		for _, w := range l.result.Workers {
			if mine(w.Worker) {
				r.Workers = append(r.Workers, w)
			}
		}
		r.Stalls = nil
		for _, s := range l.result.Stalls {
			if mine(s.Worker) {
				r.Stalls = append(r.Stalls, s)
			}
		}
		if len(r.Workers) > 0 {
			out = append(out, loaded{l.client, l.offset, r, l.mounts})
		}
	}
	return out
}
