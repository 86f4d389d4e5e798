package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/failover"
)

type fenceTestFlags struct {
	node, confirm string
	profile       string
	level         int
	asJSON        bool
	timeout       time.Duration
}

func newFenceTestCmd() *cobra.Command {
	var f fenceTestFlags
	cmd := command("fence-test", func(cmd *cobra.Command, args []string) error {
		return runFenceTest(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args[0], f)
	})
	cmd.Flags().StringVar(&f.node, "node", "", "test this server only")
	profileFlag(cmd, &f.profile)
	cmd.Flags().IntVar(&f.level, "level", 0, "test this level only")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "names of the servers, separated by commas, to confirm a test on real hardware")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a server that is up may take to answer")
	return cmd
}

// fenceTestDone is the last line of fence-test --json.
type fenceTestDone struct {
	Tests   []failover.LevelResult `json:"tests"`
	Seconds float64                `json:"seconds"`
	Error   string                 `json:"error,omitempty"`
}

func runFenceTest(ctx context.Context, in io.Reader, w io.Writer, file string, f fenceTestFlags) (err error) {
	t := &teller{w, f.asJSON, time.Now()}
	done := fenceTestDone{Tests: []failover.LevelResult{}}
	defer t.end(&err, func(seconds float64, failed string) any {
		done.Seconds, done.Error = seconds, failed
		return done
	})
	d, err := loadDesign(file, f.profile)
	if err != nil {
		return err
	}
	levels, err := failover.ChosenLevels(d, f.node, f.level)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if !virtualRack(ctx, d.Spec) {
		if f.asJSON {
			in = nil // a question would be in the way of the JSON
		}
		if err := confirmFencing(in, w, levels, f.confirm); err != nil {
			return err
		}
	}
	release, err := claimBrick(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	c, err := newCollector(d, f.timeout, d.Servers()...)
	if err != nil {
		return err
	}
	defer c.Close()
	o := failover.ProofOptions{On: fenceProgress(t)}
	if _, err := failover.ResumeProofs(ctx, d, c, o); err != nil {
		return fenceTestFailed(ctx, err)
	}
	rs, err := failover.ProveFencing(ctx, d, c, levels, o)
	done.Tests = append(done.Tests, rs...)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fencing proven: %s (%.0f s).\n", provenText(rs), time.Since(t.start).Seconds())
	}
	return nil
}

// provenText lists the proven levels of each server.
func provenText(rs []failover.LevelResult) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s level %d in %.1f s", r.Node, r.Level, r.Seconds))
	}
	return strings.Join(out, ", ")
}

// fenceTestFailed gives the error of a test its exit code.
func fenceTestFailed(ctx context.Context, err error) error {
	var refused *resource.Refusal
	var failed *failover.ProofFailed
	switch {
	case errors.As(err, &refused):
		return fail(exitBadInput, err)
	case ctx.Err() != nil:
		if err == ctx.Err() { //nolint:errorlint // that and nothing else
			return fail(exitInterrupted, errors.New("interrupted; everything that the fence test switched off is on again"))
		}
		return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
	case errors.As(err, &failed):
		after := "Everything was switched on again."
		if failed.Left != nil {
			after = "Not everything could be put back: mend that, and run the test again."
		}
		return fail(exitFailed, fmt.Errorf("fencing does not work:\n%w\n%s Until it is mended, a failure of that server may stop its service for good", err, after))
	}
	return err
}

// virtualRack reports whether the spec's hardware is a virtual rack that is up.
func virtualRack(ctx context.Context, s *spec.Spec) bool {
	_, err := rack.Status(ctx, rackOf(s))
	return err == nil
}

// rackOf returns the directory of a spec's virtual rack, if it has one.
func rackOf(s *spec.Spec) string { return filepath.Dir(host.InventoryFile(s)) }

// confirmFencing has the user type the names of the servers that the test powers off.
func confirmFencing(in io.Reader, w io.Writer, levels []*design.FenceLevel, given string) error {
	var nodes []string
	for _, l := range levels {
		if !slices.Contains(nodes, l.Node) {
			nodes = append(nodes, l.Node)
		}
	}
	want := strings.Join(nodes, ",")
	return typed(in, w, want, given, fmt.Sprintf("This is real hardware. One after the other, these servers are powered off and on; their services move away and back meanwhile.\nType %s to go on: ", want),
		"this is real hardware", "nothing was changed")
}

// fenceProgress prints each event.
func fenceProgress(t *teller) func(failover.ProofEvent) {
	return func(e failover.ProofEvent) {
		text := e.Text
		switch e.State {
		case "failed":
			text, _, _ = strings.Cut(text, "\n") // the error has the rest
			text = bold("FAILED") + " " + text
		case "proven":
			text = bold("proven") + " " + text
		}
		t.event(e, e.Node, text)
	}
}

// prove tests, at the end of an apply, the levels that are not proven.
func prove(ctx context.Context, pr *failover.Prover, p *plan.Prepared, in io.Reader, w io.Writer, f applyFlags, done *applyDone) error {
	d := pr.Design
	if f.prepare != "" {
		return nil
	}
	levels, err := pr.Unproven(ctx, p.Hosts)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	if len(levels) == 0 {
		return nil
	}
	why := ""
	switch {
	case f.skipFenceTest:
		why = "--skip-fence-test"
	case !virtualRack(ctx, d.Spec) && p.Served():
		// A test would interrupt clients twice, and an apply does not ask for that.
		why = "the service runs already, and a fence test moves it"
		if !f.yes && !f.asJSON && isTerminalReader(in) && confirmFencing(in, w, levels, "") == nil {
			why = ""
		}
	}
	if why != "" {
		for _, l := range levels {
			done.Unproven = append(done.Unproven, fmt.Sprintf("%s level %d", l.Node, l.Level))
		}
		if !f.asJSON {
			fmt.Fprintf(w, "Fencing is not proven (%s): %s. mortar fence-test %s proves it.\n", why, strings.Join(done.Unproven, ", "), d.Spec.File)
		}
		return nil
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fence test: each level that is not proven is used, one by one (--skip-fence-test leaves it out)\n")
	}
	start := time.Now()
	done.FenceTests, err = pr.Prove(ctx, levels)
	var refused *resource.Refusal
	switch {
	case errors.As(err, &refused):
		return fail(exitFailed, fmt.Errorf("everything is applied, but fencing could not be tested: %w", err))
	case err != nil:
		return fenceTestFailed(ctx, err)
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fencing proven: %s (%.0f s).\n", provenText(done.FenceTests), time.Since(start).Seconds())
	}
	return nil
}
