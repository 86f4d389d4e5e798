package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/events"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func newEventsCmd() *cobra.Command {
	var since, until string
	var asJSON, all bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "events SPEC...",
		Short: "Show the history of all hosts in one order: mortar events brick.yaml --since 7d",
		Long: `Reads the journals of all hosts of one brick or several, at the same time, and
shows their history in words and in one order: cluster, fencing, services, md,
multipath, XFS, Lustre, NFS, network, kernel, and each change that Mortar made,
with who had it made and by which command. Warnings and errors of these parts
that Mortar does not know are shown as they were logged. What comes again within
90 s is one line; the changes of one command are one line. Nothing is changed.

Times are those of the hosts' clocks, in this machine's time zone. A host that
does not answer within --timeout is named at the end, as is one whose journal
does not reach back so far; the others are shown all the same.

Exit codes: 0 all hosts answered, 1 one did not, 2 refused.
The JSON is described in docs/events.md.`,
		Example: `  mortar events brick.yaml --since 7d
  mortar events site-a.yaml site-b.yaml --since "2026-11-20 18:00" --until "2026-11-21 06:00"
  mortar events brick.yaml --json | jq 'select(.level == "fault")'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := events.Window{All: all}
			var err error
			if w.Since, err = pointInTime(since, time.Now()); err == nil && until != "" {
				w.Until, err = pointInTime(until, time.Now())
			}
			if err != nil {
				return fail(exitBadInput, err)
			}
			if timeout <= 0 {
				return fail(exitBadInput, errors.New("--timeout must be above 0"))
			}
			h, err := readHistory(cmd.Context(), args, w, timeout, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				err = h.json(out)
			} else {
				err = h.show(out, len(args) > 1, isTerminal(out))
			}
			if err == nil && h.failed {
				err = fail(exitFailed, nil)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "24h", "from when: 90m, 36h or 7d ago, or a time of this machine's zone (2026-11-20 or \"2026-11-20 18:00\")")
	f.StringVar(&until, "until", "", "up to when, in the same forms (default now)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object a line")
	f.BoolVar(&all, "all", false, "show each event in a line of its own, and details such as each step of fencing")
	f.DurationVar(&timeout, "timeout", time.Minute, "how long any host may take")
	return cmd
}

// pointInTime parses 90m, 36h or 7d before now, or a date with or without a time.
func pointInTime(s string, now time.Time) (time.Time, error) {
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

// history holds the events of all hosts of all specs.
type history struct {
	events []events.Event
	notes  []historyNote // at most one per host, in the order of specs and hosts
	failed bool          // a host did not answer
}

// historyNote says what a host's history lacks.
type historyNote struct {
	Brick string `json:"brick"`
	Host  string `json:"host"`
	Error string `json:"error,omitempty"` // why the host did not answer
	Note  string `json:"note,omitempty"`  // what its history lacks
}

// readHistory reads all hosts of all specs at the same time.
func readHistory(ctx context.Context, files []string, w events.Window, timeout time.Duration, stderr io.Writer) (*history, error) {
	type who struct {
		d    *design.Design
		c    *observe.Collector
		name string
	}
	asked := map[string]who{}
	var keys []string
	for _, file := range files {
		d, err := loadDesign(file)
		if err != nil {
			return nil, err
		}
		c, err := newCollector(d, timeout)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		for _, name := range slices.Concat(d.Servers(), clientsOf(d)) {
			key := file + " " + name
			if _, twice := asked[key]; !twice {
				keys = append(keys, key)
			}
			asked[key] = who{d, c, name}
		}
	}
	pending := newPending(stderr, keys)
	defer pending.stop()
	tctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	seen, failed := host.All(tctx, keys, func(ctx context.Context, key string) (events.History, error) {
		defer pending.done(key)
		return events.Of(ctx, asked[key].c.Session(asked[key].name), asked[key].d, w)
	})
	if ctx.Err() != nil {
		return nil, fail(exitInterrupted, nil)
	}
	h := &history{failed: len(failed) > 0}
	for _, key := range keys {
		n := historyNote{Brick: asked[key].d.Name, Host: asked[key].name}
		if err := failed[key]; err != nil {
			n.Error = err.Error()
		} else {
			h.events = append(h.events, seen[key].Events...)
			n.Note = lacks(seen[key])
		}
		if n.Error+n.Note != "" {
			h.notes = append(h.notes, n)
		}
	}
	events.Sort(h.events)
	return h, nil
}

func clientsOf(d *design.Design) []string {
	var all []string
	for _, c := range d.Spec.Clients {
		all = append(all, c.Name)
	}
	return all
}

// lacks describes what a host's history does not contain.
func lacks(h events.History) string {
	var all []string
	if h.Gaps != "" {
		all = append(all, h.Gaps)
	}
	if h.Skew.Abs() > observe.ClockSkew {
		all = append(all, fmt.Sprintf("its clock is %v off, and so are the times of its events", h.Skew.Round(time.Second)))
	}
	return strings.Join(all, "; ")
}

func (h *history) json(w io.Writer) error {
	enc := jsonLines(w)
	for _, e := range h.events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	for _, n := range h.notes {
		if err := enc.Encode(n); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) show(w io.Writer, bricks, color bool) error {
	var paint func(level, s string) string
	if color {
		paint = func(level, s string) string {
			code := map[string]string{journal.Warning: "33", journal.Fault: "1;31"}[level]
			return sgr(code, s)
		}
	}
	if err := events.Render(w, h.events, bricks, paint); err != nil {
		return err
	}
	if len(h.events) == 0 {
		fmt.Fprintln(w, "No host that answered has an event of that time.")
	}
	for i, n := range h.notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		name := n.Host
		if bricks {
			name = n.Brick + "/" + n.Host
		}
		if n.Error != "" {
			fmt.Fprintf(w, "%s: no history: %s\n", name, n.Error)
		} else if _, err := fmt.Fprintf(w, "%s: %s\n", name, n.Note); err != nil {
			return err
		}
	}
	return nil
}

// pending prints, every 2 s, the hosts that have not answered yet.
type pending struct {
	mu    sync.Mutex
	left  []string
	ended bool
}

func newPending(w io.Writer, keys []string) *pending {
	p := &pending{left: slices.Clone(keys)}
	began := time.Now()
	var tell func()
	tell = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		var names []string
		for _, key := range p.left {
			names = append(names, key[strings.LastIndex(key, " ")+1:])
		}
		if !p.ended && len(names) > 0 {
			fmt.Fprintf(w, "%v: waiting for %s\n", time.Since(began).Round(time.Second), strings.Join(names, ", "))
			time.AfterFunc(2*time.Second, tell)
		}
	}
	time.AfterFunc(2*time.Second, tell)
	return p
}

// stop ends the printing.
func (p *pending) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *pending) done(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = slices.DeleteFunc(p.left, func(k string) bool { return k == key })
}
