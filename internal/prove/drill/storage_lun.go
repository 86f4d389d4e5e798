package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
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

// lun is the first LUN of the service.
func (s Scene) lun() (design.LUN, error) {
	all := s.Design.LUNsIn(&s.Service.Storage)
	if len(all) == 0 {
		return design.LUN{}, fmt.Errorf("service %s stands on no LUN of an array", s.Service.Name)
	}
	return all[0], nil
}

// arrayGroups returns the RAID groups inside arrays, as the Injector sees them.
func (e *engine) arrayGroups(ctx context.Context) ([]ArrayGroup, error) {
	w, ok := e.env.Injector.(ArrayWatcher)
	if !ok {
		return nil, errors.New("nobody here sees into the array")
	}
	return w.ArrayGroups(ctx)
}

// group is the first complete RAID group of the service. A group that lost a disk
// in an earlier drill may be rebuilding for a long time.
func (l lunStorage) group(ctx context.Context, e *engine) (design.Group, []string, error) {
	if _, ok := e.env.Injector.(ArrayWatcher); !ok {
		return design.Group{}, nil, nil // no drill can pull a disk either
	}
	seen, err := e.arrayGroups(ctx)
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

func (lunStorage) slow() (Fault, error) {
	return Fault{}, errors.New("servers do not see the disks of an array: lun-slow is what they see of one")
}

// rebuildTime bounds the wait for a group inside an array that rebuilds: it compares
// nothing before it is whole.
const rebuildTime = 10 * time.Minute

// compareBegins bounds the time until an array says that it compares what it was told to.
const compareBegins = 10 * time.Second

// parity has the arrays compare the RAID 6 groups that a fault met: that of pulled disks,
// or all of an array that lost its power. One after the other: several at once leave an
// emulated array no time for its servers, and its control line takes one client. Each has
// parityTime. It returns no check of an array that shows nothing of its inside.
func (l lunStorage) parity(ctx context.Context, e *engine) []report.Check {
	w, ok := e.env.Injector.(ArrayWatcher)
	if !ok {
		return nil
	}
	var out []report.Check
	for _, g := range l.Design.Groups {
		if g.Level != 6 || !e.met(g) {
			continue
		}
		e.say("array %s compares data and parities of %s", g.Array, g.Name)
		c, err := e.compareInside(ctx, w, g.Name)
		out = append(out, c.check(g, err))
		if err := w.CompareGroup(context.WithoutCancel(ctx), g.Name, false); err != nil {
			e.say("group %s may go on comparing: %v", g.Name, err)
		}
	}
	return out
}

// met reports whether a fault of the drill met a group inside an array. The disks that a
// drill pulls are of its own group, whose members the design may not know: spares stay in it.
func (e *engine) met(g design.Group) bool {
	return slices.ContainsFunc(e.injected, func(f Fault) bool {
		return f.Kind == ArrayPower && f.Args[0] == g.Array || f.Kind == ArrayDisk && g.Name == e.group.Name
	})
}

// compareInside has an array compare a group, and waits until it has, or until parityTime
// has passed. An array that rebuilds refuses, and is asked again.
func (e *engine) compareInside(ctx context.Context, w ArrayWatcher, group string) (p compared, err error) {
	busy := func(err error) bool { return strings.Contains(strings.ToLower(err.Error()), "resource busy") } // EBUSY, from the array's shell
	for limit := time.Now().Add(rebuildTime); ; {
		if err = w.CompareGroup(ctx, group, true); err == nil {
			break
		}
		if !busy(err) || time.Now().After(limit) {
			return p, err
		}
		if err := e.sleep(ctx, 2*time.Second); err != nil {
			return p, err
		}
	}
	seen, begun := false, time.Now()
	for limit := begun.Add(parityTime); ; {
		g, err := arrayGroup(ctx, w, group)
		late := time.Now().After(limit)
		p.Mismatches = strconv.FormatInt(g.Mismatches, 10)
		seen = seen || err == nil && g.Comparing
		switch {
		case err != nil && late: // a busy array leaves a question unanswered
			return p, err
		case err == nil && !g.Comparing && (seen || time.Since(begun) > compareBegins):
			p.Nothing = !seen
			return p, nil
		case late:
			p.Done, p.Nothing = fmt.Sprintf("%.0f %% of them", g.Percent), g.Percent == 0
			return p, nil
		}
		if err := e.sleep(ctx, time.Second); err != nil {
			return p, err
		}
	}
}

// arrayGroup returns a group inside an array. One that is not whole is an error.
func arrayGroup(ctx context.Context, w ArrayWatcher, name string) (ArrayGroup, error) {
	all, err := w.ArrayGroups(ctx)
	if err != nil {
		return ArrayGroup{}, err
	}
	for _, g := range all {
		if g.Name == name && g.State == "optimal" {
			return g, nil
		}
		if g.Name == name {
			return g, fmt.Errorf("group %s is %s", name, g.State)
		}
	}
	return ArrayGroup{}, fmt.Errorf("the array has no group %s", name)
}

func (l lunStorage) reached() (string, error) {
	x, err := l.lun()
	return x.Name, err
}

// module makes a controller die and come back.
func (l lunStorage) module() ([]Step, error) {
	x, err := l.lun()
	if err != nil {
		return nil, err
	}
	f := Fault{Kind: ControllerOut, Args: []string{x.Array, strconv.Itoa(x.Controller)}}
	return []Step{
		{Fault: f, Wait: pathHold, Look: true, Until: l.onOther(x.Array, x.Controller, 2)},
		{Fault: f, Mend: true, Until: l.atHome()},
	}, nil
}

func (l lunStorage) pulled(serial string) Fault {
	return Fault{Kind: ArrayDisk, Args: []string{serial}}
}

// without: spares replace the disks, and the LUN stays.
func (l lunStorage) without(serials ...string) *Condition {
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
	return &Condition{What: what, Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		seen, err := v.e.arrayGroups(ctx)
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(seen, func(x ArrayGroup) bool { return x.Name == g })
		if i < 0 {
			return false, "the array has no group " + g
		}
		x := seen[i]
		return ok(x), fmt.Sprintf("group %s is %s, with the disks %s", g, x.State, strings.Join(x.Members, ", "))
	}}
}

func (lunStorage) rebuilds() bool { return false }

// startedDegraded: servers do not see the disks of an array, so the array is asked.
func (l lunStorage) startedDegraded() *Condition {
	return l.groupIs("the array's group is not whole", func(x ArrayGroup) bool { return x.State == "degraded" || x.State == "rebuilding" })
}

// parts does not include LUNMissing: a LUN is missing only after a server's boot.
func (l lunStorage) parts() map[Kind][][]string {
	x, err := l.lun()
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
		ArrayDisk: l.members(), LUNSlow: {{x.Name, strconv.Itoa(slowMS)}}, PathOut: overEach([][]string{{x.Name}}),
	}
}

func (l lunStorage) rot() error {
	return errors.New("the array keeps the parity, and no server can read or check it: scrub by the array's own tool")
}

// lunsSeen compares the LUNs that the servers of the pair see with the design.
func (v *View) lunsSeen(ctx context.Context) (array.Result, error) {
	seen := map[string][]linux.SCSIDisk{}
	for _, server := range v.Design.PairOf(v.Service.Name).Servers {
		disks, err := asked(ctx, v.e, server, (*host.Session).SCSI)
		if err != nil {
			return array.Result{}, fmt.Errorf("%s: %w", server, err)
		}
		seen[server] = disks
	}
	return array.Verify(v.Design, seen), nil
}

// paths waits until each server reaches each LUN of an array through one
// controller: over 1/share of its paths. With share 1 it has all its paths, and
// those to the controller are optimized.
func (l lunStorage) paths(what, name string, controller, share int) *Condition {
	return &Condition{What: what, Limit: pathsLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		r, err := v.lunsSeen(ctx)
		if err != nil {
			return false, err.Error()
		}
		return throughOne(v.Design, r, name, controller, share)
	}}
}

// onOther waits until the servers reach an array's LUNs through the controller that does not
// have the fault, over 1/share of all paths.
func (l lunStorage) onOther(array string, controller, share int) *Condition {
	return l.paths("the LUNs on the other controller", array, 1-controller, share)
}

// throughOne decides for paths whether the condition is met, and describes what
// the servers see.
func throughOne(d *design.Design, r array.Result, name string, controller, share int) (bool, string) {
	ok := len(r.Matches) == r.Expected
	said := map[string]int{}
	for _, m := range r.Matches {
		for i := range d.Arrays {
			a := &d.Arrays[i]
			if a.Name != name || !slices.ContainsFunc(a.LUNs, func(l design.LUN) bool { return l.Name == m.LUN }) {
				continue
			}
			text := fmt.Sprintf("by %d of %d paths", m.Seen.Paths, d.PathsTo(a, m.Host))
			if m.Seen.Owner != nil { // nil with paths to one controller only, which cannot be identified
				text += ", optimized those to controller " + strconv.Itoa(*m.Seen.Owner)
			}
			said[text]++
			ok = ok && m.Seen.Paths == d.PathsTo(a, m.Host)/share && (share > 1 || m.Seen.Owner != nil && *m.Seen.Owner == controller)
		}
	}
	var out []string
	for _, text := range slices.Sorted(maps.Keys(said)) {
		out = append(out, fmt.Sprintf("%d times a server reaches a LUN %s", said[text], text))
	}
	return ok, strings.Join(out, "; ")
}

// atHome waits until the servers see all LUNs as designed.
func (l lunStorage) atHome() *Condition {
	return &Condition{What: "all paths back, each LUN on its own controller", Limit: pathsLimit, Look: func(ctx context.Context, v *View) (bool, string) {
		r, err := v.lunsSeen(ctx)
		if err != nil {
			return false, err.Error()
		}
		var wrong []string
		for _, f := range r.Findings {
			wrong = append(wrong, f.Host+": "+f.String())
		}
		if len(wrong) > 0 {
			return false, fmt.Sprintf("%d differences, first %s", len(wrong), wrong[0])
		}
		return true, fmt.Sprintf("%d times a server sees a LUN as designed", len(r.Matches))
	}}
}

// pathsLimit: an emulated server needs minutes to add 32 returned paths to their
// multipath maps.
const pathsLimit = 3 * time.Minute

// controllerFailover moves a controller's LUNs by command, and back.
func controllerFailover(s Scene) ([]Step, error) {
	x, err := s.lun()
	if err != nil {
		return nil, err
	}
	l := lunStorage{s}
	f := Fault{Kind: ControllerFailover, Args: []string{x.Array, strconv.Itoa(x.Controller)}}
	return []Step{
		{Fault: f, Wait: pathHold, Look: true, Until: l.onOther(x.Array, x.Controller, 1)},
		{Fault: f, Mend: true, Wait: pathHold, Until: l.atHome()},
	}, nil
}

// powerHold is how long an array is off: longer than the restart of a controller,
// and shorter than I/O waits for paths (no_path_retry).
const powerHold = 45 * time.Second

// arrayPower cuts the power of the array for a while. Servers and clients wait.
func arrayPower(s Scene) ([]Step, error) {
	x, err := s.lun()
	if err != nil {
		return nil, err
	}
	f := Fault{Kind: ArrayPower, Args: []string{x.Array}}
	l := lunStorage{s}
	return []Step{{Fault: f, Wait: powerHold, Look: true, Until: l.noPath(x.Array)}, {Fault: f, Mend: true, Until: l.atHome()}}, nil
}

// slowMS is the delay of a slow LUN in milliseconds: much longer than a disk's
// repeated read, and shorter than the 30 s after which a command fails.
const slowMS = 1500

// lunLate waits until the server waits for a LUN, and status names it. With fewer LUNs of
// its array in the volume, or without stripes, status has nothing to compare it with.
func lunLate(s Scene, lun string) *Condition {
	device := late("/dev/mapper/"+lun, slowMS)
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
	return allOf("the server waits for the LUN, and status names it", 2*time.Minute, device, shows(time.Minute, signOf(observe.LUNSlow, "lun", lun)))
}

func lunSlow(s Scene) ([]Step, error) {
	x, err := s.lun()
	if err != nil {
		return nil, err
	}
	// Mend under load: while a LUN is slow, every operation counts as a stall.
	f := Fault{Kind: LUNSlow, Args: []string{x.Name, strconv.Itoa(slowMS)}}
	return []Step{{Fault: f, Wait: linkHold, Look: true, Until: lunLate(s, x.Name)}, {Fault: f, Mend: true}}, nil
}

// lunMissing boots the passive server without one of the LUNs, then makes the
// active server die.
func lunMissing(s Scene) ([]Step, error) {
	x, err := s.lun()
	if err != nil {
		return nil, err
	}
	if len(s.Design.PairOf(s.Service.Name).Services) > 1 {
		return nil, errors.New("with two services neither server is passive")
	}
	off := Fault{Kind: PowerOff, On: s.Passive}
	return []Step{
		{Fault: off, Prepare: true, Wait: 2 * time.Second},
		{Fault: Fault{Kind: LUNMissing, On: s.Passive, Args: []string{x.Name}}, Prepare: true},
		{Fault: off, Mend: true, Prepare: true, Look: true, Until: joinedWithout(x.Name, s.Passive, bootLimit)},
		{Fault: Fault{Kind: Panic, On: s.Active}, Until: notStartedOn(s.Passive, s.Active, 2*bootLimit)},
	}, nil
}

// joinedWithout waits until a server is in the cluster and mortar status reports
// its missing LUN.
func joinedWithout(lun, server string, limit time.Duration) *Condition {
	return &Condition{What: "status says so", Limit: limit, Look: func(ctx context.Context, v *View) (bool, string) {
		c, err := v.e.cluster(ctx, []string{v.Active})
		if err != nil {
			return false, err.Error()
		}
		if problems := c.problems([]string{v.Active, v.Passive}); len(problems) > 0 {
			return false, strings.Join(problems, "; ")
		}
		return signOf(observe.LUNWrong, "luns", lun, "hosts", server).in(v.findings(ctx))
	}}
}

// notStartedOn waits until the service runs on its own server again, which has booted,
// and checks that the other server did not start it meanwhile.
func notStartedOn(wrong, home string, limit time.Duration) *Condition {
	reset := resetItself(home)
	return &Condition{What: "not started on " + wrong, Limit: limit, Look: func(ctx context.Context, v *View) (bool, string) {
		for _, ev := range v.events() {
			if ev.Kind == report.EventStarted && ev.Host == wrong && ev.NS > v.fault && aboutResource(ev, v.e.resource) {
				return false, "it started there, without one of its LUNs"
			}
		}
		if ok, detail := reset.Look(ctx, v); !ok {
			return false, detail
		}
		return v.mounted(ctx, home), "it runs on " + home
	}}
}

// arrayDrills are the drills of parts that only a brick on LUNs has.
var arrayDrills = []Drill{
	{
		Name: "controller-failover", Title: "an array's controller hands its LUNs to the other one: all paths stay, and multipath goes on over those that are optimized now",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "command", Title: "the LUNs of one controller are moved to the other one, and back", Steps: controllerFailover}},
	},
	{
		Name: "lun-slow", Title: "a LUN answers late: clients wait longer, and nothing is given up",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: none, Disks: true},
		Variants: []Variant{{How: "delay", Title: "each answer of the service's first LUN is 1.5 s late", Steps: lunSlow}},
	},
	{
		Name: "array-power", Title: "an array loses its power for less than I/O waits: clients wait, and go on when it is back",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: none, Disks: true, Within: 6 * time.Minute},
		Variants: []Variant{{How: "short", Title: "the array is off for 45 s", Steps: arrayPower}},
	},
	{
		Name: "lun-missing", Title: "the passive server boots without one of the LUNs, then the active one dies: the service must not start without it, and comes back on its own server",
		Expect:   Expect{Where: Returns, Fencing: Allow, Stall: none, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "hidden", Title: "a LUN is hidden from the passive server while that is off; then the kernel of the active one panics", Steps: lunMissing}},
	},
	{
		Name: "lun-hung", Title: "a LUN answers the passive server nothing, neither data nor an error, and the active one dies: the service must not start without it, and comes back on its own server",
		Expect:   Expect{Where: Returns, Fencing: Allow, Stall: none, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "crash", Title: "the LUN hangs on the passive server, then the kernel of the active one panics", Steps: lunHung}},
	},
}

// These drills come before those that cut all power.
func init() { Table = slices.Insert(Table, len(Table)-2, arrayDrills...) }
