package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/events"
)

func newEventsCmd() *cobra.Command {
	var since, until string
	var asJSON, all bool
	var timeout time.Duration
	cmd := command("events", func(cmd *cobra.Command, args []string) error {
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
		var bricks []events.Brick
		for _, file := range args {
			d, err := loadDesign(file)
			if err != nil {
				return err
			}
			c, err := newCollector(d, timeout)
			if err != nil {
				return err
			}
			defer c.Close()
			bricks = append(bricks, events.Brick{Design: d, Hosts: c.Session})
		}
		out, began := cmd.OutOrStdout(), time.Now()
		h := events.Read(cmd.Context(), bricks, w, timeout, func(hosts []string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v: waiting for %s\n", time.Since(began).Round(time.Second), strings.Join(hosts, ", "))
		})
		switch {
		case cmd.Context().Err() != nil:
			return fail(exitInterrupted, nil)
		case asJSON:
			err = h.JSON(jsonLines(out))
		default:
			err = h.Text(out, len(args) > 1, painter(out))
		}
		if err == nil && h.Failed {
			err = fail(exitFailed, nil)
		}
		return err
	})
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
