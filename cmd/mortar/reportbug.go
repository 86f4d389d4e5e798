package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/backup"
	"github.com/mortarhpc/mortar/internal/run/events"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

func newReportBugCmd() *cobra.Command {
	var out, since string
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "report-bug SPEC",
		Short: "Write one archive with what a maintainer needs to see a fault, without secrets",
		Long: `Asks all hosts at the same time and writes one file: versions, the spec, the status
with the hosts' raw answers (hardware too), the events, and of each host its
configuration, its cluster and its journal. Nothing is changed, nothing is sent.

The passwords and communities that the spec names and the cluster's key are replaced
in whatever form they appear. Host names, addresses, serial numbers and names of
exports stay: look into the archive before you give it away.

Exit codes: 0 done, 1 something could not be read (the rest is written), 2 refused.`,
		Example: `  mortar report-bug brick.yaml
  mortar report-bug brick.yaml --since 7d --out /tmp/brick1-bug.tar.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			from, err := pointInTime(since, now)
			if err != nil {
				return fail(exitBadInput, err)
			}
			if timeout <= 0 {
				return fail(exitBadInput, errors.New("--timeout must be above 0"))
			}
			b, err := openLooked(args[0], "", timeout)
			if err != nil {
				return err
			}
			defer b.c.Close()
			s := b.d.Spec
			if out == "" {
				out = fmt.Sprintf("%s-bug-%s.tar.gz", s.Name, now.Format("20060102-150405"))
			}
			if _, err := os.Lstat(out); err == nil {
				return fail(exitBadInput, fmt.Errorf("%s is there already; name another file with --out", out))
			}
			say := func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
			say("asking the hosts for their state and hardware, up to a minute")
			b.c.AskHardware(hardware.New())
			b.c.AskOutlets()
			e := backup.Evidence{Hosts: b.d.Servers(), Since: from}
			for _, c := range s.Clients {
				e.Hosts = append(e.Hosts, c.Name)
			}
			status := b.look(cmd.Context())
			if e.Status, err = status.JSON(true); err != nil {
				return err
			}
			if e.Facts, err = json.MarshalIndent(b.facts, "", " "); err != nil {
				return err
			}
			say("reading the journals")
			history := events.Read(cmd.Context(), []events.Brick{{Design: b.d, Hosts: b.c.Session}}, events.Window{Since: from, All: true}, timeout, func([]string) {})
			var lines bytes.Buffer
			if err := history.JSON(jsonLines(&lines)); err != nil {
				return err
			}
			e.Events = lines.Bytes()
			r, err := backup.BugReport(cmd.Context(), s, e, b.c.Session, plan.Secrets(s, false), plan.CorosyncKey, version, now)
			if cmd.Context().Err() != nil {
				return fail(exitInterrupted, errors.New("interrupted; nothing was written"))
			}
			if err != nil {
				return fail(exitBadInput, err)
			}
			if err := writeBackup(out, r); err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(r.Manifest)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds %d files of brick %s, without secrets; names, addresses and serial numbers are in it\n", out, len(r.Files), r.Brick)
			}
			if err == nil && len(r.Missing) > 0 {
				err = fail(exitFailed, fmt.Errorf("not everything could be read: %s", strings.Join(r.Missing, "; ")))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write; default: BRICK-bug-DATE-TIME.tar.gz here")
	f.StringVar(&since, "since", "24h", "from when events and journals are kept: 90m, 36h or 7d ago, or a time")
	f.BoolVar(&asJSON, "json", false, "print the list of what it holds as JSON")
	f.DurationVar(&timeout, "timeout", time.Minute, "how long any host may take to answer")
	return cmd
}
