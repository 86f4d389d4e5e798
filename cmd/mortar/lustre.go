package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/lustre"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// lustreCmd makes a mortar lustre command that carries out a plan. after prints the result for a
// person; it may be nil.
func lustreCmd(name string, make func(ctx context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error), after func(context.Context, io.Writer, *lustre.FS) error) *cobra.Command {
	var timeout time.Duration
	cmd := command(name, func(ctx context.Context, c *cli.Console, args []string) error {
		return lustre.With(ctx, c, args[0], timeout, c.DryRun, func(hosts procedure.Hosts, fs *lustre.FS) error {
			p, err := make(ctx, fs, args[1:])
			if err != nil {
				return fail(exitBadInput, err)
			}
			return procedure.Carry{Asks: true, Grace: lustre.Grace, After: func(ctx context.Context) error {
				if after == nil || c.JSON || p.Nothing != "" {
					return nil
				}
				return after(ctx, c.Out, fs)
			}}.Out(ctx, c, hosts, p)
		})
	})
	procedureFlags(cmd, &timeout).Bool("yes", false, "do not ask")
	return cmd
}

// poolCmd makes a command that changes a pool.
func poolCmd(name string, make func(fs *lustre.FS, ctx context.Context, pool string, osts []string) (*lustre.Plan, error)) *cobra.Command {
	return lustreCmd(name, func(ctx context.Context, fs *lustre.FS, a []string) (*lustre.Plan, error) {
		return make(fs, ctx, a[0], a[1:])
	}, nil)
}

// lustreShow makes a mortar lustre command that changes nothing.
func lustreShow[T any](name string, look func(ctx context.Context, fs *lustre.FS, args []string) (T, error), print func(io.Writer, T)) *cobra.Command {
	var timeout time.Duration
	cmd := command(name, func(ctx context.Context, c *cli.Console, args []string) error {
		return lustre.With(ctx, c, args[0], timeout, true, func(_ procedure.Hosts, fs *lustre.FS) error {
			v, err := look(ctx, fs, args[1:])
			if err != nil {
				return fail(exitBadInput, err)
			}
			return c.Line(v, func(w io.Writer) error {
				print(w, v)
				return nil
			})
		})
	})
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

func newPoolListCmd() *cobra.Command {
	return lustreShow("list",
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

func newLayoutShowCmd() *cobra.Command {
	return lustreShow("show",
		func(ctx context.Context, fs *lustre.FS, args []string) (string, error) {
			return fs.LayoutOf(ctx, args[0])
		},
		func(w io.Writer, s string) { fmt.Fprint(w, s) })
}

func newLayoutSetCmd() *cobra.Command {
	var l lustre.Layout
	var size string
	set := lustreCmd("set",
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
	return set
}

// ostCmd makes a command that changes an OST, and shows how full all are.
func ostCmd(name string, make func(*lustre.FS, context.Context, string) (*lustre.Plan, error)) *cobra.Command {
	return lustreCmd(name,
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

func newBalanceCmd() *cobra.Command {
	return lustreShow("balance",
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
	c := lustreCmd("lfsck",
		func(_ context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.LFSCK(dry) },
		func(ctx context.Context, w io.Writer, fs *lustre.FS) error {
			all, server, err := fs.Checks(ctx)
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
	c := lustreCmd("fsck",
		func(_ context.Context, fs *lustre.FS, args []string) (*lustre.Plan, error) {
			return fs.FSCK(args[0], !dry)
		}, nil)
	c.Flags().BoolVar(&dry, "only-look", false, "change nothing on the target")
	return c
}

func newWriteconfCmd() *cobra.Command {
	return lustreCmd("writeconf",
		func(ctx context.Context, fs *lustre.FS, _ []string) (*lustre.Plan, error) { return fs.Writeconf(ctx) }, nil)
}
