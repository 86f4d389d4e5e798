package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// JournalEvent reads one line of a host's journal; false: it means nothing to a drill.
func JournalEvent(line []byte, host string) (report.Event, bool) {
	l, err := journal.Parse(line)
	if err != nil {
		return report.Event{}, false
	}
	m, _ := journal.Means(journal.Line{Ident: l.Ident, Message: l.Message, Priority: 6}, nil)
	if strings.HasPrefix(m.Resource, "fence-") && slices.Contains([]string{report.EventStarting, report.EventStarted, report.EventStartFail, report.EventStopped}, m.Kind) {
		m.Kind = report.EventNote // a fence device, not the service
	}
	source := l.Ident
	if strings.HasPrefix(source, "pacemaker") {
		source = "pacemaker"
	}
	return report.Event{NS: l.NS, Host: host, Source: source, Kind: m.Kind, Text: l.Message, Code: m.Code, Subject: m.Resource, Node: m.Node}, m.Kind != ""
}

// AgentEvent reads one line of the resource agent's log, as package ocf writes it; false: it is
// of no start or stop. t_ns of a step is its begin; the steps "begin" and "end" frame an action.
func AgentEvent(line []byte, host string) (report.Event, bool) {
	var l unit.Step
	if json.Unmarshal(line, &l) != nil || l.TNS == 0 || (l.Action != "start" && l.Action != "stop") {
		return report.Event{}, false
	}
	e := report.Event{NS: l.TNS, Host: host, Source: "ocf", Kind: report.EventStep, Code: l.Code, Subject: l.Subject}
	started, failed := report.EventStarted, report.EventStartFail
	if l.Action == "stop" {
		started, failed = report.EventStopped, report.EventNote
	}
	switch l.Step {
	case "note":
		e.Kind, e.Text = report.EventNote, l.Action+": "+l.Note
	case "begin":
		e.Text = l.Action + " begins"
		if l.Action == "start" {
			e.Kind = report.EventStarting
		}
	case "end":
		e.Kind, e.Text = started, fmt.Sprintf("%s took %s", l.Action, report.Seconds(l.Seconds))
		if l.Err != "" {
			e.Kind = failed
		}
	default:
		e.NS += int64(l.Seconds * 1e9)
		e.Text = fmt.Sprintf("%s: %s took %s", l.Action, l.Step, report.Seconds(l.Seconds))
	}
	if l.Err != "" {
		e.Text += ": " + l.Err
	}
	return e, true
}

// First finds the earliest event of a kind at or after a time that match accepts; a nil match
// accepts all.
func First(events []report.Event, kind string, afterNS int64, match func(report.Event) bool) (found report.Event, ok bool) {
	for _, e := range events {
		if e.Kind == kind && e.NS >= afterNS && (match == nil || match(e)) && (!ok || e.NS < found.NS) {
			found, ok = e, true
		}
	}
	return found, ok
}

// about reports whether a start or stop is of the service.
func (x *Subject) about(ev report.Event) bool { return About(ev, x.Resource) }

// About reports whether a start or stop is of a resource. The agent's log is only about its own
// service; Pacemaker's lines name the resource.
func About(ev report.Event, resource string) bool {
	return ev.Source == "ocf" || ev.Subject == resource
}
