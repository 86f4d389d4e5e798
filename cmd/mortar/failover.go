package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// moveFlags are the flags of the four commands that move services.
type moveFlags struct {
	dryRun, asJSON bool
	outlets        bool // ask the PDUs too
	wait, timeout  time.Duration
	// after runs once the plan is carried out, or there was nothing to do. It may add to the plan.
	after func(context.Context, *design.Design, observe.Facts, *observe.Collector, *failover.Plan)
}

func (m *moveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&m.dryRun, "dry-run", false, "show the exact commands and change nothing")
	f.BoolVar(&m.asJSON, "json", false, "print JSON lines: progress, then the result")
	f.DurationVar(&m.wait, "wait", 5*time.Minute, "how long to wait until it is done")
	f.DurationVar(&m.timeout, "timeout", 30*time.Second, "how long any host may take to answer")
}

const moveExit = `
Exit code: 0 done or nothing to do; 1 it was tried and failed; 2 refused,
nothing was changed.`

func newFailoverCmd() *cobra.Command {
	var m moveFlags
	var to string
	cmd := &cobra.Command{
		Use:     "failover SPEC [SERVICE]",
		Short:   "Move a service to the other server, gracefully",
		Example: "  mortar failover brick.yaml\n  mortar failover brick.yaml --dry-run",
		Long: `Move a service to the other server, or to the one named by --to: the cluster
stops it here and starts it there; clients wait meanwhile. The constraint that
the cluster's move command makes is taken away again, also if the move fails
or is interrupted. Refused if the target could not serve: it is not online, does not
reach the disks, failed before, or the server left behind could not be fenced.
` + moveExit,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd, args[0], func(d *design.Design, f observe.Facts) (*failover.Plan, error) {
				return failover.Service(d, f, second(args), to)
			})
		},
	}
	m.add(cmd)
	cmd.Flags().StringVar(&to, "to", "", "server to move to; default: the other one")
	return cmd
}

func newFailbackCmd() *cobra.Command {
	var m moveFlags
	cmd := &cobra.Command{
		Use:     "failback SPEC [SERVICE]",
		Short:   "Move a service to its preferred server",
		Example: "  mortar failback brick.yaml\n  mortar failback brick.yaml home   # of two services",
		Long:    "Move a service back to the server the spec prefers; see failover. Of two services, name the one.\n" + moveExit,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd, args[0], func(d *design.Design, f observe.Facts) (*failover.Plan, error) {
				return failover.Failback(d, f, second(args))
			})
		},
	}
	m.add(cmd)
	return cmd
}

func newStandbyCmd() *cobra.Command {
	var m moveFlags
	cmd := &cobra.Command{
		Use:     "standby SPEC NODE",
		Short:   "Move everything off a server and keep it off, for maintenance",
		Example: "  mortar standby brick.yaml nfs1",
		Long: `Put a server in standby: its services move to the other one, and it takes
nothing over until ` + "`mortar unstandby`" + `, also after a reboot. Refused if the
other server could not take the services over.
` + moveExit,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd, args[0], func(d *design.Design, f observe.Facts) (*failover.Plan, error) {
				return failover.Standby(d, f, args[1])
			})
		},
	}
	m.add(cmd)
	return cmd
}

func newUnstandbyCmd() *cobra.Command {
	var m moveFlags
	cmd := &cobra.Command{
		Use:     "unstandby SPEC NODE",
		Short:   "Let a server in standby take services again",
		Example: "  mortar unstandby brick.yaml nfs1",
		Long: `End standby. Services stay where they are, unless ha.failback is auto; move
them with ` + "`mortar failback`" + `.
` + moveExit,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd, args[0], func(d *design.Design, f observe.Facts) (*failover.Plan, error) {
				return failover.Unstandby(d, f, args[1])
			})
		},
	}
	m.add(cmd)
	return cmd
}

func second(args []string) string {
	if len(args) > 1 {
		return args[1]
	}
	return ""
}

// moveResult is the last line of --json.
type moveResult struct {
	*failover.Plan
	Changed bool    `json:"changed"`
	DryRun  bool    `json:"dry_run,omitempty"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

func (m *moveFlags) run(cmd *cobra.Command, file string, plan func(*design.Design, observe.Facts) (*failover.Plan, error)) error {
	return m.runWith(cmd, file, func(_ context.Context, d *design.Design, f observe.Facts, _ *observe.Collector) (*failover.Plan, error) {
		return plan(d, f)
	})
}

// runWith asks the servers, makes a plan by plan, and carries it out. Errors of plan are
// refusals.
func (m *moveFlags) runWith(cmd *cobra.Command, file string, plan func(context.Context, *design.Design, observe.Facts, *observe.Collector) (*failover.Plan, error)) error {
	if m.wait <= 0 || m.timeout <= 0 {
		return fail(exitBadInput, errors.New("--wait and --timeout must be above 0"))
	}
	ctx := cmd.Context()
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	var facts observe.Facts
	var c *observe.Collector
	if d.Clustered() { // the plan refuses a single server without asking a host
		if c, err = newCollector(d, m.timeout/2, m.timeout, serverNamesOf(d)...); err != nil {
			return err
		}
		c.Under(host.Gate{DryRun: m.dryRun})
		defer c.Close()
		if m.outlets {
			c.AskOutlets()
		}
		facts = c.Collect(ctx)
		if ctx.Err() != nil {
			return fail(exitInterrupted, nil)
		}
	}
	p, err := plan(ctx, d, facts, c)
	if err != nil {
		return fail(exitBadInput, err)
	}
	after := func() {
		if m.after != nil {
			m.after(ctx, d, facts, c, p)
		}
	}
	w := cmd.OutOrStdout()
	show := func(r moveResult) error {
		if m.asJSON {
			return json.NewEncoder(w).Encode(r)
		}
		return nil
	}
	if !m.asJSON {
		printMove(w, p, m.dryRun)
	}
	if p.Nothing != "" {
		after()
	}
	if p.Nothing != "" || m.dryRun {
		return show(moveResult{Plan: p, DryRun: m.dryRun})
	}
	start := time.Now()
	err = failover.Run(ctx, c, p, failover.Options{Wait: m.wait, Poll: 5 * time.Second, Glance: 500 * time.Millisecond, On: m.progress(w, start)})
	took := time.Since(start)
	r := moveResult{Plan: p, Changed: true, Seconds: took.Seconds()}
	if err != nil {
		r.Error = err.Error()
		if serr := show(r); serr != nil {
			return serr
		}
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return fail(exitInterrupted, fmt.Errorf("interrupted: %w; see `mortar status`", err))
		}
		return fail(exitFailed, fmt.Errorf("%w; see `mortar status`", err))
	}
	if !m.asJSON {
		fmt.Fprintf(w, "done in %.1f s\n", took.Seconds())
	}
	after()
	return show(r)
}

func serverNamesOf(d *design.Design) []string {
	var out []string
	for _, s := range d.Spec.Servers {
		out = append(out, s.Name)
	}
	return out
}

func printMove(w io.Writer, p *failover.Plan, dry bool) {
	if p.Nothing != "" {
		fmt.Fprintf(w, "nothing to do: %s\n", p.Nothing)
		return
	}
	switch {
	case p.Service != "" && p.From != "" && p.From != p.To:
		fmt.Fprintf(w, "%s of service %s: %s → %s\n", p.What, p.Service, p.From, p.To)
	case p.Service != "":
		fmt.Fprintf(w, "%s of service %s to %s\n", p.What, p.Service, p.To)
	default:
		fmt.Fprintf(w, "%s %s\n", p.What, p.Node)
	}
	if !dry {
		return
	}
	for i, s := range p.Steps {
		fmt.Fprintf(w, "  %d. %s\n", i+1, s.Title)
		switch {
		case s.Action != nil && s.Action.File != nil:
			fmt.Fprintf(w, "     %s: write %s\n", p.HostOf(&s), s.Action.File.Path)
		case s.Action != nil:
			fmt.Fprintf(w, "     %s# %s\n", p.HostOf(&s), commandLine(s.Action))
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	fmt.Fprintln(w, "dry run: nothing was changed")
}

func commandLine(a *resource.Action) string {
	words := make([]string, len(a.Cmd))
	for i, s := range a.Cmd {
		words[i] = shellQuote(s)
	}
	return strings.Join(words, " ")
}

// progress prints a line for each event.
func (m *moveFlags) progress(w io.Writer, start time.Time) func(failover.Event) {
	return func(e failover.Event) {
		if m.asJSON {
			_ = json.NewEncoder(w).Encode(e) // a closed stdout shows in the result's own write
			return
		}
		at := fmt.Sprintf("%6.1f s", time.Since(start).Seconds())
		switch e.State {
		case "started":
			fmt.Fprintf(w, "%s  %d/%d %s\n", at, e.Step, e.Steps, e.Title)
		case "waiting", "failed":
			fmt.Fprintf(w, "%s      %s: %s\n", at, e.State, e.Detail)
		case "done":
			if e.Detail != "" {
				fmt.Fprintf(w, "%s      %s\n", at, e.Detail)
			}
		}
	}
}
