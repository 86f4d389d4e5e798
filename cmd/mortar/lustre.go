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

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/lustre"
)

func newLustreCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "lustre",
		Short: "Administer a Lustre file system: pools, layouts, full OSTs, checks",
	}
	c.AddCommand(newPoolCmd(), newLayoutCmd(), newOSTCmd(), newBalanceCmd(), newLFSCKCmd(), newFSCKCmd(), newWriteconfCmd())
	return c
}

const lustreExit = `

The plan is shown before, and asked for.

Exit codes: 0 done or nothing to do; 1 it was tried and failed; 2 refused (nothing was
changed); 130 interrupted.`

// lustreFlags are the flags of every mortar lustre command that changes something.
type lustreFlags struct {
	yes, dryRun, asJSON bool
	timeout             time.Duration
}

// lustreCmd makes a mortar lustre command that carries out a plan.
func lustreCmd(c *cobra.Command, f *lustreFlags, make func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error), after func(ctx context.Context, w io.Writer, fs *lustre.FS) error) *cobra.Command {
	c.Long += lustreExit
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the exact commands and change nothing")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON lines: progress, then the result")
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withLustre(cmd, args[0], f.timeout, f.dryRun, func(ctx context.Context, fs *lustre.FS) error {
			p, err := make(ctx, fs, args[1:])
			if err != nil {
				return fail(exitBadInput, err)
			}
			return f.run(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), fs, p, after)
		})
	}
	return c
}

// withLustre connects to the file system of a spec.
func withLustre(cmd *cobra.Command, file string, timeout time.Duration, dryRun bool, use func(ctx context.Context, fs *lustre.FS) error) error {
	if timeout <= 0 {
		return fail(exitBadInput, errors.New("--timeout must be above 0"))
	}
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	dial, err := dialHosts(d, host.Options{Timeout: timeout})
	if err != nil {
		return err
	}
	release, err := claimBrick(cmd.Context(), d.Spec) // keep apply out meanwhile
	if err != nil {
		return err
	}
	defer release()
	pool := host.NewPool(dial)
	pool.Gate = host.Gate{DryRun: dryRun}
	defer pool.Close()
	ctx := cmd.Context()
	fs, err := lustre.Open(ctx, d, pool.Session)
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, nil)
	case err != nil:
		return fail(exitBadInput, err)
	}
	return use(ctx, fs)
}

// run shows a plan, asks, and carries it out. after prints the result for a person.
func (f *lustreFlags) run(ctx context.Context, in io.Reader, w io.Writer, fs *lustre.FS, p *lustre.Plan, after func(context.Context, io.Writer, *lustre.FS) error) error {
	result := struct {
		*lustre.Plan
		Changed bool   `json:"changed"`
		DryRun  bool   `json:"dry_run,omitempty"`
		Error   string `json:"error,omitempty"`
	}{Plan: p, DryRun: f.dryRun}
	if f.asJSON && !f.yes && !f.dryRun && p.Nothing == "" {
		return fail(exitBadInput, errNobodyToAsk)
	}
	if !f.asJSON {
		printLustrePlan(w, p)
	}
	if p.Nothing != "" || f.dryRun {
		if f.asJSON {
			return json.NewEncoder(w).Encode(result)
		}
		return nil
	}
	if !f.yes {
		if !isTerminalReader(in) {
			return fail(exitBadInput, errNobodyToAsk)
		}
		if err := confirm(ctx, in, w, "Go on?"); err != nil {
			return err
		}
	}
	start := time.Now()
	err := fs.Run(ctx, p, func(e lustre.Event) {
		switch {
		case f.asJSON:
			_ = json.NewEncoder(w).Encode(e) // a closed stdout shows in the result's own write
		case e.State == "started":
			fmt.Fprintf(w, "%s %d/%d %s\n", stamp(start), e.Step, e.Steps, e.Title)
		case e.Detail != "" && e.State != "failed":
			fmt.Fprintf(w, "%s     %s\n", stamp(start), e.Detail)
		}
	})
	result.Changed = true
	if err != nil {
		result.Error = err.Error()
	}
	if f.asJSON {
		if jerr := json.NewEncoder(w).Encode(result); jerr != nil {
			return jerr
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
	case err != nil:
		return fail(exitFailed, err)
	case after != nil && !f.asJSON:
		return after(ctx, w, fs)
	}
	return nil
}

func printLustrePlan(w io.Writer, p *lustre.Plan) {
	if p.Nothing != "" {
		fmt.Fprintf(w, "nothing to do: %s\n", p.Nothing)
		return
	}
	fmt.Fprintln(w, p.What)
	for i, s := range p.Steps {
		fmt.Fprintf(w, "  %d. %s (%s)\n", i+1, s.Title, s.Host)
		if s.Action != nil {
			fmt.Fprintf(w, "     %s# %s\n", s.Host, commandLine(s.Action))
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
}

func newPoolCmd() *cobra.Command {
	c := &cobra.Command{Use: "pool", Short: "Named sets of OSTs"}
	change := func(use, short, example string, args cobra.PositionalArgs, make func(*lustre.FS, context.Context, []string) (*lustre.Plan, error)) *cobra.Command {
		return lustreCmd(&cobra.Command{
			Use: use, Short: short, Example: "  mortar lustre pool " + example, Args: args,
			Long: short + ". OSTs are named like OST000a, or by\ntheir index. Pools of the spec (lustre.pools) are changed there.",
		}, &lustreFlags{}, func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
			return make(fs, ctx, args)
		}, nil)
	}
	c.AddCommand(newPoolListCmd(),
		change("create SPEC POOL OST...", "Make a pool of some OSTs", "create brick.yaml fast OST0000 OST0001", cobra.MinimumNArgs(3),
			func(fs *lustre.FS, ctx context.Context, a []string) (*lustre.Plan, error) {
				return fs.PoolCreate(ctx, a[0], a[1:])
			}),
		change("add SPEC POOL OST...", "Add OSTs to a pool", "add brick.yaml fast OST0002", cobra.MinimumNArgs(3),
			func(fs *lustre.FS, ctx context.Context, a []string) (*lustre.Plan, error) {
				return fs.PoolAdd(ctx, a[0], a[1:])
			}),
		change("remove SPEC POOL OST...", "Take OSTs out of a pool", "remove brick.yaml fast OST0002", cobra.MinimumNArgs(3),
			func(fs *lustre.FS, ctx context.Context, a []string) (*lustre.Plan, error) {
				return fs.PoolRemove(ctx, a[0], a[1:])
			}),
		change("destroy SPEC POOL", "Destroy a pool; its files stay", "destroy brick.yaml fast", cobra.ExactArgs(2),
			func(fs *lustre.FS, ctx context.Context, a []string) (*lustre.Plan, error) {
				return fs.PoolDestroy(ctx, a[0])
			}))
	return c
}

// lustreShow makes a mortar lustre command that changes nothing.
func lustreShow[T any](c *cobra.Command, look func(ctx context.Context, fs *lustre.FS, args []string) (T, error), print func(io.Writer, T)) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withLustre(cmd, args[0], timeout, true, func(ctx context.Context, fs *lustre.FS) error {
			v, err := look(ctx, fs, args[1:])
			switch {
			case err != nil:
				return fail(exitBadInput, err)
			case asJSON:
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			print(cmd.OutOrStdout(), v)
			return nil
		})
	}
	return c
}

func newPoolListCmd() *cobra.Command {
	return lustreShow(&cobra.Command{Use: "list SPEC", Short: "List the pools and their OSTs", Args: cobra.ExactArgs(1), Example: "  mortar lustre pool list brick.yaml"},
		func(ctx context.Context, fs *lustre.FS, _ []string) ([]lustre.Pool, error) { return fs.Pools(ctx) },
		func(w io.Writer, pools []lustre.Pool) {
			if len(pools) == 0 {
				fmt.Fprintln(w, "there are no pools")
			}
			for _, p := range pools {
				of := ""
				if p.Spec {
					of = " (of the spec)"
				}
				fmt.Fprintf(w, "%s%s: %s\n", p.Name, of, strings.Join(p.OSTs, " "))
			}
		})
}

func newLayoutCmd() *cobra.Command {
	c := &cobra.Command{Use: "layout", Short: "Default layouts of directories"}
	c.AddCommand(lustreShow(&cobra.Command{Use: "show SPEC DIR", Short: "Show the default layout of a directory", Args: cobra.ExactArgs(2), Example: "  mortar lustre layout show brick.yaml results"},
		func(ctx context.Context, fs *lustre.FS, args []string) (string, error) {
			return fs.LayoutOf(ctx, args[0])
		},
		func(w io.Writer, s string) { fmt.Fprint(w, s) }))
	var l lustre.Layout
	var size string
	set := lustreCmd(&cobra.Command{Use: "set SPEC DIR", Short: "Set the default layout of a directory", Args: cobra.ExactArgs(2),
		Long:    "Set how files of a directory are striped that say nothing else. A relative path\nbegins at the mount point.",
		Example: "  mortar lustre layout set brick.yaml results --stripe-count -1 --stripe-size 4MiB\n  mortar lustre layout set brick.yaml scratch --pool fast"}, &lustreFlags{},
		func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
			if size != "" {
				n, err := spec.ParseBytes(size)
				if err != nil {
					return nil, fmt.Errorf("--stripe-size: %w; nothing was changed", err)
				}
				l.Size = n
			}
			return fs.SetLayout(ctx, args[0], l)
		}, nil)
	set.Flags().IntVar(&l.Count, "stripe-count", 0, "OSTs a file lies on; -1: all")
	set.Flags().StringVar(&size, "stripe-size", "", "bytes on one OST before the next one's turn, e.g. 4MiB")
	set.Flags().StringVar(&l.Pool, "pool", "", "pool whose OSTs files lie on")
	c.AddCommand(set)
	return c
}

func newOSTCmd() *cobra.Command {
	c := &cobra.Command{Use: "ost", Short: "Empty an OST, use it again, or close it for good"}
	change := func(word, short, long string, make func(*lustre.FS, context.Context, string) (*lustre.Plan, error)) *cobra.Command {
		return lustreCmd(&cobra.Command{Use: word + " SPEC OST", Short: short, Long: long, Args: cobra.ExactArgs(2), Example: "  mortar lustre ost " + word + " brick.yaml OST0001"},
			&lustreFlags{}, func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
				return make(fs, ctx, args[0])
			},
			func(ctx context.Context, w io.Writer, fs *lustre.FS) error {
				all, err := fs.Balance(ctx)
				if err != nil {
					return fail(exitFailed, err)
				}
				printBalance(w, all)
				return nil
			})
	}
	c.AddCommand(
		change("drain", "Stop new files on an OST, and move its files to the others",
			"The MDSs put no new files on the OST, and its files are moved to other OSTs by lfs\nmigrate, which copies each and compares its version before it puts the copy in place.\nInterrupted, call it again: what was moved stays moved.", (*lustre.FS).Drain),
		change("fill", "Put new files on an OST again", "Takes back what drain did; files do not move back.", (*lustre.FS).Fill),
		change("retire", "Close an OST without files for good", "No MDS puts new files on the OST any more, also after a failover, and clients stop asking it.\nRefused while it has objects of files, or is in a pool.", (*lustre.FS).Retire))
	return c
}

func newBalanceCmd() *cobra.Command {
	return lustreShow(&cobra.Command{Use: "balance SPEC", Short: "Show how full each target is", Args: cobra.ExactArgs(1), Example: "  mortar lustre balance brick.yaml"},
		func(ctx context.Context, fs *lustre.FS, _ []string) ([]lustre.Usage, error) { return fs.Balance(ctx) }, printBalance)
}

func printBalance(w io.Writer, all []lustre.Usage) {
	for _, u := range all {
		if u.Unread != "" {
			fmt.Fprintf(w, "%-18s unknown: %s\n", u.Target, u.Unread)
			continue
		}
		note := ""
		if !u.Creates {
			note = "  no new files"
		}
		fmt.Fprintf(w, "%-18s %5.1f %% of %s used, %d of %d inodes%s\n", u.Target, u.Percent(), report.Bytes(u.KiB*1024), u.IUsed, u.Inodes, note)
	}
}

func newLFSCKCmd() *cobra.Command {
	var dry bool
	c := lustreCmd(&cobra.Command{Use: "lfsck SPEC", Short: "Check the running file system, and repair it", Args: cobra.ExactArgs(1),
		Long:    "Has Lustre compare names with inodes, and files with their objects on OSTs, while the file\nsystem serves. LFSCK repairs what does not match, unless you give --only-look. Exit code 1:\ninconsistencies are left.",
		Example: "  mortar lustre lfsck brick.yaml --only-look"}, &lustreFlags{},
		func(_ context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.LFSCK(dry) },
		func(ctx context.Context, w io.Writer, fs *lustre.FS) error {
			server, err := fs.MDS()
			if err != nil {
				return fail(exitFailed, err)
			}
			all, err := fs.Checks(ctx, server)
			if err != nil {
				return fail(exitFailed, err)
			}
			left := int64(0)
			for _, c := range all {
				fmt.Fprintln(w, c)
				left += c.Left()
			}
			if left > 0 {
				return fail(exitFailed, fmt.Errorf("%d inconsistencies are left: `lctl get_param mdd.*.lfsck_namespace mdd.*.lfsck_layout` on %s counts them by kind", left, server))
			}
			return nil
		})
	c.Flags().BoolVar(&dry, "only-look", false, "count what does not match, and repair nothing")
	return c
}

func newFSCKCmd() *cobra.Command {
	var dry bool
	c := lustreCmd(&cobra.Command{Use: "fsck SPEC TARGET", Short: "Stop one target, check it with e2fsck, and start it again", Args: cobra.ExactArgs(2),
		Long:    "Has the cluster stop the target's service, runs e2fsck on the target, and starts the\nservice again. e2fsck repairs damage, unless --only-look is given. If the check fails, the service\nstays stopped.",
		Example: "  mortar lustre fsck brick.yaml OST0001 --only-look"}, &lustreFlags{},
		func(_ context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
			return fs.FSCK(args[0], !dry)
		}, nil)
	c.Flags().BoolVar(&dry, "only-look", false, "change nothing on the target")
	return c
}

func newWriteconfCmd() *cobra.Command {
	return lustreCmd(&cobra.Command{Use: "writeconf SPEC", Short: "Regenerate the configuration of all targets (writeconf)", Args: cobra.ExactArgs(1),
		Long:    "For changed addresses or a damaged configuration: stops all services, has every target write\nits configuration anew, starts them in order, and makes the pools again that the MGS forgets.\nRefused while a client has the file system mounted.",
		Example: "  mortar lustre writeconf brick.yaml"}, &lustreFlags{},
		func(ctx context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.Writeconf(ctx) }, nil)
}
