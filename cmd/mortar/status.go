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
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/hardware"
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

// newCollector returns a collector for all hosts of a design, or for those named. Any of them may
// take timeout to answer, and half of it to log in, without the time to copy the binary.
func newCollector(d *design.Design, timeout time.Duration, names ...string) (*observe.Collector, error) {
	dial, err := dialHosts(d, host.Options{Timeout: timeout / 2})
	if err != nil {
		return nil, err
	}
	return observe.NewCollector(d, dial, timeout, names...), nil
}

// hostTimeout is how long a host may take to answer a command without --timeout.
const hostTimeout = 30 * time.Second

// openServers reads a spec, and returns its design and a collector for its servers.
func openServers(file string, timeout time.Duration) (*design.Design, *observe.Collector, error) {
	d, err := loadDesign(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := newCollector(d, timeout, d.Servers()...)
	return d, c, err
}

// statusFlags are those of mortar status.
type statusFlags struct {
	asJSON, watch, all, hardware bool
	interval, timeout            time.Duration
	facts, save, profile         string
}

func newStatusCmd() *cobra.Command {
	var o statusFlags
	cmd := command("status", func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) })
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "print JSON; of several bricks, or with --watch, one line each")
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

func (o *statusFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case o.interval <= 0 || o.timeout <= 0:
		return fail(exitBadInput, fmt.Errorf("--interval and --timeout must be above 0"))
	case o.facts != "" && (o.watch || o.save != ""):
		return fail(exitBadInput, fmt.Errorf("--facts is a file that does not change: leave --watch and --save-facts out"))
	case len(args) > 1 && (o.facts != "" || o.save != ""):
		return fail(exitBadInput, fmt.Errorf("--facts and --save-facts are for one brick"))
	}
	out := cmd.OutOrStdout()
	live := isTerminal(out)
	if o.facts != "" {
		d, err := loadDesign(args[0], o.profile)
		if err != nil {
			return err
		}
		f, err := readFacts(o.facts)
		if err != nil {
			return fail(exitBadInput, err)
		}
		return verdictOf([]*observe.Status{observe.Judge(d, f)}, out, o.asJSON, o.all, live)
	}
	var bricks []*looked
	for _, file := range args {
		b, err := openLooked(file, o.profile, o.timeout)
		if err != nil {
			return err
		}
		defer b.c.Close()
		b.c.AskOutlets()
		if o.hardware {
			b.c.AskHardware(hardware.New())
		}
		bricks = append(bricks, b)
	}
	for {
		ss := lookAtAll(cmd.Context(), bricks)
		if cmd.Context().Err() != nil {
			return fail(exitInterrupted, nil)
		}
		if o.save != "" {
			if err := writeFacts(o.save, bricks[0].facts); err != nil {
				return err
			}
		}
		if !o.watch {
			return verdictOf(ss, out, o.asJSON, o.all, live)
		}
		if err := printStatus(out, ss, o.asJSON, o.all, o.watch, live); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return fail(exitInterrupted, nil)
		case <-time.After(o.interval):
		}
	}
}

// looked is a brick that status or watch observes.
type looked struct {
	d     *design.Design
	c     *observe.Collector
	facts observe.Facts // the last observation
}

// openLooked connects to the hosts of a brick, and has its arrays asked too.
func openLooked(file, profile string, timeout time.Duration) (*looked, error) {
	d, err := loadDesign(file, profile)
	if err != nil {
		return nil, err
	}
	c, err := newCollector(d, timeout)
	if err != nil {
		return nil, err
	}
	if err := askArrays(c, d); err != nil {
		c.Close()
		return nil, err
	}
	return &looked{d: d, c: c}, nil
}

// look observes a brick.
func (b *looked) look(ctx context.Context) *observe.Status {
	b.facts = b.c.Collect(ctx)
	return observe.Judge(b.d, b.facts)
}

// lookAtAll observes all bricks at the same time.
func lookAtAll(ctx context.Context, bricks []*looked) []*observe.Status {
	out := make([]*observe.Status, len(bricks))
	var wg sync.WaitGroup
	for i, b := range bricks {
		wg.Go(func() { out[i] = b.look(ctx) })
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
