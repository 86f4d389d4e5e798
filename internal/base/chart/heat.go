package chart

import "math"

// Heat is values over two axes of a few places each: the higher, the darker. Cells[y][x] of
// no value are NaN.
type Heat struct {
	Title, XTitle, YTitle string
	Xs, Ys                []string
	Cells                 [][]float64
	Value                 func(float64) string
}

// Pair draws the map for wide screens and for phones; "" without a value above 0.
func (h Heat) Pair() string {
	top := 0.0
	for _, row := range h.Cells {
		for _, v := range row {
			if v > top { // never NaN
				top = v
			}
		}
	}
	if top <= 0 {
		return ""
	}
	return Pair(func(c *Canvas) string {
		const height, above = 26.0, 22.0
		left := c.pick(74, 40)
		w := math.Min((c.Width-left-8)/float64(len(h.Xs)), 120)
		c.Text("tick", 0, 12, h.YTitle)
		for y, row := range h.Cells {
			// The first row is the lowest, as on the axis of a plot.
			at := above + float64(len(h.Cells)-1-y)*height
			c.Text("tick end", left-8, at+17, h.Ys[y])
			for x, v := range row {
				if math.IsNaN(v) {
					continue
				}
				cell, text := left+float64(x)*w, h.Value(v)
				c.element("rect", "heat", `style="fill-opacity:`+Num(0.04+0.5*v/top)+`" x="`+Num(cell)+`" y="`+Num(at)+`" width="`+Num(w-2)+`" height="`+Num(height-2)+`"`, h.Ys[y]+" × "+h.Xs[x]+": "+text)
				c.Text("rowlabel mid", cell+w/2-1, at+17, text)
			}
		}
		under := above + float64(len(h.Cells))*height
		for x, name := range h.Xs {
			c.Text("tick mid", left+(float64(x)+0.5)*w, under+14, name)
		}
		c.Text("tick mid", left+float64(len(h.Xs))*w/2, under+30, h.XTitle)
		c.Height = under + 38
		return h.Title
	})
}
