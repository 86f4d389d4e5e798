package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/release"
)

// The linker sets version. Source: Makefile.
var version = "unknown"

func newVersionCmd() *cobra.Command {
	var asJSON bool
	c := command("version", func(cmd *cobra.Command, _ []string) error {
		if asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(release.This(version))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "mortar", version)
		return err
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print the version and the time of its commit as JSON")
	return c
}
