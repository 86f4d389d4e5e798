package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/change"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/drift"
)

func newPlanCmd() *cobra.Command {
	var detailed, offline, drifted bool
	var o change.Options
	var profile, textfile string
	cmd := command("plan", func(ctx context.Context, c *cli.Console, args []string) error {
		switch {
		case textfile != "" && !drifted, drifted && (offline || profile != "" || detailed || o.Limit != nil):
			return fail(exitBadInput, errors.New("--textfile belongs to --drift, and --offline, --profile, --limit and --detailed-exitcode do not"))
		case drifted:
			return drift.Run(ctx, c, args, textfile)
		}
		if offline {
			return cli.OrInterrupt(ctx, func() error { return showOffline(ctx, c, args[0], profile, o.Limit) })
		}
		d, err := cli.Load(args[0], profile)
		if err != nil {
			return err
		}
		pending, err := change.Show(ctx, c, d, o)
		if err == nil && pending > 0 && detailed {
			return fail(exitPending, nil)
		}
		return err
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if drifted {
			return cobra.MinimumNArgs(1)(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.Flags().Bool("json", false, "print the plan as JSON")
	cmd.Flags().BoolVar(&offline, "offline", false, "plan for blank hosts, without reaching any")
	profileFlag(cmd, &profile)
	addAccepted(cmd.Flags(), &o)
	cmd.Flags().BoolVar(&drifted, "drift", false, "compare bricks with their specs, a line for each difference")
	cmd.Flags().StringVar(&textfile, "textfile", "", "with --drift: also write metrics to this file")
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "end with 3 if changes are pending")
	return cmd
}

// showOffline shows the plan of a brick, or of a limit's hosts, as if its hosts were blank.
func showOffline(ctx context.Context, c *cli.Console, file, profile string, only []string) error {
	d, err := cli.LoadAny(file, profile)
	if err != nil {
		return err
	}
	limit, err := cli.Limit(d, only)
	if err != nil {
		return err
	}
	p, err := plan.Offline(ctx, d)
	if err != nil {
		return err
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Planned) bool { return limit != nil && !limit[s.Host] })
	w := c.Out
	if c.JSON {
		return cli.PrintJSON(w, p.Doc())
	}
	if len(d.Arrays) > 0 {
		fmt.Fprintln(w, "Before this: configure the arrays (mortar array script), and compare their LUNs (mortar array verify).")
	}
	if err := p.Show(w, cli.Painter(w)); err != nil {
		return err
	}
	if err := design.Buildable(d); err != nil {
		fmt.Fprintf(w, "This plan cannot be applied: %v.\n", err)
	}
	return nil
}
