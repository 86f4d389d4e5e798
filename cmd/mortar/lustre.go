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
	"github.com/mortarhpc/mortar/internal/run/procedure"
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

// lustreCmd makes a mortar lustre command that carries out a plan. after prints the result for a
// person; it may be nil.
func lustreCmd(c *cobra.Command, make func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error), after func(ctx context.Context, w io.Writer, fs *lustre.FS) error) *cobra.Command {
	f := &procedureFlags{}
	f.add(c, true)
	c.Long += lustreExit
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withLustre(cmd, args[0], f.timeout, f.dryRun, func(ctx context.Context, hosts procedure.Hosts, fs *lustre.FS) error {
			p, err := make(ctx, fs, args[1:])
			if err != nil {
				return fail(exitBadInput, err)
			}
			return f.carryOut(cmd, hosts, p, lustre.Grace, func(ctx context.Context, w io.Writer) error {
				if after == nil {
					return nil
				}
				return after(ctx, w, fs)
			})
		})
	}
	return c
}

// withLustre connects to the file system of a spec.
func withLustre(cmd *cobra.Command, file string, timeout time.Duration, dryRun bool, use func(ctx context.Context, hosts procedure.Hosts, fs *lustre.FS) error) error {
	if timeout <= 0 {
		return fail(exitBadInput, errors.New("--timeout must be above 0"))
	}
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	c, err := newCollector(d, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Under(host.Gate{DryRun: dryRun})
	release, err := claimBrick(cmd.Context(), d.Spec) // keep apply out meanwhile
	if err != nil {
		return err
	}
	defer release()
	fs, err := lustre.Open(cmd.Context(), d, c.Session)
	switch {
	case cmd.Context().Err() != nil:
		return fail(exitInterrupted, nil)
	case err != nil:
		return fail(exitBadInput, err)
	}
	return use(cmd.Context(), c, fs)
}

func newPoolCmd() *cobra.Command {
	c := &cobra.Command{Use: "pool", Short: "Named sets of OSTs"}
	change := func(word, short, osts string, make func(fs *lustre.FS, ctx context.Context, pool string, osts []string) (*lustre.Plan, error)) {
		args, use := cobra.ExactArgs(2), word+" SPEC POOL"
		if osts != "" {
			args, use = cobra.MinimumNArgs(3), use+" OST..."
		}
		c.AddCommand(lustreCmd(&cobra.Command{
			Use: use, Short: short, Example: strings.TrimRight("  mortar lustre pool "+word+" brick.yaml fast "+osts, " "), Args: args,
			Long: short + ". OSTs are named like OST000a, or by\ntheir index. Pools of the spec (lustre.pools) are changed there.",
		}, func(ctx context.Context, fs *lustre.FS, a []string) (*lustre.Plan, error) {
			return make(fs, ctx, a[0], a[1:])
		}, nil))
	}
	c.AddCommand(newPoolListCmd())
	change("create", "Make a pool of some OSTs", "OST0000 OST0001", (*lustre.FS).PoolCreate)
	change("add", "Add OSTs to a pool", "OST0002", (*lustre.FS).PoolAdd)
	change("remove", "Take OSTs out of a pool", "OST0002", (*lustre.FS).PoolRemove)
	change("destroy", "Destroy a pool; its files stay", "", func(fs *lustre.FS, ctx context.Context, pool string, _ []string) (*lustre.Plan, error) {
		return fs.PoolDestroy(ctx, pool)
	})
	return c
}

// lustreShow makes a mortar lustre command that changes nothing.
func lustreShow[T any](c *cobra.Command, look func(ctx context.Context, fs *lustre.FS, args []string) (T, error), print func(io.Writer, T)) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return withLustre(cmd, args[0], timeout, true, func(ctx context.Context, _ procedure.Hosts, fs *lustre.FS) error {
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
		Example: "  mortar lustre layout set brick.yaml results --stripe-count -1 --stripe-size 4MiB\n  mortar lustre layout set brick.yaml scratch --pool fast"},
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
			func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
				return make(fs, ctx, args[0])
			},
			func(ctx context.Context, w io.Writer, fs *lustre.FS) error {
				all, err := fs.Balance(ctx)
				if err != nil {
					return err
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
		Example: "  mortar lustre lfsck brick.yaml --only-look"},
		func(_ context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.LFSCK(dry) },
		func(ctx context.Context, w io.Writer, fs *lustre.FS) error {
			server, err := fs.MDS()
			if err != nil {
				return err
			}
			all, err := fs.Checks(ctx, server)
			if err != nil {
				return err
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
		Example: "  mortar lustre fsck brick.yaml OST0001 --only-look"},
		func(_ context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
			return fs.FSCK(args[0], !dry)
		}, nil)
	c.Flags().BoolVar(&dry, "only-look", false, "change nothing on the target")
	return c
}

func newWriteconfCmd() *cobra.Command {
	return lustreCmd(&cobra.Command{Use: "writeconf SPEC", Short: "Regenerate the configuration of all targets (writeconf)", Args: cobra.ExactArgs(1),
		Long:    "For changed addresses or a damaged configuration: stops all services, has every target write\nits configuration anew, starts them in order, and makes the pools again that the MGS forgets.\nRefused while a client has the file system mounted.",
		Example: "  mortar lustre writeconf brick.yaml"},
		func(ctx context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.Writeconf(ctx) }, nil)
}
