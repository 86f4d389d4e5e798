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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/drill"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/plan"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/report"
)

type drillFlags struct {
	how, out, confirm string
	seconds           float64
	rate              float64
	asJSON, list      bool
}

func newDrillCmd() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill SPEC DRILL",
		Short: "Break the brick under verified load, judge how it took it, and heal it",
		Long: `Checks that the brick is healthy, runs a verified load on every client mount,
breaks what the drill says, watches the cluster and the clients, waits until
every client goes on, heals, and reads every acknowledged byte back from
another mount. Whatever was broken is healed before the command ends, also
after an error or Ctrl-C.

The run is written to --out: summary.json, timeline.json, events.json,
verify.json, design.json. "mortar report" makes a page of it.

On real hardware the drill asks for the brick's name first; without a terminal
give it with --confirm.

Exit codes: 0 pass, 1 fail or no verdict, 2 refused (nothing was broken), 130
interrupted (healed).`,
		Example: `  mortar drill brick.yaml server-crash
  mortar drill brick.yaml server-crash --how power --out out/power
  mortar drill --list`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.list && len(args) <= 1:
				return nil
			case !f.list && len(args) == 2:
				return nil
			}
			return badUsage("give the spec and the drill: mortar drill SPEC DRILL; mortar drill --list names the drills")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return listDrills(cmd.OutOrStdout(), f.asJSON)
			}
			return runDrill(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1], f)
		},
	}
	cmd.Flags().BoolVar(&f.list, "list", false, "list the drills")
	cmd.Flags().StringVar(&f.how, "how", "", "variant of the drill (default: its first)")
	cmd.Flags().Float64Var(&f.seconds, "seconds", 12, "seconds of steady load before the fault")
	cmd.Flags().Float64Var(&f.rate, "rate", 0, "operations per second of each writer; 0: 8 on a virtual rack, else unlimited")
	cmd.Flags().StringVar(&f.out, "out", "", "directory the run is written to (default out/DRILL-HOW)")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "name of the brick, to confirm a drill on real hardware")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary as JSON (progress goes to stderr)")
	return cmd
}

func listDrills(w io.Writer, asJSON bool) error {
	type line struct {
		Drill string `json:"drill"`
		How   string `json:"how"`
		Title string `json:"title"`
		What  string `json:"what"`
	}
	var lines []line
	for _, d := range drill.Table {
		for _, v := range d.Variants {
			lines = append(lines, line{d.Name, v.How, d.Title, v.Title})
		}
	}
	if asJSON {
		return json.NewEncoder(w).Encode(lines)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DRILL\t--how\tWHAT HAPPENS")
	for _, l := range lines {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", l.Drill, l.How, l.What)
	}
	return tw.Flush()
}

func runDrill(ctx context.Context, in io.Reader, out, errOut io.Writer, specFile, name string, f drillFlags) error {
	d, v, err := drill.Find(name, f.how)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if f.seconds < 1 || f.seconds > 3600 {
		return fail(exitBadInput, fmt.Errorf("--seconds %g: give 1 to 3600", f.seconds))
	}
	if f.rate < 0 {
		return fail(exitBadInput, fmt.Errorf("--rate %g: give 0 or more", f.rate))
	}
	des, err := loadDesign(specFile)
	if err != nil {
		return err
	}
	targets, err := host.Inventory(des.Spec)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if f.out == "" {
		f.out = filepath.Join("out", d.Name+"-"+v.How)
	}
	if err := writable(f.out); err != nil {
		return fail(exitBadInput, fmt.Errorf("--out: %w", err))
	}

	progress := out
	if f.asJSON {
		progress = errOut
	}
	dial := func(ctx context.Context, name string) (drill.Host, error) {
		t, ok := targets[name]
		if !ok {
			return nil, fmt.Errorf("%s is not in the spec", name)
		}
		// A host whose processor is busy with a failover answers late.
		h, err := host.Connect(ctx, t, host.Options{KeepAlive: 3 * time.Second, Missed: 6})
		if err != nil {
			return nil, err
		}
		return h, nil
	}
	start := time.Now()
	env := drill.Env{Design: des, Dial: dial, Version: version, Progress: func(text string) {
		fmt.Fprintf(progress, "%s %s\n", stamp(start), text)
	}}
	rackDir := filepath.Dir(host.InventoryFile(des.Spec))
	if _, err := rack.Status(ctx, rackDir); err == nil {
		env.Virtual, env.Injector = true, rackInjector{rackDir}
	} else {
		env.Injector = &hardwareInjector{design: des, dial: dial}
		if err := confirmDrill(in, progress, des.Name, d.Name, v.How, f.confirm); err != nil {
			return err
		}
	}
	release, err := plan.Lock(des.Spec) // no apply meanwhile, and no second drill
	if err != nil {
		return fail(exitBadInput, err)
	}
	defer release()
	opt := drill.Options{Dir: f.out, Steady: time.Duration(f.seconds * float64(time.Second)), Rate: f.rate}
	r, err := drill.Run(ctx, env, d, v, opt)
	var unhealthy *drill.Unhealthy
	var refused *drill.Refused
	switch {
	case errors.As(err, &unhealthy), errors.As(err, &refused):
		return fail(exitBadInput, err)
	case ctx.Err() != nil:
		if err == ctx.Err() || err == nil { //nolint:errorlint // that and nothing else
			return fail(exitInterrupted, errors.New("interrupted; nothing is left broken"))
		}
		return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
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

// writable says whether a directory can be written to, or made: found out
// before a drill, so that its outcome has a place to go.
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

// confirmDrill has the user name the brick that is about to be broken.
func confirmDrill(in io.Reader, w io.Writer, brick, name, how, given string) error {
	if given == "" && isTerminalReader(in) {
		fmt.Fprintf(w, "This is real hardware. Drill %s (%s) breaks a server of brick %q under load.\nType the brick's name to go on: ", name, how, brick)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("nothing was typed, nothing was broken: %w", err))
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case brick:
		return nil
	case "":
		return fail(exitBadInput, fmt.Errorf("this is real hardware and nobody can be asked here: give --confirm %s; nothing was broken", brick))
	}
	return fail(exitBadInput, fmt.Errorf("%q is not the brick's name, %q; nothing was broken", given, brick))
}

// printSummary tells the outcome on the terminal.
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
	if len(parts) > 0 {
		fmt.Fprintf(w, ": %s", strings.Join(parts, ", "))
	}
	fmt.Fprintf(w, "\n  written to %s (mortar report %s makes a page)\n", r.Dir, r.Dir)
}

// rackInjector breaks a virtual rack.
type rackInjector struct{ dir string }

var rackFaults = map[drill.Kind]struct {
	inject string
	heal   []string
}{
	drill.Freeze:   {"freeze", []string{"poweron", "unfreeze"}},
	drill.Panic:    {"panic", []string{"poweron"}},
	drill.PowerOff: {"kill", []string{"poweron"}},
}

func (r rackInjector) Can(f drill.Fault) error {
	if _, ok := rackFaults[f.Kind]; !ok {
		return fmt.Errorf("a virtual rack has no fault %q", f.Kind)
	}
	return nil
}

func (r rackInjector) Inject(ctx context.Context, f drill.Fault, target string) error {
	return rack.Fault(ctx, r.dir, rackFaults[f.Kind].inject, target)
}

// Heal leaves a server alone that runs: fencing has already power-cycled it.
// One that was not fenced is let run on, or reset if its kernel is dead.
func (r rackInjector) Heal(ctx context.Context, f drill.Fault, target string) error {
	for _, k := range rackFaults[f.Kind].heal {
		if err := rack.Fault(ctx, r.dir, k, target); err != nil {
			return err
		}
	}
	if f.Kind != drill.Panic {
		return nil
	}
	st, err := rack.Status(ctx, r.dir)
	if err != nil {
		return err
	}
	for _, n := range st.Nodes {
		// Booted, but nobody answers: the panicked kernel is still there.
		if n.Name == target && n.Power == "on" && n.Boot == "multi-user" && !n.SSH {
			return rack.Fault(ctx, r.dir, "reset", target)
		}
	}
	return nil
}

// hardwareInjector breaks real servers: by the kernel's SysRq, and by the BMC.
type hardwareInjector struct {
	design *design.Design
	dial   func(ctx context.Context, name string) (drill.Host, error)
}
