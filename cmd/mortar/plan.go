package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

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
			return cli.OrInterrupt(ctx, func() error { return change.ShowOffline(ctx, c, args[0], profile, o.Limit) })
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
