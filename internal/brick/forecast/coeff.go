package forecast

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Coefficient is one number the model multiplies hardware with. All are in
// one table, so that all can be listed, doubted and changed.
type Coefficient struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Source says where the number is from: a document's section, a data
	// sheet, arithmetic, "calibrated on …", or "assumed: …" where nothing
	// better is known.
	Source string `json:"source"`
	// Changed is set if it is not the built-in value.
	Changed bool `json:"changed,omitempty"`
}

// Coefficients is the table of all coefficients by name. The zero value is
// not usable: start from Defaults.
type Coefficients struct {
	byName map[string]*Coefficient
}

//go:embed coefficients.txt
var builtin string

// defaults reads the built-in table, in its order.
func defaults() []Coefficient {
	var out []Coefficient
	for line := range strings.Lines(builtin) {
		f := strings.SplitN(strings.TrimSpace(line), " | ", 4)
		if len(f) < 4 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			panic("coefficients.txt: " + err.Error())
		}
		out = append(out, Coefficient{Name: f[0], Value: v, Unit: f[2], Source: f[3]})
	}
	return out
}

// Defaults is the built-in table.
func Defaults() Coefficients {
	c := Coefficients{byName: map[string]*Coefficient{}}
	for _, d := range defaults() {
		c.byName[d.Name] = &d
	}
	return c
}

// Get gives a value; an unknown name is a defect of the caller.
func (c Coefficients) Get(name string) float64 {
	k, ok := c.byName[name]
	if !ok {
		panic("forecast: no coefficient " + name)
	}
	return k.Value
}

func (c Coefficients) Find(name string) (Coefficient, bool) {
	k, ok := c.byName[name]
	if !ok {
		return Coefficient{}, false
	}
	return *k, true
}

// All lists every coefficient, in the table's order.
func (c Coefficients) All() []Coefficient {
	return lists.Map(defaults(), func(d Coefficient) Coefficient { return *c.byName[d.Name] })
}

// Set changes one coefficient. Negative and absurd values are refused, and an
// unknown name with the names that are like it.
func (c Coefficients) Set(name string, v float64, source string) error {
	k, ok := c.byName[name]
	if !ok {
		return unknown("coefficient", name, c.names())
	}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%s: %g is no number to calculate with", name, v)
	case v < 0:
		return fmt.Errorf("%s: %g is negative", name, v)
	case v == 0 && (!strings.HasPrefix(name, "sim.") || strings.HasPrefix(name, "sim.rebuild_")):
		return fmt.Errorf("%s: 0 would stop everything; give a value above 0", name)
	case v > 1 && isShare(k.Unit):
		return fmt.Errorf("%s: %g: a %s is at most 1", name, v, k.Unit)
	case v > 0 && v < lowest(name):
		return fmt.Errorf("%s: %g %s is absurd; give at least %g", name, v, k.Unit, lowest(name))
	case v > largestOf(k.Unit):
		return fmt.Errorf("%s: %g %s is absurd; give at most %g", name, v, k.Unit, largestOf(k.Unit))
	}
	k.Value, k.Source, k.Changed = v, source, true
	return nil
}

// largestOf is the largest value of a unit that anybody can mean. Rates have theirs
// because a simulated brick takes as long as it has events.
func largestOf(unit string) float64 {
	switch {
	case strings.HasPrefix(unit, "failures per server"):
		return 1000 // a server that crashes every day is bad, not impossible
	case strings.HasPrefix(unit, "failures per"):
		return 10
	case strings.HasSuffix(unit, "year"):
		return 1000
	case unit == "times":
		return 1000
	case unit == "h":
		return 1e6
	}
	return 1e9
}

// lowest is the smallest value above 0 that a person can mean: a divisor
// must not make the result overflow. Failures and repairs may be as rare
// and as short as one likes.
func lowest(name string) float64 {
	switch {
	case strings.HasPrefix(name, "sim.rebuild_"):
		return 0.1 // years for a disk
	case strings.HasPrefix(name, "sim."):
		return 0
	}
	return 1e-6
}

func isShare(unit string) bool { return unit == "share" || strings.HasPrefix(unit, "share of") }

func (c Coefficients) names() []string {
	var out []string
	for n := range c.byName {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// unknown is the error for a name that is none, with what may have been meant.
func unknown(what, name string, names []string) error {
	var like []string
	for _, n := range names {
		if n[strings.LastIndexByte(n, '.')+1:] == name[strings.LastIndexByte(name, '.')+1:] || strings.Contains(n, name) {
			like = append(like, n)
		}
	}
	if len(like) == 0 {
		prefix, _, _ := strings.Cut(name, ".")
		for _, n := range names {
			if strings.HasPrefix(n, prefix+".") {
				like = append(like, n)
			}
		}
	}
	hint := "--explain lists them all"
	if len(like) > 0 && len(like) <= 12 {
		hint = "did you mean " + strings.Join(like, ", ") + "?"
	}
	return fmt.Errorf("no %s is named %q; %s", what, name, hint)
}

// Assignment is one "name=value" of the user: a coefficient, or a fact of the
// hardware (hw.…).
type Assignment struct {
	Name, Value string
	From        string // where it was given: "--set", or file:line
}

// Changed returns the hardware of a design and the built-in coefficients, with the changes of a
// file's text and of the arguments of --set, which win.
func Changed(d *design.Design, file string, text []byte, set []string) (h Hardware, co Coefficients, err error) {
	list, err := parseFile(file, text)
	if err != nil {
		return h, co, err
	}
	for _, s := range set {
		a, err := parseAssignment(s)
		if err != nil {
			return h, co, err
		}
		list = append(list, a)
	}
	if h, err = FromDesign(d); err == nil {
		co = Defaults()
		err = Apply(list, co, &h)
	}
	return h, co, err
}

// parseAssignment splits the argument of --set.
func parseAssignment(s string) (Assignment, error) {
	name, value, ok := strings.Cut(s, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" || value == "" {
		return Assignment{}, fmt.Errorf("--set %q: write name=value, e.g. --set nfs.client_mbps=1200", s)
	}
	return Assignment{name, value, "--set"}, nil
}

// parseFile reads a file of assignments: YAML, one `name: value` a line.
func parseFile(file string, src []byte) ([]Assignment, error) {
	var m yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(src, &m, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("%s: %s; write one `name: value` a line", file, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	var out []Assignment
	for _, item := range m {
		name := fmt.Sprint(item.Key)
		switch item.Value.(type) {
		case yaml.MapSlice, map[string]any, []any, nil:
			return nil, fmt.Errorf("%s: %s: write one `name: value` a line", file, name)
		}
		from := file
		for i, l := range strings.Split(string(src), "\n") {
			if k, _, ok := strings.Cut(l, ":"); ok && strings.Trim(strings.TrimSpace(k), `"'`) == name {
				from = fmt.Sprintf("%s:%d", file, i+1)
			}
		}
		out = append(out, Assignment{name, fmt.Sprint(item.Value), from})
	}
	return out, nil
}

// Apply makes the user's changes, the later winning, to coefficients and to the hardware. All that is wrong is reported at once.
func Apply(list []Assignment, c Coefficients, h *Hardware) error {
	var errs []error
	for _, a := range list {
		var err error
		if strings.HasPrefix(a.Name, "hw.") {
			err = h.set(a.Name, a.Value)
		} else {
			var v float64
			if v, err = strconv.ParseFloat(a.Value, 64); err != nil {
				err = fmt.Errorf("%s: %q is not a number", a.Name, a.Value)
			} else {
				err = c.Set(a.Name, v, "given by "+a.From)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.From, err))
		}
	}
	return errors.Join(errs...)
}
