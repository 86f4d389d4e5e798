package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newSimulateCmd() *cobra.Command {
	var explain bool
	var svg, file string
	var set []string
	var bricks int
	var years float64
	var seed uint64
	c := command("simulate", func(ctx context.Context, c *cli.Console, args []string) error {
		if bricks < 1 || bricks > 100_000_000 {
			return fail(exitBadInput, fmt.Errorf("--bricks %d: want 1 to 100,000,000", bricks))
		}
		if !(years > 0 && years <= 1000) {
			return fail(exitBadInput, fmt.Errorf("--years %g: want more than 0, at most 1,000", years))
		}
		d, h, co, err := forecastInput(args[0], file, set)
		if err != nil {
			return err
		}
		s, err := forecast.SimulateDesign(ctx, d, h, co, forecast.Histories{Bricks: bricks, Years: years, Seed: seed}, simulateProgress)
		switch {
		case errors.Is(err, context.Canceled):
			return fail(exitInterrupted, errors.New("interrupted"))
		case err != nil:
			return fail(exitBadInput, err)
		}
		if svg != "" {
			if err := writeWhole(svg, []byte(s.SVG())); err != nil {
				return err
			}
		}
		return c.Show(s, func(w io.Writer) error { return s.Text(w, co, explain) })
	})
	c.Flags().IntVar(&bricks, "bricks", 10000, "brick histories to simulate; more make the intervals narrower")
	c.Flags().Float64Var(&years, "years", 10, "years of each")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of the random numbers")
	c.Flags().Bool("json", false, "print as JSON")
	c.Flags().BoolVar(&explain, "explain", false, "add every rate with its source")
	c.Flags().StringVar(&svg, "svg", "", "write throughput over 1 to 1,000 bricks to this file")
	addCoefficientFlags(c, &file, &set)
	return c
}

// simulateProgress prints how far a simulation is, if it takes more than two seconds.
func simulateProgress(name string, bricks int) (progress func(done int), end func()) {
	what := "simulating"
	if name != "" {
		what += " " + name
	}
	start, last := time.Now(), time.Now()
	shown := false
	return func(done int) {
			if time.Since(start) < 2*time.Second || !cli.IsTerminal(stderr) || time.Since(last) < 200*time.Millisecond {
				return
			}
			last, shown = time.Now(), true
			left := time.Duration(float64(time.Since(start)) / float64(max(done, 1)) * float64(bricks-done))
			fmt.Fprintf(stderr, "%s%s: %d %%, about %s left   ", screen.LineStart, what, 100*done/bricks, left.Round(time.Second))
		}, func() {
			if shown {
				fmt.Fprint(stderr, screen.ClearLine)
			}
		}
}
