package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/failover"
)

type applyFlags struct {
	yes, dryRun, asJSON, skipFenceTest, allowDowngrade bool

	profile string
	// prepare names a server that apply prepares before its disks are cabled, and nothing
	// else; "" means the whole brick.
	prepare string
	// replaced names a server whose hardware is new.
	replaced string
	// onto is the generation of the brick's spec that a person has compared with this one.
	onto int
	// unexport are exports that may go.
	unexport []string
}

func newApplyCmd() *cobra.Command {
	var f applyFlags
	cmd := command("apply", func(cmd *cobra.Command, args []string) error {
		d, err := loadDesign(args[0], f.profile)
		if err != nil {
			return err
		}
		if f.dryRun {
			_, err := showPlan(cmd.Context(), d, cmd.OutOrStdout(), f)
			return err
		}
		return runApply(cmd.Context(), d, cmd.InOrStdin(), cmd.OutOrStdout(), f)
	})
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show the plan")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
	profileFlag(cmd, &f.profile)
	f.addAccepted(cmd)
	cmd.Flags().BoolVar(&f.allowDowngrade, "allow-downgrade", false, "replace a newer mortar on the servers; the plan names what is lost")
	cmd.Flags().BoolVar(&f.skipFenceTest, "skip-fence-test", false, "do not end with a fence test of what is unproven")
	return cmd
}

// addAccepted adds the flags by which the user accepts what is refused else.
func (f *applyFlags) addAccepted(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.onto, "onto", 0, "generation of the brick's spec whose difference to this one you accept")
	cmd.Flags().StringSliceVar(&f.unexport, "unexport", nil, "path of an export that the brick has and the spec lacks: its clients lose it")
}

// applyDone is the last line of apply --json.
type applyDone struct {
	plan.Result
	FenceTests []failover.LevelResult `json:"fence_tests,omitempty"`
	Unproven   []string               `json:"fencing_unproven,omitempty"` // levels of fencing that apply did not prove
	// Prepared names the server that mortar server replace has prepared for its cables. The
	// command must run once more after cabling.
	Prepared string `json:"prepared,omitempty"`
	Error    string `json:"error,omitempty"`
}

func runApply(ctx context.Context, d *design.Design, in io.Reader, w io.Writer, f applyFlags) (err error) {
	t := &teller{w, f.asJSON, time.Now()}
	done := applyDone{}
	defer t.end(&err, func(seconds float64, failed string) any {
		if done.Seconds, done.Error = seconds, failed; failed == "" {
			done.Prepared = f.prepare
		}
		return done
	})
	if err := mayAsk(in, f.yes, f.asJSON); err != nil {
		return err
	}
	release, err := claimBrick(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	live := !f.asJSON && isTerminal(stdout)
	pr := &failover.Prover{Design: d, Options: failover.ProofOptions{On: fenceProgress(t)}, Connect: connectOptions, Patience: patience, Replaced: f.replaced}
	p, err := pr.Prepare(ctx, func() (*plan.Prepared, error) {
		progress, progressDone := connectProgress(w, live)
		defer progressDone()
		return plan.Prepare(ctx, d, f.preparing(true, progress))
	})
	var resume *failover.ResumeFailed
	switch {
	case errors.As(err, &resume):
		return fenceTestFailed(ctx, resume.Err)
	case err != nil:
		return refused(ctx, d.Spec, err)
	}
	defer p.Close()
	defer pr.Close()
	pending := p.Plan.Pending()
	if n := len(pending); n == 0 {
		if err := p.Record(ctx, d.Spec, true); err != nil {
			return err
		}
		done.Unchanged = len(p.Plan.Steps)
		if !f.asJSON {
			fmt.Fprintf(w, "Nothing to change: %d resources on %d hosts are as wanted (%.1f s).\n", done.Unchanged, len(p.Hosts), time.Since(t.start).Seconds())
		}
		return prove(ctx, pr, p, in, w, f, &done)
	} else if !f.yes {
		if err := p.Plan.Show(w, painter(w)); err != nil {
			return err
		}
		if d.Clustered() && !f.skipFenceTest {
			fmt.Fprintln(w, "\nThen, unless they are proven: a fence test of each server's levels of fencing, which powers it off and on.")
		}
		if err := confirm(ctx, in, w, applyQuestion(n, len(p.Hosts))); err != nil {
			return err
		}
	} else {
		t.say("%d of %d resources to change on %d hosts (mortar plan shows them)", n, len(p.Plan.Steps), len(p.Hosts))
	}
	if err := p.Record(ctx, d.Spec, false); err != nil {
		return err
	}
	if err := pr.Forget(ctx, pending); err != nil {
		return err
	}
	done.Result, err = p.Plan.Apply(ctx, p.Hosts, plan.ApplyOptions{MayDestroy: d.Spec.Wipe, OnEvent: applyProgress(t, live)})
	if err != nil {
		if ctx.Err() != nil {
			return fail(exitInterrupted, errors.New("interrupted; run apply again to go on"))
		}
		return fail(exitFailed, fmt.Errorf("%w\nHalted. Mend the cause and run apply again: it goes on from here", err))
	}
	if err := p.Record(ctx, d.Spec, true); err != nil {
		return err
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Done: %d changed, %d unchanged (%.1f s).\n", done.Changed, done.Unchanged, time.Since(t.start).Seconds())
	}
	return prove(ctx, pr, p, in, w, f, &done)
}

func applyQuestion(changes, hosts int) string {
	return fmt.Sprintf("\nApply these %d changes to %d hosts?", changes, hosts)
}

// applyProgress prints a line for each stage and change. On a terminal it also shows the
// action that runs.
func applyProgress(t *teller, live bool) func(plan.Event) {
	if t.asJSON {
		return func(e plan.Event) { t.event(e, "", "") }
	}
	w, start, clear := t.w, t.start, ""
	if live {
		clear = screen.ClearLine
	}
	return func(e plan.Event) {
		switch e.Event {
		case plan.EventStage:
			fmt.Fprintf(w, "%s%s %s\n", clear, stamp(start), bold(e.Stage))
		case plan.EventAction:
			if live {
				line := fmt.Sprintf("%s   %s: %s", stamp(start), e.Host, e.Action)
				if r := []rune(line); len(r) > 78 {
					line = string(r[:78])
				}
				fmt.Fprint(w, clear+faint(line))
			}
		case plan.EventWaiting:
			fmt.Fprintf(w, "%s%s   %-10s %s: waiting for the action of an earlier session\n", clear, stamp(start), e.Host, e.Step)
		case plan.EventChanged:
			fmt.Fprintf(w, "%s%s   %-10s %s %s\n", clear, stamp(start), e.Host, e.Step, faint(fmt.Sprintf("%.1f s", e.Seconds)))
		case plan.EventFailed:
			fmt.Fprintf(w, "%s%s   %-10s %s %s\n", clear, stamp(start), e.Host, e.Step, bold("FAILED"))
		}
	}
}
