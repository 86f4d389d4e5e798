package observe

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Level is the health of a part. A parent has the worst level of its children.
type Level = health.Level

// The levels from best to worst. A warning is for example a rebuild, a service that is
// not on its preferred server, fencing that was never proven. A fault is one even if
// redundancy hides it.
const (
	OK      = health.OK
	Unknown = health.Unknown
	Warning = health.Warning
	Fault   = health.Fault
)

// Part is a node of the health tree. One that is not ok by itself is a finding: it has a
// code and arguments, of which its text and its remedy are made.
type Part struct {
	Name     string    `json:"name"`
	Level    Level     `json:"level"`
	Code     Code      `json:"code,omitempty"`
	Subject  string    `json:"subject,omitempty"`  // what the finding is about: a host, a disk's serial …
	Args     with      `json:"args,omitempty"`     // the finding's arguments, with the subject
	Text     string    `json:"text,omitempty"`     // description, with host, disk, enclosure and bay
	Mend     string    `json:"mend,omitempty"`     // remedy
	Progress *Progress `json:"progress,omitempty"` // of a rebuild or check
	Parts    []*Part   `json:"parts,omitempty"`
}

// Progress of a rebuild or check.
type Progress struct {
	Action  string  `json:"action"`  // rebuild, resync, reshape, check or repair
	Percent float64 `json:"percent"` // 0 to 100
	// SecondsLeft is the kernel's estimate; nil if it has none.
	SecondsLeft *float64 `json:"seconds_left"`
}

// Status is the health of a brick.
type Status struct {
	Brick      string    `json:"brick"`
	Flavour    string    `json:"flavour"`
	Time       time.Time `json:"time"`
	SpecSHA256 string    `json:"spec_sha256"`
	Level      Level     `json:"level"`
	Faults     int       `json:"faults"`
	Warnings   int       `json:"warnings"`
	Unknown    int       `json:"unknown"`
	Services   []Where   `json:"services"`
	Parts      []*Part   `json:"parts"` // host, disk, path, RAID, … client
}

// Where is the server of a service.
type Where struct {
	Service   string     `json:"service"`
	Address   string     `json:"address"`
	Server    string     `json:"server"` // "" if nowhere, or unknown
	Preferred string     `json:"preferred"`
	Since     *time.Time `json:"since"` // null if unknown
}

// add appends a child that is ok.
func (p *Part) add(name, format string, args ...any) *Part {
	c := &Part{Name: name, Text: fmt.Sprintf(format, args...)}
	p.Parts = append(p.Parts, c)
	return c
}

// unread adds the finding for the records of an answer that were not understood; from is
// who gave the answer.
func (p *Part) unread(from string, u health.Unread) {
	if len(u) > 0 {
		p.find("not understood", "answer-unread", with{"from": from, "records": u.String()})
	}
}

// settle sets every part's level to the worst of its own and its children's.
func (p *Part) settle() {
	for _, c := range p.Parts {
		c.settle()
		p.Level = max(p.Level, c.Level)
	}
}

// each calls f for a part and every part below it.
func (p *Part) each(f func(*Part)) {
	f(p)
	for _, c := range p.Parts {
		c.each(f)
	}
}

// leaves calls f for every part whose level is its own, not a child's.
func (p *Part) leaves(f func(*Part)) {
	worst := OK
	for _, c := range p.Parts {
		c.leaves(f)
		worst = max(worst, c.Level)
	}
	if p.Level > worst || len(p.Parts) == 0 {
		f(p)
	}
}

// Each calls f for every part whose level is its own, not that of a part
// below it.
func (s *Status) Each(f func(*Part)) {
	for _, p := range s.Parts {
		p.leaves(f)
	}
}

// finish settles the tree and counts the levels. Remedies name the spec's file.
func (s *Status) finish(spec string) {
	for _, p := range s.Parts {
		p.settle()
		p.each(func(p *Part) { p.Mend = strings.ReplaceAll(p.Mend, "{"+health.SpecFile+"}", spec) })
		s.Level = max(s.Level, p.Level)
		p.leaves(func(p *Part) {
			switch p.Level {
			case Fault:
				s.Faults++
			case Warning:
				s.Warnings++
			case Unknown:
				s.Unknown++
			}
		})
	}
}

// JSON is the status as `mortar status --json` prints it: indented, or as one
// line.
func (s *Status) JSON(indent bool) ([]byte, error) {
	if s.Services == nil {
		s.Services = []Where{}
	}
	if indent {
		return json.MarshalIndent(s, "", "  ")
	}
	return json.Marshal(s)
}
