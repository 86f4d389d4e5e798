package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/watch"
)

func newWatchCmd() *cobra.Command {
	w := watch.Watcher{Sendmail: watch.Sendmail}
	cmd := command("watch", func(ctx context.Context, c *cli.Console, args []string) error { return w.Run(ctx, c, args) })
	f := cmd.Flags()
	f.StringVar(&w.Listen, "listen", "127.0.0.1:9880", "address and port to serve; empty: none")
	f.StringSliceVar(&w.Names, "name", nil, "another name by which readers call this machine, such as wall.example.org; may be repeated")
	f.StringVar(&w.Notify, "notify", "", "program to run for each finding")
	f.StringVar(&w.Mail, "mail", "", "address or local user to send each finding to")
	f.DurationVar(&w.Interval, "interval", 5*time.Second, "time between two looks")
	f.DurationVar(&w.Timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}
