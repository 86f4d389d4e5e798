// Package chart draws as SVG: shapes and texts on a canvas, and plots of them with axes, legends,
// curves and areas. A caller says what is to be drawn. Looks are classes of CSS, which a page
// defines once, and a file that stands alone has with it.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

type Canvas struct {
	Width, Height float64
	b             strings.Builder
}

// Phone reports whether the drawing is for a narrow screen.
func (c *Canvas) Phone() bool { return c.Width < 600 }

// pick is a measure for a wide screen, or that for a phone.
func (c *Canvas) pick(wide, phone float64) float64 {
	if c.Phone() {
		return phone
	}
	return wide
}

func (c *Canvas) Add(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

// element adds an element with a tooltip, if the title is not empty.
func (c *Canvas) element(name, class, attributes, title string) {
	c.Add(`<%s class="%s" %s`, name, class, attributes)
	if title == "" {
		c.Add(`/>`)
		return
	}
	c.Add(`><title>%s</title></%s>`, html.EscapeString(title), name)
}

func (c *Canvas) Line(class string, x1, y1, x2, y2 float64) {
	c.element("line", class, fmt.Sprintf(`x1="%s" y1="%s" x2="%s" y2="%s"`, Num(x1), Num(y1), Num(x2), Num(y2)), "")
}

// Rect adds a rectangle with a tooltip.
func (c *Canvas) Rect(class string, x, y, w, h float64, title string) {
	c.element("rect", class, fmt.Sprintf(`x="%s" y="%s" width="%s" height="%s"`, Num(x), Num(y), Num(math.Max(w, 0)), Num(h)), title)
}

// Circle adds a circle with a tooltip.
func (c *Canvas) Circle(class string, x, y, r float64, title string) {
	c.element("circle", class, fmt.Sprintf(`cx="%s" cy="%s" r="%s"`, Num(x), Num(y), Num(r)), title)
}

func (c *Canvas) Text(class string, x, y float64, text string) {
	c.Add(`<text class="%s" x="%s" y="%s">%s</text>`, class, Num(x), Num(y), html.EscapeString(text))
}

// Tick adds the text of a tick, in the middle of x where the drawing has room for it.
func (c *Canvas) Tick(x, y float64, text string) {
	switch half := 3.4 * float64(len([]rune(text))); {
	case x < half:
		c.Text("tick", x, y, text)
	case x > c.Width-half:
		c.Text("tick end", x, y, text)
	default:
		c.Text("tick mid", x, y, text)
	}
}

// Path adds a path with a tooltip. An empty path adds nothing.
func (c *Canvas) Path(class string, p *Path, title string) {
	if p.b.Len() > 0 {
		c.element("path", class, `d="`+p.b.String()+`"`, title)
	}
}

// Marker adds the point of a curve: a circle, square, triangle or diamond.
func (c *Canvas) Marker(style int, x, y, r float64, title string) {
	class := fmt.Sprintf("pt s%d", style%styles)
	switch style % 4 {
	case 0:
		c.Circle(class, x, y, r, title)
	case 1:
		c.Rect(class, x-r, y-r, 2*r, 2*r, title)
	case 2:
		c.Path(class, new(Path).To(x, y-r*1.25).To(x+r*1.15, y+r*0.85).To(x-r*1.15, y+r*0.85).Close(), title)
	default:
		c.Path(class, new(Path).To(x, y-r*1.35).To(x+r*1.35, y).To(x, y+r*1.35).To(x-r*1.35, y).Close(), title)
	}
}

// Path is the way of a pen.
type Path struct {
	b    strings.Builder
	down bool
}

// To draws a line to a point; the pen is set down at the first one, and at the first after
// Up.
func (p *Path) To(x, y float64) *Path {
	if p.down {
		p.b.WriteByte('L')
	} else {
		p.b.WriteByte('M')
	}
	p.down = true
	p.b.WriteString(Num(x) + " " + Num(y))
	return p
}

// Up lifts the pen.
func (p *Path) Up() { p.down = false }

// Close draws a line to the beginning.
func (p *Path) Close() *Path {
	p.b.WriteByte('Z')
	return p
}

// Area is the outline of steps over a base line: heights[i] is that of the step from x(i)
// to x(i+1).
func Area(heights []float64, base float64, x func(i int) float64) *Path {
	p := new(Path).To(x(0), base)
	for i, h := range heights {
		p.To(x(i), base-h).To(x(i+1), base-h)
	}
	return p.To(x(len(heights)), base).Close()
}

// svg returns the element of a page or of a file; under is below the drawing.
func (c *Canvas) svg(attributes, label, under string) string {
	return fmt.Sprintf(`<svg %s viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">%s%s</svg>`,
		attributes, Num(c.Width), Num(c.Height), html.EscapeString(label), under, c.b.String())
}

// File returns the drawing as a file that stands alone: no script, nothing from a network.
// style has the looks of its classes, and of bg, the background.
func (c *Canvas) File(style, label string) string {
	size := fmt.Sprintf(`width="%s" height="%s"`, Num(c.Width), Num(c.Height))
	return c.svg(size, label, "\n<style>\n"+style+"</style>\n<rect class=\"bg\" "+size+"/>\n") + "\n"
}

// Pair returns a drawing twice: for wide screens and paper, and for phones. CSS shows one
// of them. draw sets the height and returns the drawing's label.
func Pair(draw func(c *Canvas) string) string {
	wide, narrow := &Canvas{Width: 1040}, &Canvas{Width: 360}
	label := draw(wide)
	draw(narrow)
	return wide.svg(`class="wide"`, label, "") + narrow.svg(`class="narrow"`, label, "")
}

// Num formats a coordinate: at most two decimals, no trailing zeros.
func Num(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" || s == "" {
		return "0"
	}
	return s
}
