package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	"github.com/mortarhpc/mortar/internal/run/repair"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
)

// procedureFlags adds the flags of a command that carries out a procedure on a running brick.
func procedureFlags(cmd *cobra.Command, timeout *time.Duration) *pflag.FlagSet {
	f := cmd.Flags()
	f.Bool("dry-run", false, "show the exact commands and change nothing")
	f.Bool("json", false, "print JSON lines: progress, then the result")
	f.DurationVar(timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return f
}

// asked is what a procedure is planned from.
type asked struct {
	*cli.Console
	d     *design.Design
	facts observe.Facts
	hosts *observe.Collector // nil for a single server
	args  []string           // without the spec
	// after is that of procedure.Carry.
	after func(context.Context) error
}

// clusterCmd makes a command that asks the servers, makes a plan, and carries it out. Errors of
// the plan are refusals.
func clusterCmd(name string, plan func(context.Context, *asked) (*procedure.Plan, error)) *cobra.Command {
	var wait, timeout time.Duration
	var cmd *cobra.Command
	cmd = command(name, func(ctx context.Context, c *cli.Console, args []string) error {
		if wait <= 0 || timeout <= 0 {
			return fail(exitBadInput, errors.New("--wait and --timeout must be above 0"))
		}
		d, err := cli.Load(args[0])
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("wait") {
			wait = design.MoveTime(d)
		}
		a := &asked{Console: c, d: d, args: args[1:]}
		if d.Clustered() { // the plan refuses a single server without asking a host
			if a.hosts, err = c.Collector(d, timeout, d.Servers()...); err != nil {
				return err
			}
			a.hosts.Under(host.Gate{DryRun: c.DryRun})
			defer a.hosts.Close()
			if name == "outlets-on" {
				a.hosts.AskOutlets()
			}
			if a.facts = a.hosts.Collect(ctx); ctx.Err() != nil {
				return fail(exitInterrupted, nil)
			}
		}
		p, err := plan(ctx, a)
		if err != nil {
			return fail(exitBadInput, err)
		}
		return procedure.Carry{Wait: wait, After: a.after}.Out(ctx, c, a.hosts, p)
	})
	procedureFlags(cmd, &timeout).DurationVar(&wait, "wait", 5*time.Minute, "how long to wait until it is done; by default longer for a large brick")
	return cmd
}

func newFailoverCmd() *cobra.Command {
	var to string
	cmd := clusterCmd("failover", func(_ context.Context, a *asked) (*procedure.Plan, error) {
		return failover.Service(a.d, a.facts, optional(a.args), to)
	})
	cmd.Flags().StringVar(&to, "to", "", "server to move to; default: the other one")
	return cmd
}

// moveCmd makes a clusterCmd about one server or service.
func moveCmd(name string, plan func(*design.Design, observe.Facts, string) (*procedure.Plan, error)) *cobra.Command {
	return clusterCmd(name, func(_ context.Context, a *asked) (*procedure.Plan, error) {
		return plan(a.d, a.facts, optional(a.args))
	})
}

func newOutletsOnCmd() *cobra.Command {
	return moveCmd("outlets-on", func(d *design.Design, f observe.Facts, node string) (*procedure.Plan, error) {
		return failover.OutletsOn(d, f, node, plan.Secrets(d.Spec, false))
	})
}

func newConfirmOffCmd() *cobra.Command {
	var given string
	cmd := clusterCmd("confirm-off", func(ctx context.Context, a *asked) (*procedure.Plan, error) {
		node := a.args[0]
		if a.DryRun {
			return failover.Confirm(ctx, a.d, a.facts, a.hosts, node, nil)
		}
		return failover.Confirm(ctx, a.d, a.facts, a.hosts, node, func(p *procedure.Plan) (bool, error) {
			asked, err := confirmNode(a.Console, node, p, given)
			if err == nil && asked {
				fmt.Fprintln(a.Aside(), "looking once more")
			}
			return asked, err
		})
	})
	cmd.Flags().StringVar(&given, "confirm", "", "name of the server, without a terminal to ask on")
	return cmd
}

// confirmNode has the user type the name of the server that the user knows to be off, unless
// --confirm gave it. asked reports whether the program asked.
func confirmNode(c *cli.Console, node string, p *procedure.Plan, given string) (asked bool, err error) {
	for _, n := range p.Notes {
		fmt.Fprintln(c.Aside(), n)
	}
	return given == "" && cli.Asks(c.In), c.Typed(node, given,
		fmt.Sprintf("If %s still runs, starting its service on %s destroys the file system.\nHave you seen that %s is off? Type its name to say so: ", node, p.To, node),
		"a person has to see that the server is off", "nothing was confirmed")
}

func newConfirmDoubtCmd() *cobra.Command {
	var given string
	cmd := clusterCmd("confirm-doubt", func(ctx context.Context, a *asked) (*procedure.Plan, error) {
		service, w := optional(a.args), a.Aside()
		r, err := failover.InDoubt(ctx, a.d, a.facts, a.hosts, service)
		if err != nil {
			return nil, err
		}
		p, err := failover.ConfirmDoubt(a.d, a.facts, service, r)
		if err != nil {
			return nil, err
		}
		a.after = func(ctx context.Context) error {
			if failover.NameDoubt(ctx, a.d, a.facts, a.hosts, p); a.JSON || p.Doubt == nil {
				return nil
			}
			if p.Nothing != "" {
				printDoubt(w, p.Doubt)
			}
			printOwners(w, p.Doubt)
			return nil
		}
		if p.Nothing != "" {
			return p, nil
		}
		if !a.JSON || !a.DryRun {
			printDoubt(w, p.Doubt)
		}
		if a.DryRun {
			return p, nil
		}
		return p, a.Typed(p.Service, given,
			"The service then starts, and the blocks above may be wrong. Their files are listed then.\nType the service's name to accept that: ",
			"a person has to see the list", "nothing was confirmed")
	})
	cmd.Flags().StringVar(&given, "confirm", "", "name of the service, without a terminal to ask on")
	return cmd
}

func newRepairCmd() *cobra.Command {
	var o repair.Options
	var timeout time.Duration
	cmd := command("repair", func(ctx context.Context, c *cli.Console, args []string) error {
		o.Service = optional(args[1:])
		return c.WithServers(ctx, args[0], timeout, c.DryRun, func(d *design.Design, hosts *observe.Collector) error {
			return repair.Run(ctx, c, d, hosts, o)
		})
	})
	f := procedureFlags(cmd, &timeout)
	f.Bool("yes", false, "do not ask")
	f.StringVar(&o.On, "on", "", "server that works on the volume; default: the preferred one, if it can")
	f.BoolVar(&o.Stop, "stop", false, "stop a service that runs, and look at its file system")
	f.BoolVar(&o.NoDump, "no-dump", false, "mend without a dump of the metadata")
	f.BoolVar(&o.ZeroLog, "zero-log", false, "throw the log away if no mount replays it: the last changes are lost")
	f.StringVar(&o.Confirm, "confirm", "", "name of the service, for --zero-log without a terminal to ask on")
	f.DurationVar(&o.Wait, "wait", time.Hour, "how long to wait for the cluster to stop or start the service")
	return cmd
}

// printDoubt lists every block.
func printDoubt(w io.Writer, d *doubt.Doubt) {
	fmt.Fprintf(w, "service %s, looked at %s\n", d.Service, d.At.Format("2006-01-02 15:04:05 MST"))
	for _, a := range d.Arrays {
		if a.Unknown != "" {
			fmt.Fprintf(w, "array %s: any block of its missing disks may be wrong: %s\n", a.Name, screen.Line(a.Unknown))
			continue
		}
		fmt.Fprintf(w, "array %s: %d blocks of %d bytes may be wrong, at these bytes of the array:\n", a.Name, len(a.Blocks), doubt.BlockBytes)
		for _, b := range a.Blocks {
			fmt.Fprintf(w, "  %d\n", b)
		}
	}
}

// printOwners lists every file that has a block in doubt.
func printOwners(w io.Writer, d *doubt.Doubt) {
	o := d.Owners
	if o == nil {
		if d.Unnamed != "" {
			fmt.Fprintf(w, "whose they are is not known: %s\n", screen.Line(d.Unnamed))
		}
		return
	}
	fmt.Fprintf(w, "files: %d; blocks of the file system's own data: %d, of no file: %d, of a cache's label and superblocks: %d, outside the volume: %d\n", len(o.Files), o.Metadata, o.Free, o.Cache, o.Outside)
	if o.Unsearched != "" {
		fmt.Fprintf(w, "the list is not complete: %s\n", screen.Line(o.Unsearched))
	}
	for _, f := range o.Files {
		fmt.Fprintf(w, "  inode %d %s\n", f.Inode, screen.Line(cmp.Or(f.Path, f.FID, "(its name was not found)")))
		for _, off := range f.Offsets {
			fmt.Fprintf(w, "    at byte %d\n", off)
		}
	}
}
