// Package paper has what the source papers publish of the systems that are
// examples: what each of their figures measures, with its peak, and the
// failures they list, each with the drills that stand for it. Facts, and where
// they stand; what Mortar makes of them lives elsewhere.
package paper

import (
	_ "embed"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

type System struct {
	Name   string // of its example
	Title  string // as the paper calls it
	Source string // the document that has the figures
	// RandomFile is what each client has in the random tests; 0: the paper has none.
	RandomFile spec.Bytes `yaml:"random_file"`
	// Total is what all clients together have in the sequential tests; 0: the paper has none.
	Total spec.Bytes `yaml:"sequential_total"`
	// Raw and Usable are what the paper says of the capacity; 0: nothing.
	Raw, Usable spec.Bytes
	// Figures are in the paper's order.
	Figures []Figure
	// Says is what the paper says of the system, by the key of package release's aspects.
	Says map[string]Saying
}

// Saying is what a paper says of an aspect of a system: its layout, its capacity or a setting.
type Saying struct {
	Value, Where string
	Note         string // why a brick of today differs; "": it does not
}

// Failure is a row of a paper's table of failures.
type Failure struct {
	What string // fails
	Must string // what the paper says happens then
	Time string // that it publishes for that; "": none
	// Drills stand for it, by name of drill; any of them does.
	Drills []string
	Here   string // what is otherwise here by design; "": nothing
}

// FailureTable is what a paper says of the failures of its systems.
type FailureTable struct {
	Title, Source string
	Rows          []Failure
}

//go:embed papers.yaml
var papers []byte

// read parses papers.yaml when a paper is first asked for.
var read = sync.OnceValue(func() (all struct {
	Shared   map[string]map[string]Saying
	Systems  []System
	Failures struct{ HA, Lustre FailureTable }
}) {
	size := yaml.CustomUnmarshaler(func(b *spec.Bytes, text []byte) (err error) {
		*b, err = spec.ParseBytes(string(text))
		return err
	})
	if err := yaml.UnmarshalWithOptions(papers, &all, size, yaml.Strict()); err != nil {
		panic("papers.yaml: " + err.Error()) // TestPages reads it
	}
	return all
})

// Systems has every system of the papers that is an example, in order of time.
func Systems() []System { return read().Systems }

// Failures gives the table for bricks of a flavour; one without rows if no
// paper has any.
func Failures(f spec.Flavour) FailureTable {
	switch f {
	case spec.NFSHA, spec.NFSHAXL:
		return read().Failures.HA
	case spec.Lustre:
		return read().Failures.Lustre
	}
	return FailureTable{}
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
	AtLeast bool `yaml:"at_least"`
	// Record is the bytes of one operation of a stream that is counted in operations.
	Record  int
	Clients int    // that reach it; 0: not said
	Says    string // what else the text says of the curve
	// Modes are the peaks of curves with the cache in another mode than the example's: none or
	// write-through.
	Modes map[string]float64
	// Example is why a brick as in the example should deliver something else;
	// "": it should deliver this.
	Example string
}

// In is the figure's curve for a mode of the cache.
func (f Figure) In(mode string) Figure {
	if p, ok := f.Modes[mode]; ok {
		f.Peak, f.Clients, f.Says, f.Example = p, 0, "", ""
	}
	return f
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
	return new(100 * (v/published - 1))
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
	for _, y := range Systems() {
		src, err := fs.ReadFile(examples.FS, y.Name+".yaml")
		if err != nil {
			continue // TestPages finds it
		}
		e, err := spec.Parse(y.Name, src)
		if err == nil && shape(e) == mine {
			return y, true
		}
	}
	return System{}, false
}

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
	return lists.First(Systems(), func(y System) bool { return y.Name == name })
}

// Figure gives the first curve of a phase.
func (y System) Figure(test, phase string) (Figure, bool) {
	return lists.First(y.Figures, func(f Figure) bool { return f.Test == test && f.Phase == phase })
}
