package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func newOutletsOnCmd() *cobra.Command {
	var m moveFlags
	cmd := &cobra.Command{
		Use:   "outlets-on SPEC NODE",
		Short: "Switch on the PDU outlets of a server that are off",
		Long: `A fencing that was cut short, or a person, may leave an outlet of a server off:
the server then runs on one power feed. ` + "`mortar status`" + ` says so. This command
switches on what is off, with the server's fence devices. It is refused while
the server is to be fenced.
` + moveExit,
		Example: `  mortar outlets-on brick.yaml nfs2
  mortar outlets-on brick.yaml nfs2 --dry-run`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.outlets = true
			return m.runWith(cmd, args[0], func(_ context.Context, d *design.Design, f observe.Facts, _ *observe.Collector) (*failover.Plan, error) {
				return failover.OutletsOn(d, f, args[1], plan.Secrets(d.Spec, false))
			})
		},
	}
	m.add(cmd)
	return cmd
}
