package forecast

import (
	"fmt"
	"io"

	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// Measured is what a benchmark measured of a pattern.
type Measured struct {
	Pattern Pattern `json:"pattern"`
	Test    string  `json:"test"`    // the benchmark's test
	Threads int     `json:"threads"` // of all clients together
	Value   float64 `json:"value"`   // in the pattern's unit
}

// Compared is a measurement beside the forecast for as many clients as it had threads.
type Compared struct {
	Measured
	Unit     string  `json:"unit"`
	Forecast float64 `json:"forecast"`
	Ratio    float64 `json:"ratio"` // measured / forecast
	// Paper is the peak that the paper of the brick's system has of this test, 0: none; PaperPercent is by
	// how much the measurement is above it, null without one.
	Paper        float64  `json:"paper,omitempty"`
	PaperPercent *float64 `json:"paper_percent"`
	// Bottleneck is what the forecast says limits the pattern.
	Bottleneck string `json:"bottleneck"`
}

// Against compares measurements with the forecast, in the order of its patterns.
// Measurements of patterns that have no forecast are left out.
func (f *Forecast) Against(all []Measured) []Compared {
	out := []Compared{}
	for _, l := range f.Lines {
		for _, m := range all {
			if m.Pattern != l.Pattern {
				continue
			}
			c := Compared{Measured: m, Unit: l.Unit, Forecast: l.At(m.Threads), Bottleneck: l.Bottleneck}
			if c.Forecast > 0 {
				c.Ratio = m.Value / c.Forecast
			}
			for _, p := range f.Published {
				if patterns[p.figure.Phase] == l.Pattern && p.figure.Test == m.Test {
					c.Paper = p.figure.Value()
					c.PaperPercent = paper.Percent(c.Paper, m.Value)
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// At is the forecast for so many clients; the peak where there is no curve, and above
// its end.
func (l *Line) At(clients int) float64 {
	for _, p := range l.Curve {
		if p.Clients == clients {
			return p.Value
		}
	}
	return l.Peak
}

// ComparedText writes measurements beside the forecast.
func ComparedText(w io.Writer, all []Compared) error {
	rows := [][]string{{"", "threads", "measured", "forecast", "per cent", "paper's peak", "per cent", "unit", "limited by"}}
	for _, c := range all {
		rows = append(rows, []string{
			fmt.Sprintf("%s (%s)", c.Pattern, c.Test), fmt.Sprint(c.Threads), number(c.Value),
			number(c.Forecast), paper.PercentText(paper.Percent(c.Forecast, c.Value)),
			figureOrNone(c.Paper), paper.PercentText(c.PaperPercent), c.Unit, c.Bottleneck,
		})
	}
	_, err := fmt.Fprintf(w, "\nMeasured and forecast\n\n%s", table(rows))
	return err
}
