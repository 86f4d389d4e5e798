package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/lustre"
)

// command makes a command; help.txt has its texts.
func command(name string, run func(context.Context, *cli.Console, []string) error) *cobra.Command {
	return &cobra.Command{Use: name, RunE: func(cmd *cobra.Command, args []string) error {
		c := consoleOf(cmd)
		return c.Ended(run(cmd.Context(), c, args))
	}}
}

// local makes a command that reads files alone, and ends with an interrupt.
func local(name string, run func(context.Context, *cli.Console, []string) error) *cobra.Command {
	return command(name, func(ctx context.Context, c *cli.Console, args []string) error {
		return cli.OrInterrupt(ctx, func() error { return run(ctx, c, args) })
	})
}

// hidden makes a command that other programs run.
func hidden(name string, run func(context.Context, *cli.Console, []string) error) *cobra.Command {
	c := command(name, run)
	c.Hidden = true
	return c
}

// group makes a command of commands.
func group(name string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name}
	c.AddCommand(commands...)
	return c
}

// commands lists every command in the order of a brick's life.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newInitCmd(),
		newDiscoverCmd(),
		newCheckCmd(),
		group("array", newArrayScriptCmd(), newArrayVerifyCmd()),
		group("rack", append(rackParts(), newRackUpCmd(), newRackDownCmd(), newRackStatusCmd(), newRackSSHCmd(), newRackArrayCmd(), newRackFaultCmd(),
			newRackImageCmd(), newRackSaveCmd(), newRackRestoreCmd(), newRackSavedCmd(), newRackForgetCmd())...),
		newForecastCmd(),
		newSimulateCmd(),
		newPlanCmd(),
		newApplyCmd(),
		newFenceTestCmd(),
		newStatusCmd(),
		newWatchCmd(),
		newEventsCmd(),
		newClientConfigCmd(),
		group("disk", newDiskLocateCmd(), newDiskFailCmd(), newDiskReplaceCmd()),
		newGrowCmd(),
		newQuotaCmd(),
		group("cache", newCacheStatsCmd(), newCacheModeCmd(), newCacheAddCmd(), newCacheRemoveCmd(), newCacheOffCmd()),
		newFailoverCmd(),
		moveCmd("failback", failover.Failback),
		newConfirmOffCmd(),
		newConfirmDoubtCmd(),
		newRepairCmd(),
		newOutletsOnCmd(),
		group("lustre",
			group("pool", newPoolListCmd(), poolCmd("create", (*lustre.FS).PoolCreate), poolCmd("add", (*lustre.FS).PoolAdd),
				poolCmd("remove", (*lustre.FS).PoolRemove), poolCmd("destroy", (*lustre.FS).PoolDestroy)),
			group("layout", newLayoutShowCmd(), newLayoutSetCmd()),
			group("ost", ostCmd("drain", (*lustre.FS).Drain), ostCmd("fill", (*lustre.FS).Fill), ostCmd("retire", (*lustre.FS).Retire)),
			newBalanceCmd(), newLFSCKCmd(), newFSCKCmd(), newWriteconfCmd()),
		newScrubCmd(),
		newScrubArrayCmd(),
		moveCmd("standby", failover.Standby),
		moveCmd("unstandby", failover.Unstandby),
		newUpgradeCmd(),
		group("server", newServerReplaceCmd()),
		newUnlockCmd(),
		newReportBugCmd(),
		newBackupCmd(),
		newRestoreCmd(),
		newBenchCmd(),
		group("drill", newDrillRunCmd(), newDrillAllCmd(), newDrillRandomCmd(), newDrillListCmd(), newDrillVersusCmd()),
		newReportCmd(),
		newCompareCmd(),
		newDemoCmd(),
		newAgentCmd(),
		newOCFCmd(),
		newHostCacheCmd(),
		newHostBrickCmd(),
		newHostMetricsCmd(),
		newVersionCmd(),
	}
}
