package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func newForecastCmd() *cobra.Command {
	var asJSON, explain bool
	var svg, file string
	var set []string
	c := &cobra.Command{
		Use:   "forecast SPEC",
		Short: "Predict what a design delivers: peaks, curves, the bottleneck, what one more part brings",
		Long: `Calculate what a brick should deliver, from disk through RAID, controller, PCIe,
CPU, network and protocol to 1 to 64 clients: a bottleneck model whose
coefficients come from published measurements. It names the bottleneck of each
kind of load and what one more of each part buys. Every coefficient has a name
and a source and can be changed. Nothing but the spec is read.`,
		Example: `  mortar forecast brick.yaml
  mortar forecast brick.yaml --set hw.links=2 --set nfs.client_mbps=1200
  mortar forecast brick.yaml --coefficients measured.yaml --svg curves.svg --explain`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, h, co, err := forecastInput(args[0], file, set)
			if err != nil {
				return err
			}
			f, err := forecast.New(h, co)
			if err != nil {
				return fail(exitBadInput, err)
			}
			if svg != "" {
				if err := writeWhole(svg, []byte(f.SVG())); err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			if asJSON {
				return printJSON(out, struct {
					*forecast.Forecast
					Coefficients []forecast.Coefficient `json:"coefficients"`
				}{f, co.All()})
			}
			if err := f.Text(out, co, explain); err != nil {
				return err
			}
			if svg != "" {
				fmt.Fprintf(out, "\nCurves: %s\n", svg)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.Flags().BoolVar(&explain, "explain", false, "add every formula, coefficient and source, and the names --set takes")
	c.Flags().StringVar(&svg, "svg", "", "write the curves over 1 to 64 clients to this file")
	addCoefficientFlags(c, &file, &set)
	return c
}

// forecastInput holds what forecast and simulate calculate with: the design, its hardware, and
// the coefficients with the user's changes.
func forecastInput(specFile, coFile string, set []string) (*design.Design, forecast.Hardware, forecast.Coefficients, error) {
	var h forecast.Hardware
	var co forecast.Coefficients
	d, err := loadAnyDesign(specFile)
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
