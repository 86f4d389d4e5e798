package chart

import "math"

// Rows are strips below each other that share one axis: each has its name at the left and
// its largest figures at the right. On a phone both are above the strip.
type Rows struct {
	Canvas      *Canvas
	Left, Right float64 // x of the plot's edges
	Y           float64 // of the next strip
	label       float64 // height of the line with names, on a phone
}

// NewRows makes room for names and figures of the given widths.
func NewRows(c *Canvas, names, figures float64) *Rows {
	return &Rows{Canvas: c, Left: c.pick(names, 8), Right: c.Width - c.pick(figures, 8), label: c.pick(0, 15)}
}

func (r *Rows) Height(strips int, each float64) float64 { return float64(strips) * (each + r.label) }

// Next begins a strip and returns its upper edge. The name stands beside the middle of
// the first height pixels.
func (r *Rows) Next(name string, height float64) float64 {
	r.Y += r.label
	if r.Canvas.Phone() {
		r.Canvas.Text("rowlabel", r.Left, r.Y-4, name)
	} else {
		r.Canvas.Text("rowlabel end", r.Left-8, r.Y+height/2+4, name)
	}
	return r.Y
}

// Figures writes figures beside the strip that begins at y, lines of 14 pixels; on a phone
// all of them above it.
func (r *Rows) Figures(y float64, figures ...string) {
	if !r.Canvas.Phone() {
		for i, f := range figures {
			r.Canvas.Text("tick", r.Right+6, y+10+14*float64(i), f)
		}
		return
	}
	all := ""
	for i, f := range figures {
		if i > 0 {
			all += ", "
		}
		all += f
	}
	if all != "" {
		r.Canvas.Text("tick end", r.Right, y-4, "top "+all)
	}
}

// Across returns where a value lies that is drawn from the left to the right edge. Values
// beyond from and to are drawn at the edges.
func (r *Rows) Across(from, to float64) func(v float64) float64 {
	return func(v float64) float64 {
		return r.Left + (r.Right-r.Left)*math.Min(math.Max((v-from)/(to-from), 0), 1)
	}
}

// Time draws the grid and the ticks of an axis of seconds below the strips, at y; top is
// the upper edge of the first.
func (r *Rows) Time(from, to, top, y float64, title string) {
	x := r.Across(from, to)
	step := Step(to-from, int(r.Canvas.pick(12, 5)))
	for v := math.Ceil(from/step) * step; v <= to+1e-9; v += step {
		r.Canvas.Line("grid", x(v), top, x(v), y)
		r.Canvas.Text("tick mid", x(v), y+14, Num(math.Round(v*1000)/1000))
	}
	r.Canvas.Text("tick mid", (r.Left+r.Right)/2, y+30, title)
	r.Canvas.Height = y + 36
}
