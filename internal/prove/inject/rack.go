package inject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/drill"
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
	Groups func(ctx context.Context) ([]drill.ArrayGroup, error)
	// Compare makes the array of a group compare its data with its parities, or stop; see
	// rack.CompareGroup.
	Compare func(ctx context.Context, group string, on bool) error
	// Disks returns the rack's disks that are in their slots: the serial numbers of
	// each enclosure, in the order of its bays.
	Disks func(ctx context.Context) ([][]string, error)
	// Renewable returns why no other machine can take a server's place; see
	// rack.Renewable.
	Renewable func(node string) error
}

// ArrayGroups returns the RAID groups inside the rack's arrays.
func (r *Rack) ArrayGroups(ctx context.Context) ([]drill.ArrayGroup, error) { return r.Groups(ctx) }

// CompareGroup starts or stops a comparison of a RAID group inside an array.
func (r *Rack) CompareGroup(ctx context.Context, group string, on bool) error {
	return r.Compare(ctx, group, on)
}

// UnusedDisks returns the rack's disks that the brick does not use, in enclosures that it has.
func (r *Rack) UnusedDisks(ctx context.Context) ([]drill.UnusedDisk, error) {
	enclosures, err := r.Disks(ctx)
	if err != nil {
		return nil, err
	}
	var out []drill.UnusedDisk
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
				out = append(out, drill.UnusedDisk{Enclosure: of, Serial: s})
			}
		}
	}
	return out, nil
}

// rackFault is how Rack injects a fault.
type rackFault struct {
	on  string   // the rack's fault that injects
	off []string // the rack's faults that mend, in order
	// each: inject the fault for every disk or LUN that the server has paths to.
	// Its name goes between the server and the fault's arguments.
	each bool
	// zero: the same fault with 0 for all arguments after the first mends it.
	zero bool
	// reset: Heal resets a server that still hangs.
	reset bool
}

var rackFaults = map[drill.Kind]rackFault{
	drill.Freeze:             {on: "freeze", off: []string{"poweron", "unfreeze"}},
	drill.Panic:              {on: "panic", off: []string{"poweron"}, reset: true},
	drill.PowerOff:           {on: "kill", off: []string{"poweron"}},
	drill.ClientDown:         {on: "kill", off: []string{"poweron"}},
	drill.LinkDown:           {on: "link-down", off: []string{"link-up"}},
	drill.SwitchDown:         {on: "switch-down", off: []string{"switch-up"}},
	drill.PathOut:            {on: "path-out", off: []string{"path-in"}},
	drill.HBAOut:             {on: "path-out", off: []string{"path-in"}, each: true},
	drill.PathsOut:           {on: "paths-out", off: []string{"paths-in"}},
	drill.ModuleOut:          {on: "module-out", off: []string{"module-in"}},
	drill.DiskOut:            {on: "disk-out", off: []string{"disk-in"}},
	drill.ControllerOut:      {on: "module-out", off: []string{"module-in"}},
	drill.ControllerFailover: {on: "controller-failover", off: []string{"controller-failback"}},
	drill.ArrayDisk:          {on: "disk-out", off: []string{"disk-in"}},
	drill.ArrayPower:         {on: "array-off", off: []string{"array-on"}},
	drill.LUNSlow:            {on: "lun-slow", off: []string{"lun-slow"}, zero: true},
	drill.LUNMissing:         {on: "lun-out", off: []string{"lun-in"}},

	drill.LocalDisk: {on: "system-disk-out", off: []string{"system-disk-in"}},
	drill.DiskSlow:  {on: "throttle", off: []string{"throttle"}, zero: true},
	drill.Corrupt:   {on: "corrupt"}, // only a scrub mends it
	drill.FeedOff:   {on: "feed-off", off: []string{"feed-on"}},
	drill.BMCDead:   {on: "bmc-dead", off: []string{"bmc-alive"}},
	drill.BMCLies:   {on: "bmc-lies", off: []string{"bmc-honest"}},
	drill.Astray:    {on: "outlets-astray", off: []string{"outlets-back"}},
	drill.PDUDead:   {on: "pdu-dead", off: []string{"pdu-alive"}},

	drill.DiskBlank: {on: "disk-blank"}, // a change is not taken back
	drill.ServerNew: {on: "server-new"},
}

// targets returns the arguments of each call of the rack's fault.
func (r *Rack) targets(f drill.Fault) [][]string {
	var on []string
	if f.On != "" {
		on = append(on, f.On)
	}
	if !rackFaults[f.Kind].each {
		return [][]string{append(on, f.Args...)}
	}
	var out [][]string
	for _, x := range r.Design.ReachedBy(f.On) {
		out = append(out, append([]string{f.On, x.Name}, f.Args...))
	}
	return out
}

// Can refuses kinds for which a rack has no fault.
func (r *Rack) Can(f drill.Fault) error {
	if _, ok := rackFaults[f.Kind]; !ok {
		return fmt.Errorf("a virtual rack has no fault %q", f.Kind)
	}
	// A server that is off already could not be replaced, nor be switched on again.
	if f.Kind == drill.ServerNew && r.Renewable != nil {
		return r.Renewable(f.On)
	}
	return nil
}

// Inject injects the fault.
func (r *Rack) Inject(ctx context.Context, f drill.Fault) error {
	if err := r.Can(f); err != nil {
		return err
	}
	for _, t := range r.targets(f) {
		if err := r.Fault(ctx, rackFaults[f.Kind].on, t...); err != nil {
			return err
		}
	}
	return nil
}

// Heal mends the fault. It does nothing to a running server, which fencing has
// power-cycled. A server that was not fenced is resumed, or reset if its kernel is
// dead.
func (r *Rack) Heal(ctx context.Context, f drill.Fault) error {
	if err := r.Can(f); err != nil {
		return err
	}
	how := rackFaults[f.Kind]
	var errs []error
	for _, off := range how.off {
		for _, t := range r.targets(f) {
			if how.zero {
				for i := range t[1:] {
					t[1+i] = "0"
				}
			}
			errs = append(errs, r.Fault(ctx, off, t...))
		}
	}
	if err := errors.Join(errs...); err != nil || !how.reset {
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
