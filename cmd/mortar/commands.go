package main

import "github.com/spf13/cobra"

// commands lists every subcommand in the order of a brick's life. Each file of this package
// adds its line here.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newInitCmd(),
		newDiscoverCmd(),
		newCheckCmd(),
		newArrayCmd(),
		newRackCmd(),
		newForecastCmd(),
		newSimulateCmd(),
		newPlanCmd(),
		newApplyCmd(),
		newFenceTestCmd(),
		newStatusCmd(),
		newWatchCmd(),
		newEventsCmd(),
		newMountOptionsCmd(),
		newDiskCmd(),
		newGrowCmd(),
		newQuotaCmd(),
		newCacheCmd(),
		newFailoverCmd(),
		newFailbackCmd(),
		newConfirmOffCmd(),
		newConfirmDoubtCmd(),
		newOutletsOnCmd(),
		newLustreCmd(),
		newScrubCmd(),
		newScrubArrayCmd(),
		newStandbyCmd(),
		newUnstandbyCmd(),
		newUpgradeCmd(),
		newServerCmd(),
		newUnlockCmd(),
		newBackupCmd(),
		newRestoreCmd(),
		newBenchCmd(),
		newDrillCmd(),
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
