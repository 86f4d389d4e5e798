package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/clientconfig"
)

func newCheckCmd() *cobra.Command {
	var explain bool
	var svg, profile string
	c := local("check", func(ctx context.Context, c *cli.Console, args []string) error {
		if svg == "-" && c.JSON {
			return fail(exitBadInput, errors.New("--svg - and --json both write to stdout; name a file for the drawing"))
		}
		d, err := c.LoadInput(args[0], profile)
		if err != nil {
			return err
		}
		lustre, err := plan.LustreSourceOf(d.Spec)
		if err != nil {
			return fail(exitBadInput, err)
		}
		if svg != "" {
			if err := writeSVG(svg, c.Out, d); err != nil || !c.JSON {
				return err
			}
		}
		if c.JSON {
			return cli.PrintJSON(c.Out, d)
		}
		out := c.Out
		o := design.ShowOptions{Explain: explain, Paint: cli.Painter(out)}
		if w := cli.Width(out); w > 0 {
			o.Width = min(max(w, 72), 140)
		}
		if err := design.Show(out, d, o); err != nil || lustre == nil {
			return err
		}
		lustre.Show(out)
		return nil
	})
	c.Flags().Bool("json", false, "print the design as JSON")
	profileFlag(c, &profile)
	c.Flags().BoolVar(&explain, "explain", false, "add sources, RAID order, UUIDs, exact commands, and what became of values of the past")
	c.Flags().StringVar(&svg, "svg", "", "draw racks, enclosures, groups and cabling into this file instead (-: to stdout); with --json as well")
	return c
}

// writeSVG draws the design into a file.
func writeSVG(file string, out io.Writer, d *design.Design) error {
	if file == "-" {
		return design.SVG(out, d)
	}
	var b bytes.Buffer
	if err := design.SVG(&b, d); err != nil {
		return err
	}
	return writeWhole(file, b.Bytes())
}

// writeWhole writes a regular file atomically. It writes directly to anything else, such as
// /dev/stdout or a pipe.
func writeWhole(file string, b []byte) error {
	write := renameio.WriteFile
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() {
		write = func(name string, b []byte, mode os.FileMode, _ ...renameio.Option) error {
			return os.WriteFile(name, b, mode)
		}
	}
	return notWritten(file, write(file, b, 0o644))
}

// notWritten turns the error of a write into one of the command. renameio reports a missing
// directory with the name of a temporary file, which means nothing to a user.
func notWritten(file string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fail(exitBadInput, fmt.Errorf("%s cannot be written: there is no directory %s", file, filepath.Dir(file)))
	}
	return err
}

func newClientConfigCmd() *cobra.Command {
	var client, format, out string
	cmd := local("client-config", func(ctx context.Context, c *cli.Console, args []string) error {
		d, err := cli.LoadAny(args[0])
		if err != nil {
			return err
		}
		return clientconfig.Run(ctx, c, d, client, format, out)
	})
	cmd.Aliases = []string{"mount-options"} // its name up to 0.3
	f := cmd.Flags()
	f.StringVar(&client, "client", "", "for this client of the spec")
	f.StringVar(&format, "format", "text", "text, fstab, or the file tree of dir, warewulf or ansible")
	f.StringVar(&out, "out", "", "directory for the file tree, which is not there yet")
	f.Bool("json", false, "print the mounts as JSON")
	return cmd
}

func newForecastCmd() *cobra.Command {
	var explain bool
	var svg, measured string
	var changed coefficients
	c := local("forecast", func(ctx context.Context, c *cli.Console, args []string) error {
		d, h, co, err := changed.load(args[0])
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
			figures, err := report.Measured(measured)
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
	changed.add(c)
	return c
}

// coefficients are the flags by which the user changes what forecast and simulate calculate with.
type coefficients struct {
	file string
	set  []string
}

func (f *coefficients) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "coefficients", "", "file of coefficients to change: YAML, one `name: value` a line")
	c.Flags().StringArrayVar(&f.set, "set", nil, "change one coefficient or hardware fact, `name=value`; may be repeated, and wins over the file")
}

// load reads the brick of a file, and gives its hardware and the built-in coefficients with the
// user's changes.
func (f *coefficients) load(path string) (d *design.Design, h forecast.Hardware, co forecast.Coefficients, err error) {
	if d, err = cli.LoadAny(path); err != nil {
		return d, h, co, err
	}
	var src []byte
	if f.file != "" {
		src, err = spec.ReadFile(f.file)
	}
	if err == nil {
		h, co, err = forecast.Changed(d, f.file, src, f.set)
	}
	if err != nil {
		err = fail(exitBadInput, err)
	}
	return d, h, co, err
}

func newSimulateCmd() *cobra.Command {
	var explain bool
	var svg string
	var changed coefficients
	var bricks int
	var years float64
	var seed uint64
	c := command("simulate", func(ctx context.Context, c *cli.Console, args []string) error {
		if bricks < 1 || bricks > 100_000_000 {
			return fail(exitBadInput, fmt.Errorf("--bricks %d: want 1 to 100,000,000", bricks))
		}
		if !(years > 0 && years <= 1000) {
			return fail(exitBadInput, fmt.Errorf("--years %g: want more than 0, at most 1,000", years))
		}
		d, h, co, err := changed.load(args[0])
		if err != nil {
			return err
		}
		s, err := forecast.SimulateDesign(ctx, d, h, co, forecast.Histories{Bricks: bricks, Years: years, Seed: seed}, func(name string, bricks int) (func(int), func()) {
			return cli.Counting(stderr, strings.TrimSpace("simulating "+name), bricks)
		})
		switch {
		case errors.Is(err, context.Canceled):
			return fail(exitInterrupted, errors.New("interrupted"))
		case err != nil:
			return fail(exitBadInput, err)
		}
		if svg != "" {
			if err := writeWhole(svg, []byte(s.SVG())); err != nil {
				return err
			}
		}
		return c.Show(s, func(w io.Writer) error { return s.Text(w, co, explain) })
	})
	c.Flags().IntVar(&bricks, "bricks", 10000, "brick histories to simulate; more make the intervals narrower")
	c.Flags().Float64Var(&years, "years", 10, "years of each")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of the random numbers")
	c.Flags().Bool("json", false, "print as JSON")
	c.Flags().BoolVar(&explain, "explain", false, "add every rate with its source")
	c.Flags().StringVar(&svg, "svg", "", "write throughput over 1 to 1,000 bricks to this file")
	changed.add(c)
	return c
}
