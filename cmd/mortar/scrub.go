package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

func newScrubCmd() *cobra.Command {
	var repair bool
	var groups []string
	cmd := command("scrub", func(ctx context.Context, c *cli.Console, args []string) error {
		return scrub.All(ctx, c, args[0], groups, repair, sayScrub)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	cmd.Flags().StringSliceVar(&groups, "group", nil, "RAID groups, by name; default: all")
	cmd.Flags().Bool("json", false, "print a list with one entry for each group (progress goes to stderr)")
	return cmd
}

// sayScrub describes the result of a group.
func sayScrub(g *scrub.Group) string {
	s := fmt.Sprintf("%s on %s: %s compared", g.Name, g.Server, report.Bytes(g.Bytes))
	if g.Mismatches == 0 {
		return s + ", everything matches"
	}
	s += fmt.Sprintf(", %s did not match", report.Bytes(g.Mismatches*512))
	for _, d := range g.Disks {
		s += fmt.Sprintf("; disk %s (enclosure %s, bay %d) is wrong in %d blocks of 4 KiB", d.Serial, d.Enclosure, d.Bay, d.Blocks)
	}
	if g.Unknown > 0 {
		s += fmt.Sprintf("; %d blocks are wrong on more than one disk and cannot be mended", g.Unknown)
	}
	switch {
	case g.Mended > 0 && g.Left == 0:
		s += fmt.Sprintf("; mended %d blocks, everything matches now", g.Mended)
	case g.Mended > 0:
		s += fmt.Sprintf("; mended %d blocks, %s still do not match", g.Mended, report.Bytes(g.Left*512))
	case g.Found > 0:
		s += "; nothing was changed (--repair mends)"
	}
	return s
}

// newScrubArrayCmd runs on a server for mortar scrub.
func newScrubArrayCmd() *cobra.Command {
	var repair bool
	cmd := hidden("scrub-array", func(ctx context.Context, c *cli.Console, args []string) error {
		a, err := scrub.Open(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		r, err := a.Scrub(ctx, repair)
		if err != nil {
			return err
		}
		r.Array = args[0]
		return cli.JSONLines(c.Out).Encode(r)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	return cmd
}
