package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

func newReportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Make one HTML page of one or more runs, with plots; it opens offline",
		Long: `Reads the files that "mortar drill" or "mortar bench" wrote into each RUN directory and writes one
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
			if err := notWritten(out, report.WriteHTML(out, runs)); err != nil {
				return err
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
	var html string
	cmd := &cobra.Command{
		Use:   "compare RUN RUN...",
		Short: "Compare runs: two drills, or any number of benchmarks",
		Long: `Compares runs with the first of them. Of benchmarks: the peak of each phase, by
how much it differs in per cent, whether that may be chance (Welch's t-test on
repeated runs, see mortar bench --repeat), and what is different about the
bricks; --html writes a page with overlaid plots.`,
		Example: `  mortar compare out/before out/after
  mortar compare out/freeze out/power --json
  mortar compare out/stock out/tuned --html compare.html`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := loadRuns(args)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(runs, func(r *report.Run) bool { return r.Bench != nil }) {
				return compareBench(cmd.OutOrStdout(), runs, html, asJSON)
			}
			if len(runs) > 2 || html != "" {
				return fail(exitBadInput, errors.New("drills are compared two at a time, as text or JSON; mortar report RUN RUN... makes a page of them"))
			}
			c := report.Compare(runs[0], runs[1])
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
			}
			return c.Text(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().StringVar(&html, "html", "", "benchmarks: also write a page with overlaid plots to this file")
	return cmd
}

func compareBench(w io.Writer, runs []*report.Run, html string, asJSON bool) error {
	c, err := report.CompareBench(runs)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if html != "" {
		if err := notWritten(html, report.WriteComparison(html, runs, c)); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(w, c)
	}
	if err := c.Text(w); err != nil || html == "" {
		return err
	}
	_, err = fmt.Fprintln(w, html)
	return err
}
