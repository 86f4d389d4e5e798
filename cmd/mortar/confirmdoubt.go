package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

func newConfirmDoubtCmd() *cobra.Command {
	var given string
	cmd := clusterCmd("confirm-doubt", func(ctx context.Context, a asked) (*procedure.Plan, error) {
		service, w := first(a.args), a.questions()
		r, err := failover.InDoubt(ctx, a.d, a.facts, a.c, service)
		if err != nil {
			return nil, err
		}
		p, err := failover.ConfirmDoubt(a.d, a.facts, service, r)
		if err != nil {
			return nil, err
		}
		a.flags.closing = func(ctx context.Context) {
			if failover.NameDoubt(ctx, a.d, a.facts, a.c, p); a.flags.asJSON || p.Doubt == nil {
				return
			}
			if p.Nothing != "" {
				printDoubt(w, p.Doubt)
			}
			printOwners(w, p.Doubt)
		}
		if p.Nothing != "" {
			return p, nil
		}
		if !a.flags.asJSON || !a.flags.dryRun {
			printDoubt(w, p.Doubt)
		}
		if a.flags.dryRun {
			return p, nil
		}
		return p, typed(a.cmd.InOrStdin(), w, p.Service, given,
			"The service then starts, and the blocks above may be wrong. Their files are listed then.\nType the service's name to accept that: ",
			"a person has to see the list", "nothing was confirmed")
	})
	cmd.Flags().StringVar(&given, "confirm", "", "name of the service, without a terminal to ask on")
	return cmd
}

// questions is where a command asks: its output, unless that is for a program.
func (a asked) questions() io.Writer {
	if a.flags.asJSON {
		return a.cmd.ErrOrStderr()
	}
	return a.cmd.OutOrStdout()
}

// printDoubt lists every block.
func printDoubt(w io.Writer, d *ocf.Doubt) {
	fmt.Fprintf(w, "service %s, looked at %s\n", d.Service, d.At.Format("2006-01-02 15:04:05 MST"))
	for _, a := range d.Arrays {
		if a.Unknown != "" {
			fmt.Fprintf(w, "array %s: any block of its missing disks may be wrong: %s\n", a.Name, screen.Line(a.Unknown))
			continue
		}
		fmt.Fprintf(w, "array %s: %d blocks of %d bytes may be wrong, at these bytes of the array:\n", a.Name, len(a.Blocks), ocf.BlockBytes)
		for _, b := range a.Blocks {
			fmt.Fprintf(w, "  %d\n", b)
		}
	}
}

// printOwners lists every file that has a block in doubt.
func printOwners(w io.Writer, d *ocf.Doubt) {
	o := d.Owners
	if o == nil {
		if d.Unnamed != "" {
			fmt.Fprintf(w, "whose they are is not known: %s\n", screen.Line(d.Unnamed))
		}
		return
	}
	fmt.Fprintf(w, "files: %d; blocks of the file system's own data: %d, of no file: %d, of a cache's label and superblocks: %d, outside the volume: %d\n", len(o.Files), o.Metadata, o.Free, o.Cache, o.Outside)
	if o.Unsearched != "" {
		fmt.Fprintf(w, "the list is not complete: %s\n", screen.Line(o.Unsearched))
	}
	for _, f := range o.Files {
		fmt.Fprintf(w, "  inode %d %s\n", f.Inode, screen.Line(cmp.Or(f.Path, f.FID, "(its name was not found)")))
		for _, off := range f.Offsets {
			fmt.Fprintf(w, "    at byte %d\n", off)
		}
	}
}
