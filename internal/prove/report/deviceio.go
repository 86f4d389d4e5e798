package report

import (
	"math"

	"github.com/mortarhpc/mortar/internal/base/chart"
)

// ioPlot is the height of a band of I/O.
const ioPlot = 44.0

// ioBand draws the I/O of a volume's devices over time: the SSDs of a cache and the
// disks behind them on one scale, dirty data on a scale of its own.
type ioBand struct {
	io    *BenchIO
	start int64 // ns: second 0 of the axis
	end   float64
	rows  *chart.Rows
}

// x is where a sample's time lies.
func (b *ioBand) x(sample int) float64 { return b.rows.Across(0, b.end)(b.at(sample)) }

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

func (b *ioBand) draw() {
	c := b.rows.Canvas
	y := b.rows.Next("devices of "+b.io.Service+" on "+b.io.Server, ioPlot)
	base := y + ioPlot
	b.rows.Y = base
	var words []string
	if dirty := b.drawDirty(base); dirty > 0 {
		words = append(words, "dirty "+Bytes(dirty))
	}
	type curve struct {
		name, class string
		rates       []float64
		top         float64
	}
	var curves []curve
	top := 0.0
	for _, want := range ioCurves {
		for i := range b.io.Devices {
			d := &b.io.Devices[i]
			if d.Name != want.name {
				continue
			}
			k := curve{want.name, want.class, b.rates(d), 0}
			for n, v := range k.rates {
				if b.shown(n) {
					k.top = math.Max(k.top, v)
				}
			}
			curves, top = append(curves, k), math.Max(top, k.top)
		}
	}
	for _, k := range curves {
		words = append(words, k.name+" "+Bytes(int64(k.top))+"/s")
		var d chart.Path
		for i, v := range k.rates {
			if b.shown(i) && top > 0 {
				d.To(b.x(i), base-(ioPlot-4)*v/top).To(b.x(i+1), base-(ioPlot-4)*v/top)
			}
		}
		c.Path("curve "+k.class+" thin", &d, "")
	}
	b.rows.Figures(y, words...)
	c.Line("axis", b.rows.Left, base, b.rows.Right, base)
}

// drawDirty draws the dirty data and returns its maximum.
func (b *ioBand) drawDirty(base float64) int64 {
	most := int64(0)
	for i, n := range b.io.Dirty {
		if at := b.at(i); at >= 0 && at <= b.end {
			most = max(most, n)
		}
	}
	if most == 0 {
		return 0
	}
	d, last := new(chart.Path).To(b.x(0), base), 0
	for i, n := range b.io.Dirty {
		if b.at(i) > b.end {
			break
		}
		last = i
		d.To(b.x(i), base-(ioPlot-4)*math.Min(float64(n)/float64(most), 1))
	}
	b.rows.Canvas.Path("area c-lock", d.To(b.x(last), base).Close(), "")
	return most
}
