package drill

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// service is the one a drill is about.
func (env Env) service() (*design.Service, error) {
	var names []string
	for _, s := range env.Design.Services() {
		if s.Name == env.Service || env.Service == "" {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, &Refused{fmt.Sprintf("there is no service %q; there are: %v", env.Service, names)}
}

// other is a service that a drill is not about. It is under the same load,
// and judged as well.
type other struct {
	service *design.Service
	on      string // server it runs on when the fault comes

	looks    map[string][]look
	location []string // in the end
	stall    float64  // longest of its clients' writers and readers
}

// others are all services of the pair but one. Services of another pair have a cluster of their own.
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

// where is the server a service runs on when the fault comes.
func (e *engine) where(service string) string {
	for _, o := range e.others {
		if o.service.Name == service {
			return o.on
		}
	}
	return e.active
}

// places are the servers another service may be on in the end. It is what
// befalls its server that counts: one on the partner stays there; one beside
// the service of the drill goes where that goes, unless it is only that one
// that was told to.
func (e *evidence) places(o *other) []string {
	switch {
	case e.expect.Where == Anywhere:
		return e.nodes
	case o.on == e.active && e.expect.Where == Moves && !e.byCommand:
		return []string{e.survivor}
	}
	return []string{o.on}
}

// judgeOthers says how the services took it that the drill was not about.
func (e *evidence) judgeOthers(fenced map[string]int64) (checks []report.Check) {
	for _, o := range e.others {
		want := e.places(o)
		c := report.Check{Name: "service " + o.service.Name, OK: len(o.location) == 1 && slices.Contains(want, o.location[0])}
		switch {
		case !c.OK:
			c.Detail = fmt.Sprintf("it runs on %v, not on %v", o.location, want)
		case o.location[0] == o.on:
			c.Detail = fmt.Sprintf("it stayed on %s; its clients' longest stall was %s", o.on, report.Seconds(o.stall))
		default:
			c.Detail = fmt.Sprintf("it moved from %s to %s as well; its clients' longest stall was %s", o.on, o.location[0], report.Seconds(o.stall))
		}
		checks = append(checks, c)
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

// of are the results of the workers on a service's mounts.
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
