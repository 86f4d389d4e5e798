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

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newCheckCmd() *cobra.Command {
	var explain bool
	var svg, profile string
	c := command("check", func(ctx context.Context, c *cli.Console, args []string) error {
		if svg == "-" && c.JSON {
			return fail(exitBadInput, errors.New("--svg - and --json both write to stdout; name a file for the drawing"))
		}
		d, err := cli.LoadAny(args[0], profile)
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
		if w := widthOf(out); w > 0 {
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
