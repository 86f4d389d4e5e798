package report

import (
	"html/template"
	"slices"
	"strings"

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

// papersCurve is one curve of a figure; Here is nil if the run has no such curve.
type papersCurve struct {
	paper.Figure
	Here *Peak
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
		for i+n < len(y.Figures) && y.Figures[i+n].Where == y.Figures[i].Where && y.Figures[i+n].Test == y.Figures[i].Test {
			n++
		}
		p.Drawn = append(p.Drawn, b.papersFigure(y.Figures[i:i+n]))
		i += n
	}
	return p
}

// papersFigure draws the measured curves of one figure.
func (b *Bench) papersFigure(curves []paper.Figure) papersFigure {
	f := papersFigure{Where: curves[0].Where, Title: "not measured"}
	var series []chartSeries
	unit := ""
	for i, c := range curves {
		row := papersCurve{Figure: c}
		if ph := b.phase(c.Test, c.Phase); ph != nil {
			series, unit = append(series, seriesOf(ph, verbOf(ph.Title), i)), ph.Unit
			f.Title = testTitle(ph.Title)
			if len(curves) == 1 {
				f.Title = ph.Title
			}
			if best := ph.Peak(); best != nil {
				row.Here = &Peak{Title: ph.Title, Unit: ph.Unit, Threads: best.Threads, Value: best.Value()}
			}
		}
		f.Curves = append(f.Curves, row)
	}
	f.SVG = chart{title: f.Where + ": " + f.Title, yTitle: unit, value: axisValue, series: series}.svgOf()
	return f
}

// phase finds the phase of a test; nil if there is none.
func (b *Bench) phase(test, op string) *BenchPhase {
	i := slices.IndexFunc(b.Phases, func(p BenchPhase) bool { return p.Test == test && p.Op == op })
	if i < 0 {
		return nil
	}
	return &b.Phases[i]
}

// Verb is the text of a curve's phase.
func (c papersCurve) Verb() string {
	return strings.NewReplacer("seq-", "sequential ", "rand-", "random ", "md-", "file ").Replace(c.Phase)
}

// draws reports whether a test's curves are among the figures.
func (p *papersFigures) draws(test string) bool {
	return p != nil && slices.ContainsFunc(p.Figures, func(f paper.Figure) bool { return f.Test == test })
}
