package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newReportCmd() *cobra.Command {
	var out string
	cmd := command("report", func(ctx context.Context, c *cli.Console, args []string) error {
		runs, err := loadRuns(args)
		if err != nil {
			return err
		}
		if out == "" {
			out = filepath.Join(runs[0].Dir, report.HTMLFile)
		}
		if err := notWritten(out, report.WriteHTML(out, runs)); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, out)
		return nil
	})
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: report.html in the first RUN)")
	return cmd
}

func loadRuns(dirs []string) ([]*report.Run, error) {
	var runs []*report.Run
	for _, d := range dirs {
		r, err := report.Load(d)
		if err != nil {
			return nil, fail(exitBadInput, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}
