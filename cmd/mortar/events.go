package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/events"
)

func newEventsCmd() *cobra.Command {
	var since, until string
	var all bool
	var timeout time.Duration
	cmd := command("events", func(ctx context.Context, c *cli.Console, args []string) error {
		w := events.Window{All: all}
		var err error
		if w.Since, err = pointInTime(since, time.Now()); err == nil && until != "" {
			w.Until, err = pointInTime(until, time.Now())
		}
		if err != nil {
			return fail(exitBadInput, err)
		}
		var bricks []events.Brick
		for _, file := range args {
			d, hosts, err := c.Open(file, timeout)
			if err != nil {
				return err
			}
			defer hosts.Close()
			bricks = append(bricks, events.Brick{Design: d, Hosts: hosts.Session})
		}
		h := events.Read(ctx, bricks, w, timeout, func(hosts []string) {
			fmt.Fprintf(c.Err, "%v: waiting for %s\n", time.Since(c.Start).Round(time.Second), strings.Join(hosts, ", "))
		})
		switch {
		case ctx.Err() != nil:
			return fail(exitInterrupted, nil)
		case c.JSON:
			err = h.JSON(cli.JSONLines(c.Out))
		default:
			err = h.Text(c.Out, len(args) > 1, cli.Painter(c.Out))
		}
		if err == nil && h.Failed {
			err = fail(exitFailed, nil)
		}
		return err
	})
	f := cmd.Flags()
	f.StringVar(&since, "since", "24h", "from when: 90m, 36h or 7d ago, or a time of this machine's zone (2026-11-20 or \"2026-11-20 18:00\")")
	f.StringVar(&until, "until", "", "up to when, in the same forms (default now)")
	f.Bool("json", false, "print one JSON object a line")
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
