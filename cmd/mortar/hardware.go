package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/change"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/discover"
)

func newArrayScriptCmd() *cobra.Command {
	var s change.Scripts
	cmd := command("script", func(_ context.Context, c *cli.Console, args []string) error { return s.Print(c, args[0], args[1:]) })
	cmd.Flags().StringVar(&s.Tool, "tool", "", "for a PERC: perccli (default) or omconfig")
	cmd.Flags().IntVar(&s.Growth, "growth", 0, "only what this growth adds (see mortar grow)")
	cmd.Flags().StringVar(&s.Dir, "dir", "", "write a file for each array into this directory")
	return cmd
}

func newArrayVerifyCmd() *cobra.Command {
	var write bool
	cmd := command("verify", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.VerifyLUNs(ctx, c, args[0], write)
	})
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&write, "write", false, "put the WWNs that were found into the spec, if there is no difference and it has none")
	return cmd
}

func newDiscoverCmd() *cobra.Command {
	var d discover.Command
	cmd := command("discover", func(ctx context.Context, c *cli.Console, args []string) error { return d.Run(ctx, c, args) })
	f := cmd.Flags()
	f.StringSliceVar(&d.Clients, "clients", nil, "hosts that will mount the exports")
	f.StringVar(&d.Name, "name", "brick1", "name of the brick")
	f.StringVar(&d.To.User, "user", "", "login name; another than root needs sudo without a password (default as ~/.ssh/config says, else root)")
	f.IntVar(&d.To.Port, "port", 0, "TCP port of SSH (default as ~/.ssh/config says, else 22)")
	f.StringVar(&d.To.Identity, "identity", "", "private key file (default as ~/.ssh/config says, else the agent and ~/.ssh/id_*)")
	f.StringVar(&d.To.KnownHosts, "known-hosts", "", "file of pinned host keys (default as ~/.ssh/config says, else ~/.ssh/known_hosts)")
	f.StringVar(&d.Inventory, "inventory", "", "file that says how to reach the hosts, as a virtual rack writes it")
	f.Bool("json", false, "print what was seen of each host as JSON, and no spec")
	return cmd
}
