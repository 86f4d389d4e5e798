package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A disk that hangs answers neither data nor an error. The device mapper does that to a
// multipath map on one server, on any hardware: I/O to a suspended map waits.
//
// Source: dmsetup(8), suspend --noflush --nolockfs

const (
	// hungFor bounds a disk that hangs, should the drill be killed before it heals it.
	hungFor   = 15 * time.Minute
	hungTimer = "mortar-drill-hung"
)

// mapOf is the multipath map that a server has of a disk, by its serial number, or of a LUN,
// by its name.
func (e *engine) mapOf(ctx context.Context, f Fault) (string, error) {
	if slices.ContainsFunc(e.env.Design.LUNs(), func(l design.LUN) bool { return l.Name == f.Args[0] }) {
		return f.Args[0], nil
	}
	facts, err := asked(ctx, e, f.On, (*host.Session).Facts)
	if err != nil {
		return "", err
	}
	for _, d := range facts.Disks {
		if name, ok := strings.CutPrefix(d.Device, "/dev/mapper/"); ok && d.Serial == f.Args[0] {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s has no multipath map of disk %s, and only one can be made to hang", f.On, f.Args[0])
}

func (e *engine) hangDisk(ctx context.Context, f Fault) error {
	name, err := e.mapOf(ctx, f)
	if err != nil {
		return err
	}
	if e.hung == nil {
		e.hung = map[string]string{}
	}
	e.hung[f.String()] = name
	_ = e.stopHungTimer(ctx, f.On) // of a drill before; there may be none
	for _, a := range []resource.Action{
		{Title: "let " + name + " go after a while", Cmd: []string{"systemd-run", "--collect", "--unit=" + hungTimer, fmt.Sprintf("--on-active=%.0f", hungFor.Seconds()), "dmsetup", "resume", name}},
		{Title: "have " + name + " hang", Cmd: []string{"dmsetup", "suspend", "--noflush", "--nolockfs", name}},
	} {
		if err := e.do(ctx, f.On, a); err != nil {
			return err
		}
	}
	return nil
}

// unhang lets the disk answer again. A server that does not answer is seen to by unhungBack;
// one that has booted has a map that never hung.
func (e *engine) unhang(ctx context.Context, f Fault) error {
	if err := e.answers(ctx, f); err != nil {
		e.say("%s answers %s again once that is back: %v", f.Args[0], f.On, err)
	}
	return ctx.Err()
}

func (e *engine) unhungBack(ctx context.Context, f Fault) error {
	return untilSeen(ctx, func() error { return e.answers(ctx, f) })
}

func (e *engine) answers(ctx context.Context, f Fault) error {
	name, ok := e.hung[f.String()]
	if !ok {
		return nil // it was never made to hang
	}
	if err := e.do(ctx, f.On, resource.Action{Title: "let " + name + " answer", Cmd: []string{"dmsetup", "resume", "--noudevsync", name}}); err != nil {
		return err
	}
	_ = e.stopHungTimer(ctx, f.On) // a server that has booted has none
	return nil
}

func (e *engine) stopHungTimer(ctx context.Context, server string) error {
	return e.do(ctx, server, resource.Action{Title: "the disk no longer hangs", Cmd: []string{"systemctl", "stop", hungTimer + ".timer"}})
}

// hangOne makes the first disk or LUN of the service hang on the passive server.
func hangOne(s Scene) (Step, error) {
	name, err := s.storage().reached()
	return Step{Fault: Fault{Kind: DiskHang, On: s.Passive, Args: []string{name}}, Prepare: true}, err
}

// diskHung makes a disk hang on the passive server, which then takes the service over.
func diskHung(then func(Scene) Fault) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		if !s.storage().rebuilds() {
			return nil, errors.New("no LUN can be done without: lun-hung is the drill of one")
		}
		first, err := hangOne(s)
		if err != nil {
			return nil, err
		}
		return []Step{first, {Fault: then(s), Until: startedWithout(s)}}, nil
	}
}

// startedWithout waits until the service runs on the passive server, on a group that lacks
// one disk.
func startedWithout(s Scene) *Condition {
	g, on := s.Group, s.Passive
	return &Condition{What: "started without the disk", Limit: 2 * time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		if !v.mounted(ctx, on) {
			return false, "the service does not run on " + on
		}
		missing := mdState(ctx, v, g, "degraded")
		return missing == "1", fmt.Sprintf("array %s runs without %s of its disks on %s", g.Name, missing, on)
	}}
}

// lunHung makes a LUN hang on the passive server, then the active one die.
func lunHung(s Scene) ([]Step, error) {
	if _, err := s.lun(); err != nil {
		return nil, err
	}
	if len(s.Design.PairOf(s.Service.Name).Services) > 1 {
		return nil, errors.New("with two services neither server is passive")
	}
	first, err := hangOne(s)
	if err != nil {
		return nil, err
	}
	return []Step{first, {Fault: Fault{Kind: Panic, On: s.Active}, Until: notStartedOn(s.Passive, s.Active, 2*bootLimit)}}, nil
}
