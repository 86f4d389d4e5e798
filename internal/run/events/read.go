package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Command is mortar events.
type Command struct {
	Since, Until string // as PointInTime parses them; Until may be ""
	All          bool   // see Window
	Timeout      time.Duration
}

// Run prints the history of the bricks of files.
func (x *Command) Run(ctx context.Context, c *cli.Console, files []string) error {
	w := Window{All: x.All}
	var err error
	if w.Since, err = PointInTime(x.Since, time.Now()); err == nil && x.Until != "" {
		w.Until, err = PointInTime(x.Until, time.Now())
	}
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	var bricks []Brick
	for _, file := range files {
		d, hosts, err := c.Open(file, x.Timeout)
		if err != nil {
			return err
		}
		defer hosts.Close()
		bricks = append(bricks, Brick{Design: d, Hosts: hosts.Session})
	}
	h := Read(ctx, bricks, w, x.Timeout, func(hosts []string) {
		fmt.Fprintf(c.Err, "%v: waiting for %s\n", time.Since(c.Start).Round(time.Second), strings.Join(hosts, ", "))
	})
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, nil)
	case c.JSON:
		err = h.JSON(cli.JSONLines(c.Out))
	default:
		err = h.Text(c.Out, len(files) > 1, cli.Painter(c.Out))
	}
	if err == nil && h.Failed {
		err = cli.Fail(cli.Failed, nil)
	}
	return err
}

// Brick is a brick whose history is read, with the sessions of its hosts.
type Brick struct {
	Design *design.Design
	Hosts  host.ByName
}

// Histories are the histories of all hosts of some bricks.
type Histories struct {
	Events []Event // in order of time
	Notes  []Note  // at most one of a host, in the order of bricks and hosts
	Failed bool    // a host did not answer
}

// Note says what a host's history lacks.
type Note struct {
	Brick string `json:"brick"`
	Host  string `json:"host"`
	Error string `json:"error,omitempty"` // why the host did not answer
	Note  string `json:"note,omitempty"`  // what its history lacks
}

// every is the pause between two lines about the hosts that have not answered.
const every = 2 * time.Second

// Read reads all hosts of all bricks at the same time, and leaves out a host that does not
// answer within timeout. Every two seconds it calls waiting with the hosts that have not answered.
func Read(ctx context.Context, bricks []Brick, w Window, timeout time.Duration, waiting func(hosts []string)) Histories {
	type asked struct {
		Brick
		name string
	}
	by := map[string]asked{}
	var keys []string
	for i, b := range bricks {
		for _, n := range append(b.Design.Servers(), b.Design.Spec.ClientNames()...) {
			key := fmt.Sprintf("%d %s", i, n)
			if _, twice := by[key]; !twice {
				keys = append(keys, key)
			}
			by[key] = asked{b, n}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	var mu sync.Mutex
	left := slices.Clone(keys)
	var tell func()
	tell = func() {
		mu.Lock()
		defer mu.Unlock()
		names := lists.Map(left, func(key string) string { return by[key].name })
		if len(names) > 0 {
			waiting(names)
			time.AfterFunc(every, tell)
		}
	}
	time.AfterFunc(every, tell)
	seen, failed := host.All(ctx, keys, func(ctx context.Context, key string) (History, error) {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			left = slices.DeleteFunc(left, func(k string) bool { return k == key })
		}()
		return Of(ctx, by[key].Hosts(by[key].name), by[key].Design, w)
	})
	mu.Lock()
	left = nil // of those that hang, too
	mu.Unlock()
	all := Histories{Failed: len(failed) > 0}
	for _, key := range keys {
		n := Note{Brick: by[key].Design.Name, Host: by[key].name}
		if err := failed[key]; err != nil {
			n.Error = err.Error()
		} else {
			all.Events = append(all.Events, seen[key].Events...)
			n.Note = seen[key].lacks()
		}
		if n.Error+n.Note != "" {
			all.Notes = append(all.Notes, n)
		}
	}
	Sort(all.Events)
	return all
}

// lacks describes what a host's history does not contain.
func (h History) lacks() string {
	skew := ""
	if h.Skew.Abs() > observe.ClockSkew {
		skew = fmt.Sprintf("its clock is %v off, and so are the times of its events", h.Skew.Round(time.Second))
	}
	return strings.Trim(h.Gaps+"; "+skew, "; ")
}

// JSON prints one JSON object a line: the events, then the notes.
func (h *Histories) JSON(enc *json.Encoder) error {
	for _, e := range h.Events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	for _, n := range h.Notes {
		if err := enc.Encode(n); err != nil {
			return err
		}
	}
	return nil
}

// Text prints the events as Render does, and then the notes.
func (h *Histories) Text(w io.Writer, bricks bool, paint func(code, text string) string) error {
	if err := Render(w, h.Events, bricks, paint); err != nil {
		return err
	}
	if len(h.Events) == 0 {
		fmt.Fprintln(w, "No host that answered has an event of that time.")
	}
	for i, n := range h.Notes {
		name, text := n.Host, n.Note
		if bricks {
			name = n.Brick + "/" + n.Host
		}
		if n.Error != "" {
			text = "no history: " + n.Error
		}
		if i == 0 {
			name = "\n" + name
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", name, text); err != nil {
			return err
		}
	}
	return nil
}

// PointInTime parses 90m, 36h or 7d before now, or a date with or without a time.
func PointInTime(s string, now time.Time) (time.Time, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if days, err := strconv.Atoi(n); err == nil && days >= 0 {
			return now.AddDate(0, 0, -days), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q: want 90m, 36h or 7d, or such as 2026-11-20 or \"2026-11-20 18:00\"", s)
}
