// Package paper has what the source papers publish of the systems that are
// examples: what each of their figures measures, with its peak, and the
// failures they list, each with the drills that stand for it. Facts, and where
// they stand; what Mortar makes of them lives elsewhere.
package paper

import (
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// System is one system of a paper.
type System struct {
	Name   string // of its example
	Title  string // as the paper calls it
	Source string // the document that has the figures
	// RandomFile is what each client has in the random tests; 0: the paper has none.
	RandomFile spec.Bytes
	// Figures are in the paper's order.
	Figures []Figure
}

// Figure is one curve of a figure of the paper, and the phase of Mortar's
// suite paper that measures the same.
type Figure struct {
	Where string // "Figure 5", "Table 2"
	Test  string // of suite paper
	Phase string // of that test
	// Peak is in Unit, MB/s, MiB/s or 1/s; 0: drawn only, no number is given.
	Peak float64
	Unit string
	// AtLeast: the text says more than Peak.
	AtLeast bool
	// Record is the bytes of one operation of a stream that is counted in operations.
	Record  int
	Clients int    // that reach it; 0: not said
	Says    string // what else the text says of the curve
	// Example is why a brick as in the example should deliver something else;
	// "": it should deliver this.
	Example string
}

// Number is the figure's value as its paper prints it.
func (f Figure) Number() string {
	if f.Peak == 0 {
		return f.Bare()
	}
	s := f.Bare() + " " + f.Unit
	if f.Clients > 0 {
		s += fmt.Sprintf(" at %d clients", f.Clients)
	}
	return s
}

// Bare is the value without its unit.
func (f Figure) Bare() string {
	if f.Peak == 0 {
		return "no number"
	}
	s := Thousands(f.Peak)
	if f.AtLeast {
		s = "more than " + s
	}
	return s
}

// Thousands writes a number without decimals, its thousands apart.
func Thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// stream says whether a figure is of a stream.
func (f Figure) stream() bool { return strings.HasPrefix(f.Phase, "seq-") }

// unit is what one of the figure's unit is in MB/s or 1/s.
func (f Figure) unit() float64 {
	switch {
	case f.Unit == "MiB/s":
		return 1.048576
	case f.stream() && f.Unit == "1/s":
		return float64(f.Record) / 1e6
	}
	return 1
}

// Value is the peak in MB/s for a stream, else in 1/s.
func (f Figure) Value() float64 { return f.Peak * f.unit() }

// Of is a value in MB/s, or in 1/s, in the unit of the figure: what stands beside a paper's number has
// the paper's unit.
func (f Figure) Of(v float64) float64 { return v / f.unit() }

// Percent is by how much a value is above one of a paper; nil if one of them is missing.
func Percent(published, v float64) *float64 {
	if published <= 0 || v <= 0 {
		return nil
	}
	p := 100 * (v/published - 1)
	return &p
}

// PercentText writes a difference in per cent, with a decimal below 100.
func PercentText(p *float64) string {
	switch {
	case p == nil:
		return "–"
	case math.Abs(*p) < 0.05:
		return "0 %"
	case math.Abs(*p) < 99.95:
		return fmt.Sprintf("%+.1f %%", *p)
	}
	return fmt.Sprintf("%+.0f %%", *p)
}

// Of finds the system that a spec describes: the one whose example has the same
// servers and enclosures. Sizes do not matter, so a scaled brick is found, too.
func Of(s *spec.Spec) (System, bool) {
	mine := shape(s)
	for _, y := range Systems {
		src, err := fs.ReadFile(examples.FS, y.Name+".yaml")
		if err != nil {
			continue // TestSystems finds it
		}
		e, err := spec.Parse(y.Name, src)
		if err == nil && shape(e) == mine {
			return y, true
		}
	}
	return System{}, false
}

// shape is what makes a system this one.
func shape(s *spec.Spec) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Flavour)
	for _, x := range s.Servers {
		fmt.Fprint(&b, x.Model)
		if x.CPU != nil {
			fmt.Fprint(&b, *x.CPU)
		}
		fmt.Fprintln(&b)
	}
	for _, e := range s.Enclosures {
		fmt.Fprintln(&b, e.Model, e.Bays)
	}
	return b.String()
}

// Find gives a system by the name of its example.
func Find(name string) (System, bool) {
	for _, y := range Systems {
		if y.Name == name {
			return y, true
		}
	}
	return System{}, false
}

// Figure gives the first curve of a phase.
func (y System) Figure(test, phase string) (Figure, bool) {
	for _, f := range y.Figures {
		if f.Test == test && f.Phase == phase {
			return f, true
		}
	}
	return Figure{}, false
}
