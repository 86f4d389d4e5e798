package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/axis"
)

// chartPoint is one point of a curve; dots are the single repetitions.
type chartPoint struct {
	x, y float64
	dots []float64
}

// chartSeries is a curve. style selects colour, marker and dashes together, so
// that curves differ without colour too.
type chartSeries struct {
	name   string
	style  int
	points []chartPoint
}

// chartLevel is a value without a number of threads: a paper's peak.
type chartLevel struct {
	name  string
	style int
	value float64
}

// chart is figures against the number of threads.
type chart struct {
	title  string
	yTitle string
	logY   bool
	value  func(float64) string // of a tick and of a point's tooltip
	series []chartSeries
	levels []chartLevel // drawn as lines of dots
}

// marker draws a point: circle, square, triangle or diamond.
func (s *svg) marker(style int, x, y, r float64, title string) {
	class := fmt.Sprintf("pt s%d", style%6)
	t := ""
	if title != "" {
		t = "<title>" + html.EscapeString(title) + "</title>"
	}
	switch style % 4 {
	case 0:
		s.add(`<circle class="%s" cx="%s" cy="%s" r="%s">%s</circle>`, class, num(x), num(y), num(r), t)
	case 1:
		s.add(`<rect class="%s" x="%s" y="%s" width="%s" height="%s">%s</rect>`, class, num(x-r), num(y-r), num(2*r), num(2*r), t)
	case 2:
		s.add(`<path class="%s" d="M%s %sL%s %sL%s %sZ">%s</path>`, class, num(x), num(y-r*1.25), num(x+r*1.15), num(y+r*0.85), num(x-r*1.15), num(y+r*0.85), t)
	default:
		s.add(`<path class="%s" d="M%s %sL%s %sL%s %sL%s %sZ">%s</path>`, class, num(x), num(y-r*1.35), num(x+r*1.35), num(y), num(x), num(y+r*1.35), num(x-r*1.35), num(y), t)
	}
}

// svgOf draws a chart: threads on a logarithmic axis, a legend with the
// curves' markers above.
func (c chart) svgOf() template.HTML {
	var xs []int
	top, low := 0.0, math.Inf(1)
	for _, s := range c.series {
		for _, p := range s.points {
			xs = addSorted(xs, int(p.x))
			for _, v := range append([]float64{p.y}, p.dots...) {
				top = math.Max(top, v)
				if v > 0 {
					low = math.Min(low, v)
				}
			}
		}
	}
	if len(xs) == 0 || top <= 0 {
		return ""
	}
	for _, l := range c.levels {
		top, low = math.Max(top, l.value), math.Min(low, l.value)
	}
	return drawings(func(width float64) (*svg, string) {
		phone := width < 600
		s := &svg{w: width}
		left, right := 74.0, 24.0
		if phone {
			left, right = 52, 12
		}
		// Legend, in as many lines as it takes.
		lx, ly := left, 16.0
		entry := func(name string, style int, class string) {
			w := 30 + 6.6*float64(len([]rune(name)))
			if lx > left && lx+w > width-right {
				lx, ly = left, ly+20
			}
			s.line(fmt.Sprintf("%s s%d", class, style%6), lx, ly-4, lx+18, ly-4)
			if class == "curve" {
				s.marker(style, lx+9, ly-4, 4, "")
			}
			s.text("", lx+24, ly, name)
			lx += w + 10
		}
		for _, se := range c.series {
			entry(se.name, se.style, "curve")
		}
		for _, l := range c.levels {
			entry(l.name, l.style, "level")
		}
		y0 := ly + 30
		plotH := 250.0
		if phone {
			plotH = 210
		}
		below := "clients (threads, over all client hosts; logarithmic)"
		if len(xs) == 1 { // no curve
			plotH, below = 140, "clients (threads, over all client hosts)"
		}
		y1 := y0 + plotH
		s.h = y1 + 42
		across := axis.Log(float64(xs[0]), float64(xs[len(xs)-1]))
		x := func(v float64) float64 { return left + 14 + (width-right-left-28)*across.At(v) }
		up := axis.Linear(top, 5)
		if c.logY {
			up = axis.Decades(low, top)
		}
		y := func(v float64) float64 { return y1 - plotH*up.At(v) }
		s.text("tick", left, y0-10, c.yTitle)
		for _, v := range up.Ticks {
			s.line("grid", left, y(v), width-right, y(v))
			s.text("tick end", left-7, y(v)+4, c.value(v))
		}
		s.line("axis", left, y1, width-right, y1)
		last := math.Inf(-1)
		for _, n := range xs {
			s.line("axis", x(float64(n)), y1, x(float64(n)), y1+4)
			if x(float64(n))-last > 24 {
				s.text("tick mid", x(float64(n)), y1+17, fmt.Sprint(n))
				last = x(float64(n))
			}
		}
		s.text("tick mid", (left+width-right)/2, y1+34, below)
		for _, l := range c.levels {
			s.line(fmt.Sprintf("level s%d", l.style%6), left, y(l.value), width-right, y(l.value))
		}
		for _, se := range c.series {
			var d strings.Builder
			for i, p := range se.points {
				fmt.Fprintf(&d, "%s%s %s", map[bool]string{true: "M", false: "L"}[i == 0], num(x(p.x)), num(y(p.y)))
			}
			s.add(`<path class="curve s%d" d="%s"/>`, se.style%6, d.String())
		}
		for i, se := range c.series {
			// Shift the repetitions of each curve sideways, so that they do not
			// cover others; with one thread count shift the medians too.
			beside := (float64(i) - float64(len(c.series)-1)/2) * 10
			apart := 0.0
			if len(xs) == 1 {
				apart = beside * 4
			}
			for _, p := range se.points {
				at := x(p.x) + apart
				for _, v := range p.dots {
					s.add(`<circle class="dots s%d" cx="%s" cy="%s" r="2.4"/>`, se.style%6, num(at+beside), num(y(v)))
				}
				s.marker(se.style, at, y(p.y), 5, fmt.Sprintf("%s, %s threads: %s", se.name, num(p.x), c.value(p.y)))
			}
		}
		return s, c.title
	})
}

// axisValue formats a figure on an axis: short, without its unit.
func axisValue(v float64) string {
	if v >= 10000 {
		return num(round(v/1000, 3)) + "k"
	}
	return num(round(v, 3))
}

func axisMillis(ms float64) string { return tickMillis(round(ms, 6)) }

// seriesOf is a phase's curve of medians, with every repetition as a dot.
func seriesOf(ph *BenchPhase, name string, style int) chartSeries {
	se := chartSeries{name: name, style: style}
	for i := range ph.Points {
		p := &ph.Points[i]
		m := p.Median()
		if m == nil {
			continue
		}
		cp := chartPoint{x: float64(p.Threads), y: m.Value}
		if len(p.Runs) > 1 {
			cp.dots = p.Values()
		}
		se.points = append(se.points, cp)
	}
	sortPoints(se.points)
	return se
}

func sortPoints(ps []chartPoint) {
	slices.SortFunc(ps, func(a, b chartPoint) int { return int(a.x - b.x) })
}

// latencySeries is a percentile of a phase's operations.
func latencySeries(ph *BenchPhase, name string, style int, pick func(*Latency) float64) chartSeries {
	se := chartSeries{name: name, style: style}
	for i := range ph.Points {
		if m := ph.Points[i].Median(); m != nil && m.Latency != nil && pick(m.Latency) > 0 {
			se.points = append(se.points, chartPoint{x: float64(ph.Points[i].Threads), y: pick(m.Latency)})
		}
	}
	sortPoints(se.points)
	return se
}

// stripRow is one repetition in the figure of timelines.
type stripRow struct {
	label string
	unit  string
	run   *BenchRun
}

// strips draws the timelines of repetitions: throughput as an area, the 99th
// percentile of latency as a line below, the common window shaded, and the I/O of
// the volumes' devices.
func strips(rows []stripRow) template.HTML {
	end := 0.0
	for _, r := range rows {
		t := &r.run.Timeline
		end = math.Max(end, float64(len(t.Ops))*t.BucketSeconds)
	}
	if end <= 0 {
		return ""
	}
	return drawings(func(width float64) (*svg, string) {
		phone := width < 600
		left, right, labelH := 250.0, 110.0, 0.0
		if phone {
			left, right, labelH = 8, 8, 15
		}
		rowH, latH, gap := 34.0, 18.0, 12.0
		s := &svg{w: width}
		plotW := width - left - right
		x := func(sec float64) float64 { return left + plotW*math.Min(math.Max(sec/end, 0), 1) }
		axisY := 6 + float64(len(rows))*(labelH+rowH+latH+gap)
		for _, r := range rows {
			axisY += float64(len(r.run.IO)) * ioHeight(phone)
		}
		s.h = axisY + 36
		step := axis.Step(end, map[bool]int{true: 5, false: 10}[phone])
		for v := 0.0; v <= end+1e-9; v += step {
			s.line("grid", x(v), 4, x(v), axisY)
			anchor := "mid"
			if phone && v == 0 {
				anchor = ""
			}
			s.text("tick "+anchor, x(v), axisY+14, num(round(v, 3)))
		}
		s.text("tick mid", left+plotW/2, axisY+30, "seconds after the start")
		y := 6.0
		for _, r := range rows {
			t := &r.run.Timeline
			y += labelH
			base := y + rowH
			if phone {
				s.text("rowlabel", left, y-4, r.label)
			} else {
				s.text("rowlabel end", left-8, y+rowH/2+4, r.label)
			}
			// The window relative to the timeline's origin; the run may start later.
			shift := float64(r.run.StartNS-t.StartNS) / 1e9
			from := shift + r.run.StonewallSeconds - r.run.WindowSeconds
			s.rect("window", x(from), y, x(from+r.run.WindowSeconds)-x(from), rowH+latH, "common window")
			vals := make([]float64, len(t.Ops))
			peak, worst := 0.0, 0.0
			for i := range t.Ops {
				vals[i] = float64(t.Ops[i])
				if r.unit == "MiB/s" {
					vals[i] = float64(t.Bytes[i]) / (1 << 20)
				}
				vals[i] /= t.BucketSeconds
				peak = math.Max(peak, vals[i])
				if i < len(t.P99) {
					worst = math.Max(worst, t.P99[i])
				}
			}
			if peak > 0 {
				var d strings.Builder
				fmt.Fprintf(&d, "M%s %s", num(x(0)), num(base))
				for i, v := range vals {
					yy := num(base - rowH*v/peak)
					fmt.Fprintf(&d, "L%s %sL%s %s", num(x(float64(i)*t.BucketSeconds)), yy, num(x(float64(i+1)*t.BucketSeconds)), yy)
				}
				fmt.Fprintf(&d, "L%s %sZ", num(x(float64(len(vals))*t.BucketSeconds)), num(base))
				s.add(`<path class="area c-v4" d="%s"/>`, d.String())
			}
			if worst > 0 {
				var d strings.Builder
				pen := "M"
				for i := range t.Ops {
					if i >= len(t.P99) || t.P99[i] <= 0 {
						pen = "M"
						continue
					}
					fmt.Fprintf(&d, "%s%s %s", pen, num(x((float64(i)+0.5)*t.BucketSeconds)), num(base+latH-(latH-3)*t.P99[i]/worst))
					pen = "L"
				}
				s.add(`<path class="curve s1 thin" d="%s"/>`, d.String())
			}
			if wall := shift + r.run.StonewallSeconds; r.run.StonewallSeconds > 0 {
				s.line("mark m-cluster", x(wall), y, x(wall), base+latH)
			}
			if phone {
				s.text("tick end", width-right, y-4, "top "+Rate(peak, r.unit))
			} else {
				s.text("tick", left+plotW+6, y+10, Rate(peak, r.unit))
				if worst > 0 {
					s.text("tick", left+plotW+6, base+latH-4, "p99 "+millis(worst))
				}
			}
			s.line("axis", left, base, left+plotW, base)
			y = base + latH + gap
			for i := range r.run.IO {
				b := ioBand{io: &r.run.IO[i], start: t.StartNS, end: end, x: x, left: left, right: left + plotW, phone: phone}
				b.draw(s, y)
				y += ioHeight(phone)
			}
		}
		return s, "Throughput and latency over time"
	})
}

// layerBars draws each layer's figure for one kind of load.
func layerBars(layers []Layer, load string) template.HTML {
	type bar struct {
		label string
		v     LayerValue
	}
	var bars []bar
	top := 0.0
	for _, l := range layers {
		for _, v := range l.Results {
			if v.Load == load {
				bars = append(bars, bar{l.Title, v})
				top = math.Max(top, v.Best)
			}
		}
	}
	if len(bars) == 0 || top <= 0 {
		return ""
	}
	return drawings(func(width float64) (*svg, string) {
		phone := width < 600
		left, right, labelH := 250.0, 190.0, 0.0
		if phone {
			left, right, labelH = 8, 8, 16
		}
		s := &svg{w: width}
		y := 4.0
		for _, b := range bars {
			y += labelH
			text := Rate(b.v.Best, b.v.Unit)
			if b.v.Share != nil {
				text += fmt.Sprintf(", %.0f %% of below", 100**b.v.Share)
			}
			if phone {
				s.text("rowlabel", left, y-4, b.label)
				s.text("tick end", width-right, y-4, text)
			} else {
				s.text("rowlabel end", left-8, y+15, b.label)
			}
			w := (width - left - right) * b.v.Best / top
			s.rect("bar", left, y, w, 20, fmt.Sprintf("%s: %s at %s", b.label, Rate(b.v.Best, b.v.Unit), b.v.At))
			if !phone {
				s.text("tick", left+w+8, y+15, text)
			}
			y += 30
		}
		s.h = y
		return s, "What each layer did: " + load
	})
}
