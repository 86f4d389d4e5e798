package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/release"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

func newCompareCmd() *cobra.Command {
	var asJSON bool
	var html string
	cmd := command("compare", func(cmd *cobra.Command, args []string) error {
		if specs, err := areBricks(args); err != nil {
			return fail(exitBadInput, err)
		} else if specs {
			return compareBricks(cmd.OutOrStdout(), args, html, asJSON)
		}
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
	})
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

// areBricks says whether the arguments are specs or published systems, as opposed to directories of runs. A
// mixture is refused.
func areBricks(args []string) (bool, error) {
	run, brick := "", ""
	for _, a := range args {
		info, err := os.Stat(a)
		_, system := paper.Find(a)
		switch {
		case err == nil && info.IsDir():
			run = a
		case err == nil || system || looksLikeSpec(a):
			brick = a
		}
	}
	if run != "" && brick != "" {
		return false, fmt.Errorf("%s is the directory of a run, and %s a spec or a published system: compare like with like", run, brick)
	}
	return brick != "", nil
}

// looksLikeSpec says whether a name that is not there was meant as a spec.
func looksLikeSpec(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// compareBricks compares two specs or published systems.
func compareBricks(w io.Writer, args []string, html string, asJSON bool) error {
	if len(args) != 2 || html != "" {
		return fail(exitBadInput, errors.New("specs and published systems are compared two at a time, as text or JSON"))
	}
	var sides [2]*release.Side
	for i, a := range args {
		var err error
		if _, serr := os.Stat(a); serr != nil && !looksLikeSpec(a) {
			sides[i], err = release.OfSystem(a)
		} else {
			d, lerr := loadAnyDesign(a)
			if lerr != nil {
				return lerr
			}
			sides[i], err = release.OfDesign(d)
		}
		if err != nil {
			return fail(exitBadInput, err)
		}
	}
	c := release.Compare(sides[0], sides[1])
	if asJSON {
		return printJSON(w, c)
	}
	return c.Text(w)
}
