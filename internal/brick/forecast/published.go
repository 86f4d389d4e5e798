package forecast

import (
	"fmt"

	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// patterns are the model's names of the phases that the papers measure.
var patterns = map[string]Pattern{"seq-write": SeqWrite, "seq-read": SeqRead, "rand-write": RandomWrite, "rand-read": RandomRead,
	"md-create": Create, "md-stat": Stat, "md-remove": Remove}

// measuredWith has the facts in which a system was measured otherwise than it was sold, and its
// example is built. Sources: NSS4-HA, 5.1 and table 6 (64 and 48 GB); NSS5.5, introduction (async);
// DFC, 3.1 (streams go through the cache); NSS7.4-HA, table 2 (2 x 8 cores); Lustre brick, 10.2
// (mirroring off).
var measuredWith = map[string][]Assignment{
	"nss3-ha":      {{Name: "hw.memory_gib", Value: "48"}},
	"nss4-ha-288":  {{Name: "hw.memory_gib", Value: "64"}},
	"nss5.5":       {{Name: "hw.async", Value: "true"}},
	"nfs-dfc":      {{Name: "hw.cache_bypass", Value: "false"}},
	"nss7.4-ha":    {{Name: "hw.cores", Value: "16"}},
	"lustre-brick": {{Name: "hw.write_cache_mirroring", Value: "false"}},
	"lustre-rack":  {{Name: "hw.write_cache_mirroring", Value: "false"}},
}

// MeasuredWith lists the facts in which a system was measured otherwise than its example is built.
func MeasuredWith(system string) []Assignment { return measuredWith[system] }

// Published is a published figure beside the forecast, both in the paper's unit.
type Published struct {
	Figure string  `json:"figure"` // of the paper
	Test   string  `json:"test"`   // of suite paper, with its phase
	Paper  float64 `json:"paper"`  // 0: drawn only
	Unit   string  `json:"unit"`
	// AtLeast: the paper says more than Paper.
	AtLeast bool `json:"at_least,omitempty"`
	// Forecast is of the hardware as it is; AsMeasured of that with the facts with which the system was
	// measured. 0: none.
	Forecast   float64 `json:"forecast"`
	AsMeasured float64 `json:"as_measured"`
	// Percent and MeasuredPercent are by how much they differ from the paper's; null without a
	// number of the paper's or a forecast.
	Percent         *float64 `json:"percent"`
	MeasuredPercent *float64 `json:"as_measured_percent"`
	Bottleneck      string   `json:"bottleneck,omitempty"`

	figure paper.Figure
}

// Beside sets the forecast beside each figure that a system was published with.
func (f *Forecast) Beside(y paper.System, c Coefficients) error {
	h := f.Hardware
	h.Assumed = nil
	if err := Apply(measuredWith[y.Name], c, &h); err != nil {
		return err
	}
	measured, err := New(h, c)
	if err != nil {
		return err
	}
	f.System, f.Published = y.Name, nil
	for _, g := range y.Figures {
		p := Published{Figure: g.Where, Test: g.Test + "/" + g.Phase, Paper: g.Peak, Unit: g.Unit, AtLeast: g.AtLeast, figure: g}
		if l, ok := f.Line(patterns[g.Phase]); ok {
			p.Forecast, p.Bottleneck = g.Of(l.Peak), l.Bottleneck
		}
		if l, ok := measured.Line(patterns[g.Phase]); ok {
			p.AsMeasured = g.Of(l.Peak)
		}
		p.Percent, p.MeasuredPercent = paper.Percent(p.Paper, p.Forecast), paper.Percent(p.Paper, p.AsMeasured)
		f.Published = append(f.Published, p)
	}
	return nil
}

// PublishedPeak is the peak that a pattern was published with, in MB/s or 1/s, once Beside has been called; 0:
// none was.
func (f *Forecast) PublishedPeak(of Pattern) float64 {
	for _, p := range f.Published {
		if patterns[p.figure.Phase] == of && p.Paper > 0 {
			return p.figure.Value()
		}
	}
	return 0
}

func (f *Forecast) Title() string { y, _ := paper.Find(f.System); return y.Title }

// MeasuredOtherwise lists the facts in which the system was measured otherwise.
func (f *Forecast) MeasuredOtherwise() []Assignment { return measuredWith[f.System] }

// BesidePaper is a table of the figures of the system beside the forecast.
func (f *Forecast) BesidePaper() [][]string {
	otherwise := len(f.MeasuredOtherwise()) > 0
	head := []string{"", "paper", "forecast", "per cent"}
	if otherwise {
		head = append(head, "as measured", "per cent")
	}
	rows := [][]string{append(head, "unit")}
	for _, p := range f.Published {
		row := []string{fmt.Sprintf("%s, %s", p.Figure, p.Test), p.figure.Bare(), figureOrNone(p.Forecast), paper.PercentText(p.Percent)}
		if otherwise {
			row = append(row, figureOrNone(p.AsMeasured), paper.PercentText(p.MeasuredPercent))
		}
		rows = append(rows, append(row, p.Unit))
	}
	return rows
}

func figureOrNone(v float64) string {
	if v == 0 {
		return "none"
	}
	return number(v)
}

// PatternOf is the pattern that a phase of suite paper measures; "" for none.
func PatternOf(phase string) Pattern { return patterns[phase] }
