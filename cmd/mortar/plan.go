package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
)

// connectOptions allow long silences: a host that installs packages or makes file systems is
// busy, not gone. Every connection uses its directories, which tests set.
var connectOptions = host.Options{KeepAlive: 5 * time.Second, Missed: 6}

// patience is how long such a host may stay silent.
var patience = connectOptions.KeepAlive * time.Duration(connectOptions.Missed)

// preparing returns how to make a plan. With keep, Prepare stores a cluster key that it has to
// make.
func preparing(keep bool, progress func(host, what string)) plan.PrepareOptions {
	return plan.PrepareOptions{Connect: connectOptions, Keep: keep, Progress: progress, Build: release.This(version)}
}

// preparing returns how to make the plan of an apply with these flags.
func (f *applyFlags) preparing(keep bool, progress func(host, what string)) plan.PrepareOptions {
	o := preparing(keep, progress)
	o.Onto, o.Unexport = f.onto, f.unexport
	o.AllowDowngrade = f.allowDowngrade
	if f.prepare != "" {
		o.Only = plan.BeforeDisks(f.prepare)
	}
	return o
}

// refused ends a command that has changed nothing. An error about a host or disk gets its
// place in the spec.
func refused(ctx context.Context, s *spec.Spec, err error) error {
	if ctx.Err() != nil {
		return fail(exitInterrupted, errors.New("interrupted; nothing was changed"))
	}
	return fail(exitBadInput, fmt.Errorf("%w\nNothing was changed", plan.Located(s, err)))
}

// connectProgress shows on a terminal what happens before the plan.
func connectProgress(w io.Writer, live bool) (progress func(host, what string), done func()) {
	if !live {
		return func(string, string) {}, func() {}
	}
	start := time.Now()
	var mu sync.Mutex
	return func(host, what string) {
			mu.Lock()
			defer mu.Unlock()
			if host != "" {
				what = host + ": " + what
			}
			fmt.Fprintf(w, "%s%s %s", screen.ClearLine, stamp(start), what)
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprint(w, screen.ClearLine)
		}
}

func newPlanCmd() *cobra.Command {
	var asJSON, detailed, offline, drifted bool
	var f applyFlags
	var profile, textfile string
	cmd := &cobra.Command{
		Use: "plan",
		Args: func(cmd *cobra.Command, args []string) error {
			if drifted {
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case textfile != "" && !drifted, drifted && (offline || profile != "" || detailed):
				return fail(exitBadInput, errors.New("--textfile belongs to --drift, and --offline, --profile and --detailed-exitcode do not"))
			case drifted:
				return runDrift(cmd, args, asJSON, textfile)
			}
			if offline {
				return showOffline(cmd.Context(), args[0], profile, cmd.OutOrStdout(), asJSON)
			}
			d, err := loadDesign(args[0], profile)
			if err != nil {
				return err
			}
			f.asJSON = asJSON
			pending, err := showPlan(cmd.Context(), d, cmd.OutOrStdout(), f)
			if err == nil && pending > 0 && detailed {
				return fail(exitPending, nil)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the plan as JSON")
	cmd.Flags().BoolVar(&offline, "offline", false, "plan for blank hosts, without reaching any")
	profileFlag(cmd, &profile)
	f.addAccepted(cmd)
	cmd.Flags().BoolVar(&drifted, "drift", false, "compare bricks with their specs, a line for each difference")
	cmd.Flags().StringVar(&textfile, "textfile", "", "with --drift: also write metrics to this file")
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "end with 3 if changes are pending")
	return cmd
}

// showOffline shows the plan of a brick as if its hosts were blank.
func showOffline(ctx context.Context, file, profile string, w io.Writer, asJSON bool) error {
	d, err := loadAnyDesign(file, profile)
	if err != nil {
		return err
	}
	p, err := plan.Offline(ctx, d)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, p.Doc())
	}
	if len(d.Arrays) > 0 {
		fmt.Fprintln(w, "Before this: configure the arrays (mortar array script), and compare their LUNs (mortar array verify).")
	}
	if err := p.Show(w, painter(w)); err != nil {
		return err
	}
	if err := design.Buildable(d.Spec); err != nil {
		fmt.Fprintf(w, "This plan cannot be applied: %v.\n", err)
	}
	return nil
}

// showPlan shows what apply with these flags would change, and returns the number of resources.
func showPlan(ctx context.Context, d *design.Design, w io.Writer, f applyFlags) (pending int, err error) {
	asJSON := f.asJSON
	progress, done := connectProgress(stderr, !asJSON && isTerminal(stderr))
	p, err := plan.Prepare(ctx, d, f.preparing(false, progress))
	done()
	if err != nil {
		return 0, refused(ctx, d.Spec, err)
	}
	defer p.Close()
	if asJSON {
		err = printJSON(w, p.Plan.Doc())
	} else {
		err = p.Plan.Show(w, painter(w))
	}
	return len(p.Plan.Pending()), err
}
