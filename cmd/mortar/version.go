package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// The linker sets version. Source: Makefile.
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
