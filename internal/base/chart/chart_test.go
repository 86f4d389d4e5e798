package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// wellFormed parses a drawing.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader("<page>" + svg + "</page>"))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
}

func path(p *Path) string { return p.b.String() }

func TestPath(t *testing.T) {
	p := new(Path).To(1, 2).To(3, 4)
	p.Up()
	if got := path(p.To(5, 6.125).Close()); got != "M1 2L3 4M5 6.12Z" {
		t.Error(got)
	}
	if got := path(Area([]float64{1, 2}, 10, func(i int) float64 { return float64(i) })); got != "M0 10L0 9L1 9L1 8L2 8L2 10Z" {
		t.Error(got)
	}
}

func testPlot() Plot {
	return Plot{Title: "a < b", XTitle: "clients", Value: Num, Series: []Series{
		{Name: "write", Notes: []string{"limited by RAID"}, Points: []Point{{X: 1, Y: 10, Dots: []float64{9, 11}}, {X: 64, Y: 100}}},
		{Name: "read & more", Style: 1, Points: []Point{{X: 1, Y: 20}, {X: 64, Y: 100}}},
	}, Levels: []Level{{Name: "paper", Style: 1, Value: 400}}}
}

// A plot has its curves, markers or names, and levels, within its area.
func TestPlot(t *testing.T) {
	p := testPlot()
	page := p.Pair()
	wellFormed(t, page)
	for what, n := range map[string]int{"<svg": 2, `class="curve s0" d="M`: 2, `class="dots s0"`: 4, "paper</text>": 2, "read &amp; more</text>": 2, `aria-label="a &lt; b"`: 2} {
		if got := strings.Count(page, what); got != n {
			t.Errorf("%s is there %d times, want %d:\n%s", what, got, n, page)
		}
	}
	p.Ends = true
	file := File("t", "s", []Plot{p, {Title: "without a point"}})
	wellFormed(t, file)
	for what, n := range map[string]int{"<svg": 1, "limited by RAID": 1, `class="dots`: 0, "without a point": 0, `viewBox="0 0 860 392"`: 1} {
		if got := strings.Count(file, what); got != n {
			t.Errorf("%s is there %d times, want %d:\n%s", what, got, n, file)
		}
	}
	if (Plot{Series: []Series{{Points: []Point{{X: 1}}}}}).Pair() != "" {
		t.Error("a plot of zeros is drawn")
	}
}

// Names of curves that end at one point do not cover each other.
func TestEndsAreApart(t *testing.T) {
	p := testPlot()
	s, _ := p.scales()
	s.left, s.right, s.top, s.bottom = 0, 100, 0, 200
	var c Canvas
	p.ends(&c, &s)
	var y []float64
	d := xml.NewDecoder(strings.NewReader(c.b.String()))
	for {
		tok, err := d.Token()
		if err != nil {
			break
		}
		if e, ok := tok.(xml.StartElement); ok && strings.HasPrefix(e.Attr[0].Value, "name") {
			var v float64
			if err := xml.Unmarshal([]byte("<v>"+e.Attr[2].Value+"</v>"), &v); err != nil {
				t.Fatal(err)
			}
			y = append(y, v)
		}
	}
	if len(y) != 2 || y[1]-y[0] < 34 || y[1] > 200 {
		t.Errorf("%v", y)
	}
}

// A strip's name and figures are beside it, and on a phone above.
func TestRows(t *testing.T) {
	for _, width := range []float64{1040, 360} {
		c := &Canvas{Width: width}
		r := NewRows(c, 190, 92)
		y := r.Next("worker", 30)
		r.Figures(y, "10 MiB/s", "p99 2 ms")
		r.Time(-5, 20, 0, 100, "seconds")
		wellFormed(t, c.b.String())
		if c.Phone() != (y > 0) || strings.Contains(c.b.String(), "top 10 MiB/s, p99 2 ms") != c.Phone() || c.Height != 136 {
			t.Errorf("%g: %g %g %s", width, y, c.Height, c.b.String())
		}
		x := r.Across(-5, 20)
		if x(-9) != r.Left || x(20) != r.Right || x(7.5) != (r.Left+r.Right)/2 {
			t.Errorf("%g: %g %g %g", width, x(-9), x(7.5), x(20))
		}
	}
}

// A heat map has each value as text and in its tooltip, and nothing where there is none.
func TestHeat(t *testing.T) {
	h := Heat{Title: "grid", XTitle: "threads", YTitle: "regions", Xs: []string{"1", "2"}, Ys: []string{"1", "2"}, Cells: [][]float64{{10, 20}, {math.NaN(), 5}}, Value: Num}
	got := h.Pair()
	if n := strings.Count(got, `class="heat"`); n != 6 { // three cells, for two widths
		t.Errorf("%d cells: %s", n, got)
	}
	for _, want := range []string{"<title>1 × 2: 20</title>", "fill-opacity:0.54", ">regions<", ">threads<"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if h.Cells = [][]float64{{0, math.NaN()}}; h.Pair() != "" {
		t.Error("a map without values is drawn")
	}
}
