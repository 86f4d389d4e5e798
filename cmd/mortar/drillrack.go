package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/rack"
)

// rackInjector breaks a virtual rack.
type rackInjector struct {
	dir    string
	design *design.Design
}

// rackFault is what is told to the rack's fault driver.
type rackFault []string

// faults of the rack that make and mend a fault.
func (r rackInjector) faults(f drill.Fault) (inject, heal []rackFault, err error) {
	part := func(on, off string, args ...string) ([]rackFault, []rackFault, error) {
		return []rackFault{append(rackFault{on}, args...)}, []rackFault{append(rackFault{off}, args...)}, nil
	}
	server := func(kind string, heal ...string) ([]rackFault, []rackFault, error) {
		var h []rackFault
		for _, k := range heal {
			h = append(h, rackFault{k, f.On})
		}
		return []rackFault{{kind, f.On}}, h, nil
	}
	args := append([]string{f.On}, f.Args...)
	switch f.Kind {
	case drill.Freeze:
		return server("freeze", "poweron", "unfreeze")
	case drill.Panic:
		return server("panic", "poweron")
	case drill.PowerOff:
		return server("kill", "poweron")
	case drill.LinkDown:
		return part("link-down", "link-up", args...)
	case drill.SwitchDown:
		return part("switch-down", "switch-up", f.Args...)
	case drill.PathOut:
		return part("path-out", "path-in", args...)
	case drill.HBAOut:
		for _, d := range r.design.Disks {
			inject = append(inject, rackFault{"path-out", f.On, d.Serial, f.Args[0]})
			heal = append(heal, rackFault{"path-in", f.On, d.Serial, f.Args[0]})
		}
		return inject, heal, nil
	case drill.PathsOut:
		return server("paths-out", "paths-in")
	case drill.ModuleOut:
		return part("module-out", "module-in", f.Args...)
	case drill.DiskOut:
		return part("disk-out", "disk-in", f.Args...)
	case drill.LocalDisk:
		return part("system-disk-out", "system-disk-in", args...)
	case drill.Corrupt:
		return []rackFault{append(rackFault{"corrupt"}, f.Args...)}, nil, nil // nothing but a scrub mends it
	case drill.FeedOff:
		return part("feed-off", "feed-on", f.Args...)
	case drill.BMCDead:
		return server("bmc-dead", "bmc-alive")
	case drill.PDUDead:
		return part("pdu-dead", "pdu-alive", f.Args...)
	}
	return nil, nil, fmt.Errorf("a virtual rack has no fault %q", f.Kind)
}

func (r rackInjector) Can(f drill.Fault) error {
	_, _, err := r.faults(f)
	return err
}

func (r rackInjector) Inject(ctx context.Context, f drill.Fault) error {
	inject, _, err := r.faults(f)
	if err != nil {
		return err
	}
	for _, c := range inject {
		if err := rack.Fault(ctx, r.dir, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Heal leaves a server alone that runs: fencing has already power-cycled it.
// One that was not fenced is let run on, or reset if its kernel is dead.
func (r rackInjector) Heal(ctx context.Context, f drill.Fault) error {
	_, heal, err := r.faults(f)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range heal {
		errs = append(errs, rack.Fault(ctx, r.dir, c[0], c[1:]...))
	}
	if err := errors.Join(errs...); err != nil || f.Kind != drill.Panic {
		return err
	}
	st, err := rack.Status(ctx, r.dir)
	if err != nil {
		return err
	}
	for _, n := range st.Nodes {
		// Booted, but nobody answers: the panicked kernel is still there.
		if n.Name == f.On && n.Power == "on" && n.Boot == "multi-user" && !n.SSH {
			return rack.Fault(ctx, r.dir, "reset", f.On)
		}
	}
	return nil
}
