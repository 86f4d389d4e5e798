package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// procedureFlags are the flags of the commands that carry out a procedure on a running brick.
type procedureFlags struct {
	dryRun, asJSON bool
	asks, yes      bool // the command asks, unless yes
	wait, timeout  time.Duration
	// closing runs once the plan is carried out, or there was nothing to do. It may add to
	// the plan; nil: nothing.
	closing func(context.Context)
}

// add adds the flags; asks has the command ask before it changes anything.
func (f *procedureFlags) add(cmd *cobra.Command, asks bool) {
	if f.asks = asks; asks {
		cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the exact commands and change nothing")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON lines: progress, then the result")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long any host may take to answer")
}

// procedureResult is the last line of --json.
type procedureResult struct {
	*procedure.Plan
	Changed bool    `json:"changed"`
	DryRun  bool    `json:"dry_run,omitempty"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// carryOut shows a plan, asks, and carries it out. after prints for a person what came of it; it
// may be nil.
func (f *procedureFlags) carryOut(cmd *cobra.Command, h procedure.Hosts, p *procedure.Plan, grace time.Duration, after func(context.Context, io.Writer) error) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	ask := f.asks && !f.yes && !f.dryRun && p.Nothing == ""
	if ask && f.asJSON {
		return fail(exitBadInput, errNobodyToAsk)
	}
	r := procedureResult{Plan: p, DryRun: f.dryRun}
	if !f.asJSON {
		printProcedure(w, p, f.dryRun, f.asks)
	}
	closing := func() {
		if f.closing != nil {
			f.closing(ctx)
		}
	}
	if p.Nothing != "" {
		closing()
	}
	if p.Nothing != "" || f.dryRun {
		return f.result(w, r)
	}
	if ask {
		if err := mayAsk(cmd.InOrStdin(), false, false); err != nil {
			return err
		}
		if err := confirm(ctx, cmd.InOrStdin(), w, "Go on?"); err != nil {
			return err
		}
	}
	start := time.Now()
	err := procedure.Run(ctx, h, p, procedure.Options{Wait: f.wait, Poll: 5 * time.Second, Glance: 500 * time.Millisecond, Grace: grace, On: f.progress(w, start)})
	r.Changed, r.Seconds = true, time.Since(start).Seconds()
	if err != nil {
		r.Error = err.Error()
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = fail(exitInterrupted, fmt.Errorf("interrupted: %w; see `mortar status`", err))
		} else {
			err = fail(exitFailed, fmt.Errorf("%w; see `mortar status`", err))
		}
		return errors.Join(f.result(w, r), err)
	}
	if !f.asJSON {
		fmt.Fprintf(w, "done in %.1f s\n", r.Seconds)
		if after != nil {
			return after(ctx, w)
		}
	}
	closing()
	return f.result(w, r)
}

func (f *procedureFlags) result(w io.Writer, r procedureResult) error {
	if f.asJSON {
		return jsonLines(w).Encode(r)
	}
	return nil
}

// printProcedure prints what a plan does; the commands too before a question, and in a dry run.
func printProcedure(w io.Writer, p *procedure.Plan, dry, asks bool) {
	if p.Nothing != "" {
		fmt.Fprintf(w, "nothing to do: %s\n", p.Nothing)
		return
	}
	switch {
	case p.Service != "" && p.From != "" && p.From != p.To:
		fmt.Fprintf(w, "%s of service %s: %s → %s\n", p.What, p.Service, p.From, p.To)
	case p.Service != "":
		fmt.Fprintf(w, "%s of service %s to %s\n", p.What, p.Service, p.To)
	case p.Node != "":
		fmt.Fprintf(w, "%s %s\n", p.What, p.Node)
	default:
		fmt.Fprintln(w, p.What)
	}
	if !dry && !asks {
		return
	}
	for i, s := range p.Steps {
		fmt.Fprintf(w, "  %d. %s\n", i+1, s.Title)
		switch host := p.HostOf(&s); {
		case s.Action != nil && s.Action.File != nil:
			fmt.Fprintf(w, "     %s: write %s\n", host, s.Action.File.Path)
		case s.Action != nil:
			fmt.Fprintf(w, "     %s# %s\n", host, plan.Quote(s.Action.Cmd))
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	if dry {
		fmt.Fprintln(w, "dry run: nothing was changed")
	}
}

// progress prints a line for each event.
func (f *procedureFlags) progress(w io.Writer, start time.Time) func(procedure.Event) {
	return func(e procedure.Event) {
		at := fmt.Sprintf("%6.1f s", time.Since(start).Seconds())
		switch {
		case f.asJSON:
			_ = jsonLines(w).Encode(e) // a closed stdout shows in the result's own write
		case e.State == "started":
			fmt.Fprintf(w, "%s  %d/%d %s\n", at, e.Step, e.Steps, e.Title)
		case e.State == "done" && e.Detail != "":
			fmt.Fprintf(w, "%s      %s\n", at, e.Detail)
		case e.State == "waiting", e.State == "failed":
			fmt.Fprintf(w, "%s      %s: %s\n", at, e.State, e.Detail)
		}
	}
}
