package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/bench"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// benchAgainstStock measures a brick with the profile tuned and with the profile stock.
func benchAgainstStock(ctx context.Context, c *cli.Console, specFile string, f benchFlags) error {
	if f.out == "" {
		f.out = filepath.Join("out", "bench-against-stock")
	}
	opt, err := f.options()
	if err != nil {
		return err
	}
	des, err := cli.Load(specFile)
	if err != nil {
		return err
	}
	// Check the suite before two bricks are built.
	suite, err := bench.Load(f.suite, des.Flavour)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if _, err := bench.Plan(suite, opt, 1, 1); err != nil {
		return fail(exitBadInput, err)
	}
	progress := c.Aside()
	start := time.Now()
	runs, failed := againstStock(ctx, progress, specFile, f.out, func(file, run string) []string {
		return append([]string{"bench", file, "--out", run}, f.forward()...)
	})
	if runs == nil {
		return failed
	}
	args := []string{"compare", runs[spec.Stock], runs[spec.Tuned], "--html", filepath.Join(f.out, "compare.html")}
	if c.JSON {
		args = append(args, "--json")
	}
	if err := step(ctx, c.Out, progress, start, args); err != nil {
		return err
	}
	return failed
}

// forward returns the flags of the child command that choose what it measures.
func (f *benchFlags) forward() []string {
	out := []string{"--scale", f.scale, "--engine", f.engine}
	for _, x := range [][2]string{{"--suite", f.suite}, {"--clients", f.clients}, {"--cold", f.cold}, {"--nfs", f.nfs}, {"--tests", strings.Join(f.tests, ",")}} {
		if x[1] != "" {
			out = append(out, x[0], x[1])
		}
	}
	if f.repeat > 0 {
		out = append(out, "--repeat", strconv.Itoa(f.repeat))
	}
	if f.seconds > 0 {
		out = append(out, "--seconds", strconv.Itoa(f.seconds))
	}
	if f.profile {
		out = append(out, "--profile")
	}
	return out
}
