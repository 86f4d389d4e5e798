package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Schedule is a random sequence of a few faults. The same seed draws the same
// schedule for the same brick.
type Schedule struct {
	Seed  uint64
	Parts []Part
}

// Part is one fault of a schedule.
type Part struct {
	Kind Kind
	// On is active or passive, by the server of the service when the drill
	// begins; "" for a fault of no server.
	On   string
	Args []string
	At   time.Duration // after the first fault
	For  time.Duration // until the drill mends it; 0: the fault needs no mending
}

const (
	onActive  = "active"
	onPassive = "passive"
	moveArg   = "service" // stands for the service's name
	diskArg   = "disk "   // with a number: stands for a member of the RAID group
	ssdArg    = "ssd "    // with a number: stands for an SSD of the cache
)

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
	var out []string
	for _, p := range s.Parts {
		out = append(out, p.String())
	}
	return out
}

// chance is a kind of fault that a schedule can contain.
type chance struct {
	kind Kind
	on   []string // which servers; nil: none
	// args returns the possible arguments of the fault for a brick; none: the
	// brick has no part for this fault.
	args func(s Scene) [][]string
	// shortest and longest time until the drill mends the fault, in seconds; 0:
	// the fault needs no mending.
	shortest, longest int
}

var eitherServer = []string{onActive, onPassive}

// chances are the faults that a schedule draws from. They do not include faults
// that a person must end (confirm-off, bytes overwritten on a disk, a missing LUN), faults
// that clients see as errors (a full file system or OST), the death of a client, which ends a
// part of the load, fence devices that lie, after which no data is safe without reservations,
// and a mirror of dirty data that is filled, which takes longer than a schedule.
var chances = []chance{
	{Freeze, eitherServer, nothing, 5, 60},
	{Panic, eitherServer, nothing, 5, 60},
	{PowerOff, eitherServer, nothing, 5, 60},
	{LinkDown, eitherServer, words("private", "public"), 3, 40},
	{SwitchDown, nil, words("private", "public"), 3, 20},
	{PathOut, eitherServer, ofStorage(PathOut), 5, 40},
	{HBAOut, eitherServer, words("0", "1"), 5, 40},
	{PathsOut, eitherServer, nothing, 5, 40},
	{ModuleOut, nil, ofStorage(ModuleOut), 5, 40},
	{DiskOut, nil, ofStorage(DiskOut), 5, 40},
	{DiskOut, nil, Scene.ssds, 5, 40},
	{DiskSlow, nil, ofStorage(DiskSlow), 5, 40},
	{ControllerOut, nil, ofStorage(ControllerOut), 5, 40},
	{ControllerFailover, nil, ofStorage(ControllerFailover), 5, 40},
	{ArrayDisk, nil, ofStorage(ArrayDisk), 5, 40},
	{ArrayPower, nil, ofStorage(ArrayPower), 5, 40}, // I/O waits for longer (no_path_retry)
	{LUNSlow, nil, ofStorage(LUNSlow), 5, 40},
	{LocalDisk, eitherServer, words("0", "1"), 5, 40},
	{FeedOff, nil, pdus, 3, 30},
	{BMCDead, eitherServer, nothing, 5, 40},
	{PDUDead, nil, pdus, 5, 40},
	{Kill, []string{onActive}, killable, 0, 0},
	{LNetDown, eitherServer, ofLustre, 5, 40},
	{ClockJump, eitherServer, words("3600", "-3600"), 5, 40},
	{Move, eitherServer, words(moveArg), 0, 0},
	{Standby, eitherServer, nothing, 5, 40},
}

func nothing(Scene) [][]string { return [][]string{nil} }

func words(ws ...string) func(Scene) [][]string {
	var out [][]string
	for _, w := range ws {
		out = append(out, []string{w})
	}
	return func(Scene) [][]string { return out }
}

// killable are the daemons of the kind of service, and those of the cluster.
func killable(s Scene) (out [][]string) {
	for _, name := range append(slices.Clone(kind.Of(s.Design).Daemons()), ofCluster...) {
		out = append(out, []string{name})
	}
	return out
}

// ofLustre is for faults without arguments that only a Lustre brick has.
func ofLustre(s Scene) [][]string {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return nil
	}
	return nothing(s)
}

func pdus(s Scene) (out [][]string) {
	for _, p := range s.Design.Spec.PDUs {
		out = append(out, []string{p.Name})
	}
	return out
}

// ofStorage returns the arguments of a fault that the kind of storage has.
func ofStorage(k Kind) func(Scene) [][]string {
	return func(s Scene) [][]string { return s.storage().parts()[k] }
}

// members are the disks of the RAID group, by number: Draw does not know yet which
// disks are in the group.
func (s Scene) members() [][]string { return numbered(diskArg, len(s.Members)) }

// ssds are the SSDs of the cache, by number.
func (s Scene) ssds() [][]string {
	if s.Service.Storage.Cache == nil {
		return nil
	}
	return numbered(ssdArg, len(s.Service.Storage.Cache.SSDs))
}

func numbered(prefix string, n int) (out [][]string) {
	for i := range n {
		out = append(out, []string{prefix + strconv.Itoa(i)})
	}
	return out
}

// latest is the latest begin of a schedule's faults: by then a takeover has ended
// and a fenced server boots.
const latest = 45 * time.Second

// Draw draws one to three faults for a brick. can returns an error for a fault
// that is impossible there.
func Draw(s Scene, seed uint64, can func(Fault) error) (Schedule, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	out := Schedule{Seed: seed}
	var bag []chance
	for _, c := range chances {
		if args := c.args(s); len(args) > 0 && can(Part{Kind: c.kind, On: firstOf(c.on), Args: args[0]}.fault(s)) == nil {
			bag = append(bag, c)
		}
	}
	if len(bag) == 0 {
		return out, errors.New("no fault can be injected into this brick")
	}
	for want := 1 + r.IntN(3); len(out.Parts) < want; {
		c := bag[r.IntN(len(bag))]
		args := c.args(s)
		p := Part{Kind: c.kind, Args: args[r.IntN(len(args))]}
		if len(c.on) > 0 {
			p.On = c.on[r.IntN(len(c.on))]
		}
		if len(out.Parts) > 0 {
			p.At = time.Duration(r.IntN(int(latest/time.Second)+1)) * time.Second
		}
		if c.longest > 0 {
			p.For = time.Duration(c.shortest+r.IntN(c.longest-c.shortest+1)) * time.Second
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

// oneOf are faults of which a schedule contains at most one: a controller must not
// die while the other one is out, or fail over in an array without power.
var oneOf = []Kind{ControllerOut, ControllerFailover, ArrayPower}

// oneEach are faults of which a server gets at most one: both disks of a system mirror are
// not lost, and a clock jumps one way.
var oneEach = []Kind{LocalDisk, ClockJump}

// ofPaths are faults of which two may take both paths of a server to a disk. A single path
// is drawn beside none of them, so that single disks go as DiskOut only, which takes counts.
// The others take whole enclosures, which a group survives or its service leaves.
var ofPaths = []Kind{PathOut, HBAOut, PathsOut, ModuleOut}

// takes reports whether the schedule can add a part: no fault twice, not more
// disks of a RAID group than it can lose, no disk beside two faults of HBAs or modules, not
// both modules of an enclosure, not every copy of a cache's dirty data, not both controllers
// of an array.
func (s Schedule) takes(p Part, scene Scene) bool {
	for _, q := range s.Parts {
		if q.Kind == p.Kind && q.On == p.On && (slices.Equal(q.Args, p.Args) || slices.Contains(oneEach, p.Kind)) ||
			slices.Contains(oneOf, p.Kind) && slices.Contains(oneOf, q.Kind) ||
			p.Kind == ModuleOut && q.Kind == ModuleOut && q.Args[0] == p.Args[0] ||
			(p.Kind == PathOut || q.Kind == PathOut) && slices.Contains(ofPaths, p.Kind) && slices.Contains(ofPaths, q.Kind) {
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
	if count(func(q Part) bool { return q.Kind == HBAOut || q.Kind == ModuleOut }) > 1 && count(func(q Part) bool { return q.Kind == DiskOut }) > 0 {
		return false // a server may lose an enclosure, and the group a disk of another one
	}
	if p.Kind == Move && p.On == onActive && len(s.Parts) == 0 {
		return false // it runs there
	}
	pulled := scene.storage().pulled("").Kind
	out := func(prefix string) int {
		return count(func(q Part) bool { return q.Kind == pulled && strings.HasPrefix(q.Args[0], prefix) })
	}
	spare := max(scene.Group.Parity, 1)
	if scene.Group.Level == 10 {
		spare = 1 // two may be the halves of one mirror
	}
	if out(diskArg) > spare {
		return false
	}
	c := scene.Service.Storage.Cache
	return c == nil || c.Mode != cache.WriteBack || out(ssdArg) < len(c.SSDs)
}

// fault is the part's fault in a scene.
func (p Part) fault(s Scene) Fault {
	f := Fault{Kind: p.Kind, Args: slices.Clone(p.Args)}
	switch p.On {
	case onActive:
		f.On = s.Active
	case onPassive:
		f.On = s.Passive
	}
	for i, a := range f.Args {
		f.Args[i] = s.named(a)
	}
	return f
}

// named returns the name that an argument of a part stands for; other arguments
// stand for themselves.
func (s Scene) named(arg string) string {
	if arg == moveArg {
		return s.Service.Name
	}
	// Draw calls named thousands of times to find a schedule; fmt.Sscanf would take a
	// third of its time.
	if n, ok := numberAfter(diskArg, arg); ok && n < len(s.Members) {
		return s.Members[n]
	}
	if n, ok := numberAfter(ssdArg, arg); ok {
		if serial, err := s.ssd(n); err == nil {
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

// byCommand are the faults that wait for the cluster. The next faults do not wait for
// them: they hit a service that is being stopped or started, and can undo the command.
var byCommand = []Kind{Move, Standby}

// steps puts the beginnings and the ends of the faults in order of time. Other
// faults can make a step impossible (mortar refuses a failover while a server is
// away): the drill notes that and goes on.
func (s Schedule) steps(scene Scene) ([]Step, error) {
	type event struct {
		at   time.Duration
		step Step
	}
	var all []event
	alone := s.alone(scene)
	for i, p := range s.Parts {
		f, beside := p.fault(scene), slices.Contains(byCommand, p.Kind)
		begin := Step{Fault: f, At: p.At, Beside: beside, Try: i > 0 || beside && len(s.Parts) > 1}
		if alone { // none makes another one impossible; the drill goes on only once it was seen
			begin.Try = false
			begin.Until = p.seen(scene)
			begin.Look = begin.Until != nil
		}
		all = append(all, event{p.At, begin})
		if p.For > 0 {
			// Other faults meet the rebuild of a disk that is given back. An SSD waits for
			// heal: the service must not move while it joins the cache.
			end, back := p.At+p.For, p.Kind == DiskOut && strings.HasPrefix(p.Args[0], diskArg) && len(s.Parts) > 1
			all = append(all, event{end, Step{Fault: f, At: end, Beside: beside, Mend: true, Back: back, Try: true}})
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var out []Step
	for _, e := range all {
		out = append(out, e.step)
	}
	return out, nil
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
func (s Schedule) choice(name string, scene Scene) Choice {
	disks := slices.ContainsFunc(s.Parts, func(p Part) bool {
		return slices.Contains([]Kind{DiskOut, DiskSlow, PathOut, PathsOut, HBAOut, ModuleOut, ControllerOut, ControllerFailover, ArrayDisk, ArrayPower, LUNSlow, PowerOff, FeedOff, Freeze, Panic}, p.Kind)
	})
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
func Random(ctx context.Context, env Env, seed uint64, count int, dir string, opt Options) (entries []report.Entry, runs []*report.Run, smallest []Schedule, err error) {
	if !env.Design.Clustered() {
		return nil, nil, nil, &Refused{"random schedules: " + errNeedsPair.Error()}
	}
	scene, err := planned(env)
	if err != nil {
		return nil, nil, nil, err
	}
	var all []Schedule
	for i := range count {
		s, err := Draw(scene, seed+uint64(i), (&engine{env: env}).can)
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
			(&engine{env: env}).say("%v", b)
			if env.Restore != nil {
				err = nil // the next drill begins anew
			} else if cycle := powerCycle(ctx, env, opt); cycle != nil {
				err = errors.Join(err, cycle)
			} else {
				err = nil
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
		shift(less.Parts)
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

// shift moves the parts so that the first begins at 0.
func shift(ps []Part) {
	for i := len(ps) - 1; i >= 0; i-- {
		ps[i].At -= ps[0].At
	}
}

func (e *engine) can(f Fault) error { return e.injector(f).Can(f) }
