// Package watch looks at bricks periodically. It keeps the results of the last
// looks: the health tree, the throughput of the services, and the findings that
// came and went. http.go serves these as metrics and as a page; Command and Mail
// notify an administrator of each finding.
//
// run.go has mortar watch. The package judges nothing (package observe does).
package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Look is one look at a brick.
type Look struct {
	Status  *observe.Status
	Traffic []Traffic
	// Silent are hosts that did not answer, with the reason.
	Silent map[string]string
	Hosts  int
	Took   time.Duration
}

// Looker looks at a brick once. An error means that the look has no result.
type Looker func(ctx context.Context) (Look, error)

// Point is the throughput of a brick's services between two looks.
type Point struct {
	Time    time.Time `json:"time"`
	Read    float64   `json:"read_bytes_per_second"`
	Written float64   `json:"written_bytes_per_second"`
}

// Change is a finding that came or went.
type Change struct {
	Time  time.Time     `json:"time"`
	Brick string        `json:"brick"`
	Part  string        `json:"part"` // path in the tree: RAID / brick1-r0 / redundancy
	Level observe.Level `json:"level"`
	// Code and Subject say what it is and what it is about; docs/findings.md lists them.
	Code    observe.Code `json:"code,omitempty"`
	Subject string       `json:"subject,omitempty"`
	Text    string       `json:"text"`
	Mend    string       `json:"mend,omitempty"`
	// Ended: the finding is over.
	Ended bool `json:"ended"`
}

// String is a change in one line.
func (c Change) String() string {
	if c.Ended {
		return fmt.Sprintf("%s: over: %s", c.Brick, c.Text)
	}
	return fmt.Sprintf("%s: %s: %s", c.Brick, c.Level, c.Text)
}

// Points and changes to keep: an hour of throughput at an interval of five
// seconds, and the changes that fit a page.
const (
	keepPoints  = 720
	keepChanges = 200
	// confirm is how many successive looks must agree before a finding counts as
	// begun or ended, so that a single late answer raises no alarm.
	confirm = 2
)

// Brick is a watched brick. Its methods are safe for concurrent use.
type Brick struct {
	Name string
	look Looker
	tell func(Change)

	mu      sync.Mutex
	last    Look
	at      time.Time // of the last successful look; zero: none
	err     error     // of the last look
	looks   int
	points  []Point
	changes []Change
	open    map[string]*finding
}

// finding is a finding with the number of successive looks that saw or missed it.
type finding struct {
	Change
	seen, missed int
	told         bool
}

// New returns a Brick to watch with look. Run calls tell, which may be nil, for
// each change, one after the other.
func New(name string, look Looker, tell func(Change)) *Brick {
	return &Brick{Name: name, look: look, tell: tell, open: map[string]*finding{}}
}

// Run looks at the given interval until ctx ends.
func (b *Brick) Run(ctx context.Context, every time.Duration) {
	for {
		start := time.Now()
		l, err := b.look(ctx)
		if ctx.Err() != nil {
			return
		}
		l.Took = time.Since(start)
		for _, c := range b.take(time.Now(), l, err) {
			if b.tell != nil {
				b.tell(c)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(0, every-time.Since(start))):
		}
	}
}

// take keeps a look, and returns the changes that it confirms.
func (b *Brick) take(now time.Time, l Look, err error) []Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err != nil {
		return nil
	}
	if p, ok := rate(b.last.Traffic, l.Traffic, b.at, now); ok {
		b.points = append(b.points, p)
		b.points = b.points[max(0, len(b.points)-keepPoints):]
	}
	b.last, b.at = l, now
	b.looks++
	changes := b.compare(now, l.Status)
	b.changes = append(b.changes, changes...)
	b.changes = b.changes[max(0, len(b.changes)-keepChanges):]
	return changes
}

// compare returns the findings that began or ended.
func (b *Brick) compare(now time.Time, s *observe.Status) []Change {
	var out []Change
	seen := map[string]bool{}
	for _, c := range findings(s) {
		seen[c.Part] = true
		f := b.open[c.Part]
		if f == nil {
			f = &finding{Change: Change{Time: now}}
			b.open[c.Part] = f
		}
		worse := f.told && c.Level > f.Level
		c.Time = f.Time
		if worse {
			c.Time = now
		}
		f.Change, f.missed = c, 0
		f.seen++
		if !f.told && f.seen >= confirm || worse {
			f.told = true
			out = append(out, f.Change)
		}
	}
	for part, f := range b.open {
		if seen[part] {
			continue
		}
		f.seen = 0
		if f.missed++; f.missed < confirm && f.told {
			continue
		}
		delete(b.open, part)
		if f.told {
			f.Ended, f.Time = true, now
			out = append(out, f.Change)
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return int(y.Level) - int(x.Level) })
	return out
}

// findings returns the parts of a tree that are warnings or faults themselves.
func findings(s *observe.Status) []Change {
	var out []Change
	var walk func(path string, parts []*observe.Part)
	walk = func(path string, parts []*observe.Part) {
		for _, p := range parts {
			at := p.Name
			if path != "" {
				at = path + " / " + p.Name
			}
			worst := observe.OK
			for _, c := range p.Parts {
				worst = max(worst, c.Level)
			}
			if p.Level >= observe.Warning && p.Level > worst {
				out = append(out, Change{Brick: s.Brick, Part: at, Level: p.Level, Code: p.Code, Subject: p.Subject, Text: p.Text, Mend: p.Mend})
			}
			walk(at, p.Parts)
		}
	}
	walk("", s.Parts)
	return out
}

// rate is the throughput of services between two looks. A counter that decreased
// belongs to another server or another boot: it gives no throughput until the next
// look.
func rate(before, after []Traffic, from, to time.Time) (Point, bool) {
	seconds := to.Sub(from).Seconds()
	if from.IsZero() || seconds <= 0 {
		return Point{}, false
	}
	p := Point{Time: to}
	for _, a := range after {
		i := slices.IndexFunc(before, func(b Traffic) bool { return b.Service == a.Service && b.Server == a.Server })
		if i < 0 || a.Read < before[i].Read || a.Written < before[i].Written {
			continue
		}
		p.Read += float64(a.Read-before[i].Read) / seconds
		p.Written += float64(a.Written-before[i].Written) / seconds
	}
	return p, true
}

// View is the known state of a brick.
type View struct {
	Name    string            `json:"name"`
	Error   string            `json:"error,omitempty"` // of the last look
	Looked  *time.Time        `json:"looked"`          // time of the last successful look; null: never
	Seconds float64           `json:"seconds"`         // duration of the look
	Hosts   int               `json:"hosts"`
	Silent  map[string]string `json:"silent"` // hosts that did not answer, with the reason
	Status  *observe.Status   `json:"status"`
	Points  []Point           `json:"points"`
	Changes []Change          `json:"changes"`
}

// View returns the present view of the brick.
func (b *Brick) View() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{Name: b.Name, Seconds: b.last.Took.Seconds(), Hosts: b.last.Hosts, Silent: b.last.Silent, Status: b.last.Status,
		Points: slices.Clone(b.points), Changes: slices.Clone(b.changes)}
	if !b.at.IsZero() {
		v.Looked = new(b.at)
	}
	if b.err != nil {
		v.Error = b.err.Error()
	}
	return v
}
