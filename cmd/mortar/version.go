package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is set by the linker (see the Makefile).
var version = "unknown"

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "mortar", version)
		},
	}
}
