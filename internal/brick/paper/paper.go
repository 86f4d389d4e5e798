// Package paper has what the source papers publish of the systems that are
// examples: what each of their figures measures, with its peak, and the
// failures they list, each with the drills that stand for it. Facts, and where
// they stand; what Mortar makes of them lives elsewhere.
package paper

import (
	"fmt"
	"io/fs"
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
	Peak    float64
	Unit    string
	Clients int    // that reach it; 0: not said
	Says    string // what else the text says of the curve
	// Example is why a brick as in the example should deliver something else;
	// "": it should deliver this.
	Example string
}

// Number is the figure's value as its paper prints it.
func (f Figure) Number() string {
	if f.Peak == 0 {
		return "no number"
	}
	s := fmt.Sprintf("%.0f", f.Peak)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	s += " " + f.Unit
	if f.Clients > 0 {
		s += fmt.Sprintf(" at %d clients", f.Clients)
	}
	return s
}

// Value is the peak in MB/s or 1/s.
func (f Figure) Value() float64 {
	if f.Unit == "MiB/s" {
		return f.Peak * 1.048576
	}
	return f.Peak
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
