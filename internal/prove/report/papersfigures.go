package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// papersFigures are the curves of a run in the order of the paper's figures, with
// the paper's peaks.
type papersFigures struct {
	paper.System
	Drawn []papersFigure
}

// papersFigure is one figure of the paper.
type papersFigure struct {
	Where, Title string
	SVG          template.HTML
	Curves       []papersCurve
}

// papersCurve is one curve of a figure. Here is the measured peak in the paper's unit, nil if the run has no
// such curve.
type papersCurve struct {
	paper.Figure
	Here *Peak
}

// PercentText is by how much the measured peak is above the paper's.
func (c papersCurve) PercentText() string {
	if c.Here == nil {
		return paper.PercentText(nil)
	}
	return paper.PercentText(paper.Percent(c.Peak, c.Here.Value))
}

// Decimal is a rate of the phase in MB/s if it is a stream, else in operations a second.
func (p *BenchPhase) Decimal(v float64) float64 {
	switch {
	case p.Unit == "MiB/s":
		return v * (1 << 20) / 1e6
	case strings.HasPrefix(p.Op, "seq-"):
		return v * float64(p.RecordBytes) / 1e6
	}
	return v
}

// papersFiguresOf returns the figures of the papers' system that a run's brick is;
// nil if the brick is no such system, or if the suite is not paper.
func papersFiguresOf(b *Bench) *papersFigures {
	y, ok := paper.Find(b.System)
	if !ok || len(y.Figures) == 0 {
		return nil
	}
	p := &papersFigures{System: y}
	for i := 0; i < len(y.Figures); {
		n := 1
		for i+n < len(y.Figures) && oneFigure(y.Figures[i], y.Figures[i+n]) {
			n++
		}
		p.Drawn = append(p.Drawn, b.papersFigure(y.Figures[i:i+n]))
		i += n
	}
	return p
}

// oneFigure reports whether two curves are in one figure: the phases of a test, or a phase with blocks of
// several sizes.
func oneFigure(a, b paper.Figure) bool {
	if a.Record > 0 {
		return a.Where == b.Where && a.Phase == b.Phase
	}
	return a.Where == b.Where && a.Test == b.Test
}

// papersFigure draws the measured curves of one figure, in the paper's unit, with the paper's peaks.
func (b *Bench) papersFigure(curves []paper.Figure) papersFigure {
	f := papersFigure{Where: curves[0].Where, Title: "not measured"}
	c := threadsPlot("", curves[0].Unit)
	for i, g := range curves {
		g = g.In(b.Cache)
		row := papersCurve{Figure: g}
		if ph := b.phase(g.Test, g.Phase); ph != nil {
			name := ph.Verb()
			se := seriesOf(ph, name, i)
			if g.Record > 0 {
				se.Name = Bytes(int64(g.Record))
			}
			for k := range se.Points {
				p := &se.Points[k]
				p.Y = g.Of(ph.Decimal(p.Y))
				for d := range p.Dots {
					p.Dots[d] = g.Of(ph.Decimal(p.Dots[d]))
				}
			}
			c.Series = append(c.Series, se)
			if g.Peak > 0 {
				c.Levels = append(c.Levels, chart.Level{Name: "paper’s " + ph.Verb() + " " + paper.Thousands(g.Peak), Style: i, Value: g.Peak})
			}
			f.Title = testTitle(ph.Title)
			switch {
			case g.Record > 0:
				f.Title = "blocks of several sizes, " + name
			case len(curves) == 1:
				f.Title = ph.Title
			}
			if best := ph.best(); best != nil {
				row.Here = &Peak{Title: ph.Title, Unit: g.Unit, Threads: best.Threads, Value: g.Of(ph.Decimal(best.Value))}
			}
		}
		f.Curves = append(f.Curves, row)
	}
	c.Title = f.Where + ": " + f.Title
	f.SVG = drawing(c.Pair())
	return f
}

// phase finds the phase of a test; nil if there is none.
func (b *Bench) phase(test, op string) *BenchPhase {
	return lists.Find(b.Phases, func(p *BenchPhase) bool { return p.Test == test && p.Op == op })
}

// named finds a phase by its name.
func (b *Bench) named(name string) *BenchPhase {
	return lists.Find(b.Phases, func(p *BenchPhase) bool { return p.Name == name })
}

// Verb is the text of a curve's phase.
func (c papersCurve) Verb() string {
	verb := strings.NewReplacer("seq-", "sequential ", "rand-", "random ", "md-", "file ").Replace(c.Phase)
	if c.Record > 0 {
		verb += ", " + Bytes(int64(c.Record))
	}
	return verb
}

// draws reports whether a test's curves are among the figures.
func (p *papersFigures) draws(test string) bool {
	return p != nil && slices.ContainsFunc(p.Figures, func(f paper.Figure) bool { return f.Test == test })
}

// patternOf is the pattern that a phase of a benchmark measures; "" if the forecast has
// none for it.
func patternOf(p *BenchPhase) forecast.Pattern {
	stream, small := p.RecordBytes >= 1<<20, p.RecordBytes == 4<<10
	switch op := p.Op; {
	case op == "seq-write" && stream:
		return forecast.SeqWrite
	case op == "seq-read" && stream:
		return forecast.SeqRead
	case op == "rand-write" && small:
		return forecast.RandomWrite
	case op == "rand-read" && small:
		return forecast.RandomRead
	}
	return map[string]forecast.Pattern{"md-create": forecast.Create, "md-stat": forecast.Stat, "md-remove": forecast.Remove}[p.Op]
}

// Measured lists the peaks of a run of mortar bench, in the units of the forecast.
func Measured(dir string) ([]forecast.Measured, error) {
	r, err := Load(dir)
	if err != nil {
		return nil, err
	}
	if r.Bench == nil {
		return nil, fmt.Errorf("%s is the run of a drill; give one of mortar bench", dir)
	}
	var out []forecast.Measured
	for i := range r.Bench.Phases {
		p := &r.Bench.Phases[i]
		pattern, best := patternOf(p), p.Peak()
		if pattern == "" || best == nil {
			continue
		}
		out = append(out, forecast.Measured{Pattern: pattern, Test: p.Test, Threads: best.Threads, Value: p.Decimal(best.Value())})
	}
	return out, nil
}
