package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// Look is one query of a server's mounts. Failed queries are not recorded.
type Look struct {
	NS      int64 // when asked
	Done    int64 // when answered
	Mounted bool
}

// doubleMount finds a time at which a volume was mounted on two servers at once:
// two looks, one at each server, both found the volume mounted, and no look in
// between found otherwise. A fenced server has no power, so it counts as not
// mounted from its fencing until the next look.
func doubleMount(looks map[string][]Look, fenced map[string]int64) string {
	type span struct{ from, to int64 }
	spans := map[string][]span{}
	for host, ls := range looks {
		open := false
		for _, l := range ls {
			if !l.Mounted {
				open = false
				continue
			}
			if f, ok := fenced[host]; ok && open && l.NS > f && spans[host][len(spans[host])-1].to < f {
				open = false // seen mounted after fencing: a new span, not one across the power cut
			}
			if !open {
				spans[host] = append(spans[host], span{l.NS, l.NS})
				open = true
			}
			spans[host][len(spans[host])-1].to = l.NS
		}
	}
	hosts := slices.Sorted(maps.Keys(spans))
	for i, a := range hosts {
		for _, b := range hosts[i+1:] {
			for _, sa := range spans[a] {
				if slices.ContainsFunc(spans[b], func(sb span) bool { return sa.from <= sb.to && sb.from <= sa.to }) {
					return fmt.Sprintf("mounted on %s and %s at the same time", a, b)
				}
			}
		}
	}
	return ""
}

// unreleased finds a start of a service on one server while another one might still have
// it: the other one had not stopped it, was not fenced, had not booted, and was not seen
// without the volume. "" if there is none.
func unreleased(events []report.Event, x *Subject, fault int64) string {
	holder, since, served := x.Active, fault, true
	starts := slices.DeleteFunc(slices.Clone(events), func(e report.Event) bool {
		return e.NS < fault || e.Kind != report.EventStarting && e.Kind != report.EventStarted || !x.about(e)
	})
	slices.SortStableFunc(starts, func(a, b report.Event) int { return cmp.Compare(a.NS, b.NS) })
	for _, e := range starts {
		node := nodeOf(e)
		if node == holder {
			continue
		}
		if !x.gaveUp(events, holder, since, e.NS, served) {
			return fmt.Sprintf("it was started on %s %s after the fault, when %s had neither stopped it, nor been fenced, nor booted",
				node, report.Seconds(float64(e.NS-fault)/1e9), holder)
		}
		holder, since, served = node, e.NS, false
	}
	return ""
}

// gaveUp says whether a server gave a service up between two times. served: it had the
// volume mounted at the first of them. A look that finds no volume proves nothing of a
// server that was only starting the service.
func (x *Subject) gaveUp(events []report.Event, server string, from, to int64, served bool) bool {
	for _, e := range events {
		if e.NS < from || e.NS > to {
			continue
		}
		switch e.Kind {
		case report.EventStopped:
			if x.about(e) && nodeOf(e) == server {
				return true
			}
		case report.EventFenced:
			if e.Node == server {
				return true
			}
		case report.EventBooted:
			if e.Host == server {
				return true
			}
		}
	}
	for _, l := range x.Looks[server] {
		if l.NS < from || l.Done > to {
			continue
		}
		if served && !l.Mounted {
			return true
		}
		served = served || l.Mounted
	}
	return false
}

// nodeOf is the server that an event is about: the one that a line of Pacemaker names,
// else the one that logged it.
func nodeOf(e report.Event) string {
	return cmp.Or(e.Node, e.Host)
}
