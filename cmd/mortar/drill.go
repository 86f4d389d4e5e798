package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// drillFlags are the flags of every command that drills.
type drillFlags struct {
	out, confirm, service        string
	seconds, after, rate, within float64
	only, skip                   []string
	repeat                       int
}

func newDrillRunCmd() *cobra.Command {
	var f drillFlags
	var how string
	cmd := f.command("run", "DRILL-HOW", func(ctx context.Context, c *cli.Console, args []string) error {
		d, v, err := drill.Find(args[1], how)
		if err != nil {
			return fail(exitBadInput, err)
		}
		des, err := cli.ForLoad(cli.Load(args[0]))
		if err != nil {
			return err
		}
		name := drill.Choice{Drill: d, Variant: v}.Name()
		return f.drill(ctx, c, des, name, name, "", func(ctx context.Context, env fault.Env, opt drill.Options) error {
			r, err := drill.Run(ctx, env, d, v, opt)
			if err != nil {
				return drillFailed(ctx, err, "interrupted; nothing is left broken")
			}
			w := c.Out
			if c.JSON {
				err = cli.JSONLines(w).Encode(r.Summary)
			} else {
				err = report.SummaryText(w, r, c.Bold)
			}
			if err == nil && r.Summary.Verdict != report.Pass {
				err = fail(exitFailed, nil)
			}
			return err
		})
	})
	cmd.Flags().StringVar(&how, "how", "", "variant of the drill (default: its first)")
	return cmd
}

func newDrillAllCmd() *cobra.Command {
	var f drillFlags
	cmd := f.command("all", "drills", func(ctx context.Context, c *cli.Console, args []string) error {
		choices, err := drill.Choose(f.only, f.skip)
		if err != nil {
			return fail(exitBadInput, err)
		}
		des, err := cli.ForLoad(cli.Load(args[0]))
		if err != nil {
			return err
		}
		if len(f.only) == 0 {
			choices = drill.Suits(choices, des)
		}
		return f.drill(ctx, c, des, "drills", fmt.Sprintf("all (%d drills)", len(choices)), "", func(ctx context.Context, env fault.Env, opt drill.Options) error {
			opt.Thorough = true
			entries, runs, err := drill.All(ctx, env, choices, f.repeat, f.out, opt)
			// A drill that the brick cannot have is no failure.
			return f.table(ctx, c, entries, runs, nil, err, report.Pass, report.Refused)
		})
	})
	f.choice(cmd)
	return cmd
}

func newDrillRandomCmd() *cobra.Command {
	var f drillFlags
	var seed uint64
	var count int
	var from string
	var cmd *cobra.Command
	cmd = f.command("random", "random", func(ctx context.Context, c *cli.Console, args []string) error {
		if count < 1 || count > 10000 {
			return fail(exitBadInput, fmt.Errorf("--count %d: give 1 to 10000", count))
		}
		if !cmd.Flags().Changed("seed") {
			seed = uint64(time.Now().UnixNano()) % 1_000_000
		}
		if from != "" {
			s, err := cli.ReadSpec(args[0])
			if err != nil {
				return err
			}
			known, err := rack.HasSaved(s.Name, from)
			if err != nil {
				return rackError(err)
			}
			if err := inject.Ready(ctx, c, s, from, known); err != nil {
				return err
			}
		}
		des, err := cli.ForLoad(cli.Load(args[0]))
		if err != nil {
			return err
		}
		return f.drill(ctx, c, des, "random", fmt.Sprintf("%d schedules of random faults", count), from, func(ctx context.Context, env fault.Env, opt drill.Options) error {
			opt.Thorough = true
			entries, runs, smallest, err := drill.Random(ctx, env, seed, count, f.out, opt)
			return f.table(ctx, c, entries, runs, smallest, err, report.Pass)
		})
	})
	cmd.Flags().Uint64Var(&seed, "seed", 0, "the first schedule (default: another one each time)")
	cmd.Flags().IntVar(&count, "count", 1, "how many schedules")
	cmd.Flags().StringVar(&from, "from", "", "restore this saved rack before each schedule")
	return cmd
}

func newDrillListCmd() *cobra.Command {
	cmd := command("list", func(ctx context.Context, c *cli.Console, _ []string) error { return listDrills(c) })
	cmd.Flags().Bool("json", false, "print a list with one entry for each drill and variant")
	return cmd
}

func newDrillVersusCmd() *cobra.Command {
	var f drillFlags
	var how string
	var cmd *cobra.Command
	cmd = f.command("versus", "drills-against-stock", func(ctx context.Context, c *cli.Console, args []string) error {
		both := versus.Comparison{Spec: args[0], Dir: f.out, Flags: givenFlags(cmd, "how")}
		if len(args) == 2 {
			d, v, err := drill.Find(args[1], how)
			if err != nil {
				return fail(exitBadInput, err)
			}
			f.only = []string{drill.Choice{Drill: d, Variant: v}.Name()}
			both.Flags = append(both.Flags, "--only", f.only[0])
		}
		return both.Drills(ctx, c, f.service, f.only, f.skip)
	})
	f.choice(cmd)
	cmd.Flags().StringVar(&how, "how", "", "variant of the drill that is named (default: its first)")
	return cmd
}

// command adds the flags of load and result to a command that drills; name is that of its
// directory below out.
func (f *drillFlags) command(word, name string, run func(context.Context, *cli.Console, []string) error) *cobra.Command {
	f.repeat = 1
	cmd := command(word, func(ctx context.Context, c *cli.Console, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return run(ctx, c, args)
	})
	cmd.Flags().StringVar(&f.service, "service", "", "with two services: the one the drill is about (default: the first of the spec); the other is under load as well")
	cmd.Flags().Float64Var(&f.seconds, "seconds", 12, "seconds of steady load before the fault")
	cmd.Flags().Float64Var(&f.after, "after", 8, "seconds of load after every worker goes on again")
	cmd.Flags().Float64Var(&f.within, "within", 0, "seconds in which every worker has to go on after the fault; some drills allow more by themselves (default 240)")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "operations per second of each writer; 0: 8 on a virtual rack, else unlimited")
	cmd.Flags().StringVar(&f.out, "out", "", "directory the run is written to (default out/"+name+")")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "name of the brick, to confirm a drill on real hardware")
	cmd.Flags().Bool("json", false, "print the result as JSON (progress goes to stderr)")
	return cmd
}

// choice adds the flags that choose among the drills.
func (f *drillFlags) choice(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "only these, DRILL or DRILL-HOW, separated by commas")
	cmd.Flags().StringSliceVar(&f.skip, "skip", nil, "not these")
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, "do each drill so often, and give the median of the stalls")
}

// check validates the numbers of the flags.
func (f *drillFlags) check() error {
	for _, x := range []struct {
		flag           string
		v, least, most float64
	}{{"seconds", f.seconds, 1, 3600}, {"after", f.after, 1, 3600}, {"within", cmp.Or(f.within, 1), 1, 86400}, {"rate", f.rate, 0, 1e9}, {"repeat", float64(f.repeat), 1, 1000}} {
		if !(x.v >= x.least && x.v <= x.most) {
			return badUsage(fmt.Sprintf("--%s %g: give %g to %g", x.flag, x.v, x.least, x.most))
		}
	}
	return nil
}

// drill drills the brick of a design by do. name is that of the directory below out, what is done
// stands in the question, and from is a saved rack that env.Restore restores.
func (f *drillFlags) drill(ctx context.Context, c *cli.Console, des *design.Design, name, what, from string, do func(context.Context, fault.Env, drill.Options) error) error {
	f.out = cmp.Or(f.out, filepath.Join("out", name))
	if err := cli.Writable(f.out); err != nil {
		return err
	}
	b := inject.Brick{Design: des, Service: f.service, Confirm: f.confirm, From: from, Rack: rackInjector(des)}
	return b.Drill(ctx, c, what, func(ctx context.Context, env fault.Env) error {
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		return do(ctx, env, drill.Options{Dir: f.out, Steady: seconds(f.seconds), After: seconds(f.after), Recover: seconds(f.within), Rate: f.rate})
	})
}

// drillFailed gives the error of a drill its exit code; whole is what an interrupt leaves.
func drillFailed(ctx context.Context, err error, whole string) error {
	var unhealthy *fault.Unhealthy
	var refused *fault.Refused
	switch {
	case errors.As(err, &unhealthy), errors.As(err, &refused):
		return fail(exitBadInput, err)
	case ctx.Err() != nil:
		return cli.ByInterrupt(ctx, err, whole)
	}
	return err
}

// table prints the list of several drills, and makes their page. Each has to have one of the
// verdicts.
func (f *drillFlags) table(ctx context.Context, c *cli.Console, entries []report.Entry, runs []*report.Run, smallest []drill.Schedule, err error, verdicts ...string) error {
	out := c.Out
	if len(runs) > 0 {
		err = cmp.Or(err, report.WriteHTML(filepath.Join(f.out, report.HTMLFile), runs))
	}
	switch {
	case c.JSON:
		err = cmp.Or(err, cli.JSONLines(out).Encode(report.Listed(entries)))
	case len(entries) > 0:
		report.EntriesText(out, entries, f.out)
		for _, s := range smallest {
			fmt.Fprintf(out, "of seed %d, this alone fails: %s\n", s.Seed, strings.Join(s.Words(), "; "))
		}
	}
	if err != nil || ctx.Err() != nil {
		return drillFailed(ctx, err, "interrupted; what was done is in the list, and nothing is left broken")
	}
	for i := range entries {
		if !slices.Contains(verdicts, entries[i].Verdict) {
			return fail(exitFailed, nil)
		}
	}
	return nil
}

// formerDrill returns the present spelling of a former one of mortar drill, which this release
// still takes; nil: it is none. args are those after the word drill.
func formerDrill(args []string) []string {
	words := []struct{ flag, command string }{{"--list", "list"}, {"--against-stock", "versus"}, {"--random", "random"}, {"--all", "all"}}
	command := ""
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return slices.ContainsFunc(words, func(w struct{ flag, command string }) bool { return w.flag == a })
	})
	for _, w := range words {
		if command == "" && slices.Contains(args, w.flag) {
			command = w.command
		}
	}
	if command == "" && len(args) > 1 && looksLikeSpec(args[0]) {
		command = newDrillRunCmd().Name()
	}
	if command == "" {
		return nil
	}
	return append([]string{command}, rest...)
}

func listDrills(c *cli.Console) error {
	type line struct {
		Drill string `json:"drill"`
		How   string `json:"how"`
		Title string `json:"title"`
		What  string `json:"what"`
		// Target is the longest stall aimed at on a virtual rack, in seconds; null means none.
		Target *float64 `json:"stall_target_seconds"`
		// Stays is what of the brick stays changed. --all leaves such a drill out.
		Stays string `json:"stays_changed,omitempty"`
	}
	var lines []line
	for _, d := range drill.Table {
		for _, v := range d.Variants {
			l := line{Drill: d.Name, How: v.How, Title: d.Title, What: v.Title, Stays: d.Lasting}
			if t := d.Expected(v).Stall; t >= 0 {
				l.Target = &t
			}
			lines = append(lines, l)
		}
	}
	if c.JSON {
		return cli.JSONLines(c.Out).Encode(lines)
	}
	tw := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DRILL\t--how\tSTALL\tWHAT HAPPENS")
	for _, l := range lines {
		target := "-"
		if l.Target != nil {
			target = report.Seconds(*l.Target)
		}
		what := l.What
		if l.Stays != "" {
			what += " (only if named; it stays: " + l.Stays + ")"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", l.Drill, l.How, target, what)
	}
	return tw.Flush()
}
