package drill

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// journalIdents are those whose lines tell the story of a failover.
var journalIdents = []string{"corosync", "pacemaker-controld", "pacemaker-fenced", "multipathd", "kernel"}

// journalArgv follows the journal for those, from now on or from the boot.
func journalArgv(fromBoot bool) []string {
	n := "0"
	if fromBoot {
		n = "2000"
	}
	argv := []string{"journalctl", "-b", "-f", "-n", n, "-o", "json", "--no-pager",
		"--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_SOURCE_REALTIME_TIMESTAMP"}
	for _, i := range journalIdents {
		argv = append(argv, "-t", i)
	}
	return argv
}

// parseJournal reads one line of `journalctl -o json`: its wall clock in ns,
// who logged it, and the text.
//
// Source: systemd.journal-fields(7), journalctl(1)
func parseJournal(line []byte) (ns int64, ident, msg string, err error) {
	var e struct {
		Message  json.RawMessage `json:"MESSAGE"`
		Ident    string          `json:"SYSLOG_IDENTIFIER"`
		Source   string          `json:"_SOURCE_REALTIME_TIMESTAMP"`
		Realtime string          `json:"__REALTIME_TIMESTAMP"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return 0, "", "", fmt.Errorf("journal line: %w", err)
	}
	if e.Source == "" {
		e.Source = e.Realtime
	}
	us, err := strconv.ParseInt(e.Source, 10, 64)
	if err != nil {
		return 0, "", "", fmt.Errorf("journal line without a time: %.100s", line)
	}
	if err := json.Unmarshal(e.Message, &msg); err != nil {
		// A message that is not plain text comes as an array of bytes.
		var nums []byte
		var ints []int
		if json.Unmarshal(e.Message, &ints) != nil {
			return 0, "", "", fmt.Errorf("journal line without a message: %.100s", line)
		}
		for _, n := range ints {
			nums = append(nums, byte(n))
		}
		msg = strings.ToValidUTF8(string(nums), "?")
	}
	return us * 1000, e.Ident, cleanMessage(msg), nil
}

// cleanMessage takes Pacemaker's level off a message.
func cleanMessage(s string) string {
	s = strings.TrimSpace(s)
	level, rest, ok := strings.Cut(s, ": ")
	if ok && slices.Contains([]string{"crit", "alert", "emerg", "error", "warning", "notice", "info", "debug"}, level) {
		return strings.TrimSpace(rest)
	}
	return s
}

// finding is what a log line means.
type finding struct {
	kind     string // report.Event… ; "" : of no interest
	node     string // server it is about, where the line names it
	resource string // resource it is about, where the line names it
}

// logRule maps a message to its meaning. Sub-expressions named node and res
// say what it is about.
type logRule struct {
	ident string // SYSLOG_IDENTIFIER
	re    *regexp.Regexp
	kind  string
}

// logRules hold for corosync 3.1, and Pacemaker 2.1 (Debian 12) and 3.0
// (Debian 13), whose wording differs in places. The first that matches counts.
//
// They are compiled when the first log is read: of the processes of Mortar few
// read one.
//
// Source: corosync exec/totemsrp.c, pacemaker daemons/controld and daemons/fenced
var logRules = sync.OnceValue(func() []logRule {
	return []logRule{
		{"corosync", regexp.MustCompile(`A processor failed, forming new configuration`), report.EventDetected},
		{"corosync", regexp.MustCompile(`A new membership \(\S+\) was formed\. Members.* left:`), report.EventMembership},
		{"corosync", regexp.MustCompile(`A new membership \(\S+\) was formed\. Members.* joined:`), report.EventMembership},
		{"corosync", regexp.MustCompile(`link: host: \d+ link: \d+ is (?:down|up)`), report.EventLink},
		{"corosync", regexp.MustCompile(`host: \d+ has no active links`), report.EventLink},
		{"corosync", regexp.MustCompile(`Token has not been received in \d+ ms`), report.EventNote},

		{"pacemaker-controld", regexp.MustCompile(`^Peer (?P<node>\S+) was terminated \(\S+\) by .+ on behalf of `), report.EventFenced},
		{"pacemaker-controld", regexp.MustCompile(`^Peer (?P<node>\S+) was not terminated `), report.EventFenceFail},
		{"pacemaker-controld", regexp.MustCompile(`^Requesting fencing \(\S+\) (?:targeting|of) node (?P<node>\S+)`), report.EventFencing},
		{"pacemaker-controld", regexp.MustCompile(`^Our peer on the DC \(\S+\) is dead`), report.EventNote},
		{"pacemaker-controld", regexp.MustCompile(`^Initiating start operation (?P<res>\S+)_start_0 (?:locally )?on (?P<node>\S+)`), report.EventStarting},
		{"pacemaker-controld", regexp.MustCompile(`^Requesting local execution of start operation for (?P<res>\S+) on (?P<node>\S+)`), report.EventStarting},
		{"pacemaker-controld", regexp.MustCompile(`^Result of start operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`), report.EventStarted},
		{"pacemaker-controld", regexp.MustCompile(`^Result of start operation for (?P<res>\S+) on (?P<node>[^\s:]+): `), report.EventStartFail},
		{"pacemaker-controld", regexp.MustCompile(`^Result of stop operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`), report.EventStopped},
		{"pacemaker-controld", regexp.MustCompile(`^Result of (?:monitor|probe|stop) operation for (?P<res>\S+) on (?P<node>[^\s:]+): `), report.EventNote},

		{"pacemaker-fenced", regexp.MustCompile(`^Operation '\w+' targeting (?P<node>\S+) by \S+ for \S+: OK\b`), report.EventFenced},
		{"pacemaker-fenced", regexp.MustCompile(`^Operation '\w+' targeting (?P<node>\S+) by .+ for \S+: `), report.EventFenceFail},
		{"pacemaker-fenced", regexp.MustCompile(`^Operation '\w+' \[\d+\].* targeting (?P<node>\S+) using \S+ returned `), report.EventNote},
		{"pacemaker-fenced", regexp.MustCompile(`^Client \S+ wants to fence \(\S+\) (?P<node>\S+) using `), report.EventFencing},
		{"pacemaker-fenced", regexp.MustCompile(`^Requesting (?:that \S+ perform '\w+' action|peer fencing \(\S+\)) targeting (?P<node>[^\s']+)`), report.EventFencing},
		{"pacemaker-fenced", regexp.MustCompile(`^Delaying '\w+' action targeting (?P<node>\S+) using \S+ for `), report.EventNote},
		{"multipathd", regexp.MustCompile(`remaining active paths: \d+`), report.EventMultipath},
		{"multipathd", regexp.MustCompile(`(?i)\b(?:path (?:is )?(?:down|up)|mark as failed|reinstated|checker reports path is|path removed|path added|Entering recovery mode|Recovered to normal mode|queue_if_no_path|switch to path group|path priorities changed|disable queueing)`), report.EventMultipath},
		{"kernel", regexp.MustCompile(`\bmd/raid\S*: (?:Disk failure|Operation continuing|Cannot continue|.*not clean)`), report.EventRAID},
		{"kernel", regexp.MustCompile(`^md: (?:recovery|resync|check|requested-resync|reshape|data-check) of RAID array|^md: \S+: (?:recovery|resync|data-check|requested-resync|recover|check)\b.*(?:done|interrupted)`), report.EventRAID},
		{"kernel", regexp.MustCompile(`^device-mapper: multipath: \S+: (?:Failing|Reinstating) path`), report.EventMultipath},
		{"kernel", regexp.MustCompile(`^sd \S+: (?:\[\w+\] )?(?:Asymmetric access state changed|alua: )`), report.EventMultipath},
		{"kernel", regexp.MustCompile(`^XFS \(\S+\): (?:.*[Ss]hut(?:ting)? ?down|log I/O error|Ending clean mount|Starting recovery|Ending recovery|Unmounting)`), report.EventFS},
		{"kernel", regexp.MustCompile(`^Lustre: \S+: (?:Recovery over|Will be in recovery|Denying connection|Imperative Recovery|.*evict)|^LustreError: .*(?:evict|LBUG|ASSERTION)|^LDISKFS-fs (?:error|warning) .*(?:MMP|multiple mount)`), report.EventFS},
		{"kernel", regexp.MustCompile(`(?i)^(?:nfsd?: .*(?:server|grace)|NFSD: .*grace|virtio_net .*link|\S+: (?:NIC )?Link is (?:up|down))`), report.EventNote},

		{"pacemaker-fenced", regexp.MustCompile(`^No (?:peers|remaining peers) .*capable of fencing \(\S+\) (?P<node>\S+) for `), report.EventFenceFail},
	}
})

// meaning of one message.
func meaning(ident, msg string) finding {
	for _, r := range logRules() {
		if r.ident != ident {
			continue
		}
		m := r.re.FindStringSubmatch(msg)
		if m == nil {
			continue
		}
		f := finding{kind: r.kind}
		for i, n := range r.re.SubexpNames() {
			switch n {
			case "node":
				f.node = m[i]
			case "res":
				f.resource = m[i]
			}
		}
		return f
	}
	return finding{}
}

// source of an event by who logged it.
func source(ident string) string {
	if strings.HasPrefix(ident, "pacemaker") {
		return "pacemaker"
	}
	return ident
}

// ocfLine is one line of the OCF agent's log, as package ocf writes it. A
// step's time is its begin; "begin" and "end" frame an action.
type ocfLine struct {
	TNS     int64   `json:"t_ns"`
	Action  string  `json:"action"`
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Err     string  `json:"err"`
	Note    string  `json:"note"`
}

// ocfEvent reads one line of the agent's log. Monitors are of no interest.
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
