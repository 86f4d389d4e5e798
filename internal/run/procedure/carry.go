package procedure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Carry says how a command carries out a plan.
type Carry struct {
	Asks bool // it shows the commands and asks before, unless --yes is given
	// Wait bounds each wait, Grace what is undone after an interrupt; 0: 30 s.
	Wait, Grace time.Duration
	// After runs once the plan is carried out, or there was nothing to do. It may add to the
	// plan; nil: nothing.
	After func(context.Context) error
}

// result is the last line of --json.
type result struct {
	*Plan
	Changed bool    `json:"changed"`
	DryRun  bool    `json:"dry_run,omitempty"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// Out shows a plan, asks, and carries it out.
func (o Carry) Out(ctx context.Context, c *cli.Console, h Hosts, p *Plan) error {
	r := result{Plan: p, DryRun: c.DryRun}
	end := func(err error) error {
		return errors.Join(c.Line(r, func(io.Writer) error { return nil }), err)
	}
	after := func() error {
		if o.After == nil {
			return nil
		}
		return o.After(ctx)
	}
	asks := o.Asks && !c.DryRun && p.Nothing == ""
	if asks && c.JSON {
		if err := c.MayAsk(); err != nil {
			return err
		}
	}
	o.show(c, p)
	switch {
	case p.Nothing != "":
		return end(after())
	case c.DryRun:
		return end(nil)
	case asks:
		if err := c.Confirm(ctx, "Go on?"); err != nil {
			return err
		}
	}
	start := time.Now()
	err := Run(ctx, h, p, Options{Wait: o.Wait, Poll: 5 * time.Second, Glance: 500 * time.Millisecond, Grace: o.Grace, On: progress(c, start)})
	r.Changed, r.Seconds = true, time.Since(start).Seconds()
	switch {
	case err == nil:
		c.Printf("done in %.1f s\n", r.Seconds)
		return end(after())
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		r.Error = err.Error()
		return end(cli.Fail(cli.Interrupted, fmt.Errorf("interrupted: %w; see `mortar status`", err)))
	}
	r.Error = err.Error()
	return end(cli.Fail(cli.Failed, fmt.Errorf("%w; see `mortar status`", err)))
}

// show prints what a plan does; the commands too before a question, and in a dry run.
func (o Carry) show(c *cli.Console, p *Plan) {
	switch {
	case p.Nothing != "":
		c.Printf("nothing to do: %s\n", p.Nothing)
		return
	case p.Service != "" && p.From != "" && p.From != p.To:
		c.Printf("%s of service %s: %s → %s\n", p.What, p.Service, p.From, p.To)
	case p.Service != "":
		c.Printf("%s of service %s to %s\n", p.What, p.Service, p.To)
	case p.Node != "":
		c.Printf("%s %s\n", p.What, p.Node)
	default:
		c.Printf("%s\n", p.What)
	}
	if !c.DryRun && !o.Asks {
		return
	}
	for i, s := range p.Steps {
		c.Printf("  %d. %s\n", i+1, s.Title)
		switch host := p.HostOf(&s); {
		case s.Action != nil && s.Action.File != nil:
			c.Printf("     %s: write %s\n", host, s.Action.File.Path)
		case s.Action != nil:
			c.Printf("     %s# %s\n", host, plan.Quote(s.Action.Cmd))
		}
	}
	for _, n := range p.Notes {
		c.Printf("  note: %s\n", n)
	}
	if c.DryRun {
		c.Printf("dry run: nothing was changed\n")
	}
}

// progress prints a line for each event.
func progress(c *cli.Console, start time.Time) func(Event) {
	return func(e Event) {
		at := fmt.Sprintf("%6.1f s", time.Since(start).Seconds())
		switch {
		case c.JSON:
			c.Event(e, "", "")
		case e.State == "started":
			c.Printf("%s  %d/%d %s\n", at, e.Step, e.Steps, e.Title)
		case e.State == "done" && e.Detail != "":
			c.Printf("%s      %s\n", at, e.Detail)
		case e.State == "waiting", e.State == "failed":
			c.Printf("%s      %s: %s\n", at, e.State, e.Detail)
		}
	}
}
