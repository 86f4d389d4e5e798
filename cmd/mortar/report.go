package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/report"
)

func newReportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Make one page of one or more runs: HTML that opens offline, with plots",
		Long: `Reads the files that "mortar drill" wrote into each RUN directory and writes one
HTML file: no script, nothing from any network, for screen, phone and paper.`,
		Example: `  mortar report out/server-crash-freeze
  mortar report out/* --out drills.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := loadRuns(args)
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Join(runs[0].Dir, report.HTMLFile)
			}
			if err := report.WriteHTML(out, runs); err != nil {
				return fail(exitFailed, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), out)
			return nil
		},
	}
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

func newCompareCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN",
		Short: "Put two runs side by side, with ratios",
		Example: `  mortar compare out/before out/after
  mortar compare out/freeze out/power --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := loadRuns(args)
			if err != nil {
				return err
			}
			c := report.Compare(runs[0], runs[1])
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
			}
			return c.Text(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
