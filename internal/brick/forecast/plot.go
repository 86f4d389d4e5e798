package forecast

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/axis"
	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// series is one curve of a plot.
type series struct {
	name   string
	note   string // below the name, at the curve's end
	class  string
	points [][2]float64
	paper  float64 // what was published, drawn as a line of dots; 0: nothing
}

// plot is one panel: x logarithmic, y linear from 0 or logarithmic.
type plot struct {
	title, xlabel string
	logY          bool
	xticks        []float64
	series        []series
}

const style = `<style>
text{font:13px system-ui,sans-serif;fill:#222}
.t{font-size:15px;font-weight:600}.s{fill:#5a5f66;font-size:12px}.m{text-anchor:middle}.e{text-anchor:end}
.g{stroke:#dcdfe3;stroke-width:1}.a{stroke:#8a9099;stroke-width:1}
.c{fill:none;stroke-width:2.5;stroke-linejoin:round}
.c0{stroke:#b0480f}.c1{stroke:#1f5fa8}.c2{stroke:#2f7d3b}.c3{stroke:#7a3fa0}.bg{fill:#fff}
.f0{fill:#b0480f}.f1{fill:#1f5fa8}.f2{fill:#2f7d3b}.f3{fill:#7a3fa0}
@media(prefers-color-scheme:dark){text{fill:#e8e6e3}.s{fill:#a8adb4}.g{stroke:#3a3f45}.bg{fill:#16181b}
.c0{stroke:#f0935a}.c1{stroke:#7db3f0}.c2{stroke:#7fce8c}.c3{stroke:#c79be8}
.f0{fill:#f0935a}.f1{fill:#7db3f0}.f2{fill:#7fce8c}.f3{fill:#c79be8}}
</style>`

// figure draws panels below each other into one SVG that stands alone: no
// script, nothing from a network.
func figure(title, subtitle string, plots []plot) string {
	const width, panelH, top, left, right = 860.0, 330.0, 62.0, 78.0, 216.0
	var b strings.Builder
	height := top + panelH*float64(len(plots))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	b.WriteString("\n" + style + "\n")
	fmt.Fprintf(&b, `<rect class="bg" width="%g" height="%g"/>`+"\n", width, height)
	text := func(class string, x, y float64, s string) {
		fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, html.EscapeString(s))
	}
	text("t", 16, 26, title)
	text("s", 16, 46, subtitle)
	for i, p := range plots {
		y0 := top + panelH*float64(i) + 28 // top of the plot area
		y1 := y0 + panelH - 84             // its bottom
		x0, x1 := left, width-right
		lo, hi, max := math.Inf(1), 0.0, 0.0
		minY := math.Inf(1)
		for _, s := range p.series {
			if s.paper > 0 {
				max, minY = math.Max(max, s.paper), math.Min(minY, s.paper)
			}
			for _, q := range s.points {
				lo, hi = math.Min(lo, q[0]), math.Max(hi, q[0])
				max = math.Max(max, q[1])
				if q[1] > 0 {
					minY = math.Min(minY, q[1])
				}
			}
		}
		if hi <= lo {
			hi = lo * 2
		}
		across, up := axis.Log(lo, hi, p.xticks...), axis.Linear(max, 5)
		if p.logY {
			up = axis.Decades(minY, max)
		}
		x := func(v float64) float64 { return x0 + (x1-x0)*across.At(v) }
		y := func(v float64) float64 { return y1 - (y1-y0)*up.At(v) }
		text("t", x0, y0-12, p.title)
		for _, v := range up.Ticks {
			fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", x0, x1, y(v), y(v))
			text("s e", x0-8, y(v)+4, number(v))
		}
		for _, v := range across.Ticks {
			fmt.Fprintf(&b, `<line class="a" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", x(v), x(v), y1, y1+5)
			text("s m", x(v), y1+19, number(v))
		}
		fmt.Fprintf(&b, `<line class="a" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", x0, x1, y1, y1)
		text("s m", (x0+x1)/2, y1+37, p.xlabel)
		// Names at the ends of the curves, pushed apart where they would touch.
		var ends []float64
		var order []int
		for k, s := range p.series {
			var d strings.Builder
			for j, q := range s.points {
				c := 'L'
				if j == 0 {
					c = 'M'
				}
				fmt.Fprintf(&d, "%c%.1f %.1f", c, x(q[0]), y(q[1]))
			}
			dash := ""
			for _, other := range p.series[:k] {
				if hides(s, other, y) {
					dash = ` stroke-dasharray="9 9"`
				}
			}
			fmt.Fprintf(&b, `<path class="c %s" d="%s"%s><title>%s</title></path>`+"\n", "c"+s.class, d.String(), dash, html.EscapeString(s.name+", "+s.note))
			if s.paper > 0 {
				fmt.Fprintf(&b, `<line class="c c%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke-dasharray="2 6"><title>paper: %s</title></line>`+"\n", s.class, x0, x1, y(s.paper), y(s.paper), number(s.paper))
			}
			ends = append(ends, y(s.points[len(s.points)-1][1]))
			at := len(order)
			for at > 0 && ends[order[at-1]] > ends[k] {
				at--
			}
			order = append(order[:at], append([]int{k}, order[at:]...)...)
		}
		apart := 34.0
		for _, s := range p.series {
			if s.paper > 0 {
				apart = 49
			}
		}
		last := y0 - apart
		at := make([]float64, len(ends))
		for n, k := range order {
			at[k] = math.Max(ends[k], last+apart)
			// Leave room for those below.
			at[k] = math.Min(at[k], y1-apart*float64(len(order)-1-n)-12)
			last = at[k]
		}
		for k, s := range p.series {
			text("f"+s.class, x1+10, at[k]+4, s.name)
			text("s", x1+10, at[k]+19, s.note)
			if s.paper > 0 {
				peak := 0.0
				for _, q := range s.points {
					peak = math.Max(peak, q[1])
				}
				text("s", x1+10, at[k]+34, fmt.Sprintf("paper (dots) %s: %s", number(s.paper), paper.PercentText(paper.Percent(s.paper, peak))))
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// hides says whether one curve lies over another for most of its way: it is
// drawn with gaps then, so that both are seen.
func hides(s, other series, y func(float64) float64) bool {
	near := 0
	for i := range min(len(s.points), len(other.points)) {
		if math.Abs(y(s.points[i][1])-y(other.points[i][1])) < 2.5 {
			near++
		}
	}
	return 2*near > len(s.points)
}

// SVG draws the curves over the number of clients.
func (f *Forecast) SVG() string {
	curve := func(p Pattern, class string) (series, bool) {
		l, ok := f.Line(p)
		if !ok || len(l.Curve) == 0 {
			return series{}, false
		}
		s := series{name: fmt.Sprintf("%s %s %s", map[Pattern]string{SeqWrite: "write", SeqRead: "read", RandomWrite: "write", RandomRead: "read", Create: "create", Stat: "stat", Remove: "remove"}[p], number(l.Peak), l.Unit), note: "limited by " + l.Bottleneck, class: class, paper: f.PublishedPeak(p)}
		for _, q := range l.Curve {
			s.points = append(s.points, [2]float64{float64(q.Clients), q.Value})
		}
		return s, true
	}
	ticks := []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
	var plots []plot
	for _, k := range []struct {
		title, xlabel string
		patterns      []Pattern
		log           bool
	}{
		{"Sequential, 1 MiB records, MB/s", "clients, one file each", []Pattern{SeqWrite, SeqRead}, false},
		{"Random, 4 KiB, operations per second", "clients, one file each", []Pattern{RandomWrite, RandomRead}, true},
		{"Metadata, operations per second", "threads of all clients", []Pattern{Create, Stat, Remove}, true},
	} {
		p := plot{title: k.title, xlabel: k.xlabel, xticks: ticks, logY: k.log}
		for i, q := range k.patterns {
			if s, ok := curve(q, fmt.Sprint(i)); ok {
				p.series = append(p.series, s)
			}
		}
		if len(p.series) > 0 {
			plots = append(plots, p)
		}
	}
	h := &f.Hardware
	return figure("Forecast: "+h.Name, fmt.Sprintf("%d RAID groups of %d+%d, disks of %s, %s; %g Gb/s %s", h.Groups*h.Bricks, h.Data, h.Parity, diskSize(h.DiskBytes), h.RAID, h.LinkGbps, h.Fabric), plots)
}

// diskSize is a size as disks are sold.
func diskSize(bytes float64) string {
	if bytes < 1e12 {
		return fmt.Sprintf("%g GB", bytes/1e9)
	}
	return fmt.Sprintf("%g TB", bytes/1e12)
}
