//go:build man

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// A manual page for each command; `make package` builds with this tag. The
// program that ships goes without, for Pacemaker starts it every few seconds.
func init() {
	extraCommands = append(extraCommands, &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			date, err := time.Parse(time.RFC3339, os.Getenv("MAN_DATE"))
			if err != nil {
				date = time.Now()
			}
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "mortar " + env.Version, Manual: "Mortar", Date: &date}, args[0])
		},
	})
}
