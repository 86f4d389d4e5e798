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
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/hardware"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// statusFlags are those of mortar status.
type statusFlags struct {
	watch, all, hardware bool
	interval, timeout    time.Duration
	facts, save, profile string
}

func newStatusCmd() *cobra.Command {
	var o statusFlags
	cmd := command("status", o.run)
	f := cmd.Flags()
	f.Bool("json", false, "print JSON; of several bricks, or with --watch, one line each")
	f.BoolVar(&o.watch, "watch", false, "go on until interrupted")
	profileFlag(cmd, &o.profile)
	f.BoolVar(&o.all, "all", false, "show every part, also what lies below a part that is ok")
	f.BoolVar(&o.hardware, "hardware", false, "also ask BMCs and enclosures for sensors and events, and disks for SMART data")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "pause between two looks, with --watch")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	f.StringVar(&o.save, "save-facts", "", "also write what the hosts said to this file (no secrets in it)")
	f.StringVar(&o.facts, "facts", "", "judge what --save-facts wrote; no host is reached")
	return cmd
}

func (o *statusFlags) run(ctx context.Context, c *cli.Console, args []string) error {
	switch {
	case o.interval <= 0 || o.timeout <= 0:
		return fail(exitBadInput, fmt.Errorf("--interval and --timeout must be above 0"))
	case o.facts != "" && (o.watch || o.save != ""):
		return fail(exitBadInput, fmt.Errorf("--facts is a file that does not change: leave --watch and --save-facts out"))
	case len(args) > 1 && (o.facts != "" || o.save != ""):
		return fail(exitBadInput, fmt.Errorf("--facts and --save-facts are for one brick"))
	}
	if o.facts != "" {
		d, err := cli.Load(args[0], o.profile)
		if err != nil {
			return err
		}
		f, err := readFacts(o.facts)
		if err != nil {
			return fail(exitBadInput, err)
		}
		return o.verdict(c, []*observe.Status{observe.Judge(d, f)})
	}
	var bricks []*cli.Brick
	for _, file := range args {
		b, err := c.Observe(file, o.profile, o.timeout)
		if err != nil {
			return err
		}
		defer b.Hosts.Close()
		b.Hosts.AskOutlets()
		if o.hardware {
			b.Hosts.AskHardware(hardware.New())
		}
		bricks = append(bricks, b)
	}
	for {
		ss := make([]*observe.Status, len(bricks))
		var wg sync.WaitGroup
		for i, b := range bricks {
			wg.Go(func() { ss[i] = b.Look(ctx) })
		}
		wg.Wait()
		if ctx.Err() != nil {
			return fail(exitInterrupted, nil)
		}
		if o.save != "" {
			if err := writeFacts(o.save, bricks[0].Facts); err != nil {
				return err
			}
		}
		if !o.watch {
			return o.verdict(c, ss)
		}
		if err := o.print(c, ss); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fail(exitInterrupted, nil)
		case <-time.After(o.interval):
		}
	}
}

func (o *statusFlags) verdict(c *cli.Console, ss []*observe.Status) error {
	if err := o.print(c, ss); err != nil {
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

// print prints the bricks in order. With --json it prints a line for each, if there are several
// bricks or repetitions.
func (o *statusFlags) print(c *cli.Console, ss []*observe.Status) error {
	w, look, live := c.Out, observe.Look{All: o.all}, cli.IsTerminal(c.Out)
	if live {
		look.Paint, look.Width = cli.Painter(w), widthOf(w) // 0: no wrapping
	}
	if o.watch && live && !c.JSON {
		if _, err := io.WriteString(w, screen.Home); err != nil {
			return err
		}
	}
	for i, s := range ss {
		var err error
		if c.JSON {
			var b []byte
			if b, err = s.JSON(!o.watch && len(ss) == 1); err == nil {
				_, err = fmt.Fprintf(w, "%s\n", b)
			}
		} else {
			if i > 0 {
				fmt.Fprintln(w)
			}
			err = observe.Render(w, s, look)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
