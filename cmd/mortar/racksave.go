package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// namedRack is a brick's rack and the name of a saved one.
type namedRack struct {
	dir, name string
	spec      *spec.Spec
}

// named reads the arguments SPEC NAME. It takes the brick's lock, so that no apply and no
// drill is under way meanwhile.
func (f *rackFlags) named(args []string) (r namedRack, release func(), err error) {
	s, err := cli.ReadSpec(args[0])
	if err != nil {
		return r, nil, err
	}
	r = namedRack{name: args[1], spec: s}
	if r.dir, err = f.find(args[0]); err != nil {
		return r, nil, err
	}
	if release, err = plan.Lock(s); err != nil {
		return r, nil, fail(exitBadInput, err)
	}
	return r, release, nil
}

// baseOf is the directory of the brick's file, to which the paths of secrets are relative.
func baseOf(s *spec.Spec) (string, error) { return filepath.Abs(filepath.Dir(s.File)) }

func restoreOptions(s *spec.Spec, anyway bool) (rack.RestoreOptions, error) {
	base, err := baseOf(s)
	return rack.RestoreOptions{Spec: s.Source, Base: base, Anyway: anyway}, err
}

func newRackSaveCmd() *cobra.Command {
	var f rackFlags
	cmd := command("save", func(ctx context.Context, c *cli.Console, args []string) error {
		r, release, err := f.named(args)
		if err != nil {
			return err
		}
		defer release()
		base, err := baseOf(r.spec)
		if err != nil {
			return err
		}
		state, err := filepath.Abs(plan.StateDir(r.spec))
		if err != nil {
			return err
		}
		keys, err := filepath.Glob(filepath.Join(state, "secrets", "*"))
		if err != nil {
			return err
		}
		s, err := rack.Save(ctx, r.dir, r.name, rack.SaveOptions{Spec: r.spec.Source, Base: base, Keys: keys, Version: c.Version}, rackProgress(c.Err))
		if err != nil {
			return rackError(err)
		}
		return showSaved(c, s, fmt.Sprintf("saved as %s: %d MiB in %s; the machines stood still for %.1f s", s.Name, s.Bytes>>20, s.Dir, s.StoppedSeconds))
	})
	f.add(cmd)
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func showSaved(c *cli.Console, s *rack.SavedRack, what string) error {
	return c.Show(s, func(w io.Writer) error {
		fmt.Fprintln(w, what)
		if len(s.Off) > 0 {
			fmt.Fprintf(w, "switched off: %s\n", strings.Join(s.Off, " "))
		}
		if len(s.ClocksUnset) > 0 {
			fmt.Fprintf(w, "clocks not set, no ssh server answers: %s\n", strings.Join(s.ClocksUnset, " "))
		}
		return nil
	})
}

func newRackRestoreCmd() *cobra.Command {
	var f rackFlags
	var anyway bool
	cmd := command("restore", func(ctx context.Context, c *cli.Console, args []string) error {
		r, release, err := f.named(args)
		if err != nil {
			return err
		}
		defer release()
		opt, err := restoreOptions(r.spec, anyway)
		if err != nil {
			return err
		}
		if c.DryRun {
			if err := rack.CheckSaved(ctx, r.spec.Name, r.dir, r.name, opt); err != nil {
				return rackError(err)
			}
			return c.Show(map[string]any{"name": r.name, "brick": r.spec.Name, "fits": true}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "saved rack %s of %s fits; restore takes the rack in %s down, if one is there\n", r.name, r.spec.Name, r.dir)
				return err
			})
		}
		s, err := rack.Restore(ctx, r.spec.Name, r.dir, r.name, opt, rackProgress(c.Err))
		if err != nil {
			return rackError(err)
		}
		return showSaved(c, s, fmt.Sprintf("restored %s, saved %s", s.Name, s.Time.Local().Format(time.DateTime)))
	})
	f.add(cmd)
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&anyway, "anyway", false, "restore a rack that another build of mortar saved, or with another brick's file")
	cmd.Flags().Bool("dry-run", false, "say if the saved rack fits, and do nothing")
	return cmd
}

func newRackSavedCmd() *cobra.Command {
	cmd := command("saved", func(ctx context.Context, c *cli.Console, args []string) error {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		all, err := rack.ListSaved(ctx, s.Name, s.Source)
		if err != nil {
			return rackError(err)
		}
		if c.JSON {
			return cli.PrintJSON(c.Out, all)
		}
		if len(all) == 0 {
			fmt.Fprintf(c.Out, "no saved rack of %s\n", s.Name)
			return nil
		}
		t := tabwriter.NewWriter(c.Out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tSAVED\tMIB\tBUILD\tFITS")
		for _, r := range all {
			fits := "yes"
			if len(r.Misfits) > 0 {
				fits = "no: " + strings.Join(r.Misfits, "; ")
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", r.Name, r.Time.Local().Format(time.DateTime), r.Bytes>>20, r.Version, fits)
		}
		return t.Flush()
	})
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func newRackForgetCmd() *cobra.Command {
	return command("forget", func(_ context.Context, _ *cli.Console, args []string) error {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		return rackError(rack.Forget(s.Name, args[1]))
	})
}
