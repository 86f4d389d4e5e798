package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newForecastCmd() *cobra.Command {
	var explain bool
	var svg, file, measured string
	var set []string
	c := command("forecast", func(ctx context.Context, c *cli.Console, args []string) error {
		d, h, co, err := forecastInput(args[0], file, set)
		if err != nil {
			return err
		}
		f, err := forecast.New(h, co)
		if err != nil {
			return fail(exitBadInput, err)
		}
		if y, ok := paper.Of(d.Spec); ok {
			if err := f.Beside(y, co); err != nil {
				return fail(exitBadInput, err)
			}
		}
		var held []forecast.Compared
		if measured != "" {
			figures, err := figuresOf(measured)
			if err != nil {
				return fail(exitBadInput, err)
			}
			held = f.Against(figures)
		}
		if svg != "" {
			if err := writeWhole(svg, []byte(f.SVG())); err != nil {
				return err
			}
		}
		out := c.Out
		if c.JSON {
			return cli.PrintJSON(out, struct {
				*forecast.Forecast
				Coefficients []forecast.Coefficient `json:"coefficients"`
				Measured     []forecast.Compared    `json:"measured,omitempty"`
			}{f, co.All(), held})
		}
		if err := f.Text(out, co, explain); err != nil {
			return err
		}
		if measured != "" {
			if err := forecast.ComparedText(out, held); err != nil {
				return err
			}
		}
		if svg != "" {
			fmt.Fprintf(out, "\nCurves: %s\n", svg)
		}
		return nil
	})
	c.Flags().Bool("json", false, "print as JSON")
	c.Flags().BoolVar(&explain, "explain", false, "add every formula, coefficient and source, and the names --set takes")
	c.Flags().StringVar(&svg, "svg", "", "write the curves over 1 to 64 clients, of metadata over 1 to 512 threads, to this file")
	c.Flags().StringVar(&measured, "measured", "", "directory of a run of mortar bench: print its figures beside the forecast")
	addCoefficientFlags(c, &file, &set)
	return c
}

// patternOf is the pattern that a phase of a benchmark measures; "" if the forecast has
// none for it.
func patternOf(p *report.BenchPhase) forecast.Pattern {
	stream, small := p.RecordBytes >= 1<<20, p.RecordBytes == 4<<10
	switch op := p.Op; {
	case op == "seq-write" && stream:
		return forecast.SeqWrite
	case op == "seq-read" && stream:
		return forecast.SeqRead
	case op == "rand-write" && small:
		return forecast.RandomWrite
	case op == "rand-read" && small:
		return forecast.RandomRead
	}
	return map[string]forecast.Pattern{"md-create": forecast.Create, "md-stat": forecast.Stat, "md-remove": forecast.Remove}[p.Op]
}

// figuresOf are the peaks of a run of mortar bench, in the units of the forecast.
func figuresOf(dir string) ([]forecast.Measured, error) {
	r, err := report.Load(dir)
	if err != nil {
		return nil, err
	}
	if r.Bench == nil {
		return nil, fmt.Errorf("%s is the run of a drill; give one of mortar bench", dir)
	}
	var out []forecast.Measured
	for i := range r.Bench.Phases {
		p := &r.Bench.Phases[i]
		pattern, best := patternOf(p), p.Peak()
		if pattern == "" || best == nil {
			continue
		}
		out = append(out, forecast.Measured{Pattern: pattern, Test: p.Test, Threads: best.Threads, Value: report.Decimal(best.Value(), p.Unit)})
	}
	return out, nil
}

// forecastInput holds what forecast and simulate calculate with: the design, its hardware, and
// the coefficients with the user's changes.
func forecastInput(specFile, coFile string, set []string) (*design.Design, forecast.Hardware, forecast.Coefficients, error) {
	var h forecast.Hardware
	var co forecast.Coefficients
	d, err := cli.LoadAny(specFile)
	if err != nil {
		return d, h, co, err
	}
	if h, err = forecast.FromDesign(d); err != nil {
		return d, h, co, fail(exitBadInput, err)
	}
	co, err = coefficients(coFile, set, &h)
	return d, h, co, err
}

func addCoefficientFlags(c *cobra.Command, file *string, set *[]string) {
	c.Flags().StringVar(file, "coefficients", "", "file of coefficients to change: YAML, one `name: value` a line")
	c.Flags().StringArrayVar(set, "set", nil, "change one coefficient or hardware fact, `name=value`; may be repeated, and wins over the file")
}

// coefficients returns the built-in table with the user's changes. A virtual rack's hardware
// gets the changes too.
func coefficients(file string, set []string, h *forecast.Hardware) (forecast.Coefficients, error) {
	co := forecast.Defaults()
	var list []forecast.Assignment
	if file != "" {
		src, err := spec.ReadFile(file)
		if err != nil {
			return co, fail(exitBadInput, err)
		}
		if list, err = forecast.ParseFile(file, src); err != nil {
			return co, fail(exitBadInput, err)
		}
	}
	for _, s := range set {
		a, err := forecast.ParseAssignment(s)
		if err != nil {
			return co, fail(exitBadInput, err)
		}
		list = append(list, a)
	}
	if err := forecast.Apply(list, co, h); err != nil {
		return co, fail(exitBadInput, err)
	}
	return co, nil
}
