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

// specChange is what every command does that writes a change into the spec and
// applies it.
type specChange struct {
	yes, dryRun, asJSON bool
	// wipe are disks whose data this change may destroy, besides those of the spec.
	wipe []string
}

func (f *specChange) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show the change of the spec and the plan")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
}

// run asks, writes the spec and applies it, with during beside it. Both specs are
// as their text has them, not scaled as a virtual rack is. shown is the
// change of the spec in words. A spec whose plan is refused is put back. done is
// false if nothing was to be changed on hosts yet: a dry run.
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
		_, err := showPlan(cmd.Context(), d, out, f.asJSON)
		return false, err
	}
	if !f.yes && (f.asJSON || !isTerminalReader(cmd.InOrStdin())) {
		return false, fail(exitBadInput, errNobodyToAsk)
	}
	if !f.yes {
		if err := confirm(cmd.Context(), cmd.InOrStdin(), out, applyQuestion(1, len(d.Spec.Servers))); err != nil {
			return false, err
		}
	}
	if err := replaceFile(file, next.Source); err != nil {
		return false, fail(exitFailed, err)
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
		// Nothing was changed, so the spec is as it was too.
		if rerr := replaceFile(file, was.Source); rerr != nil {
			return false, fail(exitFailed, errors.Join(err, fmt.Errorf("the spec has the change all the same: %w", rerr)))
		}
	}
	return err == nil, err
}
