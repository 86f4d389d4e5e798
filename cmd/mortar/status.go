package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	return host.Dialer(targets, opts), nil
}

// newCollector makes a collector of a design's hosts, all or those named. A login
// may take as long as it says, pushing the binary is not counted.
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
		interval, timeout    time.Duration
		facts, save, profile string
	)
	cmd := &cobra.Command{
		Use:   "status SPEC",
		Short: "Show the health of a brick, from disk to client",
		Long: `Show the health of a brick as a tree: host, disk, path, RAID, volume, file
system, export, cluster, fencing, client. RAID arrays are asked themselves: an
ME4 over HTTPS, an MD3 by SMcli, a PERC by perccli on its server. Every host is asked once, all at the
same time; nothing is changed. A host that does not answer within --timeout is
a fault, the others are shown all the same.

Levels: ok; warning (it serves, nothing is broken, but somebody should look: a
rebuild runs, a service is not on its preferred server, fencing was never
proven); fault (something is broken or missing, even where redundancy carries
it); unknown (nothing could be found out).

Exit code: 0 without a fault, 1 with one, 2 if the spec is bad.
The JSON is described in docs/status.md.`,
		Example: `  mortar status brick.yaml
  mortar status brick.yaml --watch
  mortar status brick.yaml --json | jq -r '.. | select(.level? == "fault") | .text'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 || timeout <= 0 {
				return fail(exitBadInput, fmt.Errorf("--interval and --timeout must be above 0"))
			}
			d, err := loadDesignAs(args[0], profile)
			if err != nil {
				return err
			}
			if facts != "" {
				if watch || save != "" {
					return fail(exitBadInput, fmt.Errorf("--facts is a file that does not change: leave --watch and --save-facts out"))
				}
				f, err := readFacts(facts)
				if err != nil {
					return fail(exitBadInput, err)
				}
				out := cmd.OutOrStdout()
				return verdictOf(observe.Judge(d, f), out, asJSON, all, out == os.Stdout && isTerminal(os.Stdout))
			}
			c, err := newCollector(d, timeout/2, timeout)
			if err != nil {
				return err
			}
			defer c.Close()
			c.AskOutlets()
			if err := askArrays(c, d); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			screen := out == os.Stdout && isTerminal(os.Stdout)
			for {
				f := c.Collect(cmd.Context())
				if cmd.Context().Err() != nil {
					return fail(exitInterrupted, nil)
				}
				if save != "" {
					if err := writeFacts(save, f); err != nil {
						return fail(exitFailed, err)
					}
				}
				s := observe.Judge(d, f)
				if !watch {
					return verdictOf(s, out, asJSON, all, screen)
				}
				if err := printStatus(out, s, asJSON, all, watch, screen); err != nil {
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
	f.BoolVar(&asJSON, "json", false, "print JSON; with --watch one line each time")
	f.BoolVar(&watch, "watch", false, "go on until interrupted")
	profileFlag(cmd, &profile)
	f.BoolVar(&all, "all", false, "show every part, also what lies below a part that is ok")
	f.DurationVar(&interval, "interval", 5*time.Second, "pause between two looks, with --watch")
	f.DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	f.StringVar(&save, "save-facts", "", "also write what the hosts said to this file (no secrets in it)")
	f.StringVar(&facts, "facts", "", "judge what --save-facts wrote; no host is reached")
	return cmd
}

// askArrays has a collector ask the brick's arrays from here.
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

func verdictOf(s *observe.Status, w io.Writer, asJSON, all, screen bool) error {
	if err := printStatus(w, s, asJSON, all, false, screen); err != nil {
		return err
	}
	if s.Level == observe.Fault {
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

func printStatus(w io.Writer, s *observe.Status, asJSON, all, watch, screen bool) error {
	if asJSON {
		b, err := s.JSON(!watch)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	look := observe.Look{All: all, Color: screen}
	if screen {
		look.Width, _, _ = term.GetSize(int(os.Stdout.Fd())) // 0 if it cannot be told: no wrapping
	}
	if watch && screen {
		// Home, then clear: less flicker than the other way round.
		if _, err := io.WriteString(w, "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	return observe.Render(w, s, look)
}
