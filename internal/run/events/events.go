// Package events is the history of a brick: the events in its hosts' journals, as
// text in order of time. It reads the journals and changes nothing. Package journal
// has the table of the lines' meanings.
package events

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Event is one event, or several similar ones in a row.
type Event struct {
	Time  time.Time `json:"time"`           // by the host's clock
	Until time.Time `json:"until,omitzero"` // time of the last one, if there are several
	Count int       `json:"count"`          // number of events, at least 1
	Brick string    `json:"brick"`
	Host  string    `json:"host"`
	Part  string    `json:"part"`  // cluster, fencing, service, multipath, md, XFS, Lustre, NFS, network, cache, kernel or mortar
	Level string    `json:"level"` // ok, warning or fault
	Text  string    `json:"text"`  // description
	// Code says what it is: of a refusal of the resource agent, of the finding that it made,
	// or of the kind of the line; "": the text alone says it.
	Code string `json:"code,omitempty"`
	// Message is the line of the journal; of several events the first.
	Message string `json:"message"`
	// By is the user (user@machine) who had Mortar make a change, Command the
	// mortar command. Both are empty for changes by old versions.
	By      string `json:"by,omitempty"`
	Command string `json:"command,omitempty"`

	detail bool
}

// Window selects a part of the history.
type Window struct {
	Since, Until time.Time // Until zero: now
	// All: include details, and do not join similar events.
	All bool
}

// lineLimit bounds the lines read of one host, the newest ones. A server logs about
// 3,000 such lines at a boot and 100 at a failover, so few windows reach the limit.
// A line has about 300 bytes.
const lineLimit = 50000

// History is the history of one host.
type History struct {
	Events []Event
	// Gaps describes the part of the window that the host's journal lacks; "" if
	// it lacks none. Lines of the journal that are not understood are counted there.
	Gaps string
	// Skew is how far the host's clock is ahead.
	Skew time.Duration
}

// Of reads the journal of a host of a brick and returns its events in the window.
func Of(ctx context.Context, s *host.Session, d *design.Design, w Window) (History, error) {
	var h History
	asked := time.Now()
	now, err := host.Ask(ctx, s, gather.Op, gather.Request{Disks: true})
	if err != nil {
		return h, err
	}
	h.Skew = observe.Ahead(asked, time.Now(), &now)
	bounds := []string{"--priority=info", "-n", strconv.Itoa(lineLimit), fmt.Sprintf("--since=@%d", w.Since.Unix())}
	if !w.Until.IsZero() {
		bounds = append(bounds, fmt.Sprintf("--until=@%d", w.Until.Unix()))
	}
	r := newReader(d, s.Name, now.Disks)
	lines := 0
	var unread health.Unread
	var first time.Time
	err = s.Follow(ctx, func(line string) {
		lines++
		l, err := journal.Parse([]byte(line))
		if err != nil {
			unread.Add(line)
			return
		}
		if first.IsZero() {
			first = time.Unix(0, l.NS)
		}
		if e, ok := r.event(l); ok && (w.All || !e.detail) {
			h.Events = append(h.Events, e)
		}
	}, journal.Argv(journal.Idents, bounds...)...)
	if err != nil {
		return h, err
	}
	if !w.All {
		h.Events = join(h.Events)
	}
	if lines >= lineLimit {
		h.Gaps = fmt.Sprintf("only the newest %d lines of its journal were read, those since %s: ask for less time", lineLimit, clockTime(first))
	} else {
		h.Gaps, err = before(ctx, s, w.Since, first)
	}
	h.Gaps = strings.TrimPrefix(strings.TrimSuffix(h.Gaps+"; "+unread.String(), "; "), "; ")
	return h, err
}

// before describes the missing begin of the window, "" if it is not missing. A
// journal without older lines may lack the begin.
func before(ctx context.Context, s *host.Session, since, first time.Time) (string, error) {
	out, err := s.Query(ctx, journal.Argv(nil, "-n", "1", fmt.Sprintf("--until=@%d", since.Unix()))...)
	if err != nil || strings.TrimSpace(out.Stdout) != "" {
		return "", err
	}
	if first.IsZero() {
		return "its journal has nothing of that time", nil
	}
	gap := "its journal begins at " + clockTime(first)
	// journald.conf(5): with Storage=auto the journal survives boots if this
	// directory exists.
	if kept, err := s.Query(ctx, "ls", "-d", "/var/log/journal"); err == nil && kept.Code != 0 {
		gap += ", as it is kept in memory (a folder /var/log/journal has journald keep it on disk)"
	}
	return gap, nil
}

func clockTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// reader turns the lines of one host into events.
type reader struct {
	brick, host string
	servers     map[string]string // by number in the cluster
	disks       *strings.Replacer // from names of multipath maps to serial, enclosure and bay
}

func newReader(d *design.Design, host string, seen []resource.DiskFact) *reader {
	r := &reader{brick: d.Name, host: host, servers: map[string]string{}}
	if p := d.PairWith(host); p != nil && p.HA != nil {
		for _, n := range p.HA.Nodes {
			r.servers[strconv.Itoa(n.ID)] = n.Name
		}
	}
	var names []string
	for _, x := range d.Disks {
		wwn := x.WWN
		for _, y := range seen {
			if wwn == "" && y.Serial == x.Serial {
				wwn = y.WWN
			}
		}
		if wwn != "" {
			// multipathd(8) names a map without an alias by its WWID: 3 and the WWN.
			names = append(names, "3"+strings.ToLower(wwn), fmt.Sprintf("disk %s (enclosure %s bay %d)", x.Serial, x.Enclosure, x.Bay))
		}
	}
	r.disks = strings.NewReplacer(names...)
	return r
}

// signature matches the author of a change by Mortar, which package agent writes.
var signature = regexp.MustCompile(`^(\S+@\S+) \(([^()]+)\): (.*)$`)

func (r *reader) event(l journal.Line) (Event, bool) {
	e := Event{Time: time.Unix(0, l.NS).UTC(), Count: 1, Brick: r.brick, Host: r.host, Message: l.Message}
	if l.Ident == "mortar" {
		e.Part, e.Level, e.Text = "mortar", journal.OK, l.Message
		if m := signature.FindStringSubmatch(l.Message); m != nil {
			e.By, e.Command, e.Text = m[1], m[2], m[3]
		}
		if strings.HasPrefix(l.Message, ocf.RecordedBy(r.host)) {
			e.Text = r.disks.Replace(e.Text) // words, not a command
		}
		switch {
		case strings.HasPrefix(e.Text, agent.FailedLog):
			e.Level = journal.Fault
		case strings.HasPrefix(e.Text, linux.DroppedLog):
			e.Level, e.Part, e.Code = journal.Warning, "md", string(observe.DiskDropped)
		}
		return e, true
	}
	m, ok := journal.Means(l, func(id string) string { return r.servers[id] })
	if !ok {
		return e, false
	}
	e.Part, e.Level, e.Text, e.detail, e.Code = m.Part, m.Level, r.disks.Replace(m.Text), m.Detail, m.Kind
	if i := strings.Index(l.Message, "["); i >= 0 {
		if code := refusal.CodeIn(l.Message[i:]); refusal.Known(code) {
			e.Code = string(code)
		}
	}
	return e, true
}

// Similar events become one if no more than this lies between them: multipathd and
// clients retry every 5 to 60 s, and one action of an apply can install packages
// for minutes.
const (
	alikeWithin  = 90 * time.Second
	changeWithin = 10 * time.Minute
)

// join merges similar events: a repeated message, and the changes of one command.
func join(all []Event) []Event {
	var out []Event
	at := map[string]int{} // likeness → index in out of the last such event
	for _, e := range all {
		key := likeness(e)
		i, seen := at[key]
		within := alikeWithin
		if e.Part == "mortar" {
			within = changeWithin
		}
		if !seen || e.Time.Sub(last(out[i])) > within {
			at[key] = len(out)
			out = append(out, e)
			continue
		}
		out[i].Count++
		out[i].Until = e.Time
	}
	for i := range out {
		if e := &out[i]; e.Part == "mortar" && e.Level == journal.OK && e.Count > 1 {
			e.Text = fmt.Sprintf("%d changes, the first: %s", e.Count, e.Text)
		}
	}
	return out
}

func last(e Event) time.Time {
	if e.Count > 1 {
		return e.Until
	}
	return e.Time
}

var digits = regexp.MustCompile(`[0-9]+`)

// likeness is a key that similar events share. It ignores numbers in unknown lines,
// which may name another sector or address each time.
func likeness(e Event) string {
	switch {
	case e.Part == "mortar" && e.Level == journal.OK:
		return e.Part + e.By + e.Command
	case e.Text == e.Message:
		return e.Part + digits.ReplaceAllString(e.Text, "0")
	}
	return e.Part + e.Text
}

// Sort sorts the events of several hosts by time, then by host.
func Sort(all []Event) {
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Host, b.Host)) })
}
