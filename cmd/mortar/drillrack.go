package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// rackOfFrom makes sure that a rack is there, since without one the brick is real hardware,
// and that the saved rack of --from exists: it builds, applies and saves the brick if no
// saved rack has that name, and else restores it where no rack is.
func rackOfFrom(ctx context.Context, w io.Writer, specFile, name string) error {
	s, err := cli.ReadSpec(specFile)
	if err != nil {
		return err
	}
	if known, err := rack.HasSaved(s.Name, name); err != nil {
		return rackError(err)
	} else if !known {
		fmt.Fprintf(w, "no saved rack is named %s: it is made\n", name)
		for _, args := range [][]string{{"rack", "up", specFile}, {"apply", specFile, "--yes", "--skip-fence-test"}, {"rack", "save", specFile, name}} {
			if err := step(ctx, w, w, time.Now(), args); err != nil {
				return err
			}
		}
		return nil
	}
	if virtualRack(ctx, s) {
		return nil
	}
	opt, err := namedRack{spec: s}.restoreOptions(false)
	if err == nil {
		_, err = rack.Restore(ctx, s.Name, rackOf(s), name, opt, nil)
	}
	return rackError(err)
}

// restorer returns the Restore of a drill on a virtual rack, and refuses a saved rack that
// does not fit.
func restorer(ctx context.Context, s *spec.Spec, name string, op *inject.Operator, say func(string)) (func(context.Context) error, error) {
	dir := rackOf(s)
	opt, err := namedRack{spec: s}.restoreOptions(false)
	if err == nil {
		err = rack.CheckSaved(ctx, s.Name, dir, name, opt)
	}
	if err != nil {
		return nil, rackError(err)
	}
	return func(ctx context.Context) error {
		op.Close() // its sessions end with the rack
		began := time.Now()
		_, err := rack.Restore(ctx, s.Name, dir, name, opt, nil)
		if err == nil {
			say(fmt.Sprintf("restored %s in %s", name, report.Seconds(time.Since(began).Seconds())))
		}
		return err
	}, nil
}

// rackInjector breaks the virtual rack of a spec.
func rackInjector(d *design.Design) *inject.Rack {
	dir := rackOf(d.Spec)
	return &inject.Rack{
		Design: d,
		Fault: func(ctx context.Context, kind string, targets ...string) error {
			return rack.Fault(ctx, dir, kind, targets...)
		},
		Hangs:     func(ctx context.Context, node string) (bool, error) { return rack.Hangs(ctx, dir, node) },
		Renewable: func(node string) error { return rack.Renewable(dir, node) },
		Disks: func(ctx context.Context) ([][]string, error) {
			st, err := rack.Status(ctx, dir)
			if err != nil {
				return nil, err
			}
			return disksIn(st), nil
		},
		Groups: func(ctx context.Context) (out []fault.ArrayGroup, err error) {
			st, err := rack.Status(ctx, dir)
			if err != nil {
				return nil, err
			}
			for _, a := range st.Arrays {
				for _, g := range a.Groups {
					out = append(out, fault.ArrayGroup{Name: g.Name, State: g.State, Members: g.Members,
						Comparing: g.Comparing, Percent: g.Percent, Mismatches: g.Mismatches})
				}
			}
			return out, nil
		},
		Compare: func(ctx context.Context, group string, on bool) error { return rack.CompareGroup(ctx, dir, group, on) },
	}
}

// disksIn returns the serial numbers of the disks in each enclosure's slots.
func disksIn(st *rack.RackStatus) (out [][]string) {
	at := map[string]int{}
	for _, d := range st.Disks {
		if d.Enclosure == "" || !d.Present {
			continue
		}
		i, ok := at[d.Enclosure]
		if !ok {
			i = len(out)
			at[d.Enclosure], out = i, append(out, nil)
		}
		out[i] = append(out[i], d.Serial)
	}
	return out
}
