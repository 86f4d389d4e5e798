package forecast

import (
	"context"
	"fmt"
	"io"
	"math"
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

// Text prints a simulation for people.
func (s *Simulation) Text(w io.Writer, c Coefficients, explain bool) error {
	var b strings.Builder
	m0 := s.Modules[0]
	fmt.Fprintf(&b, "%s: %s histories of %g years each, seed %d; intervals are 95 %%\n", s.Name, number(float64(m0.Fleet.Bricks)), m0.Fleet.Years, m0.Fleet.Seed)
	for _, m := range s.Modules {
		f, r := m.Fleet, m.Result
		n := ""
		if m.Count > 1 {
			n = fmt.Sprintf(" and %d like it", m.Count-1)
		}
		fmt.Fprintf(&b, "\n%s%s (%s): %s of %d+%d disks, %s, %s with up to %s of a group, %s\n\n",
			m.Name, n, m.Role, plural(f.Groups, "group"), f.Disks-f.Parity, f.Parity, plural(f.Spares, "spare"), plural(f.Enclosures, "enclosure"), plural(f.PerEnclosure, "disk"), plural(f.Servers, "server"))
		fmt.Fprintf(&b, "  seen                      %s disk failures, %s failovers, %s losses of data (%s of them sectors only)\n",
			number(float64(r.DiskFailures)), number(float64(r.Failovers)), number(float64(r.Losses)), number(float64(r.SectorLosses)))
		fmt.Fprintf(&b, "  data lost in %-12s %s\n", strconv.FormatFloat(f.Years, 'g', -1, 64)+" years", chance(r.LossProbability))
		if math.IsInf(r.MTTDLHours.Mean, 0) {
			fmt.Fprintf(&b, "  MTTDL, sectors included   above %s years", years(r.MTTDLHours.Low))
		} else {
			fmt.Fprintf(&b, "  MTTDL, sectors included   %s years (%s to %s)", years(r.MTTDLHours.Mean), years(r.MTTDLHours.Low), years(r.MTTDLHours.High))
		}
		if m.MarkovHours > 0 {
			fmt.Fprintf(&b, " for a group; closed form, disks alone: %s", years(m.MarkovHours))
		}
		u := r.Unavailability
		fmt.Fprintf(&b, "\n  down, unscheduled         %s of the time (%s to %s), hours a year by cause:\n", share(u.Mean), share(u.Low), share(u.High))
		for _, k := range Causes() {
			e := r.DownHours[k]
			if e.High == 0 {
				continue
			}
			fmt.Fprintf(&b, "    %-22s  %7s  (%s to %s)\n", k, hours(e.Mean), hours(e.Low), hours(e.High))
		}
	}
	verdict := "below"
	switch {
	case s.Unavailability.Low > Cambridge:
		verdict = "above"
	case s.Unavailability.High > Cambridge:
		verdict = "about"
	}
	fmt.Fprintf(&b, "\nThe whole: down %s of the time (%s to %s), %s the 0.5 %% that Cambridge reports to stay under\n", share(s.Unavailability.Mean), share(s.Unavailability.Low), share(s.Unavailability.High), verdict)
	fmt.Fprintf(&b, "           data lost in %g years: %s\n", m0.Fleet.Years, chance(s.LossProbability))

	lustre := s.Hardware.Protocol == "lustre"
	if lustre {
		fmt.Fprintf(&b, "\nFrom 1 to 1,000 bricks behind %d MDS, GB/s; files of %g MiB\n\n", s.Hardware.MDS, s.FileMiB)
	} else {
		b.WriteString("\nFrom 1 to 1,000 bricks, each a file system of its own, GB/s\n\n")
	}
	rows := [][]string{{"bricks", "write", "read"}}
	if lustre {
		rows[0] = append(rows[0], "files written", "files read", "limit")
	}
	rows[0] = append(rows[0], "some part down", "some data lost")
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
	table(&b, rows)
	if lustre {
		for _, x := range s.Scaling {
			if x.Limit == "MDS" {
				fmt.Fprintf(&b, "\nThe MDS limits files of %g MiB from about %s bricks on.\n", s.FileMiB, number(math.Ceil(x.FilesWrite/(x.StorageWrite/float64(x.Bricks)))))
				break
			}
		}
	}
	if explain {
		writeCoefficients(&b, "Rates and times (change with --set name=value)", c, func(name string) bool {
			return strings.HasPrefix(name, "sim.") || strings.HasPrefix(name, "fleet.")
		})
		b.WriteString("\nThroughput is that of `mortar forecast --explain`.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
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
