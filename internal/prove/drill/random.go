package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Schedule is a random sequence of a few faults. The same seed draws the same
// schedule for the same brick.
type Schedule struct {
	Seed  uint64
	Parts []Part
}

// Part is one fault of a schedule, or of the table of drills.
type Part struct {
	Kind fault.Kind
	// On is active or passive, by the server of the service when the drill
	// begins; "" for a fault of no server.
	On   string
	Args []string
	At   time.Duration // after the first fault
	For  time.Duration // until the drill mends it; 0: the fault needs no mending
}

func (p Part) String() string {
	words := slices.DeleteFunc(append([]string{string(p.Kind), p.On}, p.Args...), func(w string) bool { return w == "" })
	s := fmt.Sprintf("+%g s %s", p.At.Seconds(), strings.Join(words, " "))
	if p.For > 0 {
		s += fmt.Sprintf(" for %g s", p.For.Seconds())
	}
	return s
}

// Words describes the parts of a schedule, in order of time.
func (s Schedule) Words() []string {
	return lists.Map(s.Parts, Part.String)
}

// latestFault is the latest begin of a schedule's faults: by then a takeover has ended
// and a fenced server boots.
const latestFault = 45 * time.Second

// Draw draws one to three faults for a brick. can returns an error for a fault
// that is impossible there.
func Draw(s fault.Scene, seed uint64, can func(fault.Fault) error) (Schedule, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	out := Schedule{Seed: seed}
	type drawn struct {
		fault.Kind
		fault.Chance
	}
	var bag []drawn
	for _, row := range fault.Rows {
		for _, c := range row.Chances {
			if args := c.Args(s); len(args) > 0 && can(Part{Kind: row.Kind, On: firstOf(c.On), Args: args[0]}.fault(s)) == nil {
				bag = append(bag, drawn{row.Kind, c})
			}
		}
	}
	if len(bag) == 0 {
		return out, errors.New("no fault can be injected into this brick")
	}
	for want := 1 + r.IntN(3); len(out.Parts) < want; {
		c := bag[r.IntN(len(bag))]
		args := c.Args(s)
		p := Part{Kind: c.Kind, Args: args[r.IntN(len(args))]}
		if len(c.On) > 0 {
			p.On = c.On[r.IntN(len(c.On))]
		}
		if len(out.Parts) > 0 {
			p.At = time.Duration(r.IntN(int(latestFault/time.Second)+1)) * time.Second
		}
		if c.Longest > 0 {
			p.For = time.Duration(c.Shortest+r.IntN(c.Longest-c.Shortest+1)) * time.Second
		}
		if out.takes(p, s) && can(p.fault(s)) == nil {
			out.Parts = append(out.Parts, p)
		}
	}
	slices.SortStableFunc(out.Parts, func(a, b Part) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func firstOf(on []string) string {
	if len(on) == 0 {
		return ""
	}
	return on[0]
}

// atMostOne are faults of which a schedule contains at most one: a controller must not
// die while the other one is out, or fail over in an array without power.
var atMostOne = []fault.Kind{fault.ControllerOut, fault.ControllerFailover, fault.ArrayPower}

// atMostOnePerServer are faults of which a server gets at most one: both disks of a system mirror are
// not lost, and a clock jumps one way.
var atMostOnePerServer = []fault.Kind{fault.LocalDisk, fault.ClockJump}

// ofPaths are faults of which two may take both paths of a server to a disk. A single path
// is drawn beside none of them, so that single disks go as DiskOut only, which takes counts.
// The others take whole enclosures, which a group survives or its service leaves.
var ofPaths = []fault.Kind{fault.PathOut, fault.HBAOut, fault.PathsOut, fault.ModuleOut}

// takes reports whether the schedule can add a part: no fault twice, not more
// disks of a RAID group than it can lose, no disk beside two faults of HBAs or modules, not
// both modules of an enclosure, not every copy of a cache's dirty data, not both controllers
// of an array.
func (s Schedule) takes(p Part, scene fault.Scene) bool {
	for _, q := range s.Parts {
		if q.Kind == p.Kind && q.On == p.On && (slices.Equal(q.Args, p.Args) || slices.Contains(atMostOnePerServer, p.Kind)) ||
			slices.Contains(atMostOne, p.Kind) && slices.Contains(atMostOne, q.Kind) ||
			p.Kind == fault.ModuleOut && q.Kind == fault.ModuleOut && q.Args[0] == p.Args[0] ||
			(p.Kind == fault.PathOut || q.Kind == fault.PathOut) && slices.Contains(ofPaths, p.Kind) && slices.Contains(ofPaths, q.Kind) {
			return false
		}
	}
	count := func(is func(Part) bool) (n int) {
		for _, q := range append(slices.Clone(s.Parts), p) {
			if is(q) {
				n++
			}
		}
		return n
	}
	if count(func(q Part) bool { return q.Kind == fault.HBAOut || q.Kind == fault.ModuleOut }) > 1 && count(func(q Part) bool { return q.Kind == fault.DiskOut }) > 0 {
		return false // a server may lose an enclosure, and the group a disk of another one
	}
	if p.Kind == fault.Move && p.On == fault.OnActive && len(s.Parts) == 0 {
		return false // it runs there
	}
	pulled := scene.Storage().Pulled("").Kind
	out := func(prefix string) int {
		return count(func(q Part) bool { return q.Kind == pulled && strings.HasPrefix(q.Args[0], prefix) })
	}
	spare := max(scene.Group.Parity, 1)
	if scene.Group.Level == 10 {
		spare = 1 // two may be the halves of one mirror
	}
	if out(fault.DiskArg) > spare {
		return false
	}
	c := scene.Service.Storage.Cache
	return c == nil || c.Mode != cache.WriteBack || out(fault.SSDArg) < len(c.SSDs)
}

// fault is the part's fault in a scene.
func (p Part) fault(s fault.Scene) fault.Fault {
	f := fault.Fault{Kind: p.Kind, Args: slices.Clone(p.Args)}
	switch p.On {
	case fault.OnActive:
		f.On = s.Active
	case fault.OnPassive:
		f.On = s.Passive
	}
	for i, a := range f.Args {
		f.Args[i] = resolveName(s, a)
	}
	return f
}

// resolveName returns the name that an argument of a part stands for; other arguments
// stand for themselves.
func resolveName(s fault.Scene, arg string) string {
	if arg == fault.MoveArg {
		return s.Service.Name
	}
	// Draw calls named thousands of times to find a schedule; fmt.Sscanf would take a
	// third of its time.
	if n, ok := numberAfter(fault.DiskArg, arg); ok && n < len(s.Members) {
		return s.Members[n]
	}
	if n, ok := numberAfter(fault.SSDArg, arg); ok {
		if serial, err := s.SSD(n); err == nil {
			return serial
		}
	}
	return arg
}

// numberAfter returns the number of an argument that is a prefix and a number.
func numberAfter(prefix, arg string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(arg, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}

// A random schedule of one fault is judged as strictly as the drill of that fault, except
// where the outcome depends on how long the seed lets it last. So is one of several faults
// that do not touch the same.

// outcome is what a fault that comes alone does to the service and to the servers.
func (p Part) outcome(s fault.Scene) (judge.Place, judge.Fencing) {
	on := p.On
	if on == fault.OnPassive && s.Passes() != nil {
		on = "" // it serves as well
	}
	switch of := fault.Kinds[p.Kind].Outcome; {
	case of != nil:
		o := of(on, p.Args)
		return o.Where, o.Fencing
	case on == fault.OnPassive:
		return judge.Stays, judge.Allow
	}
	return judge.Anywhere, judge.Allow
}

// seen waits until a server has seen a fault after which the service stays. It is nil for
// other faults. It is nil, too, for a dead BMC, which is missed within minutes only, for LNet
// of a passive server, and for a slow disk below a write-back cache.
func (p Part) seen(s fault.Scene) *fault.Condition {
	if where, _ := p.outcome(s); where != judge.Stays {
		return nil
	}
	return p.fault(s).Seen(s)
}

// touches names the part of the brick that a fault harms after which the service stays; "":
// the fault may move the service beside another one. An array without power is one, and so
// are a slow disk and a slow LUN: they last until the others are seen, and no queue of a LUN
// and no monitor waits for long.
func (p Part) touches(s fault.Scene) string {
	if where, fencing := p.outcome(s); where != judge.Stays || fencing != judge.NoServer {
		return ""
	}
	if p.Kind == fault.LocalDisk {
		return "system disks of " + p.On
	}
	return fault.Kinds[p.Kind].Harms
}

// alone says whether each fault is judged as if it came alone: there is one, or no two touch
// the same.
func (s Schedule) alone(scene fault.Scene) bool {
	var touched []string
	for _, p := range s.Parts {
		what := p.touches(scene)
		if len(s.Parts) > 1 && (what == "" || slices.Contains(touched, what)) {
			return false
		}
		touched = append(touched, what)
	}
	return true
}

// expect is what must happen. Where one fault may harm the service beside another, any server
// may be fenced, and the service may be anywhere.
func (s Schedule) expect(disks bool, scene fault.Scene) judge.Expect {
	e := judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: noTarget, Disks: disks, Within: 10 * time.Minute}
	if s.alone(scene) {
		e.Where, e.Fencing = s.Parts[0].outcome(scene)
	}
	return e
}

// byCommand are the faults that wait for the cluster. The next faults do not wait for
// them: they hit a service that is being stopped or started, and can undo the command.
var byCommand = []fault.Kind{fault.Move, fault.Standby}

// steps puts the beginnings and the ends of the faults in order of time. Other
// faults can make a step impossible (mortar refuses a failover while a server is
// away): the drill notes that and goes on.
func (s Schedule) steps(scene fault.Scene) ([]Step, error) {
	at := map[time.Duration][]Step{}
	alone := s.alone(scene)
	for i, p := range s.Parts {
		f, beside := p.fault(scene), slices.Contains(byCommand, p.Kind)
		// Alone none makes another one impossible; the drill goes on only once it was seen.
		at[p.At] = append(at[p.At], Drawn{Step: Inject(f), Beside: beside, Try: !alone && (i > 0 || beside && len(s.Parts) > 1)})
		if c := p.seen(scene); alone && c != nil {
			at[p.At] = append(at[p.At], Until{c}, Look{})
		}
		if p.For > 0 {
			// Other faults meet the rebuild of a disk that is given back. An SSD waits for
			// heal: the service must not move while it joins the cache.
			end, back := p.At+p.For, p.Kind == fault.DiskOut && strings.HasPrefix(p.Args[0], fault.DiskArg) && len(s.Parts) > 1
			at[end] = append(at[end], Drawn{Step: Mend(f), Beside: beside, Back: back, Try: true})
		}
	}
	var all []Step
	for _, t := range slices.Sorted(maps.Keys(at)) {
		all = append(append(all, At(t)), at[t]...)
	}
	return all, nil
}

// nothingDone is a check that fails if no fault of a schedule could be carried out; there is
// no schedule if s is nil.
func (s *Schedule) nothingDone(undone []string) []report.Check {
	if s == nil || len(undone) < len(s.Parts) {
		return nil
	}
	return []report.Check{{Name: "a fault took place", Detail: "none could be carried out: " + strings.Join(undone, "; ")}}
}

// drawn returns the seed and the words of a random variant; nil if it is not random.
func (v Variant) drawn() (seed *uint64, words []string) {
	if v.Schedule == nil {
		return nil, nil
	}
	return &v.Schedule.Seed, v.Schedule.Words()
}

// choice is the drill of a schedule.
func (s Schedule) choice(name string, scene fault.Scene) Choice {
	disks := slices.ContainsFunc(s.Parts, func(p Part) bool { return fault.Kinds[p.Kind].Disks })
	return Choice{
		// Servers may boot twice, and the reclaim of NFSv3 locks may take as long.
		Drill:   Drill{Name: "random", Title: "faults that a seed draws", Expect: s.expect(disks, scene)},
		Variant: Variant{How: name, Title: strings.Join(s.Words(), "; "), Steps: s.steps, Schedule: &s},
	}
}

// Random draws count schedules, from seed on, and carries them out. For each one
// that fails it tries the schedules with one fault less, until none of them
// fails; smallest has the remaining schedules. A schedule after which the brick does
// not become whole has failed, too: Random goes on from env.Restore, or else if the
// brick is whole once all servers were without power. entries and runs are those of all drills done; Random
// writes them to dir too.
func Random(ctx context.Context, env fault.Env, seed uint64, count int, dir string, opt Options) (entries []report.Entry, runs []*report.Run, smallest []Schedule, err error) {
	if !env.Design.Clustered() {
		return nil, nil, nil, &fault.Refused{Why: "random schedules: " + errNeedsPair.Error()}
	}
	scene, err := planned(env)
	if err != nil {
		return nil, nil, nil, err
	}
	var all []Schedule
	for i := range count {
		s, err := Draw(scene, seed+uint64(i), (&fault.Site{Scene: scene, Env: env}).Can)
		if err != nil {
			return nil, nil, nil, err
		}
		all = append(all, s)
	}
	do := func(s Schedule, name string) (failed []string, err error) {
		if env.Restore != nil {
			if err := env.Restore(ctx); err != nil {
				return nil, errors.Join(err, ctx.Err())
			}
		}
		e, r, err := All(ctx, env, []Choice{s.choice(name, scene)}, 1, filepath.Join(dir, name), opt)
		for i := range e {
			if e[i].Dir != "" { // it has a run
				e[i].Dir = filepath.Join(name, e[i].Dir)
			}
			for k := range e[i].Dirs {
				e[i].Dirs[k] = filepath.Join(name, e[i].Dirs[k])
			}
		}
		entries, runs = append(entries, e...), append(runs, r...)
		for _, x := range e {
			for _, c := range x.Checks {
				if !c.OK {
					failed = append(failed, c.Name)
				}
			}
		}
		if b := (*Broken)(nil); errors.As(err, &b) {
			failed = append(failed, "broken")
			(&fault.Site{Env: env}).Say("%v", b)
			var cycle error
			if env.Restore == nil { // else the next drill begins anew
				cycle = powerCycle(ctx, env, opt)
			}
			if err = nil; cycle != nil {
				err = errors.Join(b, cycle)
			}
		}
		return failed, errors.Join(err, report.SaveEntries(dir, entries))
	}
	for _, s := range all {
		name := strconv.FormatUint(s.Seed, 10)
		whole, err := do(s, name)
		if len(whole) > 0 && err == nil {
			tries := 0
			s, err = s.shrink(func(less Schedule) (bool, error) {
				tries++
				part, err := do(less, fmt.Sprintf("%s-less-%d", name, tries))
				// A smaller schedule is judged more strictly, so it may fail for another reason.
				return slices.ContainsFunc(part, func(check string) bool { return slices.Contains(whole, check) }), err
			})
			if err == nil {
				smallest = append(smallest, s)
				for i, e := range entries {
					entries[i].Smallest = e.Smallest || e.Verdict != report.Pass && *e.Seed == s.Seed && slices.Equal(e.Schedule, s.Words())
				}
				err = report.SaveEntries(dir, entries)
			}
		}
		if err != nil {
			return entries, runs, smallest, err
		}
	}
	return entries, runs, smallest, nil
}

// shrink removes faults from a failing schedule, one by one, as long as the rest
// still fails.
func (s Schedule) shrink(fails func(Schedule) (bool, error)) (Schedule, error) {
	for i := 0; i < len(s.Parts) && len(s.Parts) > 1; i++ {
		less := Schedule{Seed: s.Seed, Parts: slices.Delete(slices.Clone(s.Parts), i, i+1)}
		for first, k := less.Parts[0].At, 0; k < len(less.Parts); k++ { // the first begins at 0
			less.Parts[k].At -= first
		}
		failed, err := fails(less)
		if err != nil {
			return s, err
		}
		if failed {
			s, i = less, -1
		}
	}
	return s, nil
}
