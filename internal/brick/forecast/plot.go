package forecast

import (
	"fmt"
	"math"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// verbs are the patterns in words, for the names of curves.
var verbs = map[Pattern]string{SeqWrite: "write", SeqRead: "read", RandomWrite: "write", RandomRead: "read", Create: "create", Stat: "stat", Remove: "remove"}

// SVG draws the curves over the number of clients.
func (f *Forecast) SVG() string {
	var plots []chart.Plot
	for _, k := range []struct {
		title, xTitle string
		patterns      []Pattern
		log           bool
	}{
		{"Sequential, 1 MiB records, MB/s", "clients, one file each", []Pattern{SeqWrite, SeqRead}, false},
		{"Random, 4 KiB, operations per second", "clients, one file each", []Pattern{RandomWrite, RandomRead}, true},
		{"Metadata, operations per second", "threads of all clients", []Pattern{Create, Stat, Remove}, true},
	} {
		p := chart.Plot{Title: k.title, XTitle: k.xTitle, LogY: k.log, Value: number, Ends: true,
			XTicks: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}}
		for style, q := range k.patterns {
			l, ok := f.Line(q)
			if !ok || len(l.Curve) == 0 {
				continue
			}
			s := chart.Series{Name: fmt.Sprintf("%s %s %s", verbs[q], number(l.Peak), l.Unit), Notes: []string{"limited by " + l.Bottleneck}, Style: style}
			peak := 0.0
			for _, at := range l.Curve {
				s.Points = append(s.Points, chart.Point{X: float64(at.Clients), Y: at.Value})
				peak = math.Max(peak, at.Value)
			}
			if v := f.PublishedPeak(q); v > 0 {
				s.Notes = append(s.Notes, fmt.Sprintf("paper (dots) %s: %s", number(v), paper.PercentText(paper.Percent(v, peak))))
				p.Levels = append(p.Levels, chart.Level{Style: style, Value: v})
			}
			p.Series = append(p.Series, s)
		}
		plots = append(plots, p)
	}
	h := &f.Hardware
	return chart.File("Forecast: "+h.Name, fmt.Sprintf("%d RAID groups of %d+%d, disks of %s, %s; %g Gb/s %s", h.Groups*h.Bricks, h.Data, h.Parity, diskSize(h.DiskBytes), h.RAID, h.LinkGbps, h.Fabric), plots)
}

func diskSize(bytes float64) string {
	if bytes < 1e12 {
		return fmt.Sprintf("%g GB", bytes/1e9)
	}
	return fmt.Sprintf("%g TB", bytes/1e12)
}
