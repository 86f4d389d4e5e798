package forecast

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Simulated is a module with what a simulation found.
type Simulated struct {
	Module
	Result Result `json:"result"`
	// MarkovHours is the closed form's mean time to data loss of a group: mean
	// failure rate, every failed disk rebuilt on its own in the mean time that
	// takes, no latent errors; 0 where it does not apply.
	MarkovHours float64 `json:"markov_hours"`
}

// Markov is the closed form for the same group, or 0 where it has none.
func (f *Fleet) Markov() float64 {
	rate := f.DiskAFR * (1 + f.BatchShare*(f.BatchFactor-1)) / HoursPerYear
	repair := f.RebuildHours
	if f.Spares == 0 {
		repair += f.ReplaceHours
	}
	if repair <= 0 || rate <= 0 {
		return 0
	}
	h, err := MTTDL(f.Disks, f.Parity, rate, 1/repair)
	if err != nil {
		return 0
	}
	return h
}

// Simulation is all that `mortar simulate` tells.
type Simulation struct {
	Name     string      `json:"name"`
	Hardware Hardware    `json:"hardware"`
	Modules  []Simulated `json:"modules"`
	// Unavailability of the brick as it is specified: of Lustre, the time in
	// which any of its modules is down.
	Unavailability Estimate `json:"unavailability"`
	// LossProbability of the brick as it is specified, over the years.
	LossProbability Estimate `json:"loss_probability"`
	Scaling         []Scale  `json:"scaling"`
	FileMiB         float64  `json:"file_mib"`
}

// Histories says what is played: so many bricks, for so many years each.
type Histories struct {
	Bricks int
	Years  float64
	Seed   uint64 // the same gives the same result
}

// SimulateDesign plays each fleet of a design. progress is called for each: its
// name ("" if there is one only) and number of bricks; it gives what is told of
// the bricks done, and of the end.
func SimulateDesign(ctx context.Context, d *design.Design, h Hardware, c Coefficients, n Histories, progress func(name string, bricks int) (done func(int), end func())) (*Simulation, error) {
	modules, err := Modules(d, c)
	if err != nil {
		return nil, err
	}
	var played []Simulated
	for _, m := range modules {
		m.Fleet.Bricks, m.Fleet.Years, m.Fleet.Seed = n.Bricks, n.Years, n.Seed
		name := ""
		if len(modules) > 1 {
			name = m.Name
		}
		done, end := progress(name, n.Bricks)
		r, err := Simulate(ctx, m.Fleet, done)
		end()
		if err != nil {
			return nil, err
		}
		played = append(played, Simulated{Module: m, Result: r, MarkovHours: m.Fleet.Markov()})
	}
	return Summarize(d.Name, h, c, played)
}

// Summarize puts modules together.
func Summarize(name string, h Hardware, c Coefficients, modules []Simulated) (*Simulation, error) {
	s := &Simulation{Name: name, Hardware: h, Modules: modules, FileMiB: c.Get("fleet.file_mib")}
	brick := modules[0]
	var mds *Result
	for i, m := range modules {
		if m.Role == "mds" {
			mds = &modules[i].Result
		} else if brick.Role == "mds" || m.Count > brick.Count {
			brick = m // where OSS modules differ, the commonest stands for all
		}
	}
	any := func(p, q float64) float64 { return 1 - (1-p)*(1-q) }
	for _, m := range modules {
		for range m.Count {
			s.LossProbability = combine(any, s.LossProbability, m.Result.LossProbability)
		}
	}
	s.Unavailability = partDown(brick.Result, mds, float64(max(brick.Count, 1)))
	var err error
	s.Scaling, err = Scaling(h, c, brick.Result, mds, ScaleCounts)
	return s, err
}

// Cambridge is the unscheduled downtime the Cambridge HPC service reports for
// its Lustre bricks, as an upper bound. Source: Dell/Cambridge Lustre brick,
// 2011, summary.
const Cambridge = 0.005

// share formats a small share as percent.
func share(x float64) string {
	switch {
	case x == 0:
		return "0"
	case math.IsInf(x, 0):
		return "?"
	case x < 1e-5:
		return strconv.FormatFloat(100*x, 'g', 2, 64) + " %"
	case x < 0.0995:
		return strconv.FormatFloat(100*x, 'g', 3, 64) + " %"
	}
	return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
}

// chance formats a probability with its interval; of what was never seen only
// the upper bound is known.
func chance(e Estimate) string {
	if e.Mean == 0 {
		return fmt.Sprintf("none seen: below %s", share(e.High))
	}
	return fmt.Sprintf("%s (%s to %s)", share(e.Mean), share(e.Low), share(e.High))
}

func years(hours float64) string {
	if math.IsInf(hours, 0) {
		return "?"
	}
	y := hours / HoursPerYear
	if y >= 1e6 {
		return strconv.FormatFloat(y, 'e', 1, 64)
	}
	return number(y)
}

// simulated is a simulation with every rate, if a person asked for them.
type simulated struct {
	*Simulation
	Explained bool
	c         Coefficients
}

// Text prints a simulation for people.
func (s *Simulation) Text(w io.Writer, c Coefficients, explain bool) error {
	return templates().ExecuteTemplate(w, "simulation", simulated{s, explain, c})
}

// Rates lists the coefficients of simulations.
func (s simulated) Rates() []Coefficient {
	return slices.DeleteFunc(s.c.All(), func(k Coefficient) bool {
		return !strings.HasPrefix(k.Name, "sim.") && !strings.HasPrefix(k.Name, "fleet.")
	})
}

func (m Module) Others() int { return m.Count - 1 }

func (f Fleet) DataDisks() int { return f.Disks - f.Parity }

// Unseen: the mean is not known, because none was seen.
func (e Estimate) Unseen() bool { return math.IsInf(e.Mean, 0) }

// Verdict compares the unavailability with Cambridge's.
func (s *Simulation) Verdict() string {
	switch {
	case s.Unavailability.Low > Cambridge:
		return "above"
	case s.Unavailability.High > Cambridge:
		return "about"
	}
	return "below"
}

// ScalingRows is a table of more and more bricks.
func (s *Simulation) ScalingRows() [][]string {
	head, lustre := []string{"bricks", "write", "read"}, s.Hardware.Protocol == "lustre"
	if lustre {
		head = append(head, "files written", "files read", "limit")
	}
	rows := [][]string{append(head, "some part down", "some data lost")}
	gb := func(x float64) string { return number(x / 1000) }
	for _, x := range s.Scaling {
		row := []string{number(float64(x.Bricks)), gb(x.StorageWrite), gb(x.StorageRead)}
		if lustre {
			row = append(row, gb(x.FilesWrite), gb(x.FilesRead), x.Limit)
		}
		lost := share(x.AnyLoss.Mean)
		if x.AnyLoss.Mean == 0 {
			lost = "< " + share(x.AnyLoss.High)
		}
		rows = append(rows, append(row, share(x.PartDown.Mean), lost))
	}
	return rows
}

// MDSLimit is from how many bricks on the MDS limits files; "" if it does not.
func (s *Simulation) MDSLimit() string {
	i := slices.IndexFunc(s.Scaling, func(x Scale) bool { return x.Limit == "MDS" })
	if i < 0 {
		return ""
	}
	x := s.Scaling[i]
	return number(math.Ceil(x.FilesWrite / (x.StorageWrite / float64(x.Bricks))))
}

func plural(n int, what string) string {
	if n == 0 {
		return "no " + what
	}
	return count(float64(n), what)
}

func hours(h float64) string {
	switch {
	case h == 0:
		return "0"
	case math.IsInf(h, 0):
		return "?"
	case h < 0.001:
		return strconv.FormatFloat(h, 'g', 2, 64)
	}
	return strconv.FormatFloat(h, 'f', 3, 64)
}

// SVG draws throughput over the number of bricks.
func (s *Simulation) SVG() string {
	p := chart.Plot{Title: "Throughput, GB/s", XTitle: "bricks", XTicks: []float64{1, 10, 100, 1000}, LogY: true, Value: number, Ends: true}
	line := func(name, note string, get func(x Scale) float64) {
		c := chart.Series{Notes: []string{note}, Style: len(p.Series)}
		var last float64
		for _, x := range s.Scaling {
			last = get(x) / 1000
			c.Points = append(c.Points, chart.Point{X: float64(x.Bricks), Y: last})
		}
		c.Name = fmt.Sprintf("%s %s GB/s", name, number(last))
		p.Series = append(p.Series, c)
	}
	line("write", "large files", func(x Scale) float64 { return x.StorageWrite })
	line("read", "large files", func(x Scale) float64 { return x.StorageRead })
	sub := "each brick a file system of its own"
	if s.Hardware.Protocol == "lustre" {
		note := fmt.Sprintf("files of %g MiB", s.FileMiB)
		line("write", note, func(x Scale) float64 { return x.FilesWrite })
		line("read", note, func(x Scale) float64 { return x.FilesRead })
		sub = fmt.Sprintf("one file system, %d MDS at work", s.Hardware.MDS)
	}
	return chart.File("Simulation: "+s.Name, sub, []chart.Plot{p})
}
