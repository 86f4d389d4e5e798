package change

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
)

// FenceTest chooses the levels of fencing that are proven.
type FenceTest struct {
	Profile, Node string // "": that of the spec, all servers
	Level         int    // 0: all
	Confirm       string // names of the servers, to confirm a test on real hardware
	Timeout       time.Duration
}

// fenceTested is the last line of fence-test --json.
type fenceTested struct {
	Tests   []failover.LevelResult `json:"tests"`
	Seconds float64                `json:"seconds"`
	Error   string                 `json:"error,omitempty"`
}

// Run has the cluster fence each server by each level, and proves that it was.
func (f *FenceTest) Run(ctx context.Context, c *cli.Console, file string) (err error) {
	done := fenceTested{Tests: []failover.LevelResult{}}
	defer c.End(&err, func(seconds float64, failed string) any {
		done.Seconds, done.Error = seconds, failed
		return done
	})
	d, err := cli.Load(file, f.Profile)
	if err != nil {
		return err
	}
	levels, err := failover.ChosenLevels(d, f.Node, f.Level)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	if !c.Virtual(ctx, d.Spec) {
		if c.JSON {
			c.In = nil // a question would be in the way of the JSON
		}
		if err := confirmFencing(c, levels, f.Confirm); err != nil {
			return err
		}
	}
	release, err := c.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	hosts, err := c.Collector(d, f.Timeout, d.Servers()...)
	if err != nil {
		return err
	}
	defer hosts.Close()
	o := failover.ProofOptions{On: fencing(c)}
	if _, err := failover.ResumeProofs(ctx, d, hosts, o); err != nil {
		return fenceTestFailed(ctx, err)
	}
	rs, err := failover.ProveFencing(ctx, d, hosts, levels, o)
	done.Tests = append(done.Tests, rs...)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	c.Printf("Fencing proven: %s (%.0f s).\n", proven(rs), time.Since(c.Start).Seconds())
	return nil
}

// proven lists the proven levels of each server.
func proven(rs []failover.LevelResult) string {
	out := lists.Map(rs, func(r failover.LevelResult) string {
		return fmt.Sprintf("%s level %d in %.1f s", r.Node, r.Level, r.Seconds)
	})
	return strings.Join(out, ", ")
}

// fenceTestFailed gives the error of a test its exit code.
func fenceTestFailed(ctx context.Context, err error) error {
	var refused *resource.Refusal
	var failed *failover.ProofFailed
	switch {
	case errors.As(err, &refused):
		return cli.Fail(cli.BadInput, err)
	case ctx.Err() != nil:
		return cli.ByInterrupt(ctx, err, "interrupted; everything that the fence test switched off is on again")
	case errors.As(err, &failed):
		after := "Everything was switched on again."
		if failed.Left != nil {
			after = "Not everything could be put back: mend that, and run the test again."
		}
		return cli.Fail(cli.Failed, fmt.Errorf("fencing does not work:\n%w\n%s Until it is mended, a failure of that server may stop its service for good", err, after))
	}
	return err
}

// confirmFencing has the user type the names of the servers that the test powers off.
func confirmFencing(c *cli.Console, levels []*design.FenceLevel, given string) error {
	nodes := failover.NodesOf(levels)
	want := strings.Join(nodes, ",")
	return c.Typed(want, given, fmt.Sprintf("This is real hardware. One after the other, these servers are powered off and on; their services move away and back meanwhile.\nType %s to go on: ", want),
		"this is real hardware", "nothing was changed")
}

// fencing prints each event of a fence test.
func fencing(c *cli.Console) func(failover.ProofEvent) {
	return func(e failover.ProofEvent) {
		text := e.Text
		switch e.State {
		case "failed":
			text, _, _ = strings.Cut(text, "\n") // the error has the rest
			text = c.Bold("FAILED") + " " + text
		case "proven":
			text = c.Bold("proven") + " " + text
		}
		c.Event(e, e.Node, text)
	}
}
