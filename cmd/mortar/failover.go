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

const moveExit = `
Exit code: 0 done or nothing to do; 1 it was tried and failed; 2 refused,
nothing was changed.`

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
func clusterCmd(cmd *cobra.Command, plan func(ctx context.Context, a asked) (*procedure.Plan, error)) *cobra.Command {
	f := &procedureFlags{}
	f.add(cmd, false)
	cmd.Long += moveExit
	cmd.Flags().DurationVar(&f.wait, "wait", 5*time.Minute, "how long to wait until it is done")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
	}
	return cmd
}

func newFailoverCmd() *cobra.Command {
	var to string
	cmd := clusterCmd(&cobra.Command{
		Use:     "failover SPEC [SERVICE]",
		Short:   "Move a service to the other server, gracefully",
		Example: "  mortar failover brick.yaml\n  mortar failover brick.yaml --dry-run",
		Long: `Move a service to the other server, or to the one named by --to: the cluster
stops it here and starts it there; clients wait meanwhile. The constraint that
the cluster's move command makes is taken away again, also if the move fails
or is interrupted. Refused if the target could not serve: it is not online, does not
reach the disks, failed before, or the server left behind could not be fenced.
`,
		Args: cobra.RangeArgs(1, 2),
	}, func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Service(a.d, a.facts, first(a.args), to)
	})
	cmd.Flags().StringVar(&to, "to", "", "server to move to; default: the other one")
	return cmd
}

func newFailbackCmd() *cobra.Command {
	return clusterCmd(&cobra.Command{
		Use:     "failback SPEC [SERVICE]",
		Short:   "Move a service to its preferred server",
		Example: "  mortar failback brick.yaml\n  mortar failback brick.yaml home   # of two services",
		Long:    "Move a service back to the server the spec prefers; see failover. Of two services, name the one.\n",
		Args:    cobra.RangeArgs(1, 2),
	}, func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Failback(a.d, a.facts, first(a.args))
	})
}

func newStandbyCmd() *cobra.Command {
	return clusterCmd(&cobra.Command{
		Use:     "standby SPEC NODE",
		Short:   "Move everything off a server and keep it off, for maintenance",
		Example: "  mortar standby brick.yaml nfs1",
		Long: `Put a server in standby: its services move to the other one, and it takes
nothing over until ` + "`mortar unstandby`" + `, also after a reboot. Refused if the
other server could not take the services over.
`,
		Args: cobra.ExactArgs(2),
	}, func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Standby(a.d, a.facts, a.args[0])
	})
}

func newUnstandbyCmd() *cobra.Command {
	return clusterCmd(&cobra.Command{
		Use:     "unstandby SPEC NODE",
		Short:   "Let a server in standby take services again",
		Example: "  mortar unstandby brick.yaml nfs1",
		Long: `End standby. Services stay where they are, unless ha.failback is auto; move
them with ` + "`mortar failback`" + `.
`,
		Args: cobra.ExactArgs(2),
	}, func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.Unstandby(a.d, a.facts, a.args[0])
	})
}

func newOutletsOnCmd() *cobra.Command {
	return clusterCmd(&cobra.Command{
		Use:   "outlets-on SPEC NODE",
		Short: "Switch on the PDU outlets of a server that are off",
		Long: `A fencing that was cut short, or a person, may leave an outlet of a server off:
the server then runs on one power feed. ` + "`mortar status`" + ` says so. This command
switches on what is off, with the server's fence devices. It is refused while
the server is to be fenced.
`,
		Example: `  mortar outlets-on brick.yaml nfs2
  mortar outlets-on brick.yaml nfs2 --dry-run`,
		Args: cobra.ExactArgs(2),
	}, func(_ context.Context, a asked) (*procedure.Plan, error) {
		return failover.OutletsOn(a.d, a.facts, a.args[0], plan.Secrets(a.d.Spec, false))
	})
}
