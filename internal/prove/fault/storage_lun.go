package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// An ArrayWatcher is an Injector that sees the RAID groups inside arrays, which
// servers do not see.
type ArrayWatcher interface {
	ArrayGroups(ctx context.Context) ([]ArrayGroup, error)
	// CompareGroup makes an array compare the data of a group with its parities, or stop.
	CompareGroup(ctx context.Context, group string, on bool) error
}

// ArrayGroup is a RAID group inside of an array.
type ArrayGroup struct {
	Name string
	// State is optimal, degraded, rebuilding, failed or unknown.
	State   string
	Members []string // serials of its present disks
	// Comparing: data and parities are being compared, and Percent of them are.
	Comparing bool
	Percent   float64
	// Mismatches are the sectors that differ by the last comparison.
	Mismatches int64
}

// lunStorage are LUNs of arrays.
type lunStorage struct{ Scene }

// LUN is the first LUN of the service.
func (s Scene) LUN() (design.LUN, error) {
	all := s.Design.LUNsIn(&s.Service.Storage)
	if len(all) == 0 {
		return design.LUN{}, fmt.Errorf("service %s stands on no LUN of an array", s.Service.Name)
	}
	return all[0], nil
}

// arrayGroups returns the RAID groups inside arrays, as the Injector sees them.
func arrayGroups(ctx context.Context, b *Site) ([]ArrayGroup, error) {
	w, ok := b.Env.Injector.(ArrayWatcher)
	if !ok {
		return nil, errors.New("this machine does not see into the array")
	}
	return w.ArrayGroups(ctx)
}

// RAIDGroup is the first complete RAID group of the service. A group that lost a disk
// in an earlier drill may be rebuilding for a long time.
func (l lunStorage) RAIDGroup(ctx context.Context, b *Site) (design.Group, []string, error) {
	if _, ok := b.Env.Injector.(ArrayWatcher); !ok {
		return design.Group{}, nil, nil // no drill can pull a disk either
	}
	seen, err := arrayGroups(ctx, b)
	if err != nil || len(seen) == 0 { // a controller inside a server has none
		return design.Group{}, nil, err
	}
	for _, g := range l.Design.GroupsIn(&l.Service.Storage) {
		for _, x := range seen {
			if x.Name == g.Name && x.State == "optimal" {
				return g, x.Members, nil
			}
		}
	}
	return design.Group{}, nil, fmt.Errorf("no RAID group of service %s is whole: %+v", l.Service.Name, seen)
}

func (lunStorage) Slow() (Fault, error) {
	return Fault{}, errors.New("servers do not see the disks of an array: lun-slow is what they see of one")
}

// rebuildTime bounds the wait for a group inside an array that rebuilds: it compares
// nothing before it is whole.
const rebuildTime = 10 * time.Minute

// compareBegins bounds the time until an array says that it compares what it was told to.
const compareBegins = 10 * time.Second

// Parity has the arrays compare the RAID 6 groups that a fault met: that of pulled disks,
// or all of an array that lost its power. One after the other: several at once leave an
// emulated array no time for its servers, and its control line takes one client. Each has
// parityTime. It returns no check of an array that shows nothing of its inside.
func (l lunStorage) Parity(ctx context.Context, b *Site) []report.Check {
	w, ok := b.Env.Injector.(ArrayWatcher)
	if !ok {
		return nil
	}
	var out []report.Check
	for _, g := range l.Design.Groups {
		if g.Level != 6 || !faultTouches(b, g) {
			continue
		}
		b.Say("array %s compares data and parities of %s", g.Array, g.Name)
		mismatches, percent, err := compareInside(ctx, b, w, g.Name)
		out = append(out, consistent(g, mismatches, percent, err))
		if err := w.CompareGroup(context.WithoutCancel(ctx), g.Name, false); err != nil {
			b.Say("group %s may go on comparing: %v", g.Name, err)
		}
	}
	return out
}

// faultTouches reports whether a fault of the drill met a group inside an array. The disks that a
// drill pulls are of its own group, whose members the design may not know: spares stay in it.
func faultTouches(b *Site, g design.Group) bool {
	return slices.ContainsFunc(b.Injected, func(f Fault) bool {
		return f.Kind == ArrayPower && f.Args[0] == g.Array || f.Kind == ArrayDisk && g.Name == b.Group.Name
	})
}

// compareInside has an array compare a group, and waits until it has, or until parityTime
// has passed. An array that rebuilds refuses, and is asked again. It returns the sectors that
// differ, and how much was compared.
func compareInside(ctx context.Context, b *Site, w ArrayWatcher, group string) (mismatches int64, percent float64, err error) {
	err = host.Wait{Limit: rebuildTime, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		err := w.CompareGroup(ctx, group, true)
		if errors.Is(err, unix.EBUSY) {
			return err.Error(), nil
		}
		return "", err
	})
	if err != nil {
		return 0, 0, err
	}
	seen, begun := false, time.Now()
	for limit := begun.Add(parityTime); ; {
		g, err := arrayGroup(ctx, b, group)
		if err == nil && g.State != "optimal" {
			err = fmt.Errorf("group %s is %s", group, g.State)
		}
		late := time.Now().After(limit)
		seen = seen || err == nil && g.Comparing
		switch {
		case err != nil && late: // a busy array leaves a question unanswered
			return 0, 0, err
		case err == nil && !g.Comparing && seen:
			return g.Mismatches, 100, nil
		case err == nil && !g.Comparing && time.Since(begun) > compareBegins, late:
			return g.Mismatches, g.Percent, nil
		}
		if err := b.Sleep(ctx, time.Second); err != nil {
			return 0, 0, err
		}
	}
}

// arrayGroup returns a group inside an array.
func arrayGroup(ctx context.Context, b *Site, name string) (ArrayGroup, error) {
	all, err := arrayGroups(ctx, b)
	if g, has := lists.First(all, func(g ArrayGroup) bool { return g.Name == name }); has {
		return g, nil
	}
	return ArrayGroup{}, cmp.Or(err, fmt.Errorf("the array has no group %s", name))
}

func (l lunStorage) Reached() (string, error) {
	x, err := l.LUN()
	return x.Name, err
}

// Module makes a controller die and come back.
func (l lunStorage) Module() (f Fault, home *Condition, err error) {
	x, err := l.LUN()
	if err != nil {
		return f, nil, err
	}
	return Fault{Kind: ControllerOut, Args: []string{x.Array, strconv.Itoa(x.Controller)}}, LUNsHome(), nil
}

func (l lunStorage) Pulled(serial string) Fault {
	return Fault{Kind: ArrayDisk, Args: []string{serial}}
}

// Without: spares replace the disks, and the LUN stays.
func (l lunStorage) Without(serials ...string) *Condition {
	want := []string{"degraded"}
	for _, a := range l.Design.Arrays {
		if a.Name == l.Group.Array && len(a.Spares) >= len(serials) {
			want = []string{"rebuilding", "optimal"}
		}
	}
	c := l.groupIs("the array's group is "+want[0], func(x ArrayGroup) bool {
		gone := !slices.ContainsFunc(serials, func(s string) bool { return slices.Contains(x.Members, s) })
		return gone && slices.Contains(want, x.State)
	})
	c.Sign = true
	return c
}

// groupIs waits until the array says something of the service's group.
func (l lunStorage) groupIs(what string, ok func(ArrayGroup) bool) *Condition {
	g := l.Group.Name
	return &Condition{What: what, Limit: time.Minute, Look: func(ctx context.Context, v *Site) (bool, string) {
		x, err := arrayGroup(ctx, v, g)
		if err != nil {
			return false, err.Error()
		}
		return ok(x), fmt.Sprintf("group %s is %s, with the disks %s", g, x.State, strings.Join(x.Members, ", "))
	}}
}

func (lunStorage) Rebuilds() bool { return false }

// StartedDegraded: servers do not see the disks of an array, so the array is asked.
func (l lunStorage) StartedDegraded() *Condition {
	return l.groupIs("the array's group is not whole", func(x ArrayGroup) bool { return x.State == "degraded" || x.State == "rebuilding" })
}

// Parts does not include LUNMissing: a LUN is missing only after a server's boot.
func (l lunStorage) Parts() map[Kind][][]string {
	x, err := l.LUN()
	if err != nil {
		return nil
	}
	controllers := [][]string{{x.Array, "0"}, {x.Array, "1"}}
	// A controller without a LUN has nothing to hand over.
	handing := slices.DeleteFunc(slices.Clone(controllers), func(c []string) bool {
		return !slices.ContainsFunc(l.Design.LUNs(), func(x design.LUN) bool { return x.Array == c[0] && strconv.Itoa(x.Controller) == c[1] })
	})
	return map[Kind][][]string{
		ControllerOut: controllers, ControllerFailover: handing, ArrayPower: {{x.Array}},
		ArrayDisk: l.members(), LUNSlow: {{x.Name, strconv.Itoa(SlowMS)}}, PathOut: overEach([][]string{{x.Name}}),
	}
}

func (l lunStorage) Rot() error {
	return errors.New("the array keeps the parity, and no server can read or check it: scrub by the array's own tool")
}

// lunsShow waits until `mortar status` has the sign of each LUN of an array on each of its servers;
// of is the array, and the controller whose LUNs: without one those of both.
func lunsShow(s Scene, limit time.Duration, seen func(lun, server string, paths int) sign, of ...string) *Condition {
	var signs []sign
	for i := range s.Design.Arrays {
		a := &s.Design.Arrays[i]
		for _, x := range a.LUNs {
			for _, server := range a.Servers {
				if slices.Equal(of, []string{a.Name, strconv.Itoa(x.Controller)}[:len(of)]) {
					signs = append(signs, seen(x.Name, server, s.Design.PathsTo(a, server)))
				}
			}
		}
	}
	return Shows(limit, signs...)
}

// onOne is the sign that a server reaches a LUN by one controller only.
func onOne(lun, server string, paths int) sign {
	return SignOf(array.Impaired, "luns", lun, "hosts", server, "paths", strconv.Itoa(paths/2))
}

// onOther is the sign that a LUN belongs to the controller that is not its own.
func onOther(lun, server string, _ int) sign {
	return SignOf(array.Moved, "luns", lun, "hosts", server)
}

// LUNsHome waits until each server answers, and sees all LUNs as designed.
func LUNsHome() *Condition {
	return &Condition{What: "all paths back, each LUN on its own controller", Limit: pathsLimit, Look: func(ctx context.Context, v *Site) (bool, string) {
		wrong := stillWrong(ctx, v, func(p *observe.Part) bool {
			_, ofLUN := array.Kinds[string(p.Code)]
			return ofLUN || p.Code == observe.HostSilent
		})
		return wrong == "", cmp.Or(wrong, "the servers see each LUN as designed")
	}}
}

// pathsLimit: an emulated server needs minutes to add 32 returned paths to their
// multipath maps.
const pathsLimit = 3 * time.Minute

// SlowMS is the delay of a slow LUN in milliseconds: much longer than a disk's
// repeated read, and shorter than the 30 s after which a command fails.
const SlowMS = 1500

// lunLate waits until the server waits for a LUN, and status names it. With fewer LUNs of
// its array in the volume, or without stripes, status has nothing to compare it with.
func lunLate(s Scene, lun string) *Condition {
	device := answersLate("/dev/mapper/"+lun, SlowMS)
	const fewest = 3
	all := s.Design.LUNsIn(&s.Service.Storage)
	beside := 0
	if i := slices.IndexFunc(all, func(x design.LUN) bool { return x.Name == lun }); i >= 0 {
		for _, x := range all {
			if x.Array == all[i].Array {
				beside++
			}
		}
	}
	if s.Service.Storage.Stripes < 2 || beside < fewest {
		return device
	}
	return AllOf("the server waits for the LUN, and status names it", 2*time.Minute, device, Shows(time.Minute, SignOf(observe.LUNSlow, "lun", lun)))
}
