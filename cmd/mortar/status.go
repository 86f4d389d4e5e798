package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/observe"
)

// dialHosts connects to the hosts of a design's inventory; a login may take as
// long as it says, pushing the binary is not counted.
func dialHosts(d *design.Design, login time.Duration) (observe.Dial, error) {
	targets, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	return func(ctx context.Context, name string) (observe.Conn, error) {
		t, ok := targets[name]
		if !ok {
			return nil, fmt.Errorf("%s is not in the inventory", name)
		}
		h, err := host.Connect(ctx, t, host.Options{Timeout: login})
		if err != nil {
			return nil, err // not h: a nil *host.Host is no nil Conn
		}
		return h, nil
	}, nil
}

func newStatusCmd() *cobra.Command {
	var (
		asJSON, watch, all bool
		interval, timeout  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "status brick.yaml",
		Short: "Show the health of a brick, from disk to client",
		Long: `Show the health of a brick as a tree: host, disk, path, RAID, volume, file
system, export, cluster, fencing, client. Every host is asked once, all at the
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
			d, err := loadDesign(args[0])
			if err != nil {
				return err
			}
			dial, err := dialHosts(d, timeout/2)
			if err != nil {
				return err
			}
			c := observe.NewCollector(d, dial, timeout)
			defer c.Close()
			out := cmd.OutOrStdout()
			screen := out == os.Stdout && isTerminal(os.Stdout)
			for {
				facts := c.Collect(cmd.Context())
				if cmd.Context().Err() != nil {
					return fail(exitInterrupted, nil)
				}
				s := observe.Judge(d, facts)
				if err := printStatus(out, s, asJSON, all, watch, screen); err != nil {
					return err
				}
				if !watch {
					if s.Level == observe.Fault {
						return fail(exitFailed, nil)
					}
					return nil
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
	f.BoolVar(&all, "all", false, "show every part, also what lies below a part that is ok")
	f.DurationVar(&interval, "interval", 5*time.Second, "pause between two looks, with --watch")
	f.DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
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
