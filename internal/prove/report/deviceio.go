package report

import (
	"fmt"
	"math"
	"strings"
)

// ioHeight is the height of a band of I/O with its label and the gap below it.
func ioHeight(phone bool) float64 {
	if phone {
		return ioPlot + 15 + 12
	}
	return ioPlot + 12
}

const ioPlot = 44.0

// ioBand draws the I/O of a volume's devices over time: the SSDs of a cache and the
// disks behind them on one scale, dirty data on a scale of its own.
type ioBand struct {
	io          *BenchIO
	start       int64 // ns: second 0 of the axis
	end         float64
	x           func(seconds float64) float64
	left, right float64
	phone       bool
}

// rates returns the bytes per second of a group, reads and writes together,
// between successive samples. Operations would mislead: the kernel counts an empty
// flush as a write.
func (b *ioBand) rates(d *BenchDevice) []float64 {
	out := make([]float64, len(d.Reads))
	for i := range out {
		if sec := b.at(i+1) - b.at(i); sec > 0 {
			out[i] = float64(d.ReadBytes[i]+d.WriteBytes[i]) / sec
		}
	}
	return out
}

func (b *ioBand) at(sample int) float64 { return float64(b.io.Times[sample]-b.start) / 1e9 }

// shown reports whether part of an interval is on the axis.
func (b *ioBand) shown(i int) bool { return b.at(i+1) > 0 && b.at(i) < b.end }

// ioCurves are the groups to draw, with their CSS class. The volume's own I/O is
// not among them: it is the throughput.
var ioCurves = []struct{ name, class string }{{IOSSDs, "s2"}, {IODisks, "s5"}}

func (b *ioBand) draw(s *svg, y float64) {
	if b.phone {
		y += 15
	}
	base := y + ioPlot
	var words []string
	if dirty := b.drawDirty(s, base); dirty > 0 {
		words = append(words, "dirty "+Bytes(dirty))
	}
	type curve struct {
		name, class string
		rates       []float64
		top         float64
	}
	var curves []curve
	top := 0.0
	for _, c := range ioCurves {
		for i := range b.io.Devices {
			d := &b.io.Devices[i]
			if d.Name != c.name {
				continue
			}
			k := curve{c.name, c.class, b.rates(d), 0}
			for n, v := range k.rates {
				if b.shown(n) {
					k.top = math.Max(k.top, v)
				}
			}
			curves, top = append(curves, k), math.Max(top, k.top)
		}
	}
	for _, c := range curves {
		words = append(words, c.name+" "+Bytes(int64(c.top))+"/s")
		var d strings.Builder
		pen := "M"
		for i, v := range c.rates {
			if b.shown(i) && top > 0 {
				yy := num(base - (ioPlot-4)*v/top)
				fmt.Fprintf(&d, "%s%s %sL%s %s", pen, num(b.x(b.at(i))), yy, num(b.x(b.at(i+1))), yy)
				pen = "L"
			}
		}
		if d.Len() > 0 {
			s.add(`<path class="curve %s thin" d="%s"/>`, c.class, d.String())
		}
	}
	b.label(s, y, words)
	s.line("axis", b.left, base, b.right, base)
}

// drawDirty draws the dirty data and returns its maximum.
func (b *ioBand) drawDirty(s *svg, base float64) int64 {
	most := int64(0)
	for i, n := range b.io.Dirty {
		if at := b.at(i); at >= 0 && at <= b.end {
			most = max(most, n)
		}
	}
	if most == 0 {
		return 0
	}
	var d strings.Builder
	pen, last := "M", 0.0
	for i, n := range b.io.Dirty {
		if b.at(i) > b.end {
			break
		}
		last = b.x(b.at(i))
		if pen == "M" {
			fmt.Fprintf(&d, "M%s %s", num(last), num(base))
			pen = "L"
		}
		fmt.Fprintf(&d, "L%s %s", num(last), num(base-(ioPlot-4)*math.Min(float64(n)/float64(most), 1)))
	}
	fmt.Fprintf(&d, "L%s %sZ", num(last), num(base))
	s.add(`<path class="area c-lock" d="%s"/>`, d.String())
	return most
}

// label writes the largest figures beside the band, or above it on a phone.
func (b *ioBand) label(s *svg, y float64, words []string) {
	name := "devices of " + b.io.Service + " on " + b.io.Server
	if b.phone {
		s.text("rowlabel", b.left, y-4, name)
		s.text("tick end", b.right, y-4, "top "+strings.Join(words, ", "))
		return
	}
	s.text("rowlabel end", b.left-8, y+ioPlot/2+4, name)
	for i, w := range words {
		s.text("tick", b.right+6, y+10+14*float64(i), w)
	}
}
