package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/brick/paper"
)

//go:embed bench.tmpl
var benchSource string

//go:embed bench.css
var benchCSS string

// benchPage shares its functions, and the section on the system under test, with
// the drills' page.
var benchPage = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("benchmarks").Funcs(benchFuncs).Parse(benchSource))
})

var benchFuncs = template.FuncMap{
	"rate":    Rate,
	"scale":   ScaleText,
	"lines":   func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }) },
	"percent": percent,
	"figure":  figure,
	"plural":  Plural,
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// benchRunPage is what the template sees of one benchmark.
type benchRunPage struct {
	*Run
	ID     string
	Title  string
	Tiles  []Peak
	Paper  *papersFigures
	Tests  []testPage
	Layers []layerPage
}

// testPage is a test of the suite: phases that share files and a figure.
type testPage struct {
	Title   string
	Charts  []template.HTML
	Phases  []*BenchPhase
	Counts  []int // of threads
	Latency template.HTML
	Strips  template.HTML
	IO      bool // the strips show the I/O of devices
}

// On is how many hosts ran so many threads, and Each what a thread had.
func (t *testPage) On(threads int) (hosts int) {
	for _, ph := range t.Phases {
		if pt := ph.At(threads); pt != nil {
			hosts = pt.Hosts
		}
	}
	return hosts
}

func (t *testPage) Each(threads int) (each string) {
	limited := ""
	for _, ph := range t.Phases {
		if pt := ph.At(threads); pt != nil {
			each = Bytes(pt.FileBytes)
			if pt.Files > 0 {
				each = Count(pt.Files/int64(threads)) + " files"
			}
			if pt.Median().Limited {
				limited = "up to "
			}
		}
	}
	return limited + each
}

// Shared reports whether several clients had a part in a phase.
func (t *testPage) Shared() bool {
	return slices.ContainsFunc(t.Phases, func(ph *BenchPhase) bool {
		return slices.ContainsFunc(ph.Points, func(pt BenchPoint) bool { return len(pt.Runs) > 0 && len(pt.Runs[0].Clients) > 1 })
	})
}

// Errors are those of every repetition.
func (t *testPage) Errors() (out []string) {
	for _, ph := range t.Phases {
		for _, pt := range ph.Points {
			for _, run := range pt.Runs {
				out = append(out, run.Errors...)
			}
		}
	}
	return out
}

type layerPage struct {
	Load  string
	SVG   template.HTML
	Grids []gridPage
}

// gridPage is the measurements of a layer for one load: a map of all, and curves over the
// threads if there are enough.
type gridPage struct {
	Title, Source string
	Heat, Lines   template.HTML
}

// Verb is the last word of a phase's title: write, read, create …
func (p *BenchPhase) Verb() string { return p.Title[strings.LastIndex(p.Title, " ")+1:] }

// testTitle is a phase's title without the last word.
func testTitle(title string) string {
	if i := strings.LastIndex(title, ": "); i > 0 {
		return title[:i]
	}
	return title
}

func newBenchPage(r *Run, i int) benchRunPage {
	b := r.Bench
	p := benchRunPage{Run: r, ID: fmt.Sprintf("bench%d", i+1), Title: "Suite " + b.Suite}
	if b.Suite == "profile" {
		p.Title = "Layer by layer"
	}
	p.Tiles, p.Paper = b.PeakList(), papersFiguresOf(b)
	if len(p.Tiles) > 8 {
		p.Tiles = p.Tiles[:8]
	}
	var tests []string
	for k := range b.Phases {
		ph := &b.Phases[k]
		if !slices.Contains(tests, ph.Test) {
			tests = append(tests, ph.Test)
		}
	}
	for _, t := range tests {
		var phases []*BenchPhase
		for k := range b.Phases {
			if b.Phases[k].Test == t {
				phases = append(phases, &b.Phases[k])
			}
		}
		page := newTestPage(phases)
		if p.Paper.draws(t) {
			page.Charts = nil // the paper's figures have these curves
		}
		p.Tests = append(p.Tests, page)
	}
	p.Layers = layerPages(b.Layers)
	return p
}

func newTestPage(phases []*BenchPhase) testPage {
	t := testPage{Title: testTitle(phases[0].Title), Phases: phases}
	metadata := phases[0].RecordBytes == 0
	var curves []chart.Series
	for i, ph := range phases {
		verb := ph.Verb()
		se := seriesOf(ph, verb, i)
		if metadata && len(phases) > 1 {
			// A chart for each phase, as in the papers: stat is ten times as fast
			// as create.
			t.Charts = append(t.Charts, drawing(threadsPlot(ph.Title, verb+", "+ph.Unit, se).Pair()))
		} else {
			curves = append(curves, se)
		}
		for _, pt := range ph.Points {
			t.Counts = addSorted(t.Counts, pt.Threads)
		}
	}
	if len(t.Counts) == 1 {
		// With one thread count there is no curve; the table has the figures.
		t.Charts, curves = nil, nil
	}
	if len(curves) > 0 {
		t.Charts = append(t.Charts, drawing(threadsPlot(t.Title, phases[0].Unit, curves...).Pair()))
	}
	var lat []chart.Series
	for i, ph := range phases {
		verb := ph.Verb()
		lat = append(lat, latencySeries(ph, verb+" p50", 2*i, func(l *Latency) float64 { return l.P50 }),
			latencySeries(ph, verb+" p99", 2*i+1, func(l *Latency) float64 { return l.P99 }))
	}
	lat = slices.DeleteFunc(lat, func(s chart.Series) bool { return len(s.Points) == 0 })
	if len(t.Counts) == 1 {
		lat = nil
	}
	plot := threadsPlot(t.Title+": latency", "latency of an operation (logarithmic)", lat...)
	plot.LogY, plot.Value = true, axisMillis
	t.Latency = drawing(plot.Pair())
	var rows []stripRow
	for _, ph := range phases {
		show := []*BenchPoint{}
		if best := ph.Peak(); best != nil {
			show = append(show, best)
		}
		if n := len(ph.Points); n > 0 && !slices.Contains(show, &ph.Points[n-1]) {
			show = append(show, &ph.Points[n-1])
		}
		for _, pt := range show {
			if m := pt.Median(); m != nil {
				rows = append(rows, stripRow{label: ph.Verb() + ", " + Plural(pt.Threads, "client"), unit: ph.Unit, run: m})
			}
		}
	}
	t.Strips = strips(rows)
	t.IO = slices.ContainsFunc(rows, func(r stripRow) bool { return len(r.run.IO) > 0 })
	return t
}

// layerPages has a figure for each kind of load.
func layerPages(layers []Layer) []layerPage {
	var loads []string
	for _, l := range layers {
		for _, v := range l.Results {
			if !slices.Contains(loads, v.Load) {
				loads = append(loads, v.Load)
			}
		}
	}
	var out []layerPage
	for _, load := range loads {
		p := layerPage{Load: load, SVG: layerBars(layers, load)}
		for _, l := range layers {
			for _, v := range l.Results {
				if v.Load != load || len(v.Grid) == 0 {
					continue
				}
				p.Grids = append(p.Grids, gridOf(l, v))
			}
		}
		out = append(out, p)
	}
	return out
}

// gridOf draws a layer's grid. Of regions and objects it counts all threads, as the surveys of
// the Lustre paper do.
func gridOf(l Layer, v LayerValue) gridPage {
	x, y, all := "threads", "requests at a time", false
	switch l.Name {
	case "disks", "raid", "volume":
		x, y, all = "regions of each device", "threads on each device", true
	case "osts":
		x, y, all = "objects on each OST", "threads on each OST", true
	case "network":
		x, y = "streams from each client", "records at a time"
	case "lnet":
		x, y = "clients", "records at a time from each"
	}
	var xs, ys []int
	cells := map[[2]int]float64{}
	for _, p := range v.Grid {
		n := p.Y
		if all {
			n *= p.X
		}
		xs, ys = addSorted(xs, p.X), addSorted(ys, n)
		cells[[2]int{p.X, n}] = p.Value
	}
	g := gridPage{Title: l.Title + ", " + v.Load, Source: l.Source}
	h := chart.Heat{Title: g.Title, XTitle: y, YTitle: v.Unit + "; upwards: " + x, Value: figure}
	for _, n := range ys {
		h.Xs = append(h.Xs, strconv.Itoa(n))
	}
	lines := threadsPlot(g.Title, v.Unit)
	lines.XTitle, lines.XUnit = y, y
	for i, x := range xs {
		row, se := []float64{}, chart.Series{Name: fmt.Sprintf("%d", x), Style: i}
		for _, n := range ys {
			value, ok := cells[[2]int{x, n}]
			if !ok {
				row = append(row, math.NaN())
				continue
			}
			row = append(row, value)
			se.Points = append(se.Points, chart.Point{X: float64(n), Y: value})
		}
		h.Ys, h.Cells = append(h.Ys, strconv.Itoa(x)), append(h.Cells, row)
		lines.Series = append(lines.Series, se)
	}
	if len(xs) > 0 {
		lines.Series[0].Name = x + ": " + lines.Series[0].Name
	}
	g.Heat = drawing(h.Pair())
	if len(xs) > 1 && len(ys) > 3 {
		g.Lines = drawing(lines.Pair())
	}
	return g
}

type comparisonPage struct {
	Title       string
	C           *BenchComparison
	Others      []string
	Charts      []comparedChart
	Differences []Difference
}

type comparedChart struct {
	Title string
	SVG   template.HTML
}

// runNames returns a short unique name for each run: the last parts of its
// directory, without the end that all runs share (stock/run, tuned/run: stock and
// tuned).
func runNames(c *BenchComparison) []string {
	parts := make([][]string, len(c.Runs))
	for i, r := range c.Runs {
		parts[i] = strings.Split(filepath.ToSlash(filepath.Clean(r.Dir)), "/")
	}
	last := func(p []string) string { return p[len(p)-1] }
	differ := func(p []string) bool { return !slices.Equal(p, parts[0]) }
	for slices.ContainsFunc(parts, differ) && !slices.ContainsFunc(parts, func(p []string) bool { return len(p) < 2 || last(p) != last(parts[0]) }) {
		for i, p := range parts {
			parts[i] = p[:len(p)-1]
		}
	}
	out := make([]string, len(parts))
	for depth := 1; depth <= 16; depth++ {
		seen := map[string]bool{}
		for i, p := range parts {
			out[i] = strings.Join(p[max(0, len(p)-depth):], "/")
			seen[out[i]] = true
		}
		if len(seen) == len(out) {
			break
		}
	}
	return out
}

// benchHTML renders benchmarks, with a comparison before them if there is
// one.
func benchHTML(w io.Writer, runs []*Run, c *BenchComparison) error {
	data := struct {
		Title      string
		CSS        template.CSS
		Runs       []benchRunPage
		Comparison *comparisonPage
		Version    string
	}{CSS: template.CSS(pageCSS + benchCSS), Version: runs[0].Bench.MortarVersion} //nolint:gosec // our own files
	for i, r := range runs {
		data.Runs = append(data.Runs, newBenchPage(r, i))
	}
	data.Title = runs[0].Bench.Brick + ": " + data.Runs[0].Title
	if c != nil {
		cp := &comparisonPage{C: c, Differences: c.Differences}
		var dirs []string
		names := runNames(c)
		for i, r := range c.Runs {
			dirs = append(dirs, names[i])
			if i > 0 {
				cp.Others = append(cp.Others, r.Label+" against A")
			}
		}
		cp.Title = strings.Join(dirs, " and ")
		if len(dirs) > 2 {
			cp.Title = fmt.Sprintf("%d runs", len(dirs))
		}
		for _, row := range c.Rows {
			var curves []chart.Series
			for i, ph := range row.phases {
				if ph != nil {
					se := seriesOf(ph, c.Runs[i].Label+" "+names[i], i)
					for k := range se.Points {
						se.Points[k].Y = ph.At(int(se.Points[k].X)).Value()
					}
					curves = append(curves, se)
				}
			}
			plot := threadsPlot(row.Title, row.Unit, curves...)
			for i, p := range row.Paper {
				if p > 0 && slices.Index(row.Paper, p) == i {
					plot.Levels = append(plot.Levels, chart.Level{Name: "paper’s " + c.Runs[i].Label + " " + paper.Thousands(p), Style: i, Value: p})
				}
			}
			cp.Charts = append(cp.Charts, comparedChart{row.Title, drawing(plot.Pair())})
		}
		data.Title, data.Comparison = "Compared: "+cp.Title, cp
		data.Runs = nil // each has a page of its own
	}
	return benchPage().Execute(w, data)
}

// WriteComparison renders a comparison into one file.
func WriteComparison(path string, runs []*Run, c *BenchComparison) error {
	var b strings.Builder
	if err := benchHTML(&b, runs, c); err != nil {
		return err
	}
	return writeFile(path, []byte(b.String()))
}
