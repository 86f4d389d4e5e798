package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/bench"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

type benchFlags struct {
	suite, scale, clients, cold, nfs, out, confirm, print string
	tests                                                 []string
	repeat, seconds                                       int
	profile, survey, againstStock                         bool
}

func newBenchCmd() *cobra.Command {
	var f benchFlags
	var cmd *cobra.Command
	cmd = command("bench", func(ctx context.Context, c *cli.Console, args []string) error {
		if f.againstStock {
			opt, err := f.options()
			if err != nil {
				return err
			}
			both := versus.Comparison{Spec: args[0], Dir: f.out, Flags: givenFlags(cmd, "against-stock", "print-suite", "dry-run")}
			return both.Bench(ctx, c, f.suite, opt)
		}
		if f.print != "" {
			return printSuite(c.Out, f.print, args)
		}
		// A profile alone chooses no suite.
		if f.profile && !cmd.Flags().Changed("suite") {
			f.suite = ""
		}
		return runBench(ctx, c, args[0], f)
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if f.print != "" && len(args) <= 1 || f.print == "" && len(args) == 1 {
			return nil
		}
		return errors.New("give the spec: mortar bench SPEC [--suite quick|paper|io500|cache|FILE]")
	}
	fl := cmd.Flags()
	fl.StringVar(&f.suite, "suite", "quick", "quick, paper, io500, cache, raw, or a file")
	fl.StringVar(&f.scale, "scale", "1", "factor on every size of the suite, e.g. 1/256")
	fl.StringVar(&f.clients, "clients", "", "how many clients (threads, spread over the client hosts), e.g. 1,2,4,8; default: the suite's")
	fl.StringSliceVar(&f.tests, "tests", nil, "only these tests of the suite, e.g. sequential,random")
	fl.IntVar(&f.repeat, "repeat", 0, "how often each test is done; default: as the suite says. 3 or more tell differences from chance")
	fl.IntVar(&f.seconds, "seconds", 0, "end each phase after so many seconds, done or not; default: as the suite says")
	fl.StringVar(&f.cold, "cold", "", "how caches are emptied: restart, drop or none; default: as the suite says")
	fl.StringVar(&f.nfs, "nfs", "", "NFS version of the mounts to use, e.g. 3 or 4.1; default: each client's first mount")
	fl.BoolVar(&f.profile, "profile", false, "measure every layer from disks to clients, and name the bottleneck; with --suite both")
	fl.BoolVar(&f.survey, "survey", false, "with --profile or --suite raw: the Lustre paper's grids, up to 16 regions, objects or clients and 64 threads")
	fl.BoolVar(&f.againstStock, "against-stock", false, "build the brick twice on virtual racks, profile stock and profile tuned, run the suite on both and compare them")
	fl.StringVar(&f.out, "out", "", "directory the run is written to (default out/bench-SUITE)")
	fl.StringVar(&f.confirm, "confirm", "", "name of the brick, to confirm that its service may be restarted on real hardware")
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

// options checks the combination of flags.
func (f *benchFlags) options() (bench.Options, error) {
	opt := bench.Options{Dir: f.out, Tests: f.tests, Repeat: f.repeat, Cold: f.cold, NFSVersion: f.nfs, Profile: f.profile, Survey: f.survey}
	bad := func(format string, a ...any) (bench.Options, error) {
		return opt, fail(exitBadInput, fmt.Errorf(format, a...))
	}
	var err error
	if opt.Scale, err = bench.ParseScale(f.scale); err != nil {
		return bad("--scale: %w", err)
	}
	if f.repeat < 0 || f.repeat > 100 {
		return bad("--repeat %d: give 1 to 100", f.repeat)
	}
	if f.seconds < 0 || f.seconds > 86400 {
		return bad("--seconds %d: give 1 to 86400", f.seconds)
	}
	opt.Seconds = f.seconds
	if f.clients != "" {
		for _, w := range strings.Split(f.clients, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(w))
			if err != nil || n < 1 || n > 4096 {
				return bad("--clients %q: give numbers of 1 to 4096 with commas, e.g. 1,2,4,8", f.clients)
			}
			if slices.Contains(opt.Threads, n) {
				return bad("--clients %q: %d is there twice", f.clients, n)
			}
			opt.Threads = append(opt.Threads, n)
		}
	}
	if f.survey && !f.profile && f.suite != bench.SuiteRaw {
		return bad("--survey needs --profile or --suite raw")
	}
	switch f.cold {
	case "", bench.ColdRestart, bench.ColdDrop, bench.ColdNone:
	default:
		return bad("--cold %q: use restart, drop or none", f.cold)
	}
	return opt, nil
}

// mountVersions lists the NFS versions of a brick's mounts without duplicates.
func mountVersions(d *design.Design) string {
	all := lists.Map(d.Mounts, func(m design.ClientMount) string { return m.Version })
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func runBench(ctx context.Context, c *cli.Console, specFile string, f benchFlags) error {
	if f.out == "" {
		name := cmp.Or(f.suite, "profile")
		f.out = filepath.Join("out", "bench-"+strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
	}
	opt, err := f.options()
	if err != nil {
		return err
	}
	load := cli.Load
	if c.DryRun {
		load = cli.LoadAny
	}
	des, err := cli.ForLoad(load(specFile))
	if err != nil {
		return err
	}
	if f.nfs != "" && !slices.ContainsFunc(des.Mounts, func(m design.ClientMount) bool { return m.Version == f.nfs }) {
		return fail(exitBadInput, fmt.Errorf("--nfs %q: no client mounts by it; those of the spec mount by %s", f.nfs, mountVersions(des)))
	}
	suite := &bench.Suite{Name: "profile", Title: "Layer by layer", Cold: bench.ColdDrop, Repeat: 1}
	if f.suite != "" {
		if suite, err = bench.Load(f.suite, des.Flavour); err != nil {
			return fail(exitBadInput, err)
		}
	}
	if c.DryRun {
		return showSets(c, des, suite, opt)
	}
	if err := cli.Writable(f.out); err != nil {
		return err
	}
	progress := c.Aside()
	env, err := benchEnv(ctx, des)
	if err != nil {
		return err
	}
	cold, err := bench.ColdOf(des, suite, f.cold)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if w := suite.Warning(des.Name, cold); w != "" && !env.Virtual {
		if err := c.ConfirmBrick(w, "nothing was changed", des.Name, f.confirm); err != nil {
			return err
		}
	}
	release, err := c.Claim(ctx, des.Spec) // keep apply and drill out meanwhile
	if err != nil {
		return err
	}
	defer release()
	live := cli.IsTerminal(progress)
	env.Progress = benchProgress(progress, c.Bold, time.Now(), live)
	r, err := bench.Run(ctx, env, suite, opt)
	if live {
		fmt.Fprint(progress, screen.ClearLine)
	}
	return benchOutcome(ctx, c, r, err)
}

// benchEnv connects a benchmark to the hosts.
func benchEnv(ctx context.Context, des *design.Design) (bench.Env, error) {
	dial, err := env.Dial(des, env.Connect)
	if err != nil {
		return bench.Env{}, err
	}
	env := bench.Env{Design: des, Version: env.Version, Dial: dial}
	if env.Virtual = virtualRack(ctx, des.Spec); env.Virtual {
		env.Throttle = rackInjector(des).Throttle
	}
	return env, nil
}

// benchOutcome prints the result and returns the exit code.
func benchOutcome(ctx context.Context, c *cli.Console, r *report.Run, err error) error {
	var unfit *bench.Unfit
	if r == nil {
		switch {
		case errors.As(err, &unfit):
			return fail(exitBadInput, fmt.Errorf("%w; nothing was measured", err))
		case ctx.Err() != nil:
			return fail(exitInterrupted, errors.New("interrupted; nothing was measured"))
		}
		return fail(exitFailed, err)
	}
	if err := c.Show(r.Bench.BenchSummary, func(w io.Writer) error { return printBench(w, r, c.Bold) }); err != nil {
		return fail(exitFailed, err)
	}
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("interrupted; what was measured is kept"))
	case err != nil:
		return fail(exitFailed, err)
	case r.Bench.Verdict == report.Wrong:
		return fail(exitFailed, nil)
	}
	return nil
}

// printBench prints the result for a person.
func printBench(w io.Writer, r *report.Run, bold func(string) string) error {
	b := r.Bench
	fmt.Fprintf(w, "\n%s on brick %s: %s\n", b.Suite, b.Brick, bold(strings.ToUpper(b.Verdict)))
	for _, reason := range b.Reasons {
		fmt.Fprintf(w, "  %s\n", reason)
	}
	if err := report.BenchText(w, b); err != nil {
		return err
	}
	if b.VerifiedBytes+b.BadBytes > 0 {
		fmt.Fprintf(w, "  %s read back and checked, %s of it wrong\n", report.Bytes(b.VerifiedBytes+b.BadBytes), report.Bytes(b.BadBytes))
	}
	_, err := fmt.Fprintf(w, "  written to %s (mortar report %s makes a page)\n", r.Dir, r.Dir)
	return err
}

// showSets prints the measurements that a run would make.
func showSets(c *cli.Console, des *design.Design, suite *bench.Suite, opt bench.Options) error {
	planned, err := bench.PlanOf(des, suite, opt)
	if err != nil {
		return fail(exitBadInput, err)
	}
	w := c.Out
	if c.JSON {
		return cli.PrintJSON(w, planned)
	}
	fmt.Fprintf(w, "%s: %s. Caches: %s. Server memory by the spec: %s\n", planned.Suite, planned.Title, planned.Cold, report.Bytes(planned.Memory))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(planned.Sets) > 0 { // a profile and bare devices have none
		fmt.Fprintln(tw, "TEST\tTHREADS\tON\tEACH\tTOGETHER\tTIMES\tPHASES\t")
	}
	for _, s := range planned.Sets {
		each, all := report.Bytes(s.FileBytes), report.Bytes(s.TotalBytes)
		if s.Files > 0 {
			what := "files"
			if workload.BenchPhase(s.Phases[0]).Directories() {
				what = "directories"
			}
			each, all = fmt.Sprintf("%d x %d %s", s.Dirs, s.Items, what), report.Count(s.Files)+" "+what
		}
		if s.Seconds > 0 {
			all += fmt.Sprintf(", at most %d s", s.Seconds)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%d\t%s\t\n", s.Name, s.Threads, s.Lanes, each, all, s.Repeat, strings.Join(s.Phases, " "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, l := range planned.Layers {
		fmt.Fprintf(w, "layer %s: %s of %d s\n", l.Layer, report.Plural(l.Measurements, "measurement"), l.Seconds)
	}
	if len(planned.LeftOut) > 0 {
		fmt.Fprintln(w, bench.LeftOutText(suite, planned.LeftOut))
	}
	most := ""
	if planned.MostSeconds > 0 {
		most = fmt.Sprintf(", %s of measuring at most", report.Seconds(float64(planned.MostSeconds)))
	}
	_, err = fmt.Fprintf(w, "%s%s; caches are emptied %d times\n", report.Plural(planned.Measurements, "measurement"), most, planned.ColdTimes)
	return err
}

// benchProgress prints a line for each finished measurement and each note. Between them it
// rewrites one status line on a terminal, and prints a line now and then elsewhere.
func benchProgress(w io.Writer, bold func(string) string, start time.Time, live bool) func(bench.Progress) {
	var lastLine time.Time
	state := ""
	return func(p bench.Progress) {
		pre, post := "", "\n"
		if live {
			pre = screen.ClearLine
		}
		where := ""
		if p.Steps > 0 {
			where = fmt.Sprintf("%d/%d ", p.Step, p.Steps)
		}
		clients := report.Plural(p.Threads, "thread") + " on " + report.Plural(p.Hosts, "host")
		switch {
		case p.Note != "":
			fmt.Fprintf(w, "%s%s note: %s\n", pre, cli.Stamp(start), p.Note)
			return
		case p.Finished != nil:
			lat := ""
			if l := p.Finished.Latency; l != nil {
				lat = fmt.Sprintf(", p99 %s", report.Seconds(l.P99/1000))
			}
			fmt.Fprintf(w, "%s%s %s%s, %s: %s%s\n", pre, cli.Stamp(start), where, p.Phase, clients, bold(report.Rate(p.Finished.Value, p.Unit)), lat)
			lastLine = time.Now()
			return
		}
		text := p.State
		if p.Phase != "" {
			text = fmt.Sprintf("%s, %s: %s", p.Phase, clients, p.State)
			if p.State == "running" {
				text += fmt.Sprintf(", %s, %.0f %%", report.Rate(p.Rate, p.Unit), 100*p.Done)
			}
		}
		if p.Left > 0 {
			text += ", about " + report.Seconds(p.Left) + " left"
		}
		if live {
			post = ""
		} else if time.Since(lastLine) < 15*time.Second && (p.State == state || p.Phase != "") {
			return
		}
		state, lastLine = p.State, time.Now()
		fmt.Fprintf(w, "%s%s %s%s%s", pre, cli.Stamp(start), where, text, post)
	}
}
