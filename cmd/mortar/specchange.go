package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
)

// specChange is the common part of commands that change the spec and apply it.
type specChange struct {
	yes, dryRun, asJSON bool
	// wipe lists disks whose data this change may destroy, in addition to the spec's list.
	wipe []string
}

func (f *specChange) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show the change of the spec and the plan")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
}

// run shows the change, asks, writes the spec and applies it. during runs in the background
// meanwhile. was and next have the sizes of their files, not those of a virtual rack. shown
// describes the change. If apply refuses the plan, run restores the spec. done is false after
// a dry run and after a failure.
func (f *specChange) run(cmd *cobra.Command, was, next *spec.Spec, shown string, during func(ctx context.Context)) (done bool, err error) {
	out, file := cmd.OutOrStdout(), was.File
	if err := host.Hardware(next); err != nil {
		return false, fail(exitBadInput, err)
	}
	d, err := design.New(next)
	if err != nil {
		return false, fail(exitBadInput, fmt.Errorf("with this change, %w; nothing was changed", err))
	}
	d.Spec.Wipe = append(d.Spec.Wipe, f.wipe...)
	if !f.asJSON {
		fmt.Fprintln(out, shown)
	}
	if f.dryRun {
		_, err := showPlan(cmd.Context(), d, out, applyFlags{asJSON: f.asJSON})
		return false, err
	}
	if err := mayAsk(cmd.InOrStdin(), f.yes, f.asJSON); err != nil {
		return false, err
	}
	if !f.yes {
		n, err := showPlan(cmd.Context(), d, out, applyFlags{})
		if err != nil {
			return false, err
		}
		if err := confirm(cmd.Context(), cmd.InOrStdin(), out, applyQuestion(n, len(d.Spec.Servers)+len(d.Spec.Clients))); err != nil {
			return false, err
		}
	}
	if err := replaceFile(file, next.Source); err != nil {
		return false, err
	}
	if d, err = loadDesign(file); err != nil {
		return false, err
	}
	d.Spec.Wipe = append(d.Spec.Wipe, f.wipe...)
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	if !f.asJSON && during != nil {
		go during(ctx)
	}
	err = runApply(cmd.Context(), d, cmd.InOrStdin(), out, applyFlags{yes: true, asJSON: f.asJSON, skipFenceTest: true})
	if refused := (*exitError)(nil); errors.As(err, &refused) && refused.code == exitBadInput {
		// The hosts are unchanged, so restore the spec too.
		if rerr := replaceFile(file, was.Source); rerr != nil {
			return false, fail(exitFailed, errors.Join(err, fmt.Errorf("the spec has the change all the same: %w", rerr)))
		}
	}
	return err == nil, err
}
