package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/rack"
)

type drillFlags struct {
	how, out, confirm string
	service           string
	seconds, after    float64
	rate, within      float64
	asJSON, list, all bool
	only, skip        []string
	repeat            int
	againstStock      bool
	random            bool
	seed              uint64
	count             int
	from              string
}

func newDrillCmd() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill SPEC [DRILL]",
		Short: "Break the brick under verified load, judge how it took it, and heal it",
		Long: `Checks that the brick is healthy, runs a verified load on every client mount,
breaks what the drill says, watches the cluster and the clients, waits until
every client goes on, heals, and reads every acknowledged byte back from
another mount. Whatever was broken is healed before the command ends, also
after an error or Ctrl-C.

The run is written to --out: summary.json, timeline.json, events.json,
verify.json, design.json. "mortar report" makes a page of it.

With --all every drill of the list that leaves the brick as it was is done, one
after the other, on a brick that is whole again after each. A drill of a change that
stays (a new disk, a new server, a growth) is done if it is named, here or by --only,
and says first what stays. Two services begin each on their preferred
servers. Each run is written to a directory below --out (default out/drills),
with a list of the summaries (summary.json) and one page (report.html).

The verdict is about what is right: nothing lost, locks kept, no error seen, the
volume never mounted twice, the right server fenced, the service where it
belongs, health restored. The summary also says how long clients waited, with the
target for a virtual rack; a target that is missed is shown, and fails nothing.

With --against-stock the brick is built twice on virtual racks, one after the
other, with the values of the distribution and with Mortar's; the drill, or with
--all each, is done --repeat times on both, and their stalls are compared, here
and on one page (--out, default out/drills-against-stock). A drill that only
stock fails is shown, and is no failure.

With --random one to three faults are drawn, which overlap or hit while the brick
recovers or heals. --seed chooses the first of --count schedules: the same seed draws
the same schedule for the same brick. Of each schedule that fails, the smallest
part that still fails is found, by drills with one fault less, and printed.
With --from each schedule begins from a saved rack (mortar rack save), so that it
depends on nothing before it; the brick is left as the last one leaves it. If no saved
rack has that name, the brick is built on a rack and saved first.

On real hardware the drill asks for the brick's name first; without a terminal
give it with --confirm.

Exit codes: 0 pass, 1 fail or no verdict (--all: of any; --random: or a schedule that was
refused), 2 refused (nothing was broken), 130 interrupted (healed).`,
		Example: `  mortar drill brick.yaml server-crash
  mortar drill brick.yaml server-crash --how power --out out/power
  mortar drill brick.yaml --all --repeat 5
  mortar drill brick.yaml --all --only server-crash,path-one-disk --out out/some
  mortar drill brick.yaml server-crash --against-stock --repeat 5
  mortar drill brick.yaml --random --seed 17 --count 20
  mortar drill brick.yaml --random --seed 17 --count 20 --from applied
  mortar drill --list`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.list && len(args) <= 1:
				return nil
			case !f.list && !f.all && !f.random && len(args) == 2, (f.all || f.random) && !f.list && len(args) == 1:
				return nil
			}
			return badUsage("give the spec and the drill: mortar drill SPEC DRILL; mortar drill --list names the drills")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return listDrills(cmd.OutOrStdout(), f.asJSON)
			}
			if f.all && f.how != "" {
				return fail(exitBadInput, errors.New("--how goes with one drill; with --all give --only DRILL-HOW"))
			}
			if !f.all && (len(f.only) > 0 || len(f.skip) > 0 || f.repeat != 1 && !f.againstStock) {
				return fail(exitBadInput, errors.New("--only, --skip and --repeat go with --all"))
			}
			if f.random && (f.all || f.againstStock) {
				return fail(exitBadInput, errors.New("--random draws its own drills: leave --all and --against-stock out"))
			}
			if !f.random && (cmd.Flags().Changed("seed") || cmd.Flags().Changed("count") || f.from != "") {
				return fail(exitBadInput, errors.New("--seed, --count and --from go with --random"))
			}
			if f.count < 1 || f.count > 10000 {
				return fail(exitBadInput, fmt.Errorf("--count %d: give 1 to 10000", f.count))
			}
			if f.repeat < 1 || f.repeat > 1000 {
				return fail(exitBadInput, fmt.Errorf("--repeat %d: give 1 to 1000", f.repeat))
			}
			if f.againstStock {
				if len(args) == 2 {
					d, v, err := drill.Find(args[1], f.how)
					if err != nil {
						return fail(exitBadInput, err)
					}
					f.only = []string{drill.Choice{Drill: d, Variant: v}.Name()}
				}
				return drillAgainstStock(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], f)
			}
			if f.random && !cmd.Flags().Changed("seed") {
				f.seed = uint64(time.Now().UnixNano()) % 1_000_000
			}
			if f.all || f.random {
				return runDrill(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], "", f)
			}
			return runDrill(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1], f)
		},
	}
	cmd.Flags().BoolVar(&f.list, "list", false, "list the drills")
	cmd.Flags().BoolVar(&f.all, "all", false, "do every drill of the list")
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "with --all: only these, DRILL or DRILL-HOW, separated by commas")
	cmd.Flags().StringSliceVar(&f.skip, "skip", nil, "with --all: not these")
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, "with --all: do each drill so often, and give the median of the stalls")
	cmd.Flags().StringVar(&f.how, "how", "", "variant of the drill (default: its first)")
	cmd.Flags().StringVar(&f.service, "service", "", "with two services: the one the drill is about (default: the first of the spec); the other is under load as well")
	cmd.Flags().Float64Var(&f.seconds, "seconds", 12, "seconds of steady load before the fault")
	cmd.Flags().Float64Var(&f.after, "after", 8, "seconds of load after every worker goes on again")
	cmd.Flags().Float64Var(&f.within, "within", 0, "seconds in which every worker has to go on after the fault; some drills allow more by themselves (default 240)")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "operations per second of each writer; 0: 8 on a virtual rack, else unlimited")
	cmd.Flags().StringVar(&f.out, "out", "", "directory the run is written to (default out/DRILL-HOW; with --all out/drills, with --random out/random)")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "name of the brick, to confirm a drill on real hardware")
	cmd.Flags().BoolVar(&f.againstStock, "against-stock", false, "build the brick twice on virtual racks, profile stock and profile tuned, drill both and compare the stalls")
	cmd.Flags().BoolVar(&f.random, "random", false, "draw schedules of one to three faults from a seed, and do them")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "with --random: the first schedule (default: another one each time)")
	cmd.Flags().IntVar(&f.count, "count", 1, "with --random: how many schedules")
	cmd.Flags().StringVar(&f.from, "from", "", "with --random: restore this saved rack before each schedule")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary, or with --all and --random their list, as JSON (progress goes to stderr)")
	return cmd
}

func listDrills(w io.Writer, asJSON bool) error {
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
	if asJSON {
		return json.NewEncoder(w).Encode(lines)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
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

// drillAgainstStock drills a brick with the profile tuned and with the profile stock.
func drillAgainstStock(ctx context.Context, out, errOut io.Writer, specFile string, f drillFlags) error {
	if f.out == "" {
		f.out = filepath.Join("out", "drills-against-stock")
	}
	choices, err := drill.Choose(f.only, f.skip)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if err := f.check(); err != nil {
		return err
	}
	des, err := loadDesign(specFile)
	if err != nil {
		return err
	}
	// Refuse an impossible drill before two bricks are built.
	if len(f.only) == 0 {
		choices = drill.Suits(choices, des)
	}
	for _, c := range choices {
		if err := drill.Possible(drill.Env{Design: des, Service: f.service, Injector: &inject.Rack{Design: des}, Operator: inject.NewOperator(des, nil)}, c.Drill, c.Variant); err != nil {
			return fail(exitBadInput, err)
		}
	}
	progress := out
	if f.asJSON {
		progress = errOut
	}
	dirs, failed := againstStock(ctx, progress, specFile, f.out, func(file, run string) []string {
		return append([]string{"drill", file, "--all", "--out", run}, f.forward()...)
	})
	if dirs == nil {
		return failed
	}
	runs, err := versus.DrillRuns(dirs)
	if err != nil {
		return fail(exitFailed, err)
	}
	gains := report.Gains(runs)
	if len(gains) == 0 {
		return fail(exitFailed, errors.Join(errors.New("no drill has a verdict with both profiles: nothing to compare"), failed))
	}
	page := filepath.Join(f.out, report.HTMLFile)
	if len(runs) > 0 {
		if err := report.WriteHTML(page, runs); err != nil {
			return fail(exitFailed, err)
		}
	}
	if f.asJSON {
		if err := printJSON(out, map[string]any{"schema": report.Schema, "gains": gains}); err != nil {
			return fail(exitFailed, err)
		}
	} else {
		fmt.Fprintln(out)
		if err := report.GainsText(out, gains); err != nil {
			return fail(exitFailed, err)
		}
		fmt.Fprintf(out, "written to %s, page: %s\n", f.out, page)
	}
	// A failure of the profile stock is a result, not an error.
	if slices.ContainsFunc(gains, func(g report.Gain) bool { return g.TunedPassed < len(g.Tuned) }) {
		return fail(exitFailed, nil)
	}
	return nil
}

// forward returns the flags of the child command that choose the drill.
func (f *drillFlags) forward() []string {
	out := []string{"--repeat", strconv.Itoa(f.repeat), "--seconds", fmt.Sprint(f.seconds), "--after", fmt.Sprint(f.after), "--rate", fmt.Sprint(f.rate), "--within", fmt.Sprint(f.within)}
	for _, x := range [][2]string{{"--only", strings.Join(f.only, ",")}, {"--skip", strings.Join(f.skip, ",")}, {"--service", f.service}} {
		if x[1] != "" {
			out = append(out, x[0], x[1])
		}
	}
	return out
}

// check validates the numbers of the flags.
func (f *drillFlags) check() error {
	if f.seconds < 1 || f.seconds > 3600 {
		return fail(exitBadInput, fmt.Errorf("--seconds %g: give 1 to 3600", f.seconds))
	}
	if f.after < 1 || f.after > 3600 {
		return fail(exitBadInput, fmt.Errorf("--after %g: give 1 to 3600", f.after))
	}
	if f.within != 0 && f.within < 1 || f.within > 86400 {
		return fail(exitBadInput, fmt.Errorf("--within %g: give 1 to 86400", f.within))
	}
	if f.rate < 0 {
		return fail(exitBadInput, fmt.Errorf("--rate %g: give 0 or more", f.rate))
	}
	return nil
}

func runDrill(ctx context.Context, in io.Reader, out, errOut io.Writer, specFile, name string, f drillFlags) error {
	var choices []drill.Choice
	switch {
	case f.random:
	case f.all:
		var err error
		if choices, err = drill.Choose(f.only, f.skip); err != nil {
			return fail(exitBadInput, err)
		}
	default:
		d, v, err := drill.Find(name, f.how)
		if err != nil {
			return fail(exitBadInput, err)
		}
		choices = []drill.Choice{{Drill: d, Variant: v}}
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.from != "" {
		if err := rackOfFrom(ctx, errOut, specFile, f.from); err != nil {
			return err
		}
	}
	des, err := loadDesign(specFile)
	if err != nil {
		return err
	}
	if f.all && len(f.only) == 0 {
		choices = drill.Suits(choices, des)
	}
	// A host answers late while a failover or a rebuild keeps its processor busy.
	excused := &host.Excused{}
	dial, err := dialHosts(des, host.Options{KeepAlive: 3 * time.Second, Missed: 12, Excused: excused})
	if err != nil {
		return err
	}
	if f.out == "" {
		switch {
		case f.random:
			f.out = filepath.Join("out", "random")
		case f.all:
			f.out = filepath.Join("out", "drills")
		default:
			f.out = filepath.Join("out", choices[0].Name())
		}
	}
	if err := writable(f.out); err != nil {
		return fail(exitBadInput, fmt.Errorf("--out: %w", err))
	}

	progress := out
	if f.asJSON {
		progress = errOut
	}
	env := drill.Env{Design: des, Service: f.service, Dial: dial, Excused: excused, Version: version, Progress: drillProgress(progress)}
	changed := func(*design.Design) {}
	if virtualRack(ctx, des.Spec) {
		in := rackInjector(des)
		env.Virtual, env.Injector = true, in
		changed = func(d *design.Design) { in.Design = d }
	} else {
		env.Injector = &inject.Hardware{Design: des, Dial: dial}
		var what string
		switch {
		case f.random:
			what = fmt.Sprintf("%d schedules of random faults", f.count)
		case f.all:
			what = fmt.Sprintf("all (%d drills)", len(choices))
		default:
			what = choices[0].Name()
		}
		if err := confirmDrill(in, progress, des.Name, what, f.confirm); err != nil {
			return err
		}
	}
	opDial, err := dialHosts(des, host.Options{Timeout: inject.OperatorLogin})
	if err != nil {
		return err
	}
	op := inject.NewOperator(des, opDial)
	op.Run = (&drillCommands{file: specFile, say: env.Progress, changed: changed}).run
	defer op.Close()
	env.Operator = op
	release, err := claimBrick(ctx, des.Spec) // keep apply and a second drill out meanwhile
	if err != nil {
		return err
	}
	defer release()
	if f.from != "" {
		if env.Restore, err = restorer(ctx, des.Spec, f.from, op, env.Progress); err != nil {
			return err
		}
	}
	opt := drill.Options{Dir: f.out, Steady: time.Duration(f.seconds * float64(time.Second)), After: time.Duration(f.after * float64(time.Second)), Recover: time.Duration(f.within * float64(time.Second)), Rate: f.rate}
	if f.all || f.random {
		opt.Thorough = true
		return runMatrix(ctx, out, env, choices, opt, f)
	}
	r, err := drill.Run(ctx, env, choices[0].Drill, choices[0].Variant, opt)
	var unhealthy *drill.Unhealthy
	var refused *drill.Refused
	switch {
	case errors.As(err, &unhealthy), errors.As(err, &refused):
		return fail(exitBadInput, err)
	case ctx.Err() != nil:
		return interrupted(ctx, err, "interrupted; nothing is left broken")
	case err != nil:
		return fail(exitFailed, err)
	}
	if f.asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r.Summary); err != nil {
			return fail(exitFailed, err)
		}
	} else {
		printSummary(out, r)
	}
	if r.Summary.Verdict != report.Pass {
		return fail(exitFailed, nil)
	}
	return nil
}

// rackOfFrom makes sure that a rack is there, since without one the brick is real hardware,
// and that the saved rack of --from exists: it builds, applies and saves the brick if no
// saved rack has that name, and else restores it where no rack is.
func rackOfFrom(ctx context.Context, w io.Writer, specFile, name string) error {
	s, err := readSpec(specFile)
	if err != nil {
		return err
	}
	if known, err := rack.HasSaved(s.Name, name); err != nil {
		return rackError(err)
	} else if !known {
		self, err := os.Executable()
		if err != nil {
			return fail(exitFailed, err)
		}
		for _, args := range [][]string{{"rack", "up", specFile}, {"apply", specFile, "--yes", "--skip-fence-test"}, {"rack", "save", specFile, name}} {
			fmt.Fprintf(w, "no saved rack is named %s: mortar %s\n", name, strings.Join(args, " "))
			if err := runSelf(ctx, w, self, args); err != nil {
				return fail(exitFailed, fmt.Errorf("mortar %s: %w", strings.Join(args, " "), err))
			}
		}
		return nil
	}
	if virtualRack(ctx, s) {
		return nil
	}
	r := namedRack{dir: rackOf(s), name: name, spec: s}
	opt, err := r.restoreOptions(false)
	if err != nil {
		return fail(exitFailed, err)
	}
	_, err = rack.Restore(ctx, s.Name, r.dir, name, opt, nil)
	return rackError(err)
}

// restorer returns the Restore of a drill on a virtual rack, and refuses a saved rack that
// does not fit.
func restorer(ctx context.Context, s *spec.Spec, name string, op *inject.Operator, say func(string)) (func(context.Context) error, error) {
	r := namedRack{dir: rackOf(s), name: name, spec: s}
	opt, err := r.restoreOptions(false)
	if err != nil {
		return nil, fail(exitFailed, err)
	}
	if err := rack.CheckSaved(ctx, s.Name, r.dir, name, opt); err != nil {
		return nil, rackError(err)
	}
	return func(ctx context.Context) error {
		op.Close() // its sessions end with the rack
		began := time.Now()
		_, err := rack.Restore(ctx, s.Name, r.dir, name, opt, nil)
		if err == nil {
			say(fmt.Sprintf("restored %s in %s", name, report.Seconds(time.Since(began).Seconds())))
		}
		return err
	}, nil
}

// interrupted is the error of what an interrupt has ended: whole says so if nothing else
// went wrong.
func interrupted(ctx context.Context, err error, whole string) error {
	if nothingBut(err, ctx.Err()) {
		return fail(exitInterrupted, errors.New(whole))
	}
	return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
}

// nothingBut reports whether an error is another one and nothing else, joined or not.
func nothingBut(err, other error) bool {
	if err == nil || err == other { //nolint:errorlint // that and nothing else
		return true
	}
	all, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the outermost one
	return ok && err.Error() == errors.Join(all.Unwrap()...).Error() &&
		!slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !nothingBut(e, other) })
}

// rackInjector breaks the virtual rack of a spec.
func rackInjector(d *design.Design) *inject.Rack {
	dir := rackOf(d.Spec)
	return &inject.Rack{
		Design: d,
		Fault: func(ctx context.Context, kind string, targets ...string) error {
			return rack.Fault(ctx, dir, kind, targets...)
		},
		Hangs:     func(ctx context.Context, node string) (bool, error) { return rack.Hangs(ctx, dir, node) },
		Renewable: func(node string) error { return rack.Renewable(dir, node) },
		Disks: func(ctx context.Context) ([][]string, error) {
			st, err := rack.Status(ctx, dir)
			if err != nil {
				return nil, err
			}
			return disksIn(st), nil
		},
		Groups: func(ctx context.Context) (out []drill.ArrayGroup, err error) {
			st, err := rack.Status(ctx, dir)
			if err != nil {
				return nil, err
			}
			for _, a := range st.Arrays {
				for _, g := range a.Groups {
					out = append(out, drill.ArrayGroup{Name: g.Name, State: g.State, Members: g.Members,
						Comparing: g.Comparing, Percent: g.Percent, Mismatches: g.Mismatches})
				}
			}
			return out, nil
		},
		Compare: func(ctx context.Context, group string, on bool) error { return rack.CompareGroup(ctx, dir, group, on) },
	}
}

// disksIn returns the serial numbers of the disks in each enclosure's slots.
func disksIn(st *rack.RackStatus) (out [][]string) {
	at := map[string]int{}
	for _, d := range st.Disks {
		if d.Enclosure == "" || !d.Present {
			continue
		}
		i, ok := at[d.Enclosure]
		if !ok {
			i = len(out)
			at[d.Enclosure], out = i, append(out, nil)
		}
		out[i] = append(out[i], d.Serial)
	}
	return out
}

// drillProgress prints lines with the time since now. Drill and commands call it from
// several goroutines.
func drillProgress(w io.Writer) func(text string) {
	start := time.Now()
	var mu sync.Mutex
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s %s\n", stamp(start), text)
	}
}

// runMatrix runs several drills and prints one table.
func runMatrix(ctx context.Context, out io.Writer, env drill.Env, choices []drill.Choice, opt drill.Options, f drillFlags) error {
	var entries []report.Entry
	var runs []*report.Run
	var smallest []drill.Schedule
	var err error
	if f.random {
		entries, runs, smallest, err = drill.Random(ctx, env, f.seed, f.count, f.out, opt)
		var refused *drill.Refused
		if errors.As(err, &refused) {
			return fail(exitBadInput, err)
		}
	} else {
		entries, runs, err = drill.All(ctx, env, choices, f.repeat, f.out, opt)
	}
	if len(runs) > 0 {
		if werr := report.WriteHTML(filepath.Join(f.out, report.HTMLFile), runs); werr != nil && err == nil {
			err = werr
		}
	}
	if f.asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		if werr := enc.Encode(report.Listed(entries)); werr != nil && err == nil {
			err = werr
		}
	} else if len(entries) > 0 {
		printMatrix(out, entries, f.out)
		for _, s := range smallest {
			fmt.Fprintf(out, "of seed %d, this alone fails: %s\n", s.Seed, strings.Join(s.Words(), "; "))
		}
	}
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, err, "interrupted; what was done is in the list, and nothing is left broken")
	case err != nil:
		return fail(exitFailed, err)
	}
	for i := range entries {
		// A drill that the brick cannot have is no failure; a schedule that did not run is one.
		if v := entries[i].Verdict; v != report.Pass && (v != report.Refused || f.random) {
			return fail(exitFailed, nil)
		}
	}
	return nil
}

// printMatrix prints a line for each drill.
func printMatrix(w io.Writer, entries []report.Entry, dir string) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DRILL\tVERDICT\tSTALL\tTARGET\tLOST\tCHECKED\t")
	passed := 0
	for i := range entries {
		e := &entries[i]
		stall, target := "-", "-"
		if e.MedianStallSeconds != nil {
			stall = report.Seconds(*e.MedianStallSeconds)
			if e.Repeats > 1 {
				stall += fmt.Sprintf(" (median of %d)", e.Repeats)
			}
		}
		if e.StallTargetSeconds != nil {
			target = report.Seconds(*e.StallTargetSeconds)
			if e.StallTargetMet != nil && !*e.StallTargetMet {
				target += " missed"
			}
		}
		if e.Verdict == report.Pass {
			passed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Name(), e.Verdict, stall, target, report.Bytes(e.LostBytes), report.Bytes(e.VerifiedBytes), strings.Join(slices.Concat(e.Schedule, e.Reasons), "; "))
	}
	_ = tw.Flush() // the exit code reports a closed terminal
	fmt.Fprintf(w, "%d of %d passed; written to %s, page: %s\n", passed, len(entries), dir, filepath.Join(dir, report.HTMLFile))
}

// writable checks that a directory exists or can be made, and that files can be written there.
// It runs before a drill, so that the results have a place.
func writable(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		fi, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !fi.IsDir():
			return fmt.Errorf("%s is no directory", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s cannot be written to: %w", dir, err)
		}
		return nil
	}
}

// confirmDrill has the user type the name of the brick that the drill breaks.
func confirmDrill(in io.Reader, w io.Writer, brick, what, given string) error {
	return confirmBrick(in, w, fmt.Sprintf("Drill %s breaks brick %q under load.", what, brick), "nothing was broken", brick, given)
}

// confirmBrick has the user type the brick's name before a change to real hardware that its
// users notice.
func confirmBrick(in io.Reader, w io.Writer, warning, undone, brick, given string) error {
	if given == "" && isTerminalReader(in) {
		fmt.Fprintf(w, "This is real hardware. %s\nType the brick's name to go on: ", warning)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("nothing was typed, %s: %w", undone, err))
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case brick:
		return nil
	case "":
		return fail(exitBadInput, fmt.Errorf("this is real hardware and nobody can be asked here: give --confirm %s; %s", brick, undone))
	}
	return fail(exitBadInput, fmt.Errorf("%q is not the brick's name, %q; %s", given, brick, undone))
}

// printSummary prints the result for a person.
func printSummary(w io.Writer, r *report.Run) {
	s := r.Summary
	fmt.Fprintf(w, "\n%s (%s): %s\n", s.Drill, s.How, bold(strings.ToUpper(s.Verdict)))
	for _, c := range s.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "  %s  %-26s %s\n", mark, c.Name, c.Detail)
	}
	for _, l := range s.Status {
		if l.Level == "fault" {
			fmt.Fprintf(w, "  meanwhile, mortar status: %s\n", l.Text)
		}
	}
	var parts []string
	for _, p := range []struct {
		name string
		v    *float64
	}{{"detection", s.Phases.Detect}, {"fencing", s.Phases.Fence}, {"start", s.Phases.Start}, {"first I/O", s.Phases.FirstIO}, {"first lock", s.Phases.FirstLock}} {
		if p.v != nil {
			parts = append(parts, p.name+" "+report.Seconds(*p.v))
		}
	}
	fmt.Fprintf(w, "  longest stall %s", report.Seconds(s.LongestStallSeconds))
	if t := s.StallTargetSeconds; t != nil {
		fmt.Fprint(w, targetText(*t, *s.StallTargetMet))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, ": %s", strings.Join(parts, ", "))
	}
	if t := s.LocksTargetSeconds; t != nil {
		fmt.Fprintf(w, "\n  all locks back %s after the start%s", report.Seconds(*s.LocksBackSeconds), targetText(*t, *s.LocksTargetMet))
	}
	fmt.Fprintf(w, "\n  written to %s (mortar report %s makes a page)\n", r.Dir, r.Dir)
}

// targetText says whether a target, in seconds, was met.
func targetText(seconds float64, met bool) string {
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf(" (target %s: %s)", report.Seconds(seconds), word)
}
