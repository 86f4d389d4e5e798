package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/backup"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/events"
	"github.com/mortarhpc/mortar/internal/run/quota"
	"github.com/mortarhpc/mortar/internal/run/scrub"
	"github.com/mortarhpc/mortar/internal/run/status"
	"github.com/mortarhpc/mortar/internal/run/watch"
)

func newStatusCmd() *cobra.Command {
	var o status.Options
	cmd := command("status", o.Run)
	f := cmd.Flags()
	f.Bool("json", false, "print JSON; of several bricks, or with --watch, one line each")
	f.BoolVar(&o.Watch, "watch", false, "go on until interrupted")
	profileFlag(cmd, &o.Profile)
	limitFlag(f, &o.Limit)
	f.BoolVar(&o.All, "all", false, "show every part, also what lies below a part that is ok")
	f.BoolVar(&o.Hardware, "hardware", false, "also ask BMCs and enclosures for sensors and events, and disks for SMART data")
	f.DurationVar(&o.Interval, "interval", 5*time.Second, "pause between two looks, with --watch")
	f.DurationVar(&o.Timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	f.StringVar(&o.Save, "save-facts", "", "also write what the hosts said to this file (no secrets in it)")
	f.StringVar(&o.Facts, "facts", "", "judge what --save-facts wrote; no host is reached")
	return cmd
}

func newWatchCmd() *cobra.Command {
	w := watch.Watcher{Sendmail: watch.Sendmail}
	cmd := command("watch", func(ctx context.Context, c *cli.Console, args []string) error { return w.Run(ctx, c, args) })
	f := cmd.Flags()
	f.StringVar(&w.Listen, "listen", "127.0.0.1:9880", "address and port to serve; empty: none")
	f.StringSliceVar(&w.Names, "name", nil, "another name by which readers call this machine, such as wall.example.org; may be repeated")
	f.StringVar(&w.Notify, "notify", "", "program to run for each finding")
	f.StringVar(&w.Mail, "mail", "", "address or local user to send each finding to")
	f.DurationVar(&w.Interval, "interval", 5*time.Second, "time between two looks")
	f.DurationVar(&w.Timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

func newEventsCmd() *cobra.Command {
	var e events.Command
	cmd := command("events", e.Run)
	f := cmd.Flags()
	f.StringVar(&e.Since, "since", "24h", "from when: 90m, 36h or 7d ago, or a time of this machine's zone (2026-11-20 or \"2026-11-20 18:00\")")
	f.StringVar(&e.Until, "until", "", "up to when, in the same forms (default now)")
	f.Bool("json", false, "print one JSON object a line")
	f.BoolVar(&e.All, "all", false, "show each event in a line of its own, and details such as each step of fencing")
	f.DurationVar(&e.Timeout, "timeout", time.Minute, "how long any host may take")
	return cmd
}

func newQuotaCmd() *cobra.Command {
	var service string
	cmd := group("quota", newQuotaShowCmd(&service), newQuotaSetCmd(&service), newQuotaProjectCmd(&service))
	cmd.PersistentFlags().StringVar(&service, "service", "", "of one service; default: the only one, or all")
	return cmd
}

func newQuotaShowCmd(service *string) *cobra.Command {
	cmd := command("show", func(ctx context.Context, c *cli.Console, args []string) error {
		return quota.Show(ctx, c, args[0], *service)
	})
	cmd.Flags().Bool("json", false, "print a list with one entry for each user, group and project")
	return cmd
}

func newQuotaSetCmd(service *string) *cobra.Command {
	var space, softSpace string
	var files, softFiles int64
	var given *pflag.FlagSet
	cmd := command("set", func(ctx context.Context, c *cli.Console, args []string) error {
		w := quota.Wanted{Kind: args[1], ID: args[2]}
		for flag, v := range map[string]struct {
			text string
			to   **int64
		}{"space": {space, &w.SpaceHard}, "soft-space": {softSpace, &w.SpaceSoft}} {
			if !given.Changed(flag) {
				continue
			}
			n, err := spaceOf(v.text)
			if err != nil {
				return cli.Refuse(fmt.Errorf("--%s: %w", flag, err))
			}
			*v.to = &n
		}
		if given.Changed("files") {
			w.FilesHard = &files
		}
		if given.Changed("soft-files") {
			w.FilesSoft = &softFiles
		}
		if files < 0 || softFiles < 0 {
			return cli.Refuse(errors.New("a limit of files is 0 or more"))
		}
		if err := w.Check(); err != nil {
			return cli.Refuse(err)
		}
		return quota.Change(ctx, c, args[0], *service, w.Kind, w.Set)
	})
	given = quotaFlags(cmd)
	given.StringVar(&space, "space", "", "hard limit of space, e.g. 2TiB; 0: none")
	given.StringVar(&softSpace, "soft-space", "", "soft limit of space")
	given.Int64Var(&files, "files", 0, "hard limit of files; 0: none")
	given.Int64Var(&softFiles, "soft-files", 0, "soft limit of files")
	return cmd
}

func newQuotaProjectCmd(service *string) *cobra.Command {
	cmd := command("project", func(ctx context.Context, c *cli.Console, args []string) error {
		return quota.Change(ctx, c, args[0], *service, "project", func(s *design.Service) (resource.Action, error) {
			return quota.Project(s, args[1], args[2])
		})
	})
	quotaFlags(cmd)
	return cmd
}

// quotaFlags adds the flags of the commands that change quotas.
func quotaFlags(cmd *cobra.Command) *pflag.FlagSet {
	cmd.Flags().Bool("dry-run", false, "only print the command")
	cmd.Flags().Bool("json", false, "print what was done as JSON")
	return cmd.Flags()
}

// spaceOf parses a size; 0 needs no unit.
func spaceOf(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	b, err := spec.ParseBytes(text)
	return int64(b), err
}

func newScrubCmd() *cobra.Command {
	var repair bool
	var groups []string
	cmd := command("scrub", func(ctx context.Context, c *cli.Console, args []string) error {
		return scrub.All(ctx, c, args[0], groups, repair, sayScrub)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	cmd.Flags().StringSliceVar(&groups, "group", nil, "RAID groups, by name; default: all")
	cmd.Flags().Bool("json", false, "print a list with one entry for each group (progress goes to stderr)")
	return cmd
}

// sayScrub describes the result of a group.
func sayScrub(g *scrub.Group) string {
	s := fmt.Sprintf("%s on %s: %s compared", g.Name, g.Server, report.Bytes(g.Bytes))
	if g.Mismatches == 0 {
		return s + ", everything matches"
	}
	s += fmt.Sprintf(", %s did not match", report.Bytes(g.Mismatches*512))
	for _, d := range g.Disks {
		s += fmt.Sprintf("; disk %s (enclosure %s, bay %d) is wrong in %d blocks of 4 KiB", d.Serial, d.Enclosure, d.Bay, d.Blocks)
	}
	if g.Unknown > 0 {
		s += fmt.Sprintf("; %d blocks are wrong on more than one disk and cannot be mended", g.Unknown)
	}
	switch {
	case g.Mended > 0 && g.Left == 0:
		s += fmt.Sprintf("; mended %d blocks, everything matches now", g.Mended)
	case g.Mended > 0:
		s += fmt.Sprintf("; mended %d blocks, %s still do not match", g.Mended, report.Bytes(g.Left*512))
	case g.Found > 0:
		s += "; nothing was changed (--repair mends)"
	}
	return s
}

func newBackupCmd() *cobra.Command {
	var b backup.Command
	cmd := command("backup", func(ctx context.Context, c *cli.Console, args []string) error { return b.Backup(ctx, c, args[0]) })
	cmd.Flags().StringVar(&b.Out, "out", "", "file to write; default: BRICK-DATE-TIME.tar.gz here")
	cmd.Flags().Bool("json", false, "print the list of what it holds as JSON")
	cmd.Flags().DurationVar(&b.Timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

func newReportBugCmd() *cobra.Command {
	var b backup.Command
	cmd := command("report-bug", func(ctx context.Context, c *cli.Console, args []string) error { return b.ReportBug(ctx, c, args[0]) })
	f := cmd.Flags()
	f.StringVar(&b.Out, "out", "", "file to write; default: BRICK-bug-DATE-TIME.tar.gz here")
	f.StringVar(&b.Since, "since", "24h", "from when events and journals are kept: 90m, 36h or 7d ago, or a time")
	f.Bool("json", false, "print the list of what it holds as JSON")
	f.DurationVar(&b.Timeout, "timeout", time.Minute, "how long any host may take to answer")
	return cmd
}

func newRestoreCmd() *cobra.Command {
	var rehearse, vouch bool
	cmd := command("restore", func(ctx context.Context, c *cli.Console, args []string) error {
		switch {
		case vouch && !rehearse:
			return fail(exitBadInput, errors.New("--vouch is for --rehearse: restore itself runs nothing"))
		case rehearse && len(args) > 1:
			return fail(exitBadInput, errors.New("a rehearsal leaves nothing behind: leave DIR out"))
		case rehearse:
			return backup.Rehearse(ctx, c, args[0], vouch)
		}
		return backup.Restore(c, args[0], optional(args[1:]))
	})
	cmd.Flags().BoolVar(&rehearse, "rehearse", false, "compare the hosts with the backup, and leave nothing behind")
	cmd.Flags().BoolVar(&vouch, "vouch", false, "with --rehearse: run the backup's password_command, and read the files of this machine that its spec names")
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func newUnlockCmd() *cobra.Command {
	var by string
	cmd := command("unlock", func(ctx context.Context, c *cli.Console, args []string) error {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		ended, err := plan.Unlock(ctx, s, env.Connect, by)
		err = errors.Join(err, c.Line(ended, func(w io.Writer) error {
			for _, n := range slices.Sorted(maps.Keys(ended)) {
				claim := ended[n]
				fmt.Fprintf(w, "%s: the claim of %s is ended\n", n, &claim)
			}
			if err == nil && len(ended) == 0 {
				fmt.Fprintln(w, "no administrator claims the brick")
			}
			return nil
		}))
		if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
			return fail(exitBadInput, err)
		}
		return err
	})
	cmd.Flags().StringVar(&by, "holder", "", "who holds the claim, as the refusal of a command names it")
	cmd.Flags().Bool("json", false, "print the claims that were ended, by server")
	_ = cmd.MarkFlagRequired("holder")
	return cmd
}
