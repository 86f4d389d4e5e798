package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/metrics"
)

// newHostMetricsCmd writes a server's metrics. systemd runs it every minute.
func newHostMetricsCmd() *cobra.Command {
	return hidden("host-metrics", func(ctx context.Context, c *cli.Console, args []string) error {
		b, err := os.ReadFile(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		m, err := metrics.Read(b)
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("%s: %w", args[0], err))
		}
		text := metrics.Measure(ctx, m)
		if len(args) == 1 {
			_, err = fmt.Fprint(c.Out, text)
			return err
		}
		// node_exporter reads the file as user prometheus.
		return durable.Write(filepath.Join(args[1], "mortar.prom"), durable.File{Content: []byte(text), Mode: 0o644, UID: os.Getuid(), GID: os.Getgid()})
	})
}
