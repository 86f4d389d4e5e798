// Package versus builds a brick twice on virtual racks, one after the other:
// first with the values of the distribution, then with Mortar's. It measures both
// bricks, by benchmarks or drills, and compares their runs. It does so with Mortar's
// own commands, which a user could type.
package versus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/bench"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// profiles lists the profiles in the order of the builds. A brick cannot change
// its profile, so each profile gets a new build.
var profiles = []spec.Profile{spec.Stock, spec.Tuned}

// Comparison describes what to compare: one brick, built with each profile.
type Comparison struct {
	Spec string // the brick's file
	Dir  string // directory for both bricks' files and their runs; "": below out
	// Flags are those of the command that measures each brick, as the user gave them.
	Flags []string
}

// Bench compares runs of a suite of benchmarks.
func (c *Comparison) Bench(ctx context.Context, console *cli.Console, suite string, opt bench.Options) error {
	c.Dir = cmp.Or(c.Dir, filepath.Join("out", "bench-against-stock"))
	des, err := cli.ForLoad(cli.Load(c.Spec))
	if err != nil {
		return err
	}
	// Check the suite before two bricks are built.
	s, err := bench.Load(suite, des.Flavour)
	if err == nil {
		_, err = bench.Plan(s, opt, 1, 1)
	}
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	return c.run(ctx, console, []string{"bench"}, func(stock, tuned string, failed error) error {
		args := []string{"compare", stock, tuned, "--html", filepath.Join(c.Dir, "compare.html")}
		if console.JSON {
			args = append(args, "--json")
		}
		return cmp.Or(console.Step(ctx, console.Out, args...), failed)
	})
}

// Drills compares runs of drills; only and skip choose them.
func (c *Comparison) Drills(ctx context.Context, console *cli.Console, service string, only, skip []string) error {
	c.Dir = cmp.Or(c.Dir, filepath.Join("out", "drills-against-stock"))
	choices, err := drill.Choose(only, skip)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	des, err := cli.ForLoad(cli.Load(c.Spec))
	if err != nil {
		return err
	}
	// Refuse an impossible drill before two bricks are built.
	if len(only) == 0 {
		choices = drill.Suits(choices, des)
	}
	for _, x := range choices {
		if err := drill.Possible(inject.OnRack(des, service), x.Drill, x.Variant); err != nil {
			return cli.Fail(cli.BadInput, err)
		}
	}
	return c.run(ctx, console, []string{"drill", "all"}, func(stock, tuned string, failed error) error {
		var runs []*report.Run
		for _, dir := range []string{stock, tuned} {
			_, some, err := report.LoadEntries(dir)
			if err != nil {
				return err
			}
			runs = append(runs, some...)
		}
		gains := report.Gains(runs)
		if len(gains) == 0 {
			return errors.Join(errors.New("no drill has a verdict with both profiles: nothing to compare"), failed)
		}
		page := filepath.Join(c.Dir, report.HTMLFile)
		if err := report.WriteHTML(page, runs); err != nil {
			return err
		}
		if err := console.Show(map[string]any{"schema": report.Schema, "gains": gains}, func(w io.Writer) error {
			fmt.Fprintln(w)
			err := report.GainsText(w, gains)
			fmt.Fprintf(w, "written to %s, page: %s\n", c.Dir, page)
			return err
		}); err != nil {
			return err
		}
		// A failure of the profile stock is a result, not an error.
		if slices.ContainsFunc(gains, func(g report.Gain) bool { return g.TunedPassed < len(g.Tuned) }) {
			return cli.Fail(cli.Failed, nil)
		}
		return nil
	})
}

// run builds both bricks, measures each with a command, and has show compare the runs
// in these directories. failed is the error of a measurement that failed and still left
// a result, such as a failed drill.
func (c *Comparison) run(ctx context.Context, console *cli.Console, command []string, show func(stock, tuned string, failed error) error) error {
	if err := cli.Writable(c.Dir); err != nil {
		return err
	}
	start := time.Now()
	files, err := c.files()
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	var failed error
	runs := map[spec.Profile]string{}
	for _, p := range profiles {
		runs[p] = filepath.Join(c.Dir, string(p), "run")
		err := build(ctx, console, files[p], slices.Concat(command, []string{files[p], "--out", runs[p]}, c.Flags))
		// A summary from before start is of an earlier run.
		if fi, serr := os.Stat(filepath.Join(runs[p], report.SummaryFile)); err != nil && (ctx.Err() != nil || serr != nil || fi.ModTime().Before(start)) {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return show(runs[spec.Stock], runs[spec.Tuned], failed)
}

// files writes a spec for each profile. It checks both before run builds the
// first.
func (c *Comparison) files() (map[spec.Profile]string, error) {
	src, err := os.ReadFile(c.Spec)
	if err != nil {
		return nil, err
	}
	files := map[spec.Profile]string{}
	for _, p := range profiles {
		files[p] = filepath.Join(c.Dir, string(p), "brick.yaml")
		if err := os.MkdirAll(filepath.Dir(files[p]), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(files[p], withProfile(src, p), 0o644); err != nil {
			return nil, err
		}
		s, err := spec.Load(files[p])
		if err != nil {
			return nil, err
		}
		if _, err := design.New(s); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// build brings a rack up, builds the brick and measures it. It takes the rack down
// even after an error.
func build(ctx context.Context, c *cli.Console, file string, measure []string) (err error) {
	defer func() { err = cmp.Or(err, c.Step(context.WithoutCancel(ctx), c.Aside(), "rack", "down", file)) }()
	for _, args := range [][]string{{"rack", "up", file}, {"apply", file, "--yes", "--skip-fence-test"}, measure} {
		if err := c.Step(ctx, c.Aside(), args...); err != nil {
			return err
		}
	}
	return nil
}

var profileRE = regexp.MustCompile(`(?m)^profile:.*$`)

// withProfile is a spec's text with another profile.
func withProfile(src []byte, p spec.Profile) []byte {
	line := "profile: " + string(p)
	if profileRE.Match(src) {
		return profileRE.ReplaceAll(src, []byte(line))
	}
	return append([]byte(strings.TrimRight(string(src), "\n")+"\n"), line+"\n"...)
}
