package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// agentMain is a resource agent: ocf.Main or ocf.WatchMain.
type agentMain func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int

// ocfMain runs the binary as a resource agent, ocf:mortar:service or ocf:mortar:watch.
// Pacemaker calls it by that name, with an action as argument and OCF_* variables in the
// environment.
func ocfMain(args []string, main agentMain) int {
	// Pacemaker sends SIGTERM to an action that is late. Report it while there is time.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return main(ctx, args, os.Getenv, os.Stdout, os.Stderr)
}

// newOCFCmd runs the agent by hand on a server.
func newOCFCmd() *cobra.Command {
	var config string
	cmd := hidden("ocf", func(ctx context.Context, _ *cli.Console, args []string) error {
		getenv := os.Getenv
		if config != "" {
			getenv = func(k string) string {
				if k == "OCF_RESKEY_config" {
					return config
				}
				return os.Getenv(k)
			}
		}
		if code := ocf.Main(ctx, args, getenv, stdout, stderr); code != ocf.Success {
			return fail(code, nil)
		}
		return nil
	})
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.Flags().StringVar(&config, "config", "", "the service's JSON file, e.g. /etc/mortar/service-home.json")
	return cmd
}
