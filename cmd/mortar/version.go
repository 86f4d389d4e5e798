package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// The linker sets version. Source: Makefile.
var version = "unknown"

func newVersionCmd() *cobra.Command {
	c := command("version", func(ctx context.Context, c *cli.Console, _ []string) error {
		return c.Line(release.This(version), func(w io.Writer) error {
			_, err := fmt.Fprintln(w, "mortar", version)
			return err
		})
	})
	c.Flags().Bool("json", false, "print the version and the time of its commit as JSON")
	return c
}
