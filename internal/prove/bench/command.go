package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Command is mortar bench.
type Command struct {
	Options
	Suite   string // by name or file; "": only a profile
	Confirm string // the brick's name, if it was given
	// Throttle returns that of a virtual rack's Env.
	Throttle func(*design.Design) func(ctx context.Context, iops int, rate int64) error
}

// Run measures the brick of a file and prints the result; in a dry run, what it would measure.
func (b Command) Run(ctx context.Context, c *cli.Console, file string) error {
	if b.Dir == "" {
		name := cmp.Or(b.Suite, "profile")
		b.Dir = filepath.Join("out", "bench-"+strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
	}
	load := cli.Load
	if c.DryRun {
		load = cli.LoadAny
	}
	d, err := cli.ForLoad(load(file))
	if err != nil {
		return err
	}
	if v := b.NFSVersion; v != "" && !slices.ContainsFunc(d.Mounts, func(m design.ClientMount) bool { return m.Version == v }) {
		return cli.Fail(cli.BadInput, fmt.Errorf("--nfs %q: no client mounts by it; those of the spec mount by %s", v, mountVersions(d)))
	}
	suite := &Suite{Name: "profile", Title: "Layer by layer", Cold: ColdDrop, Repeat: 1}
	if b.Suite != "" {
		if suite, err = Load(b.Suite, d.Flavour); err != nil {
			return cli.Fail(cli.BadInput, err)
		}
	}
	if c.DryRun {
		return showPlan(c, d, suite, b.Options)
	}
	if err := cli.Writable(b.Dir); err != nil {
		return err
	}
	dial, err := c.Dial(d, c.Connect)
	if err != nil {
		return err
	}
	env := Env{Design: d, Version: c.Version, Dial: dial, Virtual: c.Virtual(ctx, d.Spec)}
	if env.Virtual {
		env.Throttle = b.Throttle(d)
	}
	cold, err := coldOf(d, suite, b.Cold)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	if w := suite.warning(d.Name, cold); w != "" && !env.Virtual {
		if err := c.ConfirmBrick(w, "nothing was changed", d.Name, b.Confirm); err != nil {
			return err
		}
	}
	release, err := c.Claim(ctx, d.Spec) // keep apply and drill out meanwhile
	if err != nil {
		return err
	}
	defer release()
	w := c.Aside()
	live := cli.IsTerminal(w)
	env.Progress = printer(w, c.Bold, time.Now(), live)
	r, err := Run(ctx, env, suite, b.Options)
	if live {
		fmt.Fprint(w, screen.ClearLine)
	}
	return outcome(ctx, c, r, err)
}

// mountVersions lists the NFS versions of a brick's mounts without duplicates.
func mountVersions(d *design.Design) string {
	all := lists.Map(d.Mounts, func(m design.ClientMount) string { return m.Version })
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// outcome prints the result and returns the exit code.
func outcome(ctx context.Context, c *cli.Console, r *report.Run, err error) error {
	var unfit *Unfit
	if r == nil {
		switch {
		case errors.As(err, &unfit):
			return cli.Fail(cli.BadInput, fmt.Errorf("%w; nothing was measured", err))
		case ctx.Err() != nil:
			return cli.Fail(cli.Interrupted, errors.New("interrupted; nothing was measured"))
		}
		return err
	}
	if err := c.Show(r.Bench.BenchSummary, func(w io.Writer) error { return report.BenchText(w, r, c.Bold) }); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, errors.New("interrupted; what was measured is kept"))
	case err == nil && r.Bench.Verdict != report.Complete:
		return cli.Fail(cli.Failed, nil)
	}
	return err
}

// showPlan prints the measurements that a run would make.
func showPlan(c *cli.Console, des *design.Design, suite *Suite, opt Options) error {
	planned, err := planOf(des, suite, opt)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
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
		fmt.Fprintln(w, leftOutText(suite, planned.LeftOut))
	}
	most := ""
	if planned.MostSeconds > 0 {
		most = fmt.Sprintf(", %s of measuring at most", report.Seconds(float64(planned.MostSeconds)))
	}
	_, err = fmt.Fprintf(w, "%s%s; caches are emptied %d times\n", report.Plural(planned.Measurements, "measurement"), most, planned.ColdTimes)
	return err
}

// printer prints a line for each finished measurement and each note. Between them it
// rewrites one status line on a terminal, and prints a line now and then elsewhere.
func printer(w io.Writer, bold func(string) string, start time.Time, live bool) func(Progress) {
	var lastLine time.Time
	state := ""
	return func(p Progress) {
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
