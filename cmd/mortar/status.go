package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// dialHosts connects to the hosts of a design's inventory.
func dialHosts(d *design.Design, opts host.Options) (host.Dial, error) {
	targets, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	opts.LibDir, opts.Link, opts.AnyUser = connectOptions.LibDir, connectOptions.Link, connectOptions.AnyUser
	return host.Dialer(targets, opts), nil
}

// newCollector returns a collector for all hosts of a design, or for those named. login limits
// a login without the time to copy the binary.
func newCollector(d *design.Design, login, timeout time.Duration, names ...string) (*observe.Collector, error) {
	dial, err := dialHosts(d, host.Options{Timeout: login})
	if err != nil {
		return nil, err
	}
	return observe.NewCollector(d, dial, timeout, names...), nil
}

func newStatusCmd() *cobra.Command {
	var (
		asJSON, watch, all   bool
		hardware             bool
		interval, timeout    time.Duration
		facts, save, profile string
	)
	cmd := &cobra.Command{
		Use:   "status SPEC...",
		Short: "Show the health of a brick, from disk to client",
		Long: `Show the health of a brick, or of several, as a tree: host, disk, path, RAID, volume,
file system, export, cluster, fencing, client. RAID arrays are asked themselves: an
ME4 over HTTPS, an MD3 by SMcli, a PERC by perccli on its server. Every host is asked once, all at the
same time; nothing is changed. A host that does not answer within --timeout is
a fault, the others are shown all the same.

With --hardware each server's BMC is asked for its sensors (power supplies, fans,
temperatures) and its event log, each disk enclosure for its own (SES, by sg_ses), and
each disk for its SMART data. That takes up to a minute more.

Levels: ok; warning (it serves, nothing is broken, but somebody should look: a
rebuild runs, a service is not on its preferred server, fencing was never
proven); fault (something is broken or missing, even where redundancy carries
it); unknown (nothing could be found out).

Exit code: 0 without a fault, 1 with one, 2 if the spec is bad.
The JSON is described in docs/status.md.`,
		Example: `  mortar status brick.yaml
  mortar status brick.yaml --watch
  mortar status brick.yaml --hardware
  mortar status home.yaml scratch.yaml
  mortar status brick.yaml --json | jq -r '.. | select(.level? == "fault") | .text'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case interval <= 0 || timeout <= 0:
				return fail(exitBadInput, fmt.Errorf("--interval and --timeout must be above 0"))
			case facts != "" && (watch || save != ""):
				return fail(exitBadInput, fmt.Errorf("--facts is a file that does not change: leave --watch and --save-facts out"))
			case len(args) > 1 && (facts != "" || save != ""):
				return fail(exitBadInput, fmt.Errorf("--facts and --save-facts are for one brick"))
			}
			out := cmd.OutOrStdout()
			live := isTerminal(out)
			if facts != "" {
				d, err := loadDesignAs(args[0], profile)
				if err != nil {
					return err
				}
				f, err := readFacts(facts)
				if err != nil {
					return fail(exitBadInput, err)
				}
				return verdictOf([]*observe.Status{observe.Judge(d, f)}, out, asJSON, all, live)
			}
			var bricks []*looked
			for _, file := range args {
				b, err := openLooked(file, profile, timeout)
				if err != nil {
					return err
				}
				defer b.c.Close()
				if hardware {
					b.c.AskHardware()
				}
				bricks = append(bricks, b)
			}
			for {
				ss := lookAtAll(cmd.Context(), bricks)
				if cmd.Context().Err() != nil {
					return fail(exitInterrupted, nil)
				}
				if save != "" {
					if err := writeFacts(save, bricks[0].facts); err != nil {
						return fail(exitFailed, err)
					}
				}
				if !watch {
					return verdictOf(ss, out, asJSON, all, live)
				}
				if err := printStatus(out, ss, asJSON, all, watch, live); err != nil {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return fail(exitInterrupted, nil)
				case <-time.After(interval):
				}
			}
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON; of several bricks, or with --watch, one line each")
	f.BoolVar(&watch, "watch", false, "go on until interrupted")
	profileFlag(cmd, &profile)
	f.BoolVar(&all, "all", false, "show every part, also what lies below a part that is ok")
	f.BoolVar(&hardware, "hardware", false, "also ask BMCs and enclosures for sensors and events, and disks for SMART data")
	f.DurationVar(&interval, "interval", 5*time.Second, "pause between two looks, with --watch")
	f.DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	f.StringVar(&save, "save-facts", "", "also write what the hosts said to this file (no secrets in it)")
	f.StringVar(&facts, "facts", "", "judge what --save-facts wrote; no host is reached")
	return cmd
}

// looked is a brick that status or watch observes.
type looked struct {
	d     *design.Design
	c     *observe.Collector
	facts observe.Facts // the last observation
}

func openLooked(file, profile string, timeout time.Duration) (*looked, error) {
	d, err := loadDesignAs(file, profile)
	if err != nil {
		return nil, err
	}
	c, err := newCollector(d, timeout/2, timeout)
	if err != nil {
		return nil, err
	}
	c.AskOutlets()
	if err := askArrays(c, d); err != nil {
		c.Close()
		return nil, err
	}
	return &looked{d: d, c: c}, nil
}

// lookAtAll observes all bricks at the same time.
func lookAtAll(ctx context.Context, bricks []*looked) []*observe.Status {
	out := make([]*observe.Status, len(bricks))
	var wg sync.WaitGroup
	for i, b := range bricks {
		wg.Go(func() {
			b.facts = b.c.Collect(ctx)
			out[i] = observe.Judge(b.d, b.facts)
		})
	}
	wg.Wait()
	return out
}

// askArrays sets a collector to ask the brick's arrays from this machine.
func askArrays(c *observe.Collector, d *design.Design) error {
	dial, err := host.ManagementDial(d.Spec)
	if err != nil {
		return fail(exitBadInput, err)
	}
	secrets := plan.Secrets(d.Spec, false)
	c.AskArrays(func(ctx context.Context, a *design.Array) raid.Answer {
		i := slices.IndexFunc(d.Spec.Arrays, func(x spec.Array) bool { return x.Name == a.Name })
		if i < 0 {
			return raid.Answer{NotAsked: "the spec does not list it"}
		}
		return raid.Ask(ctx, a, &d.Spec.Arrays[i], secrets, dial)
	})
	return nil
}

func verdictOf(ss []*observe.Status, w io.Writer, asJSON, all, live bool) error {
	if err := printStatus(w, ss, asJSON, all, false, live); err != nil {
		return err
	}
	if slices.ContainsFunc(ss, func(s *observe.Status) bool { return s.Level == observe.Fault }) {
		return fail(exitFailed, nil)
	}
	return nil
}

func readFacts(path string) (observe.Facts, error) {
	var f observe.Facts
	b, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s: not written by --save-facts: %w", path, err)
	}
	return f, nil
}

func writeFacts(path string, f observe.Facts) error {
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600)
}

// printStatus prints the bricks in order. With --json it prints a line for each, if there are
// several bricks or repetitions.
func printStatus(w io.Writer, ss []*observe.Status, asJSON, all, watch, live bool) error {
	look := observe.Look{All: all}
	if live {
		look.Paint, look.Width = painter(w), widthOf(w) // 0: no wrapping
	}
	if watch && live && !asJSON {
		if _, err := io.WriteString(w, screen.Home); err != nil {
			return err
		}
	}
	for i, s := range ss {
		var err error
		switch {
		case asJSON:
			var b []byte
			if b, err = s.JSON(!watch && len(ss) == 1); err == nil {
				_, err = fmt.Fprintf(w, "%s\n", b)
			}
		case i > 0:
			if _, err = fmt.Fprintln(w); err != nil {
				return err
			}
			err = observe.Render(w, s, look)
		default:
			err = observe.Render(w, s, look)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
