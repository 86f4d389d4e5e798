package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
)

// Rack breaks a virtual rack. It knows the names of the rack's faults. The caller
// provides the functions of package rack, which only cmd/mortar may import.
type Rack struct {
	Design *design.Design
	// Fault injects or mends one fault of the rack; see rack.Fault.
	Fault func(ctx context.Context, kind string, targets ...string) error
	// Hangs reports whether a node with power will not answer by itself; see
	// rack.Hangs.
	Hangs func(ctx context.Context, node string) (bool, error)
	// Groups returns the RAID groups inside the rack's arrays.
	Groups func(ctx context.Context) ([]fault.ArrayGroup, error)
	// Compare makes the array of a group compare its data with its parities, or stop; see
	// rack.CompareGroup.
	Compare func(ctx context.Context, group string, on bool) error
	// Disks returns the rack's disks that are in their slots: the serial numbers of
	// each enclosure, in the order of its bays.
	Disks func(ctx context.Context) ([][]string, error)
	// Renewable returns why no other machine can take a server's place; see
	// rack.Renewable.
	Renewable func(node string) error
	// Restore restores a saved rack, or only checks that it fits; see rack.CheckSaved.
	Restore func(ctx context.Context, name string, check bool) error
}

// OnRack is a brick on a virtual rack, be it up or not, for drill.Possible.
func OnRack(d *design.Design, service string) fault.Env {
	return fault.Env{Design: d, Service: service, Injector: &Rack{Design: d}, Operator: NewOperator(d, nil)}
}

// ArrayGroups returns the RAID groups inside the rack's arrays.
func (r *Rack) ArrayGroups(ctx context.Context) ([]fault.ArrayGroup, error) { return r.Groups(ctx) }

// CompareGroup starts or stops a comparison of a RAID group inside an array.
func (r *Rack) CompareGroup(ctx context.Context, group string, on bool) error {
	return r.Compare(ctx, group, on)
}

// UnusedDisks returns the rack's disks that the brick does not use, in enclosures that it has.
func (r *Rack) UnusedDisks(ctx context.Context) ([]fault.UnusedDisk, error) {
	enclosures, err := r.Disks(ctx)
	if err != nil {
		return nil, err
	}
	var out []fault.UnusedDisk
	for _, serials := range enclosures {
		of, fresh := "", []string{}
		for _, s := range serials {
			if i := slices.IndexFunc(r.Design.Disks, func(d design.Disk) bool { return strings.EqualFold(d.Serial, s) }); i >= 0 {
				of = r.Design.Disks[i].Enclosure
			} else {
				fresh = append(fresh, s)
			}
		}
		for _, s := range fresh {
			if of != "" {
				out = append(out, fault.UnusedDisk{Enclosure: of, Serial: s})
			}
		}
	}
	return out, nil
}

// rackCommand is how a rack does a fault; the zero value: it does not.
func rackCommand(k fault.Kind) fault.RackCommand {
	if c := fault.Kinds[k].Rack; c != nil {
		return *c
	}
	return fault.RackCommand{}
}

// targets returns the arguments of each call of the rack's fault.
func (r *Rack) targets(f fault.Fault) [][]string {
	var on []string
	if f.On != "" {
		on = append(on, f.On)
	}
	if !rackCommand(f.Kind).Each {
		return [][]string{append(on, f.Args...)}
	}
	return lists.Map(r.Design.ReachedBy(f.On), func(x design.Reached) []string { return append([]string{f.On, x.Name}, f.Args...) })
}

// Can refuses kinds for which a rack has no fault.
func (r *Rack) Can(f fault.Fault) error {
	if rackCommand(f.Kind).On == "" {
		return fmt.Errorf("a virtual rack has no fault %q", f.Kind)
	}
	// A server that is off already could not be replaced, nor be switched on again.
	if f.Kind == fault.ServerNew && r.Renewable != nil {
		return r.Renewable(f.On)
	}
	return nil
}

// Inject injects the fault.
func (r *Rack) Inject(ctx context.Context, f fault.Fault) error {
	if err := r.Can(f); err != nil {
		return err
	}
	for _, t := range r.targets(f) {
		if err := r.Fault(ctx, rackCommand(f.Kind).On, t...); err != nil {
			return err
		}
	}
	return nil
}

// Heal mends the fault. It does nothing to a running server, which fencing has
// power-cycled. A server that was not fenced is resumed, or reset if its kernel is
// dead.
func (r *Rack) Heal(ctx context.Context, f fault.Fault) error {
	if err := r.Can(f); err != nil {
		return err
	}
	how := rackCommand(f.Kind)
	var errs []error
	for _, off := range how.Off {
		for _, t := range r.targets(f) {
			if how.Zero {
				for i := range t[1:] {
					t[1+i] = "0"
				}
			}
			errs = append(errs, r.Fault(ctx, off, t...))
		}
	}
	if err := errors.Join(errs...); err != nil || !how.Reset {
		return err
	}
	hangs, err := r.Hangs(ctx, f.On)
	if err != nil || !hangs {
		return err
	}
	return r.Fault(ctx, "reset", f.On)
}

// Throttle limits each disk of the RAID groups, in operations and bytes per
// second; 0 is no limit.
//
// The rack has no disks of a PERC. Each of its LUNs is as fast as a RAID 6
// group of 4+2 such disks, whatever its spans are: a read costs one operation of
// six disks, a small write six (it reads and writes data and both parities).
func (r *Rack) Throttle(ctx context.Context, iops int, rate int64) error {
	var errs []error
	throttle := func(disk string, limits ...int64) {
		target := []string{disk}
		for _, n := range limits {
			target = append(target, strconv.FormatInt(n, 10))
		}
		errs = append(errs, r.Fault(ctx, "throttle", target...))
	}
	plain := map[string]bool{} // arrays that have LUNs but no disks in the rack
	for _, a := range r.Design.Arrays {
		if plain[a.Name] = a.Family == "perc"; plain[a.Name] {
			for _, l := range a.LUNs {
				throttle(l.WWN, 6*int64(iops), 4*rate, int64(iops))
			}
		}
	}
	for _, g := range r.Design.Groups {
		if plain[g.Array] {
			continue
		}
		for _, d := range g.Members {
			throttle(d.Serial, int64(iops), rate)
		}
	}
	return errors.Join(errs...)
}
