package drill

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// unreleased finds a start of a service on one server while another one might still have
// it: the other one had not stopped it, was not fenced, had not booted, and was not seen
// without the volume. "" if there is none. on is the server of the service at the fault;
// looks are those at its volume.
func unreleased(events []report.Event, looks map[string][]look, fault int64, on, resource string) string {
	holder, since, served := on, fault, true
	starts := slices.DeleteFunc(slices.Clone(events), func(e report.Event) bool {
		return e.NS < fault || e.Kind != report.EventStarting && e.Kind != report.EventStarted || !aboutResource(e, resource)
	})
	slices.SortStableFunc(starts, func(a, b report.Event) int { return cmp.Compare(a.NS, b.NS) })
	for _, e := range starts {
		node := nodeOf(e)
		if node != holder && !letGo(events, looks[holder], holder, resource, since, e.NS, served) {
			return fmt.Sprintf("it was started on %s %s after the fault, when %s had neither stopped it, nor been fenced, nor booted",
				node, report.Seconds(float64(e.NS-fault)/1e9), holder)
		}
		if node != holder {
			holder, since, served = node, e.NS, false
		}
	}
	return ""
}

// letGo says whether a server gave a service up between two times. served: it had the
// volume mounted at the first of them. A look that finds no volume proves nothing of a
// server that was only starting the service.
func letGo(events []report.Event, looks []look, server, resource string, from, to int64, served bool) bool {
	for _, e := range events {
		if e.NS < from || e.NS > to {
			continue
		}
		switch e.Kind {
		case report.EventStopped:
			if aboutResource(e, resource) && nodeOf(e) == server {
				return true
			}
		case report.EventFenced:
			if namesNode(e.Text, server) {
				return true
			}
		case report.EventBooted:
			if e.Host == server {
				return true
			}
		}
	}
	for _, l := range looks {
		if l.ns < from || l.doneNS > to {
			continue
		}
		if served && !l.mounted {
			return true
		}
		served = served || l.mounted
	}
	return false
}

// nodeOf is the server that an event is about: the one that a line of Pacemaker names,
// else the one that logged it.
func nodeOf(e report.Event) string {
	if e.Source == "pacemaker" {
		if n := meaning("pacemaker-controld", e.Text).Node; n != "" {
			return n
		}
	}
	return e.Host
}
