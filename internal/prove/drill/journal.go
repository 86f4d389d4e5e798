package drill

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// journalArgv follows the journal of the programs that log a failover, from now
// on or from the boot.
func journalArgv(fromBoot bool) []string {
	n := "0"
	if fromBoot {
		n = "2000"
	}
	return journal.Argv(journal.DrillIdents, "-b", "-f", "-n", n)
}

// meaning returns the meaning of one message.
func meaning(ident, msg string) journal.Meaning {
	m, _ := journal.Means(journal.Line{Ident: ident, Message: msg, Priority: 6}, nil)
	return m
}

func journalEvent(line []byte, host string) (report.Event, bool) {
	l, err := journal.Parse(line)
	if err != nil {
		return report.Event{}, false
	}
	m := meaning(l.Ident, l.Message)
	if m.Kind == "" {
		return report.Event{}, false
	}
	if strings.HasPrefix(m.Resource, "fence-") && slices.Contains([]string{report.EventStarting, report.EventStarted, report.EventStartFail, report.EventStopped}, m.Kind) {
		m.Kind = report.EventNote // a fence device, not the service
	}
	return report.Event{NS: l.NS, Host: host, Source: source(l.Ident), Kind: m.Kind, Text: l.Message}, true
}

// source is the source of an event, by the program that logged it.
func source(ident string) string {
	if strings.HasPrefix(ident, "pacemaker") {
		return "pacemaker"
	}
	return ident
}

// ocfLine is one line of the OCF agent's log, as package ocf writes it. TNS of a
// step is its begin; the steps "begin" and "end" frame an action.
type ocfLine struct {
	TNS     int64   `json:"t_ns"`
	Action  string  `json:"action"`
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Err     string  `json:"err"`
	Note    string  `json:"note"`
}

// ocfEvent reads one line of the OCF agent's log. It skips monitor actions.
func ocfEvent(line []byte, host string) (report.Event, bool) {
	var l ocfLine
	if json.Unmarshal(line, &l) != nil || l.TNS == 0 || (l.Action != "start" && l.Action != "stop") {
		return report.Event{}, false
	}
	e := report.Event{NS: l.TNS, Host: host, Source: "ocf", Kind: report.EventStep}
	started, failed := report.EventStarted, report.EventStartFail
	if l.Action == "stop" {
		started, failed = report.EventStopped, report.EventNote
	}
	switch {
	case l.Step == "note":
		e.Kind, e.Text = report.EventNote, l.Action+": "+l.Note
	case l.Step == "begin":
		e.Text = l.Action + " begins"
		if l.Action == "start" {
			e.Kind = report.EventStarting
		}
	case l.Step == "end":
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
