package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/change"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// changeFlags adds the flags of a command that changes a brick, shows it first, and asks.
func changeFlags(cmd *cobra.Command, dryRun string) *pflag.FlagSet {
	f := cmd.Flags()
	f.Bool("yes", false, "do not ask")
	f.Bool("dry-run", false, dryRun)
	f.Bool("json", false, "print events as JSON lines, the result last")
	return f
}

// specChanges is changeFlags for a command that changes the spec too.
func specChanges(cmd *cobra.Command) *pflag.FlagSet {
	return changeFlags(cmd, "only show the change of the spec and the plan")
}

// limitFlag adds --limit to a command.
func limitFlag(f *pflag.FlagSet, limit *[]string) {
	f.StringSliceVar(limit, "limit", nil, "only these hosts: names, ranges such as c[001-040], servers, clients, load")
}

// addAccepted adds the flags by which the user accepts what a plan refuses else.
func addAccepted(f *pflag.FlagSet, o *change.Options) {
	f.IntVar(&o.Onto, "onto", 0, "generation of the brick's spec whose difference to this one you accept")
	limitFlag(f, &o.Limit)
	f.StringSliceVar(&o.Unexport, "unexport", nil, "path of an export that the brick has and the spec lacks: its clients lose it")
}

func newApplyCmd() *cobra.Command {
	var o change.Options
	var profile string
	cmd := command("apply", func(ctx context.Context, c *cli.Console, args []string) error {
		d, err := cli.Load(args[0], profile)
		if err != nil {
			return err
		}
		if c.DryRun {
			_, err := change.Show(ctx, c, d, o)
			return err
		}
		return change.Apply(ctx, c, d, o)
	})
	f := changeFlags(cmd, "only show the plan")
	profileFlag(cmd, &profile)
	addAccepted(f, &o)
	f.BoolVar(&o.AllowDowngrade, "allow-downgrade", false, "replace a newer mortar on the servers; the plan names what is lost")
	f.BoolVar(&o.SkipFenceTest, "skip-fence-test", false, "do not end with a fence test of what is unproven")
	return cmd
}

func newFenceTestCmd() *cobra.Command {
	var t change.FenceTest
	cmd := command("fence-test", func(ctx context.Context, c *cli.Console, args []string) error { return t.Run(ctx, c, args[0]) })
	f := cmd.Flags()
	f.StringVar(&t.Node, "node", "", "test this server only")
	profileFlag(cmd, &t.Profile)
	f.IntVar(&t.Level, "level", 0, "test this level only")
	f.StringVar(&t.Confirm, "confirm", "", "names of the servers, separated by commas, to confirm a test on real hardware")
	f.Bool("json", false, "print events as JSON lines, the result last")
	f.DurationVar(&t.Timeout, "timeout", 30*time.Second, "how long a server that is up may take to answer")
	return cmd
}

func newUpgradeCmd() *cobra.Command {
	var u change.Upgrade
	cmd := command("upgrade", func(ctx context.Context, c *cli.Console, args []string) error { return u.Run(ctx, c, args[0]) })
	f := changeFlags(cmd, "only show what would be done, by the package lists that the servers have")
	f.StringVar(&u.Node, "node", "", "upgrade this server only")
	f.BoolVar(&u.RebootOnly, "reboot-only", false, "leave the packages as they are")
	f.BoolVar(&u.NoFenceTest, "skip-fence-test", false, "do not prove the fencing of each server again")
	f.DurationVar(&u.Timeout, "timeout", 30*time.Second, "how long a server that is up may take to answer")
	return cmd
}

func newServerReplaceCmd() *cobra.Command {
	var o change.Options
	cmd := command("replace", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.Replace(ctx, c, args[0], args[1], o)
	})
	changeFlags(cmd, "only show the plan").BoolVar(&o.SkipFenceTest, "skip-fence-test", false, "do not end with a fence test of what is unproven")
	return cmd
}

func newDiskLocateCmd() *cobra.Command {
	var off bool
	cmd := command("locate", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.LocateDisk(ctx, c, args[0], args[1], off)
	})
	cmd.Flags().BoolVar(&off, "off", false, "switch it off")
	return cmd
}

func newDiskFailCmd() *cobra.Command {
	var bare bool
	cmd := command("fail", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.FailDisk(ctx, c, args[0], args[1], bare)
	})
	specChanges(cmd).BoolVar(&bare, "without-redundancy", false, "also if the next failure would lose data")
	return cmd
}

func newDiskReplaceCmd() *cobra.Command {
	var with, wipe string
	cmd := command("replace", func(ctx context.Context, c *cli.Console, args []string) error {
		if wipe != "" && !strings.EqualFold(wipe, with) {
			return cli.Refuse(fmt.Errorf("--wipe %s is not the new disk %s", wipe, with))
		}
		return change.ReplaceDisk(ctx, c, args[0], args[1], with, wipe != "")
	})
	f := specChanges(cmd)
	f.StringVar(&with, "with", "", "serial number of the new disk")
	f.StringVar(&wipe, "wipe", "", "serial number of the new disk once more: destroy what it carries")
	_ = cmd.MarkFlagRequired("with")
	return cmd
}

func newGrowCmd() *cobra.Command {
	var disks []string
	var size, service, to, scripts string
	cmd := command("grow", func(ctx context.Context, c *cli.Console, args []string) error {
		if to != "" {
			return change.GrowTo(ctx, c, args[0], to)
		}
		added, err := addedDisks(disks, size, service)
		if err != nil {
			return cli.Refuse(err)
		}
		return change.Grow(ctx, c, args[0], added, scripts)
	})
	f := specChanges(cmd)
	f.StringArrayVar(&disks, "disks", nil, "enclosure, and the serial numbers of its new disks: A=ZA11, A=ZA[11-14]; again for each enclosure or range")
	f.StringVar(&size, "size", "", "size of the new disks as sold, e.g. 20TB")
	f.StringVar(&service, "service", "", "the service whose volume grows, for new enclosures of a brick with two")
	f.StringVar(&scripts, "script", "", "on RAID arrays: write what makes the new LUNs into this directory, and change nothing")
	f.StringVar(&to, "to", "", "of Lustre: the spec with the new pairs of servers")
	cmd.MarkFlagsOneRequired("disks", "to")
	for _, flag := range []string{"disks", "size", "script", "service"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "to")
	}
	return cmd
}

// addedDisks parses the flags of grow.
func addedDisks(disks []string, size, service string) ([]spec.Added, error) {
	var each spec.Bytes
	if size != "" {
		var err error
		if each, err = spec.ParseBytes(size); err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
	}
	var out []spec.Added
	for _, d := range disks {
		enclosure, serial, ok := strings.Cut(d, "=")
		if !ok || enclosure == "" || serial == "" {
			return nil, fmt.Errorf("--disks %s: write ENCLOSURE=SERIALS, e.g. A=ZA[11-14]", d)
		}
		out = append(out, spec.Added{Enclosure: enclosure, Serial: serial, Size: each, Service: service})
	}
	return out, nil
}

func newCacheModeCmd() *cobra.Command {
	cmd := command("mode", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.Cache(ctx, c, args[0], func(k *spec.Cache) (*spec.Cache, error) {
			k.Mode = args[1]
			return k, nil
		})
	})
	specChanges(cmd)
	return cmd
}

func newCacheAddCmd() *cobra.Command {
	var size, kind, server, mode string
	cmd := command("add", func(ctx context.Context, c *cli.Console, args []string) error {
		bytes, err := spec.ParseBytes(size)
		if err != nil {
			return cli.Refuse(fmt.Errorf("--size: %w", err))
		}
		return change.AddCache(ctx, c, args[0], func(k *spec.Cache) (*spec.Cache, error) {
			k.Mode = cmp.Or(mode, k.Mode)
			return k, k.Add(spec.DiskList{Size: bytes, Type: kind, Server: server}, args[1:]...)
		})
	})
	f := specChanges(cmd)
	f.StringVar(&size, "size", "", "size of each, as sold, e.g. 1.6TB")
	f.StringVar(&kind, "type", "nvme", "nvme or ssd")
	f.StringVar(&server, "server", "", "the server they are inside of; default: every server reaches them")
	f.StringVar(&mode, "mode", "", "write-back or write-through; default: as it is, write-through for a new cache")
	_ = cmd.MarkFlagRequired("size")
	return cmd
}

func newCacheRemoveCmd() *cobra.Command {
	var mode string
	cmd := command("remove", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.Cache(ctx, c, args[0], func(k *spec.Cache) (*spec.Cache, error) {
			k.Mode = cmp.Or(mode, k.Mode)
			return k, k.Remove(args[1:]...)
		})
	})
	specChanges(cmd).StringVar(&mode, "mode", "", "change the mode as well: write-back or write-through")
	return cmd
}

func newCacheOffCmd() *cobra.Command {
	cmd := command("off", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.Cache(ctx, c, args[0], func(*spec.Cache) (*spec.Cache, error) { return nil, nil })
	})
	specChanges(cmd)
	return cmd
}

func newCacheStatsCmd() *cobra.Command {
	var watch bool
	var interval, timeout time.Duration
	cmd := command("stats", func(ctx context.Context, c *cli.Console, args []string) error {
		return change.CacheStats(ctx, c, args[0], watch, interval, timeout)
	})
	f := cmd.Flags()
	f.BoolVarP(&watch, "watch", "w", false, "repeat until interrupted")
	f.Bool("json", false, "print JSON")
	f.DurationVar(&interval, "interval", 2*time.Second, "time between two looks with --watch")
	f.DurationVar(&timeout, "timeout", 20*time.Second, "how long to wait for a server")
	return cmd
}
