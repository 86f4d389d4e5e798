package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/backup"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/events"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

func newReportBugCmd() *cobra.Command {
	var out, since string
	var timeout time.Duration
	cmd := command("report-bug", func(ctx context.Context, c *cli.Console, args []string) error {
		now := time.Now()
		from, err := events.PointInTime(since, now)
		if err != nil {
			return fail(exitBadInput, err)
		}
		b, err := c.Observe(args[0], "", timeout, nil)
		if err != nil {
			return err
		}
		defer b.Hosts.Close()
		s := b.Design.Spec
		if out, err = newArchive(out, s.Name+"-bug", now); err != nil {
			return err
		}
		fmt.Fprintln(c.Err, "asking the hosts for their state and hardware, up to a minute")
		b.Hosts.AskHardware(hardware.New())
		b.Hosts.AskOutlets()
		e := backup.Evidence{Hosts: append(b.Design.Servers(), s.ClientNames()...), Since: from}
		if e.Status, err = b.Look(ctx).JSON(true); err != nil {
			return err
		}
		if e.Facts, err = json.MarshalIndent(b.Facts, "", " "); err != nil {
			return err
		}
		fmt.Fprintln(c.Err, "reading the journals")
		history := events.Read(ctx, []events.Brick{{Design: b.Design, Hosts: b.Hosts.Session}}, events.Window{Since: from, All: true}, timeout, func([]string) {})
		var lines bytes.Buffer
		if err := history.JSON(cli.JSONLines(&lines)); err != nil {
			return err
		}
		e.Events = lines.Bytes()
		r, err := backup.BugReport(ctx, s, e, b.Hosts.Session, plan.Secrets(s, false), plan.CorosyncKey, c.Version, now)
		if err != nil && ctx.Err() == nil {
			return fail(exitBadInput, err)
		}
		return saveArchive(ctx, c, r, out, "without secrets; names, addresses and serial numbers are in it")
	})
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write; default: BRICK-bug-DATE-TIME.tar.gz here")
	f.StringVar(&since, "since", "24h", "from when events and journals are kept: 90m, 36h or 7d ago, or a time")
	f.Bool("json", false, "print the list of what it holds as JSON")
	f.DurationVar(&timeout, "timeout", time.Minute, "how long any host may take to answer")
	return cmd
}
