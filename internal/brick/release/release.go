// Package release sets two bricks side by side, as the NSS papers set a release beside its predecessor:
// components, layout, capacity, tuning, what is forecast and what was published, with the per cent
// between them. It reads no file and reaches no host.
package release

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Side is one of two bricks.
type Side struct {
	Name   string `json:"name"`             // of the brick or the system
	From   string `json:"from"`             // file of the spec; of a system, its paper
	System string `json:"system,omitempty"` // of a paper, if the brick is one

	design   *design.Design
	forecast *forecast.Forecast
	note     string // why there is no forecast
}

// OfDesign is the side of a spec.
func OfDesign(d *design.Design) (*Side, error) {
	s := &Side{Name: d.Name, From: d.Spec.File, design: d}
	y, ok := paper.Of(d.Spec)
	if ok {
		s.System = y.Name
	}
	return s, s.calculate(y, nil)
}

// OfSystem is the side of a system of a paper, by the name of its example: what the example has of it, what
// is published, and the forecast of the system as it was measured.
func OfSystem(name string) (*Side, error) {
	y, ok := paper.Find(name)
	if !ok {
		names := lists.Map(paper.Systems(), func(y paper.System) string { return y.Name })
		return nil, fmt.Errorf("no published system is called %q; they are: %s", name, strings.Join(names, ", "))
	}
	src, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		return nil, err
	}
	sp, err := spec.Parse(name+".yaml", src)
	if err != nil {
		return nil, err
	}
	d, err := design.Derive(sp)
	if err != nil {
		return nil, err
	}
	s := &Side{Name: y.Title, From: y.Source, System: name, design: d}
	return s, s.calculate(y, forecast.MeasuredWith(name))
}

// calculate makes the forecast of a side. That of an array without coefficients is left out, with a note.
func (s *Side) calculate(y paper.System, with []forecast.Assignment) error {
	h, err := forecast.FromDesign(s.design)
	if err != nil {
		s.note = "no forecast of " + err.Error()
		return nil
	}
	co := forecast.Defaults()
	if err := forecast.Apply(with, co, &h); err != nil {
		return err
	}
	if s.forecast, err = forecast.New(h, co); err != nil {
		s.forecast, s.note = nil, fmt.Sprintf("no forecast of %s: %v", s.Name, err)
		return nil
	}
	return s.forecast.Beside(y, co)
}

// Comparison is brick B beside brick A.
type Comparison struct {
	Kind  string   `json:"kind"` // spec
	A     *Side    `json:"a"`
	B     *Side    `json:"b"`
	Notes []string `json:"notes"`
	Rows  []Row    `json:"rows"`
	Peaks []Peak   `json:"peaks"`
}

// Value is what one side has: Mortar's, and what the paper of its system says; "" for what there is not.
type Value struct {
	Mortar string `json:"mortar"`
	Paper  string `json:"paper,omitempty"`

	bytes, paperBytes spec.Bytes
}

// Row is one aspect of both.
type Row struct {
	Part string `json:"part"`
	What string `json:"what"`
	A    Value  `json:"a"`
	B    Value  `json:"b"`
	Same bool   `json:"same"` // Mortar's values are equal
	// Percent is by how much B is above A, of a capacity; PaperPercent the same as published. null: no
	// numbers.
	Percent      *float64 `json:"percent,omitempty"`
	PaperPercent *float64 `json:"paper_percent,omitempty"`
}

// Peak is one load of both, in MB/s or 1/s. Zero is none.
type Peak struct {
	Load      forecast.Pattern `json:"load"`
	Unit      string           `json:"unit"`
	ForecastA float64          `json:"forecast_a"`
	ForecastB float64          `json:"forecast_b"`
	PaperA    float64          `json:"paper_a"`
	PaperB    float64          `json:"paper_b"`
	// By how much B is above A, in per cent: forecast, forecast on average over 1, 2, 4 … clients (metadata:
	// threads), published. null: one of both is not known.
	Percent        *float64 `json:"percent"`
	AveragePercent *float64 `json:"average_percent"`
	PaperPercent   *float64 `json:"paper_percent"`
	// By how much the forecast of a side is above what is published of the other one.
	ForecastAOverPaperB *float64 `json:"forecast_a_over_paper_b"`
	ForecastBOverPaperA *float64 `json:"forecast_b_over_paper_a"`
	// By how much a forecast is above what is published of the same side.
	ForecastOverPaperA *float64 `json:"forecast_over_paper_a"`
	ForecastOverPaperB *float64 `json:"forecast_over_paper_b"`
	Says               string   `json:"says,omitempty"` // what else the paper of B says of it
}

// Compare sets B beside A.
func Compare(a, b *Side) *Comparison {
	c := &Comparison{Kind: "spec", A: a, B: b, Notes: []string{}, Rows: []Row{}, Peaks: []Peak{}}
	for _, s := range []*Side{a, b} {
		if s.note != "" {
			c.Notes = append(c.Notes, s.note)
		}
		for _, m := range forecast.MeasuredWith(s.System) {
			if s.named() {
				c.Notes = append(c.Notes, fmt.Sprintf("the forecast of %s is of the system as it was measured: %s=%s", s.Name, m.Name, m.Value))
			} else {
				c.Notes = append(c.Notes, fmt.Sprintf("what is published of %s was measured with %s=%s; its forecast is of the spec as it is", s.System, m.Name, m.Value))
			}
		}
	}
	of, beside := Aspects(a.design), Aspects(b.design)
	for _, part := range parts {
		for i := range of {
			if of[i].Part == part {
				c.row(of[i], beside[i])
			}
		}
	}
	c.settings()
	for _, p := range []forecast.Pattern{forecast.SeqWrite, forecast.SeqRead, forecast.RandomWrite, forecast.RandomRead, forecast.Create, forecast.Stat, forecast.Remove} {
		c.peak(p)
	}
	return c
}

// named says whether a side was given as a system of a paper, not as a spec.
func (s *Side) named() bool {
	y, ok := paper.Find(s.System)
	return ok && s.From == y.Source
}

func (s *Side) value(x Aspect) Value {
	y, _ := paper.Find(s.System)
	v := Value{Mortar: x.Value, Paper: y.Says[x.Key].Value}
	switch x.Key {
	case "raw":
		v.bytes, v.paperBytes = s.design.Capacity.Raw, y.Raw
	case "usable":
		v.bytes, v.paperBytes = s.design.Capacity.RAID, y.Usable
	}
	return v
}

// row compares an aspect; what neither side has is left out.
func (c *Comparison) row(a, b Aspect) {
	r := Row{Part: a.Part, What: a.What, A: c.A.value(a), B: c.B.value(b)}
	if r.A.Mortar == "" && r.B.Mortar == "" {
		return
	}
	r.Same = r.A.Mortar == r.B.Mortar
	r.Percent = paper.Percent(float64(r.A.bytes), float64(r.B.bytes))
	r.PaperPercent = paper.Percent(float64(r.A.paperBytes), float64(r.B.paperBytes))
	c.Rows = append(c.Rows, r)
}

// covered are settings that an aspect has, or that only follow the brick's name.
var covered = []string{"mkfs su", "mkfs sw", "mkfs log size", "lvm stripes", "nfsd scope", "nfsd threads", "multipath no_path_retry", "multipath polling_interval"}

// settings adds the tuning values that differ and are no aspect of the papers.
func (c *Comparison) settings() {
	type name struct{ role, kind, name string }
	values := map[name][2]string{}
	var order []name
	for i, s := range []*Side{c.A, c.B} {
		for _, x := range s.design.Settings {
			n := name{x.Role, x.Kind, x.Name}
			v, ok := values[n]
			if !ok {
				order = append(order, n)
			}
			v[i] = x.Value
			values[n] = v
		}
	}
	slices.SortStableFunc(order, func(a, b name) int {
		return strings.Compare(a.role+"\x00"+a.kind, b.role+"\x00"+b.kind)
	})
	for _, n := range order {
		v := values[n]
		if v[0] == v[1] || slices.Contains(covered, n.kind+" "+n.name) || slices.ContainsFunc(c.Rows, func(r Row) bool { return r.Part == tuning && r.A.Mortar == v[0] && r.B.Mortar == v[1] }) {
			continue
		}
		c.Rows = append(c.Rows, Row{Part: tuning, What: fmt.Sprintf("%s: %s %s", n.role, n.kind, n.name), A: Value{Mortar: v[0]}, B: Value{Mortar: v[1]}})
	}
}

func (c *Comparison) peak(of forecast.Pattern) {
	p := Peak{Load: of, Unit: of.Unit()}
	var lines [2]forecast.Line
	for i, s := range []*Side{c.A, c.B} {
		value, published := &p.ForecastA, &p.PaperA
		if i == 1 {
			value, published = &p.ForecastB, &p.PaperB
		}
		if s.forecast == nil {
			continue
		}
		if l, ok := s.forecast.Line(of); ok {
			lines[i], *value = l, l.Peak
		}
		*published = s.forecast.PublishedPeak(of)
	}
	p.Says = c.B.says(of)
	if p.ForecastA+p.ForecastB+p.PaperA+p.PaperB == 0 {
		return
	}
	p.Percent = paper.Percent(p.ForecastA, p.ForecastB)
	p.PaperPercent = paper.Percent(p.PaperA, p.PaperB)
	p.ForecastAOverPaperB, p.ForecastBOverPaperA = paper.Percent(p.PaperB, p.ForecastA), paper.Percent(p.PaperA, p.ForecastB)
	p.ForecastOverPaperA, p.ForecastOverPaperB = paper.Percent(p.PaperA, p.ForecastA), paper.Percent(p.PaperB, p.ForecastB)
	if most := min(len(lines[0].Curve), len(lines[1].Curve)); most > 0 {
		sum, n := 0.0, 0
		for k := 1; k <= most; k *= 2 {
			sum, n = sum+lines[1].At(k)/lines[0].At(k), n+1
		}
		p.AveragePercent = paper.Percent(1, sum/float64(n))
	}
	c.Peaks = append(c.Peaks, p)
}

// says is what the paper of a side says of a load besides its peak.
func (s *Side) says(of forecast.Pattern) string {
	y, _ := paper.Find(s.System)
	for _, f := range y.Figures {
		if forecast.PatternOf(f.Phase) == of && f.Says != "" {
			return f.Says
		}
	}
	return ""
}
