package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
		b, err := c.Observe(args[0], "", timeout)
		if err != nil {
			return err
		}
		defer b.Hosts.Close()
		s := b.Design.Spec
		if out == "" {
			out = fmt.Sprintf("%s-bug-%s.tar.gz", s.Name, now.Format("20060102-150405"))
		}
		if _, err := os.Lstat(out); err == nil {
			return fail(exitBadInput, fmt.Errorf("%s is there already; name another file with --out", out))
		}
		fmt.Fprintln(c.Err, "asking the hosts for their state and hardware, up to a minute")
		b.Hosts.AskHardware(hardware.New())
		b.Hosts.AskOutlets()
		e := backup.Evidence{Hosts: b.Design.Servers(), Since: from}
		for _, client := range s.Clients {
			e.Hosts = append(e.Hosts, client.Name)
		}
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
		if ctx.Err() != nil {
			return fail(exitInterrupted, errors.New("interrupted; nothing was written"))
		}
		if err != nil {
			return fail(exitBadInput, err)
		}
		if err := r.Save(out); err != nil {
			return err
		}
		if err := c.Line(r.Manifest, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s holds %d files of brick %s, without secrets; names, addresses and serial numbers are in it\n", out, len(r.Files), r.Brick)
			return err
		}); err != nil {
			return err
		}
		if len(r.Missing) > 0 {
			return fail(exitFailed, fmt.Errorf("not everything could be read: %s", strings.Join(r.Missing, "; ")))
		}
		return nil
	})
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write; default: BRICK-bug-DATE-TIME.tar.gz here")
	f.StringVar(&since, "since", "24h", "from when events and journals are kept: 90m, 36h or 7d ago, or a time")
	f.Bool("json", false, "print the list of what it holds as JSON")
	f.DurationVar(&timeout, "timeout", time.Minute, "how long any host may take to answer")
	return cmd
}
