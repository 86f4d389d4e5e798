// Package change has the commands that change a brick by its spec: the plan shown, asked for and
// applied, fencing proven at the end; changes of the spec itself (disks, SSDs of a cache, growth)
// with their apply; a server replaced; servers upgraded.
//
// Packages plan, failover, disk and upgrade know what a change takes. Package change has their
// order, tells how it goes on and asks. It has no flags, and sets up no rack.
package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
)

// Options of an apply.
type Options struct {
	SkipFenceTest, AllowDowngrade bool
	// Prepare names a server that apply prepares before its disks are cabled, and nothing
	// else; "" means the whole brick.
	Prepare string
	// Replaced names a server whose hardware is new.
	Replaced string
	// Onto is the generation of the brick's spec that a person has compared with this one.
	Onto int
	// Unexport are exports that may go.
	Unexport []string
	// Limit names the hosts that are compared and changed: hosts, ranges and groups; nil: all.
	Limit []string
}

// preparing returns how to make the plan of an apply. With keep, Prepare stores a cluster key
// that it has to make.
func (o *Options) preparing(c *cli.Console, keep bool, progress func(host, what string)) plan.PrepareOptions {
	p := c.Preparing()
	p.Keep, p.Progress, p.Onto, p.Unexport, p.AllowDowngrade = keep, progress, o.Onto, o.Unexport, o.AllowDowngrade
	if o.Prepare != "" {
		p.Only = plan.BeforeDisks(o.Prepare)
	}
	return p
}

// Show shows what an apply would change, and returns the number of resources.
func Show(ctx context.Context, c *cli.Console, d *design.Design, o Options) (pending int, err error) {
	limit, err := cli.Limit(d, o.Limit)
	if err != nil {
		return 0, err
	}
	progress, done := cli.Connecting(c.Err, !c.JSON && cli.IsTerminal(c.Err))
	how := o.preparing(c, false, progress)
	how.Limit = limit
	p, err := plan.Prepare(ctx, d, how)
	done()
	if err != nil {
		return 0, cli.Refused(ctx, d.Spec, err)
	}
	defer p.Close()
	if c.JSON {
		err = cli.PrintJSON(c.Out, p.Plan.Doc())
	} else {
		err = p.Plan.Show(c.Out, cli.Painter(c.Out))
	}
	c.LeaveOut(p.Plan.Left)
	return len(p.Plan.Pending()), err
}

// ShowOffline shows the plan of a brick, or of a limit's hosts, as if its hosts were blank.
func ShowOffline(ctx context.Context, c *cli.Console, file, profile string, only []string) error {
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

// applied is the last line of apply --json.
type applied struct {
	plan.Result
	FenceTests []failover.LevelResult `json:"fence_tests,omitempty"`
	Unproven   []string               `json:"fencing_unproven,omitempty"` // levels of fencing that apply did not prove
	// Prepared names the server that mortar server replace has prepared for its cables. The
	// command must run once more after cabling.
	Prepared string `json:"prepared,omitempty"`
	// Uncached says what part of a volume goes past its cache, and how that ends.
	Uncached string `json:"uncached,omitempty"`
	// LeftOut lists clients that do not answer.
	LeftOut []string `json:"left_out,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Apply shows the plan of a brick, asks, carries it out, and proves the fencing that is not
// proven.
func Apply(ctx context.Context, c *cli.Console, d *design.Design, o Options) (err error) {
	done := applied{}
	defer c.End(&err, func(seconds float64, failed string) any {
		if done.Seconds, done.Error = seconds, failed; failed == "" {
			done.Prepared = o.Prepare
		}
		done.LeftOut = slices.Sorted(maps.Keys(c.Left))
		return done
	})
	limit, err := cli.Limit(d, o.Limit)
	if err != nil {
		return err
	}
	if err := cmp.Or(wholePairs(d, limit), c.MayAsk()); err != nil {
		return err
	}
	release, err := c.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	live := !c.JSON && cli.IsTerminal(c.Out)
	pr := &failover.Prover{Design: d, Options: failover.ProofOptions{On: fencing(c)}, Connect: c.Connect, Patience: c.Patience(), Replaced: o.Replaced}
	p, err := pr.Prepare(ctx, func() (*plan.Prepared, error) {
		progress, progressDone := cli.Connecting(c.Out, live)
		defer progressDone()
		how := o.preparing(c, true, progress)
		how.Limit = limit
		return plan.Prepare(ctx, d, how)
	})
	var resume *failover.ResumeFailed
	switch {
	case errors.As(err, &resume):
		return fenceTestFailed(ctx, resume.Err)
	case err != nil:
		return cli.Refused(ctx, d.Spec, err)
	}
	defer p.Close()
	defer pr.Close()
	c.LeaveOut(p.Plan.Left)
	pending, hosts, whole := p.Plan.Pending(), p.Plan.Hosts(), limit == nil
	if n := len(pending); n == 0 {
		if err := p.Record(ctx, d.Spec, whole); err != nil {
			return err
		}
		done.Unchanged = len(p.Plan.Steps)
		c.Printf("Nothing to change: %d resources on %d hosts are as wanted (%.1f s).\n", done.Unchanged, hosts, time.Since(c.Start).Seconds())
		done.Uncached = uncached(ctx, c, d)
		return prove(ctx, c, pr, p, o, limit, &done)
	} else if !c.Yes {
		if err := p.Plan.Show(c.Out, cli.Painter(c.Out)); err != nil {
			return err
		}
		if d.Clustered() && !o.SkipFenceTest {
			fmt.Fprintln(c.Out, "\nThen, unless they are proven: a fence test of each server's levels of fencing, which powers it off and on.")
		}
		if err := c.Confirm(ctx, question(n, hosts)); err != nil {
			return err
		}
	} else {
		c.Say("%d of %d resources to change on %d hosts (mortar plan shows them)", n, len(p.Plan.Steps), hosts)
	}
	if err := p.Record(ctx, d.Spec, false); err != nil {
		return err
	}
	if err := pr.Forget(ctx, pending); err != nil {
		return err
	}
	done.Result, err = p.Plan.Apply(ctx, p.Hosts, plan.ApplyOptions{MayDestroy: d.Spec.Wipe, OnEvent: applying(c, live),
		Spared: func(name string) bool { return plan.IsClient(d, name) }})
	c.LeaveOut(done.Left)
	if err != nil {
		if ctx.Err() != nil {
			return cli.Fail(cli.Interrupted, errors.New("interrupted; run apply again to go on"))
		}
		return cli.Fail(cli.Failed, fmt.Errorf("%w\nHalted. Mend the cause and run apply again: it goes on from here", err))
	}
	if err := p.Record(ctx, d.Spec, whole); err != nil {
		return err
	}
	c.Printf("Done: %d changed, %d unchanged (%.1f s).\n", done.Changed, done.Unchanged, time.Since(c.Start).Seconds())
	done.Uncached = uncached(ctx, c, d)
	return prove(ctx, c, pr, p, o, limit, &done)
}

// wholePairs refuses a limit that has a server without its partner.
func wholePairs(d *design.Design, limit map[string]bool) error {
	for _, pair := range d.Pairs {
		others := slices.DeleteFunc(slices.Clone(pair.Servers), func(s string) bool { return limit[s] })
		if len(others) > 0 && len(others) < len(pair.Servers) {
			return cli.Refuse(fmt.Errorf("--limit: %s change together, as their cluster does: name all of them or none", strings.Join(pair.Servers, " and ")))
		}
	}
	return nil
}

func question(changes, hosts int) string {
	return fmt.Sprintf("\nApply these %d changes to %d hosts?", changes, hosts)
}

// applying prints a line for each stage and change. On a terminal it also shows the action that
// runs.
func applying(c *cli.Console, live bool) func(plan.Event) {
	clear := ""
	if live {
		clear = screen.ClearLine
	}
	return func(e plan.Event) {
		at := clear + cli.Stamp(c.Start)
		switch {
		case c.JSON:
			c.Event(e, "", "")
		case e.Event == plan.EventStage:
			fmt.Fprintf(c.Out, "%s %s\n", at, c.Bold(e.Stage))
		case e.Event == plan.EventAction && live:
			line := fmt.Sprintf("%s   %s: %s", cli.Stamp(c.Start), e.Host, e.Action)
			if r := []rune(line); len(r) > 78 {
				line = string(r[:78])
			}
			fmt.Fprint(c.Out, clear+c.Faint(line))
		case e.Event == plan.EventWaiting:
			fmt.Fprintf(c.Out, "%s   %-10s %s: waiting for the action of an earlier session\n", at, e.Host, e.Step)
		case e.Event == plan.EventChanged:
			fmt.Fprintf(c.Out, "%s   %-10s %s %s\n", at, e.Host, e.Step, c.Faint(fmt.Sprintf("%.1f s", e.Seconds)))
		case e.Event == plan.EventFailed:
			fmt.Fprintf(c.Out, "%s   %-10s %s %s\n", at, e.Host, e.Step, c.Bold("FAILED"))
		}
	}
}

// prove tests, at the end of an apply to the servers, the levels of fencing that are not proven.
func prove(ctx context.Context, c *cli.Console, pr *failover.Prover, p *plan.Prepared, o Options, limit map[string]bool, done *applied) error {
	d := pr.Design
	if o.Prepare != "" || limit != nil && !slices.ContainsFunc(d.Servers(), func(s string) bool { return limit[s] }) {
		return nil
	}
	levels, err := pr.Unproven(ctx, p.Hosts)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	if len(levels) == 0 {
		return nil
	}
	why := ""
	switch {
	case o.SkipFenceTest:
		why = "--skip-fence-test"
	case !c.Virtual(ctx, d.Spec) && p.Served():
		// A test would interrupt clients twice, and an apply does not ask for that.
		why = "the service runs already, and a fence test moves it"
		if !c.Yes && !c.JSON && cli.Asks(c.In) && confirmFencing(c, levels, "") == nil {
			why = ""
		}
	}
	if why != "" {
		for _, l := range levels {
			done.Unproven = append(done.Unproven, fmt.Sprintf("%s level %d", l.Node, l.Level))
		}
		c.Printf("Fencing is not proven (%s): %s. mortar fence-test %s proves it.\n", why, strings.Join(done.Unproven, ", "), d.Spec.File)
		return nil
	}
	c.Printf("Fence test: each level that is not proven is used, one by one (--skip-fence-test leaves it out)\n")
	start := time.Now()
	done.FenceTests, err = pr.Prove(ctx, levels)
	if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
		return cli.Fail(cli.Failed, fmt.Errorf("everything is applied, but fencing could not be tested: %w", err))
	}
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	c.Printf("Fencing proven: %s (%.0f s).\n", proven(done.FenceTests), time.Since(start).Seconds())
	return nil
}
