package main

import (
	"context"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/rack"
)

// rackInjector breaks the virtual rack of a spec.
func rackInjector(d *design.Design) *inject.Rack {
	s, dir := d.Spec, rackOf(d.Spec)
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
		Restore: func(ctx context.Context, name string, check bool) error {
			opt, err := restoreOptions(s, false)
			switch {
			case err != nil:
			case check:
				err = rackError(rack.CheckSaved(ctx, s.Name, dir, name, opt))
			default:
				_, err = rack.Restore(ctx, s.Name, dir, name, opt, nil)
			}
			return err
		},
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
