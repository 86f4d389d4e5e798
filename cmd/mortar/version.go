package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is set by the linker (see the Makefile).
var version = "unknown"

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  mortar version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "mortar", version)
			return err
		},
	}
}
