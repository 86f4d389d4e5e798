// Size makes a page and a plot of what scripts/size.sh has measured: seconds of each step
// against the number of disks, and the exponent between the two largest numbers, so that 1
// is a step that takes twice as long with twice the disks.
//
//	size -in out/size -svg docs/results/size.svg > table.md
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/converge/plan"
)

// figures are seconds by the name of a step and the number of disks.
type figures map[string]map[int]float64

func (f figures) add(step string, disks int, seconds float64) {
	if f[step] == nil {
		f[step] = map[int]float64{}
	}
	f[step][disks] += seconds
}

// exponent is that of the growth between the two largest numbers of disks.
func exponent(of map[int]float64) (float64, bool) {
	ns := slices.Sorted(maps.Keys(of))
	if len(ns) < 2 {
		return 0, false
	}
	a, b := ns[len(ns)-2], ns[len(ns)-1]
	if of[a] <= 0 || of[b] <= 0 {
		return 0, false
	}
	return math.Log(of[b]/of[a]) / math.Log(float64(b)/float64(a)), true
}

func main() {
	in := flag.String("in", "out/size", "directory that scripts/size.sh has filled")
	svg := flag.String("svg", "", "file of the plot")
	flag.Parse()
	if err := run(*in, *svg); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(in, svg string) error {
	dirs, err := filepath.Glob(filepath.Join(in, "[0-9]*", "steps.tsv"))
	if err != nil || len(dirs) == 0 {
		return fmt.Errorf("%s has no DISKS/steps.tsv: run scripts/size.sh first (%v)", in, err)
	}
	commands, stages, parts := figures{}, figures{}, figures{}
	for _, p := range dirs {
		dir := filepath.Dir(p)
		disks, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if err := readCommands(commands, dir, disks); err != nil {
			return err
		}
		if err := readApply(stages, dir, disks); err != nil {
			return err
		}
		if err := readAgent(parts, dir, disks); err != nil {
			return err
		}
	}
	var plots []chart.Plot
	for _, t := range []struct {
		title string
		of    figures
	}{{"commands", commands}, {"stages of apply", stages}, {"parts of a move", parts}} {
		table(t.title, t.of)
		plots = append(plots, plot(t.title, t.of))
	}
	if svg == "" {
		return nil
	}
	return os.WriteFile(svg, []byte(chart.File("Time against the number of disks", "virtual rack, two emulated processors; both axes are logarithmic", plots)), 0o644)
}

// readCommands reads the seconds of whole commands. One that failed has no figure.
func readCommands(f figures, dir string, disks int) error {
	b, err := os.ReadFile(filepath.Join(dir, "steps.tsv"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) != 3 || w[2] != "0" && !strings.HasPrefix(w[0], "status") {
			continue
		}
		s, err := strconv.ParseFloat(w[1], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		f.add(strings.ReplaceAll(w[0], "-", " "), disks, s)
	}
	return nil
}

// lines calls each for each line of a file that is JSON; a file that is missing has none.
func lines[T any](file string, each func(T)) error {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		var v T
		if json.Unmarshal(line, &v) == nil {
			each(v)
		}
	}
	return nil
}

// readApply reads the seconds of each stage.
func readApply(f figures, dir string, disks int) error {
	type event struct {
		Event, Stage string
		Seconds      float64
	}
	return lines(filepath.Join(dir, "apply"), func(e event) {
		if e.Event == plan.EventStageDone {
			f.add(e.Stage, disks, e.Seconds)
		}
	})
}

// readAgent reads the parts of the last start and stop on each server, and takes the longer.
func readAgent(f figures, dir string, disks int) error {
	type step struct {
		Action, Step string
		Seconds      float64
	}
	longest := map[string]float64{}
	for _, node := range []string{"nfs1", "nfs2"} {
		last := map[string]float64{}
		err := lines(filepath.Join(dir, "agent-"+node), func(s step) {
			switch {
			case s.Action != "start" && s.Action != "stop" || s.Step == "note":
			case s.Step == "begin":
				maps.DeleteFunc(last, func(k string, _ float64) bool { return strings.HasPrefix(k, s.Action) })
			case s.Step == "end":
				last[s.Action] = s.Seconds
			default:
				last[s.Action+": "+s.Step] += s.Seconds
			}
		})
		if err != nil {
			return err
		}
		for k, v := range last {
			longest[k] = max(longest[k], v)
		}
	}
	for k, v := range longest {
		f.add(k, disks, v)
	}
	return nil
}

// order puts the steps that take longest first.
func order(f figures) []string {
	most := func(s string) float64 { return slices.Max(slices.Collect(maps.Values(f[s]))) }
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(cmp.Compare(most(b), most(a)), cmp.Compare(a, b)) })
}

func table(title string, f figures) {
	all := map[int]bool{}
	for _, by := range f {
		for n := range by {
			all[n] = true
		}
	}
	ns := slices.Sorted(maps.Keys(all))
	fmt.Printf("\n| %s: seconds |", title)
	for _, n := range ns {
		fmt.Printf(" %d disks |", n)
	}
	fmt.Printf(" exponent |\n|---|%s---|\n", strings.Repeat("---|", len(ns)))
	for _, s := range order(f) {
		if slices.Max(slices.Collect(maps.Values(f[s]))) < 0.5 {
			continue
		}
		fmt.Printf("| %s |", s)
		for _, n := range ns {
			if v, ok := f[s][n]; ok {
				fmt.Printf(" %.1f |", v)
			} else {
				fmt.Print(" – |")
			}
		}
		if e, ok := exponent(f[s]); ok {
			fmt.Printf(" %.1f |\n", e)
		} else {
			fmt.Print(" – |\n")
		}
	}
}

// plot draws the six steps that take longest.
func plot(title string, f figures) chart.Plot {
	p := chart.Plot{Title: title, XTitle: "disks", YTitle: "seconds", XUnit: "disks", LogY: true, Ends: true,
		Value: func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }}
	for _, s := range order(f) {
		if len(p.Series) == 6 || slices.Max(slices.Collect(maps.Values(f[s]))) < 0.5 {
			break
		}
		c := chart.Series{Name: s, Style: len(p.Series)}
		if e, ok := exponent(f[s]); ok {
			c.Notes = []string{fmt.Sprintf("exponent %.1f", e)}
		}
		for _, n := range slices.Sorted(maps.Keys(f[s])) {
			if f[s][n] > 0 {
				c.Points = append(c.Points, chart.Point{X: float64(n), Y: f[s][n]})
			}
		}
		if len(c.Points) > 0 {
			p.Series = append(p.Series, c)
		}
	}
	return p
}
