package chart

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
)

// Point is a point of a curve; Dots are the single repetitions.
type Point struct {
	X, Y float64
	Dots []float64
}

// Series is a curve. Style selects colour, marker and dashes together, so that curves
// differ without colour too.
type Series struct {
	Name   string
	Notes  []string // below the name, in a plot with Ends
	Style  int
	Points []Point
}

// Level is a value for any x, which is drawn as a line of dots.
type Level struct {
	Name  string
	Style int
	Value float64
}

// Plot is curves over a logarithmic axis.
type Plot struct {
	Title, XTitle, YTitle string
	LogY                  bool
	XUnit                 string               // what x counts, for tooltips
	XTicks                []float64            // none: each x of a point
	Value                 func(float64) string // of a tick and of a point's tooltip
	Series                []Series
	Levels                []Level
	// Ends has the names of curves at their ends, and no markers; else there are markers,
	// and a legend above.
	Ends bool
}

// styles is the number of colours and dashes.
const styles = 6

// inset keeps the first and the last point away from the edges.
const inset = 14

// scales are the axes of a plot between the edges of its area.
type scales struct {
	left, right, top, bottom float64
	across, up               Axis
	xs                       []float64 // of points, rising
}

func (s *scales) x(v float64) float64 {
	return s.left + inset + (s.right-s.left-2*inset)*s.across.At(v)
}
func (s *scales) y(v float64) float64 { return s.bottom - (s.bottom-s.top)*s.up.At(v) }

// scales returns the axes; ok is false without a point above 0.
func (p *Plot) scales() (s scales, ok bool) {
	top, low := 0.0, math.Inf(1)
	see := func(v float64) {
		top = math.Max(top, v)
		if v > 0 {
			low = math.Min(low, v)
		}
	}
	for _, se := range p.Series {
		for _, q := range se.Points {
			s.xs = append(s.xs, q.X)
			see(q.Y)
			for _, v := range q.Dots {
				see(v)
			}
		}
	}
	if len(s.xs) == 0 || top <= 0 {
		return s, false
	}
	for _, l := range p.Levels {
		see(l.Value)
	}
	slices.Sort(s.xs)
	s.xs = slices.Compact(s.xs)
	ticks := p.XTicks
	if ticks == nil {
		ticks = s.xs
	}
	s.across, s.up = Log(s.xs[0], s.xs[len(s.xs)-1], ticks...), Linear(top, 5)
	if p.LogY {
		s.up = Decades(low, top)
	}
	return s, true
}

// Pair draws the plot for wide screens and for phones; "" without a point above 0.
func (p Plot) Pair() string {
	s, ok := p.scales()
	if !ok {
		return ""
	}
	return Pair(func(c *Canvas) string {
		s.left, s.right = c.pick(74, 52), c.Width-c.pick(24, 12)
		s.top = p.legend(c, s.left, s.right) + 30
		s.bottom = s.top + c.pick(250, 210)
		if len(s.xs) == 1 { // no curve
			s.bottom = s.top + 140
		}
		c.Text("tick", s.left, s.top-10, p.YTitle)
		p.draw(c, &s)
		c.Height = s.bottom + 42
		return p.Title
	})
}

// legend writes the names of curves and levels, in as many lines as it takes, and returns
// the last line's y.
func (p *Plot) legend(c *Canvas, left, right float64) float64 {
	x, y := left, 16.0
	entry := func(name string, style int, class string) {
		w := 30 + 6.6*float64(len([]rune(name)))
		if x > left && x+w > right {
			x, y = left, y+20
		}
		c.Line(fmt.Sprintf("%s s%d", class, style%styles), x, y-4, x+18, y-4)
		if class == "curve" {
			c.Marker(style, x+9, y-4, 4, "")
		}
		c.Text("", x+24, y, name)
		x += w + 10
	}
	for _, se := range p.Series {
		entry(se.Name, se.Style, "curve")
	}
	for _, l := range p.Levels {
		entry(l.Name, l.Style, "level")
	}
	return y
}

// draw draws axes, levels and curves.
func (p *Plot) draw(c *Canvas, s *scales) {
	for _, v := range s.up.Ticks {
		c.Line("grid", s.left, s.y(v), s.right, s.y(v))
		c.Text("tick end", s.left-7, s.y(v)+4, p.Value(v))
	}
	c.Line("axis", s.left, s.bottom, s.right, s.bottom)
	last := math.Inf(-1)
	for _, v := range s.across.Ticks {
		c.Line("axis", s.x(v), s.bottom, s.x(v), s.bottom+4)
		if s.x(v)-last > 24 {
			c.Text("tick mid", s.x(v), s.bottom+17, Num(v))
			last = s.x(v)
		}
	}
	title := p.XTitle
	if len(s.xs) > 1 {
		title += "; logarithmic"
	}
	c.Text("tick mid", (s.left+s.right)/2, s.bottom+34, title)
	for _, l := range p.Levels {
		c.Line(fmt.Sprintf("level s%d", l.Style%styles), s.left, s.y(l.Value), s.right, s.y(l.Value))
	}
	for _, se := range p.Series {
		var d Path
		for _, q := range se.Points {
			d.To(s.x(q.X), s.y(q.Y))
		}
		c.Path(fmt.Sprintf("curve s%d", se.Style%styles), &d, "")
	}
	if p.Ends {
		p.ends(c, s)
		return
	}
	for i, se := range p.Series {
		// Shift the repetitions of each curve sideways, so that they do not cover
		// others; with one x shift the medians too.
		beside := (float64(i) - float64(len(p.Series)-1)/2) * 10
		apart := 0.0
		if len(s.xs) == 1 {
			apart = beside * 4
		}
		for _, q := range se.Points {
			at := s.x(q.X) + apart
			for _, v := range q.Dots {
				c.Circle(fmt.Sprintf("dots s%d", se.Style%styles), at+beside, s.y(v), 2.4, "")
			}
			c.Marker(se.Style, at, s.y(q.Y), 5, fmt.Sprintf("%s, %s %s: %s", se.Name, Num(q.X), p.XUnit, p.Value(q.Y)))
		}
	}
}

// ends writes the names of curves at their ends, pushed apart where they would touch.
func (p *Plot) ends(c *Canvas, s *scales) {
	type end struct {
		se *Series
		y  float64
	}
	var all []end
	apart := 0.0
	for i := range p.Series {
		se := &p.Series[i]
		all = append(all, end{se, s.y(se.Points[len(se.Points)-1].Y)})
		apart = math.Max(apart, 19+15*float64(len(se.Notes)))
	}
	slices.SortStableFunc(all, func(a, b end) int { return int(math.Copysign(1, a.y-b.y)) })
	last := s.top - apart
	for i, e := range all {
		// Leave room for those below.
		last = math.Min(math.Max(e.y, last+apart), s.bottom-apart*float64(len(all)-1-i)-12)
		c.Text(fmt.Sprintf("name s%d", e.se.Style%styles), s.right+10, last+4, e.se.Name)
		for k, note := range e.se.Notes {
			c.Text("tick", s.right+10, last+19+15*float64(k), note)
		}
	}
}

// alone is the look of a file that stands alone: the classes and colours of the report's
// pages (internal/prove/report, bench.css) without variables, which few viewers know.
//
//go:embed alone.css
var alone string

// File draws plots below each other into one SVG that stands alone. Plots without a point
// above 0 are left out.
func File(title, subtitle string, plots []Plot) string {
	const panel = 330.0
	c := &Canvas{Width: 860, Height: 62}
	c.Text("title", 16, 26, title)
	c.Text("tick", 16, 46, subtitle)
	for _, p := range plots {
		s, ok := p.scales()
		if !ok {
			continue
		}
		s.left, s.right, s.top = 78, c.Width-216, c.Height+28
		s.bottom = s.top + panel - 84
		c.Add("\n")
		c.Text("title", s.left, s.top-12, p.Title)
		p.draw(c, &s)
		c.Height += panel
	}
	return c.File(alone, title)
}
