package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/chart"
)

// threadsPlot is figures against the number of threads.
func threadsPlot(title, yTitle string, series ...chart.Series) chart.Plot {
	return chart.Plot{Title: title, XTitle: "clients (threads, over all client hosts)", XUnit: "threads", YTitle: yTitle, Value: axisValue, Series: series}
}

// axisValue formats a figure on an axis: short, without its unit.
func axisValue(v float64) string {
	if v >= 10000 {
		return chart.Num(round(v/1000, 3)) + "k"
	}
	return chart.Num(round(v, 3))
}

func axisMillis(ms float64) string { return tickMillis(round(ms, 6)) }

// seriesOf is a phase's curve of medians, with every repetition as a dot.
func seriesOf(ph *BenchPhase, name string, style int) chart.Series {
	se := chart.Series{Name: name, Style: style}
	for i := range ph.Points {
		p := &ph.Points[i]
		m := p.Median()
		if m == nil {
			continue
		}
		cp := chart.Point{X: float64(p.Threads), Y: m.Value}
		if len(p.Runs) > 1 {
			cp.Dots = p.Values()
		}
		se.Points = append(se.Points, cp)
	}
	sortPoints(se.Points)
	return se
}

func sortPoints(ps []chart.Point) {
	slices.SortFunc(ps, func(a, b chart.Point) int { return int(a.X - b.X) })
}

// latencySeries is a percentile of a phase's operations.
func latencySeries(ph *BenchPhase, name string, style int, pick func(*Latency) float64) chart.Series {
	se := chart.Series{Name: name, Style: style}
	for i := range ph.Points {
		if m := ph.Points[i].Median(); m != nil && m.Latency != nil && pick(m.Latency) > 0 {
			se.Points = append(se.Points, chart.Point{X: float64(ph.Points[i].Threads), Y: pick(m.Latency)})
		}
	}
	sortPoints(se.Points)
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
	return drawing(chart.Pair(func(c *chart.Canvas) string {
		const gap = 12.0
		all := chart.NewRows(c, 250, 110)
		all.Y = 6
		bands := 0
		for _, r := range rows {
			bands += len(r.run.IO)
		}
		all.Time(0, end, 4, all.Y+all.Height(len(rows), rateHeight+latencyHeight+gap)+all.Height(bands, ioPlot+gap), "seconds after the start")
		for _, r := range rows {
			r.draw(all, end)
			all.Y += gap
			for i := range r.run.IO {
				b := ioBand{io: &r.run.IO[i], start: r.run.Timeline.StartNS, end: end, rows: all}
				b.draw()
				all.Y += gap
			}
		}
		return "Throughput and latency over time"
	}))
}

// Heights of a strip's throughput and of the latency below it.
const (
	rateHeight    = 34.0
	latencyHeight = 18.0
)

// draw draws the timeline of one repetition.
func (r *stripRow) draw(rows *chart.Rows, end float64) {
	t, c, x := &r.run.Timeline, rows.Canvas, rows.Across(0, end)
	y := rows.Next(r.label, rateHeight)
	base := y + rateHeight
	rows.Y = base + latencyHeight
	// The window relative to the timeline's origin; the run may start later.
	shift := float64(r.run.StartNS-t.StartNS) / 1e9
	from := shift + r.run.StonewallSeconds - r.run.WindowSeconds
	c.Rect("window", x(from), y, x(from+r.run.WindowSeconds)-x(from), rateHeight+latencyHeight, "common window")
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
	figures := []string{Rate(peak, r.unit)}
	if peak > 0 {
		c.Path("area c-v4", chart.Area(scaled(vals, rateHeight/peak), base, func(i int) float64 { return x(float64(i) * t.BucketSeconds) }), "")
	}
	if worst > 0 {
		var d chart.Path
		for i, v := range t.P99[:min(len(t.P99), len(t.Ops))] {
			if v <= 0 {
				d.Up()
				continue
			}
			d.To(x((float64(i)+0.5)*t.BucketSeconds), base+latencyHeight-(latencyHeight-3)*v/worst)
		}
		c.Path("curve s1 thin", &d, "")
		figures = append(figures, "p99 "+millis(worst))
	}
	if wall := shift + r.run.StonewallSeconds; r.run.StonewallSeconds > 0 {
		c.Line("mark m-cluster", x(wall), y, x(wall), base+latencyHeight)
	}
	rows.Figures(y, figures...)
	c.Line("axis", rows.Left, base, rows.Right, base)
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
	return drawing(chart.Pair(func(c *chart.Canvas) string {
		rows := chart.NewRows(c, 250, 190)
		rows.Y = 4
		for _, b := range bars {
			text := Rate(b.v.Best, b.v.Unit)
			if b.v.Share != nil {
				text += ", " + percent(*b.v.Share) + " of below"
			}
			y := rows.Next(b.label, 22)
			w := (rows.Right - rows.Left) * b.v.Best / top
			c.Rect("bar", rows.Left, y, w, 20, fmt.Sprintf("%s: %s at %s", b.label, Rate(b.v.Best, b.v.Unit), b.v.At))
			if c.Phone() {
				c.Text("tick end", rows.Right, y-4, text)
			} else {
				c.Text("tick", rows.Left+w+8, y+15, text)
			}
			rows.Y += 30
		}
		c.Height = rows.Y
		return "What each layer did: " + load
	}))
}
