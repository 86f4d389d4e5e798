package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

func newScrubCmd() *cobra.Command {
	var repair, asJSON bool
	var groups []string
	cmd := command("scrub", func(cmd *cobra.Command, args []string) error {
		d, c, err := openServers(args[0], hostTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		chosen, err := scrub.Groups(d, groups)
		if err != nil {
			return fail(exitBadInput, err)
		}
		release, err := claimBrick(cmd.Context(), d.Spec) // keep apply out meanwhile
		if err != nil {
			return err
		}
		defer release()
		return runScrub(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c, d, chosen, repair, asJSON)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	cmd.Flags().StringSliceVar(&groups, "group", nil, "RAID groups, by name; default: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list with one entry for each group (progress goes to stderr)")
	return cmd
}

func runScrub(ctx context.Context, out, errOut io.Writer, c *observe.Collector, d *design.Design, groups []design.Group, repair, asJSON bool) error {
	progress := out
	if asJSON {
		progress = errOut
	}
	t := &teller{w: progress, start: time.Now()}
	var done []scrub.Group
	var errs []error
	for _, g := range groups {
		t.say("scrub of %s", g.Name)
		last := time.Now()
		r, err := scrub.Run(ctx, c.Session, d, g, repair, func(p float64) {
			if time.Since(last) >= 5*time.Second {
				last = time.Now()
				t.say("  %.0f %%", p)
			}
		})
		if err != nil {
			errs = append(errs, err)
			t.say("  %v", err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		done = append(done, r)
		t.say("  %s", sayScrub(&r))
	}
	if asJSON {
		if err := json.NewEncoder(out).Encode(done); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, nil)
	case len(errs) > 0:
		return fail(exitFailed, errors.New("not every group could be scrubbed"))
	case slices.ContainsFunc(done, func(g scrub.Group) bool { return !g.Clean() }):
		return fail(exitFailed, nil)
	}
	return nil
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
	cmd := hidden("scrub-array", func(cmd *cobra.Command, args []string) error {
		a, err := scrub.Open(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		r, err := a.Scrub(cmd.Context(), repair)
		if err != nil {
			return err
		}
		r.Array = args[0]
		return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	return cmd
}
