package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// asked is what a procedure is planned from.
type asked struct {
	d     *design.Design
	facts observe.Facts
	c     *observe.Collector // nil for a single server
	flags *procedureFlags
	cmd   *cobra.Command
	args  []string // without the spec
}

// clusterCmd makes a command that asks the servers, makes a plan, and carries it out. Errors of
// the plan are refusals.
func clusterCmd(name string, plan func(ctx context.Context, a asked) (*procedure.Plan, error)) *cobra.Command {
	f := &procedureFlags{}
	cmd := command(name, func(cmd *cobra.Command, args []string) error {
		if f.wait <= 0 || f.timeout <= 0 {
			return fail(exitBadInput, errors.New("--wait and --timeout must be above 0"))
		}
		ctx := cmd.Context()
		d, err := loadDesign(args[0])
		if err != nil {
			return err
		}
		a := asked{d: d, flags: f, cmd: cmd, args: args[1:]}
		if d.Clustered() { // the plan refuses a single server without asking a host
			if a.c, err = newCollector(d, f.timeout, d.Servers()...); err != nil {
				return err
			}
			a.c.Under(host.Gate{DryRun: f.dryRun})
			defer a.c.Close()
			if cmd.Name() == "outlets-on" {
				a.c.AskOutlets()
			}
			if a.facts = a.c.Collect(ctx); ctx.Err() != nil {
				return fail(exitInterrupted, nil)
			}
		}
		p, err := plan(ctx, a)
		if err != nil {
			return fail(exitBadInput, err)
		}
		return f.carryOut(cmd, a.c, p, 0, nil)
	})
	f.add(cmd, false)
	cmd.Flags().DurationVar(&f.wait, "wait", 5*time.Minute, "how long to wait until it is done")
	return cmd
}

func newFailoverCmd() *cobra.Command {
	var to string
	cmd := clusterCmd("failover", func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Service(a.d, a.facts, first(a.args), to)
	})
	cmd.Flags().StringVar(&to, "to", "", "server to move to; default: the other one")
	return cmd
}

func newFailbackCmd() *cobra.Command {
	return clusterCmd("failback", func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Failback(a.d, a.facts, first(a.args))
	})
}

func newStandbyCmd() *cobra.Command {
	return clusterCmd("standby", func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Standby(a.d, a.facts, a.args[0])
	})
}

func newUnstandbyCmd() *cobra.Command {
	return clusterCmd("unstandby", func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Unstandby(a.d, a.facts, a.args[0])
	})
}

func newOutletsOnCmd() *cobra.Command {
	return clusterCmd("outlets-on", func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.OutletsOn(a.d, a.facts, a.args[0], plan.Secrets(a.d.Spec, false))
	})
}
