package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/aclements/go-moremath/stats"

	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// BenchComparison compares benchmarks with the first of them.
type BenchComparison struct {
	Schema string     `json:"schema"`
	Kind   string     `json:"kind"` // bench
	Runs   []RunLabel `json:"runs"`
	// System is that of a paper, if all runs are of it.
	System string `json:"system,omitempty"`
	// Notes are reasons why the runs may not be comparable.
	Notes []string   `json:"notes"`
	Rows  []BenchRow `json:"rows"`
	// Differences are settings, software and hardware that differ between runs.
	Differences []Difference `json:"differences"`
}

// RunLabel names a run of a comparison.
type RunLabel struct {
	Label   string    `json:"label"` // A, B, …
	Dir     string    `json:"dir"`
	Suite   string    `json:"suite"`
	Engine  string    `json:"engine"`
	Tuning  string    `json:"tuning"`
	Brick   string    `json:"brick"`
	Started time.Time `json:"started"`
	Repeats int       `json:"repeats"` // the most repetitions of any point
}

// BenchRow is a phase of the runs.
type BenchRow struct {
	Phase string `json:"phase"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	// Peaks has the peak of each run, null if the run has none. Changes compares
	// the peaks of the later runs with that of the first; the peaks may be at
	// different thread counts.
	Peaks   []*Peak   `json:"peaks"`
	Changes []Change  `json:"changes"`
	Points  []BenchAt `json:"points"`
	// Paper is the peak that the paper of the runs' system has for each run, with the cache in the run's mode, in
	// Unit; 0: none. PaperPercent is by how much the peak of the run is above it, null without one.
	Paper        []float64     `json:"paper,omitempty"`
	PaperPercent []*float64    `json:"paper_percent,omitempty"`
	phases       []*BenchPhase // of each run, for the plots; nil: the run has none
}

// BenchAt is a phase of the runs at one thread count.
type BenchAt struct {
	Threads int        `json:"threads"`
	Values  []*float64 `json:"values"` // median of each run; null if the run has none
	Changes []Change   `json:"changes"`
}

// Change compares a run with the first.
type Change struct {
	// Percent is the difference relative to the first run; null if one of the two
	// values is missing.
	Percent *float64 `json:"percent"`
	// P is the probability that repetitions on the same brick differ so much by
	// chance (Welch's t-test, two-sided); null if either run has fewer than two
	// repetitions.
	P *float64 `json:"p"`
}

// Difference is a setting, version or part that differs between runs.
type Difference struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // of each run; "": the run has none
}

// significant is the value of P below which a change is significant.
const significant = 0.05

// Words describes a change in the style of the papers.
func (c Change) Words() string {
	if c.Percent == nil {
		return "–"
	}
	p := *c.Percent
	text := "no change"
	switch {
	case p >= 400:
		text = fmt.Sprintf("%.1f x", 1+p/100)
	case p >= 0.05:
		text = fmt.Sprintf("%.1f %% increase", p)
	case p <= -0.05:
		text = fmt.Sprintf("%.1f %% decrease", -p)
	}
	switch {
	case c.P == nil:
		return text
	case *c.P < 0.001:
		return text + ", significant (p < 0.001)"
	case *c.P < significant:
		return text + fmt.Sprintf(", significant (p = %.2g)", *c.P)
	}
	return text + fmt.Sprintf(", may be chance (p = %.2g)", *c.P)
}

func changeOf(a, b *BenchPoint) Change {
	if a == nil || b == nil {
		return Change{}
	}
	x, y := a.Value(), b.Value()
	if x <= 0 || len(b.Runs) == 0 {
		return Change{}
	}
	c := Change{Percent: new(100 * (y/x - 1))}
	if len(a.Runs) < 2 || len(b.Runs) < 2 {
		return c
	}
	t, err := stats.TwoSampleWelchTTest(stats.Sample{Xs: a.Values()}, stats.Sample{Xs: b.Values()}, stats.LocationDiffers)
	if err == nil && !math.IsNaN(t.P) {
		c.P = &t.P
	}
	return c
}

// CompareBench compares benchmarks with the first of them.
func CompareBench(runs []*Run) (*BenchComparison, error) {
	c := &BenchComparison{Schema: Schema, Kind: KindBench, Notes: []string{}, Rows: []BenchRow{}, Differences: []Difference{}}
	for i, r := range runs {
		if r.Bench == nil {
			return nil, fmt.Errorf("%s is a drill, and other runs are benchmarks: compare like with like", r.Dir)
		}
		l := RunLabel{Label: string(rune('A' + i%26)), Dir: r.Dir, Suite: r.Bench.Suite, Engine: r.Bench.Engine, Tuning: r.Bench.Tuning, Brick: r.Bench.Brick, Started: r.Bench.Started}
		for p := range r.Bench.Phases {
			for _, pt := range r.Bench.Phases[p].Points {
				l.Repeats = max(l.Repeats, len(pt.Runs))
			}
		}
		c.Runs = append(c.Runs, l)
	}
	runs = withLayers(runs)
	first := runs[0].Bench
	for i, r := range runs[1:] {
		b, label := r.Bench, c.Runs[i+1].Label
		differ := func(what, x, y string) {
			if x != y {
				c.Notes = append(c.Notes, fmt.Sprintf("%s differs: %s in A, %s in %s", what, x, y, label))
			}
		}
		differ("suite", first.Suite, b.Suite)
		differ("engine", first.Engine, b.Engine)
		differ("scale", ScaleText(first.Scale), ScaleText(b.Scale))
		differ("number of client hosts", fmt.Sprint(len(first.Clients)), fmt.Sprint(len(b.Clients)))
		if first.Virtual != b.Virtual {
			c.Notes = append(c.Notes, "one run is of a virtual rack and another is not: compare no absolute value")
		}
	}
	for i, r := range runs {
		if r.Bench.Verdict != Complete {
			c.Notes = append(c.Notes, fmt.Sprintf("%s is %s", c.Runs[i].Label, r.Bench.Verdict))
		}
	}
	if first.Virtual {
		c.Notes = append(c.Notes, "virtual racks: ratios mean something only if the machine was as idle in every run")
	}
	c.System = first.System
	for _, r := range runs {
		if r.Bench.System != c.System {
			c.System = ""
		}
	}
	var names []string
	for _, r := range runs {
		for i := range r.Bench.Phases {
			if n := r.Bench.Phases[i].Name; !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	for _, n := range names {
		row := rowOf(n, runs)
		row.besidePaper(c.System, runs)
		c.Rows = append(c.Rows, row)
	}
	if !slices.ContainsFunc(c.Rows, func(row BenchRow) bool {
		return slices.ContainsFunc(row.Changes, func(x Change) bool { return x.P != nil })
	}) {
		c.Notes = append(c.Notes, "without repetitions (mortar bench --repeat 3) no test tells which differences are chance")
	}
	c.Differences = differences(runs)
	return c, nil
}

// withLayers gives copies of runs that have the layers of profiles as phases: the best of each number of
// threads.
func withLayers(runs []*Run) []*Run {
	out := make([]*Run, len(runs))
	for i, r := range runs {
		run, b := *r, *r.Bench
		b.Phases = slices.Clone(b.Phases)
		for _, l := range b.Layers {
			for _, v := range l.Results {
				ph := BenchPhase{Name: l.Name + "/" + v.Load, Test: l.Name, Op: v.Load, Title: l.Title + ", " + v.Load, Unit: v.Unit}
				for _, p := range v.Grid {
					n := p.X * p.Y
					k := slices.IndexFunc(ph.Points, func(o BenchPoint) bool { return o.Threads == n })
					if k < 0 {
						k, ph.Points = len(ph.Points), append(ph.Points, BenchPoint{Threads: n, Runs: []BenchRun{{}}})
					}
					ph.Points[k].Runs[0].Value = max(ph.Points[k].Runs[0].Value, p.Value)
				}
				b.Phases = append(b.Phases, ph)
			}
		}
		run.Bench = &b
		out[i] = &run
	}
	return out
}

// besidePaper adds what the paper of a system has of the row's phase.
func (row *BenchRow) besidePaper(system string, runs []*Run) {
	y, ok := paper.Find(system)
	if !ok {
		return
	}
	i := slices.IndexFunc(row.phases, func(p *BenchPhase) bool { return p != nil })
	f, ok := y.Figure(row.phases[i].Test, row.phases[i].Op)
	if !ok || f.Peak <= 0 {
		return
	}
	for n, p := range row.Peaks {
		v, published := 0.0, f.In(runs[n].Bench.Cache).Value()/row.phases[i].Decimal(1)
		if p != nil {
			v = p.Value
		}
		row.Paper, row.PaperPercent = append(row.Paper, published), append(row.PaperPercent, paper.Percent(published, v))
	}
}

// modes reports whether the paper has another peak for some run than for the first.
func (row BenchRow) modes() bool {
	return slices.ContainsFunc(row.Paper, func(p float64) bool { return p != row.Paper[0] })
}

// AgainstPaper is by how much the peak of a run is above the paper's, for people.
func (row BenchRow) AgainstPaper(run int) string {
	if run >= len(row.PaperPercent) {
		return paper.PercentText(nil)
	}
	text := paper.PercentText(row.PaperPercent[run])
	if row.modes() && row.Paper[run] > 0 {
		text += " of " + Rate(row.Paper[run], row.Unit)
	}
	return text
}

// PaperText is the paper's peak for people.
func (row BenchRow) PaperText() string {
	switch {
	case row.modes():
		return "for each mode"
	case len(row.Paper) == 0 || row.Paper[0] == 0:
		return "–"
	}
	return Rate(row.Paper[0], row.Unit)
}

func rowOf(name string, runs []*Run) BenchRow {
	row := BenchRow{Phase: name, Changes: []Change{}, Points: []BenchAt{}}
	var counts []int
	var best []*BenchPoint
	for _, r := range runs {
		ph := r.Bench.named(name)
		row.phases, row.Peaks, best = append(row.phases, ph), append(row.Peaks, nil), append(best, nil)
		if ph == nil {
			continue
		}
		row.Title, row.Unit = ph.Title, ph.Unit
		p := ph.Peak()
		if p == nil {
			continue
		}
		last := len(best) - 1
		best[last], row.Peaks[last] = p, ph.best()
		row.Peaks[last].Value = p.Value()
		for _, pt := range ph.Points {
			counts = addSorted(counts, pt.Threads)
		}
	}
	for _, b := range best[1:] {
		row.Changes = append(row.Changes, changeOf(best[0], b))
	}
	for _, n := range counts {
		at := BenchAt{Threads: n, Changes: []Change{}}
		var points []*BenchPoint
		for _, ph := range row.phases {
			var found *BenchPoint
			var v *float64
			if ph != nil {
				found = ph.At(n)
			}
			if found != nil {
				v = new(found.Value())
			}
			points, at.Values = append(points, found), append(at.Values, v)
		}
		for _, p := range points[1:] {
			at.Changes = append(at.Changes, changeOf(points[0], p))
		}
		row.Points = append(row.Points, at)
	}
	return row
}

// differences lists the differences between the runs' descriptions.
func differences(runs []*Run) []Difference {
	out := []Difference{}
	var names []string
	values := make([]map[string]string, len(runs))
	for i, r := range runs {
		values[i] = map[string]string{}
		add := func(name, value string) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			values[i][name] = value
		}
		add("mortar", r.Bench.MortarVersion)
		add("profile of the brick", r.Bench.Tuning)
		add("spec", fmt.Sprintf("%.12s", r.Bench.SpecSHA256))
		for _, x := range r.Config.Software {
			add(x.Name, x.Value)
		}
		for _, x := range r.Config.Hardware {
			add(x.Name, x.Value)
		}
		for _, x := range r.Config.Mounts {
			add("mount "+x.Name, x.Value)
		}
		for _, x := range r.Config.Settings {
			add(x.Role+" "+x.Kind+" "+x.Name, x.Value)
		}
	}
	for _, n := range names {
		d := Difference{Name: n}
		same := true
		for i := range runs {
			d.Values = append(d.Values, values[i][n])
			same = same && values[i][n] == values[0][n]
		}
		if !same {
			out = append(out, d)
		}
	}
	return out
}

// Text prints the comparison in the style of the papers' conclusions: the peaks
// and their changes.
func (c *BenchComparison) Text(w io.Writer) error {
	for _, r := range c.Runs {
		fmt.Fprintf(w, "%s: %s (%s, engine %s, brick %s %s, %s)\n", r.Label, r.Dir, r.Suite, r.Engine, r.Brick, r.Tuning, r.Started.UTC().Format("2006-01-02 15:04"))
	}
	for _, n := range c.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "peak")
	for _, r := range c.Runs {
		fmt.Fprintf(tw, "\t%s", r.Label)
	}
	for _, r := range c.Runs[1:] {
		fmt.Fprintf(tw, "\t%s against A", r.Label)
	}
	if c.System != "" {
		fmt.Fprint(tw, "\tpaper")
		for _, r := range c.Runs {
			fmt.Fprintf(tw, "\t%s against paper", r.Label)
		}
	}
	fmt.Fprintln(tw)
	for _, row := range c.Rows {
		fmt.Fprint(tw, row.Title)
		for _, p := range row.Peaks {
			if p == nil {
				fmt.Fprint(tw, "\t–")
				continue
			}
			fmt.Fprintf(tw, "\t%s at %d", Rate(p.Value, p.Unit), p.Threads)
		}
		for _, ch := range row.Changes {
			fmt.Fprintf(tw, "\t%s", ch.Words())
		}
		if c.System != "" {
			fmt.Fprintf(tw, "\t%s", row.PaperText())
			for i := range c.Runs {
				fmt.Fprintf(tw, "\t%s", row.AgainstPaper(i))
			}
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if n := len(c.Differences); n > 0 {
		fmt.Fprintf(w, "%d settings, versions or parts differ:\n", n)
		for i, d := range c.Differences {
			if i == 12 {
				fmt.Fprintf(w, "  and %d more (--json, --html)\n", n-i)
				break
			}
			fmt.Fprintf(w, "  %s: %q\n", d.Name, d.Values)
		}
	}
	return nil
}
