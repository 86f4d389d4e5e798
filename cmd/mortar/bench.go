package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/bench"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

type benchFlags struct {
	bench.Command
	scale, clients, print string
	againstStock          bool
}

func newBenchCmd() *cobra.Command {
	var f benchFlags
	f.Throttle = func(d *design.Design) func(context.Context, int, int64) error { return rackInjector(d).Throttle }
	var cmd *cobra.Command
	cmd = command("bench", func(ctx context.Context, c *cli.Console, args []string) error {
		if f.print != "" {
			return printSuite(c.Out, f.print, args)
		}
		if err := f.check(); err != nil {
			return fail(exitBadInput, err)
		}
		if f.againstStock && !c.DryRun { // both racks measure the same
			both := versus.Comparison{Spec: args[0], Dir: f.Dir, Flags: givenFlags(cmd, "against-stock", "print-suite")}
			return both.Bench(ctx, c, f.Suite, f.Options)
		}
		// A profile alone chooses no suite.
		if f.Profile && !cmd.Flags().Changed("suite") {
			f.Suite = ""
		}
		return f.Run(ctx, c, args[0])
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if f.print != "" && len(args) <= 1 || f.print == "" && len(args) == 1 {
			return nil
		}
		return errors.New("give the spec: mortar bench SPEC [--suite quick|paper|io500|cache|FILE]")
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Suite, "suite", "quick", "quick, paper, io500, cache, raw, or a file")
	fl.StringVar(&f.scale, "scale", "1", "factor on every size of the suite, e.g. 1/256")
	fl.StringVar(&f.clients, "clients", "", "how many clients (threads, spread over the client hosts), e.g. 1,2,4,8; default: the suite's")
	fl.StringSliceVar(&f.Tests, "tests", nil, "only these tests of the suite, e.g. sequential,random")
	fl.IntVar(&f.Repeat, "repeat", 0, "how often each test is done; default: as the suite says. 3 or more tell differences from chance")
	fl.IntVar(&f.Seconds, "seconds", 0, "end each phase after so many seconds, done or not; default: as the suite says")
	fl.StringVar(&f.Cold, "cold", "", "how caches are emptied: restart, drop or none; default: as the suite says")
	fl.StringVar(&f.NFSVersion, "nfs", "", "NFS version of the mounts to use, e.g. 3 or 4.1; default: each client's first mount")
	fl.BoolVar(&f.Profile, "profile", false, "measure every layer from disks to clients, and name the bottleneck; with --suite both")
	fl.StringSliceVar(&f.Layers, "layers", nil, "with --profile: only these layers, e.g. network,lnet")
	fl.BoolVar(&f.Survey, "survey", false, "with --profile or --suite raw: the Lustre paper's grids, up to 16 regions, objects or clients and 64 threads")
	fl.BoolVar(&f.againstStock, "against-stock", false, "build the brick twice on virtual racks, profile stock and profile tuned, run the suite on both and compare them")
	fl.StringVar(&f.Dir, "out", "", "directory the run is written to (default out/bench-SUITE)")
	fl.StringVar(&f.Confirm, "confirm", "", "name of the brick, to confirm that its service may be restarted on real hardware")
	fl.Bool("json", false, "print the summary as JSON (progress goes to stderr)")
	fl.Bool("dry-run", false, "only show what would be measured, with sizes; no host is reached")
	fl.StringVar(&f.print, "print-suite", "", "print a suite that comes with mortar: quick, paper, io500 or cache (paper: for the flavour of SPEC, else nfs-ha)")
	return cmd
}

func printSuite(w io.Writer, name string, args []string) error {
	flavour := spec.NFSHA
	if len(args) == 1 {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		flavour = s.Flavour
	}
	_, src, err := bench.Source(name, flavour)
	if err != nil || strings.ContainsAny(name, "/.") { // a path names a file, not an example
		return fail(exitBadInput, fmt.Errorf("no suite %q; use %s", name, strings.Join(bench.Names(), ", ")))
	}
	_, err = w.Write(src)
	return err
}

// check reads the flags with numbers, and refuses what does not go together.
func (f *benchFlags) check() (err error) {
	if f.Scale, err = bench.ParseScale(f.scale); err != nil {
		return fmt.Errorf("--scale: %w", err)
	}
	if f.Repeat < 0 || f.Repeat > 100 {
		return fmt.Errorf("--repeat %d: give 1 to 100", f.Repeat)
	}
	if f.Seconds < 0 || f.Seconds > 86400 {
		return fmt.Errorf("--seconds %d: give 1 to 86400", f.Seconds)
	}
	if f.clients != "" {
		for _, w := range strings.Split(f.clients, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(w))
			if err != nil || n < 1 || n > 4096 {
				return fmt.Errorf("--clients %q: give numbers of 1 to 4096 with commas, e.g. 1,2,4,8", f.clients)
			}
			if slices.Contains(f.Threads, n) {
				return fmt.Errorf("--clients %q: %d is there twice", f.clients, n)
			}
			f.Threads = append(f.Threads, n)
		}
	}
	if len(f.Layers) > 0 && !f.Profile {
		return errors.New("--layers needs --profile")
	}
	if f.Survey && !f.Profile && f.Suite != bench.SuiteRaw {
		return errors.New("--survey needs --profile or --suite raw")
	}
	switch f.Cold {
	case "", bench.ColdRestart, bench.ColdDrop, bench.ColdNone:
	default:
		return fmt.Errorf("--cold %q: use restart, drop or none", f.Cold)
	}
	return nil
}
