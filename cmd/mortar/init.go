package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/examples"
)

// initFlavours are the examples `init` offers, the main one first.
var initFlavours = []string{"nfs-ha", "nfs"}

func newInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init FLAVOUR",
		Short: "Print a commented spec, ready to edit: mortar init nfs-ha > brick.yaml",
		Long: `Print a commented spec, ready to edit. It describes a small brick that the
virtual rack can be; on real hardware edit what is marked EDIT.

Flavours:
  nfs-ha   two servers, shared disks, one service that moves between them
  nfs      one server`,
		Example:   "  mortar init nfs-ha > brick.yaml",
		ValidArgs: initFlavours,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fail(exitBadInput, fmt.Errorf("init takes one flavour: %s", strings.Join(initFlavours, " or ")))
			}
			for _, f := range initFlavours {
				if f != args[0] {
					continue
				}
				text, err := fs.ReadFile(examples.FS, f+".yaml")
				if err != nil {
					return fail(exitFailed, err)
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return fail(exitBadInput, fmt.Errorf("there is no template for flavour %q; use %s", args[0], strings.Join(initFlavours, " or ")))
		},
	}
}
