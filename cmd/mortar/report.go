package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/release"
	"github.com/mortarhpc/mortar/internal/prove/demo"
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
		out = cmp.Or(out, filepath.Join(runs[0].Dir, report.HTMLFile))
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

func newDemoCmd() *cobra.Command {
	var d demo.Demo
	cmd := command("demo", func(ctx context.Context, c *cli.Console, _ []string) error { return d.Run(ctx, c) })
	cmd.Flags().StringVar(&d.Dir, "out", "out/demo", "directory for the spec, the run and the report")
	cmd.Flags().StringVar(&d.Drill, "drill", "server-crash", "drill to run")
	cmd.Flags().StringVar(&d.How, "how", "", "variant of the drill (default: its first)")
	return cmd
}

func newCompareCmd() *cobra.Command {
	var html string
	cmd := command("compare", func(ctx context.Context, c *cli.Console, args []string) error {
		if specs, err := areBricks(args); err != nil {
			return fail(exitBadInput, err)
		} else if specs {
			return compareBricks(c, args, html)
		}
		runs, err := loadRuns(args)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(runs, func(r *report.Run) bool { return r.Bench != nil }) {
			return compareBench(c, runs, html)
		}
		if len(runs) > 2 || html != "" {
			return fail(exitBadInput, errors.New("drills are compared two at a time, as text or JSON; mortar report RUN RUN... makes a page of them"))
		}
		both := report.Compare(runs[0], runs[1])
		return c.Line(both, both.Text)
	})
	cmd.Flags().Bool("json", false, "print as JSON")
	cmd.Flags().StringVar(&html, "html", "", "benchmarks: also write a page with overlaid plots to this file")
	return cmd
}

func compareBench(c *cli.Console, runs []*report.Run, html string) error {
	all, err := report.CompareBench(runs)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if html != "" {
		if err := notWritten(html, report.WriteComparison(html, runs, all)); err != nil {
			return err
		}
	}
	return c.Show(all, func(w io.Writer) error {
		if err := all.Text(w); err != nil || html == "" {
			return err
		}
		_, err := fmt.Fprintln(w, html)
		return err
	})
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
func compareBricks(c *cli.Console, args []string, html string) error {
	if len(args) != 2 || html != "" {
		return fail(exitBadInput, errors.New("specs and published systems are compared two at a time, as text or JSON"))
	}
	var sides [2]*release.Side
	for i, a := range args {
		var err error
		if _, serr := os.Stat(a); serr != nil && !looksLikeSpec(a) {
			sides[i], err = release.OfSystem(a)
		} else {
			d, lerr := cli.LoadAny(a)
			if lerr != nil {
				return lerr
			}
			sides[i], err = release.OfDesign(d)
		}
		if err != nil {
			return fail(exitBadInput, err)
		}
	}
	both := release.Compare(sides[0], sides[1])
	return c.Show(both, both.Text)
}
