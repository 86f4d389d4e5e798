package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/disk"
)

func newServerReplaceCmd() *cobra.Command {
	var f applyFlags
	cmd := command("replace", func(cmd *cobra.Command, args []string) error { return replaceServer(cmd, args[0], args[1], f) })
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show the plan")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
	cmd.Flags().BoolVar(&f.skipFenceTest, "skip-fence-test", false, "do not end with a fence test of what is unproven")
	return cmd
}

func replaceServer(cmd *cobra.Command, file, server string, f applyFlags) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	if !slices.Contains(d.Servers(), server) {
		return refuseChange(fmt.Errorf("%s is not a server of this brick; choose one of %s", server, strings.Join(d.Servers(), ", ")))
	}
	pair := &d.Pairs[slices.IndexFunc(d.Pairs, func(p design.Pair) bool { return slices.Contains(p.Servers, server) })]
	if pair.HA == nil {
		return refuseChange(errors.New("a brick with one server has no partner that serves meanwhile: stop the old one, cable the new one, and run mortar apply"))
	}
	f.replaced = server
	if len(d.ArraysOf(pair)) > 0 {
		cabled, err := cabledAndReady(ctx, d, pair, server)
		if err != nil {
			return err
		}
		if !cabled {
			f.prepare = server
		}
	}
	if f.dryRun {
		_, err = showPlan(ctx, d, out, f)
		return err
	}
	if err := runApply(ctx, d, cmd.InOrStdin(), out, f); err != nil || f.asJSON {
		return err
	}
	if f.prepare != "" {
		fmt.Fprintf(out, "%s is prepared: its kernel leaves the brick's arrays alone. Plug in its cables to the enclosures, then run the same command again.\n", server)
		return nil
	}
	fmt.Fprintf(out, "%s is part of the brick. If it is in standby, `mortar unstandby %s %s` ends that.\n", server, file, server)
	return nil
}

// cabledAndReady reports whether a server sees the disks of its pair and is prepared for them.
// It refuses a server that sees only some of them, and one that sees them unprepared.
func cabledAndReady(ctx context.Context, d *design.Design, pair *design.Pair, server string) (bool, error) {
	c, err := newCollector(d, hostTimeout, server)
	if err != nil {
		return false, err
	}
	defer c.Close()
	seen, missing, err := disk.SeenBy(ctx, c.Session, d, pair, server)
	switch {
	case err != nil:
		return false, refuseChange(err)
	case len(seen) == 0:
		return false, nil
	}
	f := applyFlags{prepare: server}
	p, err := plan.Prepare(ctx, d, f.preparing(false, func(string, string) {}))
	if err != nil {
		return false, refused(ctx, d.Spec, err)
	}
	defer p.Close()
	if slices.ContainsFunc(p.Plan.Pending(), func(s plan.Planned) bool { return plan.LeavesArraysAlone(s.Step) }) {
		return false, refuseChange(&resource.Refusal{
			What: fmt.Sprintf("%s sees %d disks of the brick and was not prepared for it: its kernel may have assembled arrays that its partner writes to, and be repairing them", server, len(seen)),
			Mend: "power it off now; boot it without its cables to the enclosures, and run this again; check the arrays later (mortar scrub)",
		})
	}
	if len(missing) > 0 {
		return false, refuseChange(&resource.Refusal{
			What: fmt.Sprintf("%s sees %d of %d disks; it lacks %s", server, len(seen), len(seen)+len(missing), strings.Join(missing, ", ")),
			Mend: "check its cables to the enclosures",
		})
	}
	return true, nil
}
