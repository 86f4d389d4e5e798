package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Unfit says that a brick cannot be measured as it is; nothing was changed.
type Unfit struct{ Problems []string }

func (e *Unfit) Error() string { return strings.Join(e.Problems, "; ") }

// Env is what a benchmark works with.
type Env struct {
	Design  *design.Design
	Dial    host.Dial
	Virtual bool   // a virtual rack
	Version string // of mortar
	// Throttle bounds what every disk of the volumes takes: operations and
	// bytes a second, 0 for no limit. Nil where that cannot be.
	Throttle func(ctx context.Context, iops int, rate int64) error
	// Progress is told what happens as it happens, from several goroutines,
	// one at a time; may be nil.
	Progress func(Progress)
}

// Options of a run.
type Options struct {
	Dir        string               // where the run is written
	Scale      float64              // factor on the suite's sizes; 0: 1
	Threads    []int                // in place of the suite's thread counts
	Tests      []string             // of the suite, in its order; nil: all
	Repeat     int                  // in place of the suite's; 0: the suite's
	Cold       string               // in place of the suite's; "": the suite's
	Seconds    int                  // end each phase after so long at the latest; 0: as the suite says
	Engine     workload.BenchEngine // "": Mortar's own
	NFSVersion string               // which mount of a client; "": its first
	Profile    bool                 // measure every layer below NFS too
}

// Progress is what is going on.
type Progress struct {
	Step, Steps int    // measurement under way, and how many there are
	Phase       string // title; empty while something else is done
	Threads     int
	Hosts       int
	State       string // preparing, running, flushing, emptying caches …
	Rate        float64
	Unit        string
	Done        float64 // of this measurement, 0 to 1
	Left        float64 // seconds until everything is done, as far as can be told; 0: not known
	Note        string  // something worth a line of its own
	Finished    *report.BenchRun
}

// lane is one mount of one client: where threads run.
type lane struct {
	client  string
	service string
	dir     string // on the client
	runID   string // each service has a run of its own, so that one client can load both
	index   int    // among the lanes of its service that are used
	of      int
	device  string // instead of dir: a block device that is read
}

// runner is one benchmark under way.
type runner struct {
	env   Env
	suite *Suite
	opt   Options
	runID string
	began time.Time

	hosts testbed.Hosts
	sayMu sync.Mutex

	servers []string
	clients []string
	serves  map[string]string // service → server
	lanes   []lane
	memory  int64
	facts   map[string]workload.BenchFacts // by client
	dirs    []string                       // on the servers' volumes, made for the run

	bench       report.Bench
	events      []report.Event
	notes       []string
	often       map[string]*often // by text without figures
	reasons     []string
	software    []report.Row
	coldSeconds float64
	unmounted   bool // clients may be without their mounts
	full        bool // the phase just done ran out of space
	steps, step int
	stepSeconds []float64
	interrupted bool
}

// cleanTime bounds the clean-up after an interrupt or failure.
const cleanTime = 10 * time.Minute

// Run does a suite and gives its run, saved in opt.Dir; it is saved after each
// data set, so that nothing measured is lost however this process ends. An
// error of type *Unfit means that nothing was measured or changed; with any
// other there may be a run all the same, whose verdict is partial.
func Run(ctx context.Context, env Env, suite *Suite, opt Options) (*report.Run, error) {
	if opt.Scale == 0 {
		opt.Scale = 1
	}
	if opt.Engine == "" {
		opt.Engine = workload.EngineMortar
	}
	cold, err := ColdOf(env.Design, suite, opt.Cold)
	if err != nil {
		return nil, err
	}
	opt.Cold = cold
	s, err := opt.of(suite)
	if err != nil {
		return nil, err
	}
	r := &runner{env: env, suite: &s, opt: opt, began: time.Now(), often: map[string]*often{}, facts: map[string]workload.BenchFacts{}}
	defer r.hosts.Close()
	left, err := r.engineTests()
	if err != nil {
		return nil, err
	}
	if left != "" {
		r.reasons = append(r.reasons, left)
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.cleanup(ctx)
	// What an earlier run has measured is not overwritten.
	if old, aerr := report.Aside(opt.Dir); aerr != nil {
		r.note("", "the run that is in %s could not be moved away: %v", opt.Dir, aerr)
	} else if old != "" {
		r.say(Progress{Note: fmt.Sprintf("the run that was in %s is in %s now", opt.Dir, old)})
	}
	err = r.measure(ctx)
	if opt.Profile && err == nil && ctx.Err() == nil {
		r.profile(ctx)
	}
	if ctx.Err() != nil {
		r.interrupted = true
		r.reasons = append(r.reasons, "interrupted")
	} else if err != nil {
		r.reasons = append(r.reasons, strings.Split(err.Error(), "\n")...)
	}
	r.checkClocks(ctx)
	run, serr := r.save(true)
	if serr != nil {
		serr = elsewhere(run, serr)
	}
	return run, errors.Join(err, serr)
}

// elsewhere writes a run that could not be written to where it was to go, so
// that hours of measuring are not lost to a full disk.
func elsewhere(run *report.Run, failed error) error {
	dir, err := os.MkdirTemp("", "mortar-bench-")
	if err == nil {
		run.Dir = dir
		err = run.Save()
	}
	if err != nil {
		return fmt.Errorf("what was measured could not be written: %w", errors.Join(failed, err))
	}
	return fmt.Errorf("what was measured is in %s: where it was to go it could not be written: %w", dir, failed)
}

// of is a suite with the options in place of what it says.
func (o *Options) of(suite *Suite) (Suite, error) {
	s := *suite
	s.Tests = slices.Clone(s.Tests)
	if o.Repeat > 0 {
		s.Repeat = o.Repeat
	}
	if o.Cold != "" {
		s.Cold = o.Cold
	}
	for i := range s.Tests {
		t := &s.Tests[i]
		switch {
		case o.Seconds > 0 && (t.Seconds == 0 || t.Seconds > o.Seconds):
			t.Seconds = o.Seconds
		case o.Seconds == 0 && t.Seconds == 0 && o.Scale > 0 && o.Scale < 1 && o.Engine.EndsByTime():
			t.Seconds = s.ScaledSeconds
		}
	}
	err := pick(&s, o.Tests)
	return s, err
}

// pick leaves only the named tests.
func pick(s *Suite, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var have []string
	for _, t := range s.Tests {
		have = append(have, t.Name)
	}
	for _, n := range names {
		if !slices.Contains(have, n) {
			return &Unfit{[]string{fmt.Sprintf("suite %s has no test %q; it has %s", s.Name, n, strings.Join(have, ", "))}}
		}
	}
	var kept []Test
	for _, t := range s.Tests {
		if slices.Contains(names, t.Name) {
			kept = append(kept, t)
		}
	}
	s.Tests = kept
	s.orderKept()
	return nil
}

// orderKept leaves of the order what is of tests that are still there.
func (s *Suite) orderKept() {
	s.Order = slices.DeleteFunc(slices.Clone(s.Order), func(step string) bool {
		test, _, _ := strings.Cut(step, "/")
		return !slices.ContainsFunc(s.Tests, func(t Test) bool { return t.Name == test })
	})
}

// engineTests leaves out what the engine has no load for, and says so.
func (r *runner) engineTests() (left string, err error) {
	can := func(t *Test) bool {
		return !slices.ContainsFunc(t.phases(), func(p workload.BenchPhase) bool {
			j := workload.BenchJob{Engine: r.opt.Engine, Phase: p, Layout: workload.BenchLayout(t.Layout), Shared: t.shared(), Limit: int64(t.Reread)}
			return j.Able() != nil
		})
	}
	if e := r.opt.Engine; !e.EndsByTime() {
		if i := slices.IndexFunc(r.suite.Tests, func(t Test) bool { return can(&t) && t.Seconds > 0 }); i >= 0 {
			return "", &Unfit{[]string{fmt.Sprintf("%s cannot end a phase after a time, and test %s of suite %s ends its after %d s: use a suite without (paper; --print-suite prints one to change)",
				e, r.suite.Tests[i].Name, r.suite.Name, r.suite.Tests[i].Seconds)}}
		}
	}
	var kept []Test
	var out []string
	for i := range r.suite.Tests {
		if t := &r.suite.Tests[i]; can(t) {
			kept = append(kept, *t)
		} else {
			out = append(out, t.Name)
		}
	}
	if len(kept) == 0 && len(out) > 0 {
		return "", &Unfit{[]string{fmt.Sprintf("engine %s has no load for test %s", r.opt.Engine, strings.Join(out, ", "))}}
	}
	r.suite.Tests = kept
	r.suite.orderKept()
	if len(out) > 0 {
		left = fmt.Sprintf("left out, because %s has no load for it: %s", r.opt.Engine, strings.Join(out, ", "))
	}
	return left, nil
}

func (r *runner) say(p Progress) {
	if r.env.Progress == nil {
		return
	}
	r.sayMu.Lock()
	defer r.sayMu.Unlock()
	p.Step, p.Steps = r.step, r.steps
	r.env.Progress(p)
}

// note keeps something worth knowing, and tells it at once.
func (r *runner) note(host, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if host != "" {
		text = host + ": " + text
	}
	if slices.Contains(r.notes, text) {
		return
	}
	r.notes = append(r.notes, text)
	now := time.Now()
	r.events = append(r.events, report.Event{NS: now.UnixNano(), Seconds: now.Sub(r.began).Seconds(), Host: host, Source: "bench", Kind: report.EventNote, Text: text})
	r.say(Progress{Note: text})
}

// often is a note that many measurements give with other figures.
type often struct {
	text  string
	at    int // among the notes
	times int
}

var figures = regexp.MustCompile(`[0-9.]+`)

// noteOften keeps the first of the notes that differ by their figures only,
// and how many measurements gave one; each has its own in its run.
func (r *runner) noteOften(text string) {
	host, what, _ := strings.Cut(text, ": ")
	key := host + ": " + figures.ReplaceAllString(what, "#")
	if o := r.often[key]; o != nil {
		o.times++
		r.notes[o.at] = fmt.Sprintf("%s (the first of %d measurements with such a note; each has its own in bench.json)", o.text, o.times)
		return
	}
	n := len(r.notes)
	if r.note("", "%s", text); len(r.notes) > n {
		r.often[key] = &often{text, n, 1}
	}
}

func (r *runner) host(name string) *host.Session { return r.hosts.Session(name) }

func (r *runner) connect(ctx context.Context, name string) error {
	_, err := r.hosts.Connect(ctx, r.env.Dial, name)
	return err
}

// noteClock tells of a clock that is not the same as ours.
func (r *runner) noteClock(name string) {
	c := r.hosts.Clock(name)
	s := seconds(c.Offset)
	if max(s, -s) <= 1 {
		return
	}
	ahead := "ahead of"
	if s < 0 {
		ahead, s = "behind", -s
	}
	r.notes = append(r.notes, fmt.Sprintf("%s's clock is %s %s this machine's; that is corrected for, to within %s (chrony would mend it)", name, report.Seconds(s), ahead, report.Seconds(seconds(c.RoundTrip/2))))
}

func (r *runner) sizing() Sizing {
	return Sizing{Memory: r.memory, Scale: r.opt.Scale, Threads: r.opt.Threads, Lanes: len(r.lanes)}
}

func (r *runner) sets() []Set { return Sets(r.suite, r.sizing()) }

// measure does every set.
func (r *runner) measure(ctx context.Context) error {
	all := rounds(r.suite, r.sets())
	if left := r.suite.leftOut(r.sizing()); len(left) > 0 {
		r.note("", "%s", LeftOutText(r.suite, left))
	}
	for _, round := range all {
		for _, p := range round.steps {
			if p.measured {
				r.steps++
			}
		}
	}
	var failed []error
	for _, round := range all {
		if err := ctx.Err(); err != nil {
			return nil
		}
		failed = append(failed, r.round(ctx, round)...)
		if _, err := r.save(false); err != nil {
			r.note("", "what was measured could not be written, which is tried again: %v", err)
		}
		if len(r.lanes) == 0 {
			break
		}
	}
	return errors.Join(failed...)
}

// LeftOutText tells which thread counts are left out, and how to have them.
func LeftOutText(s *Suite, left []int) string {
	words := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(left)), ", "), "[]")
	return fmt.Sprintf("at this scale thread counts of more than %d on each mount are left out: %s (--clients has any measured)", s.ScaledThreads, words)
}

// used chooses the lanes of a set and numbers them within their services.
func (r *runner) used(n int) []lane {
	out := slices.Clone(r.lanes[:n])
	of := map[string]int{}
	for i := range out {
		out[i].index = of[out[i].service]
		of[out[i].service]++
	}
	for i := range out {
		out[i].of = of[out[i].service]
	}
	return out
}

// setState is a set while its phases are done.
type setState struct {
	use     []lane
	regions map[string][]workload.BenchRegion // by service
	err     error                             // why its other phases are left out
}

// begin chooses a set's lanes.
func (r *runner) begin(s *Set) *setState {
	st := &setState{regions: map[string][]workload.BenchRegion{}}
	// A client may have gone since the sets were planned.
	if s.Lanes > len(r.lanes) {
		if len(r.lanes) == 0 {
			st.err = errors.New("no client is left")
			return st
		}
		s.Lanes = lanes(s.Threads, len(r.lanes))
		s.PerLane = s.Threads / s.Lanes
	}
	st.use = r.used(s.Lanes)
	return st
}

// round makes the sets of a round, does their phases and removes them. A set
// in which something failed is left out from then on; the errors, one of each
// such set, are told as they come.
func (r *runner) round(ctx context.Context, rd round) (failed []error) {
	states := map[*Set]*setState{}
	fail := func(s *Set, err error) {
		states[s].err = err
		if ctx.Err() == nil {
			r.note("", "%s at %s: %v", s.Test.Title, report.Plural(s.Threads, "thread"), err)
			failed = append(failed, fmt.Errorf("%s at %s: %w", s.Test.Title, report.Plural(s.Threads, "thread"), err))
		}
	}
	for _, s := range rd.sets {
		states[s] = r.begin(s)
		if err := states[s].err; err != nil {
			fail(s, err)
		}
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		r.say(Progress{State: "removing files"})
		full := r.full
		r.full = false
		for _, s := range rd.sets {
			st := states[s]
			free := int64(-1)
			if full && len(st.use) > 0 {
				free = r.free(cctx, st.use[0])
			}
			if err := r.removeSet(cctx, st.use, s.Name); err != nil && st.err == nil {
				fail(s, err)
			}
			if free >= 0 {
				r.awaitSpace(ctx, st, free)
			}
		}
	}()
	for _, p := range rd.steps {
		if p.measured {
			r.step++
		}
		st := states[p.set]
		if st.err != nil {
			continue
		}
		if err := r.setPhase(ctx, p.set, p.setPhase, st); err != nil {
			fail(p.set, err)
		}
		if ctx.Err() != nil {
			return failed
		}
	}
	return failed
}

// setPhase does one phase of a set.
func (r *runner) setPhase(ctx context.Context, s *Set, p setPhase, st *setState) error {
	if err := r.mountAll(ctx); err != nil {
		return fmt.Errorf("the clients did not get their mounts back: %w", err)
	}
	coldHow := ""
	if p.cold && r.suite.Cold != ColdNone {
		coldHow = r.suite.Cold
		if err := r.cold(ctx, coldHow); err != nil {
			return err
		}
	}
	unthrottle, err := r.throttle(ctx, s.Test, p)
	if err != nil {
		return err
	}
	began := time.Now()
	sampled := func() []report.BenchIO { return nil }
	if p.measured {
		sampled = r.sample(ctx, st.use)
	}
	shares, err := r.phase(ctx, s, p, st.use, st.regions)
	io := sampled()
	unthrottle()
	if err != nil {
		if aerr := r.after(st.use, shares, nil); aerr != nil {
			err = fmt.Errorf("%w: %w", err, aerr)
		}
		return err
	}
	for i := range shares {
		if res := shares[i].result; res != nil {
			service := st.use[i].service
			st.regions[service] = workload.MergeRegions(st.regions[service], res.Regions)
		}
	}
	pt := r.record(s, p, st.use, shares, io, coldHow)
	if p.measured {
		r.stepSeconds = append(r.stepSeconds, time.Since(began).Seconds())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.after(st.use, shares, pt); err != nil {
		if pt != nil {
			pt.Failed = err.Error()
		}
		return err
	}
	return nil
}

// throttle slows the disks down for a measured phase of a test that asks for
// it, on a virtual rack; what it returns ends that.
func (r *runner) throttle(ctx context.Context, t *Test, p setPhase) (func(), error) {
	if !p.measured || t.DiskIOPS == 0 && t.DiskRate == 0 {
		return func() {}, nil
	}
	if r.env.Throttle == nil {
		r.note("", "disks are as they are: disk_iops and disk_rate of the suite are for virtual racks")
		return func() {}, nil
	}
	end := func() {
		// Not the caller's context: disks are not left slow by an interrupt.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := r.env.Throttle(ctx, 0, 0); err != nil {
			r.note("", "disks may be left slow (mortar rack fault ... throttle DISK 0 0 ends that): %v", err)
		}
	}
	if err := r.env.Throttle(ctx, t.DiskIOPS, int64(t.DiskRate)); err != nil {
		end()
		return nil, fmt.Errorf("throttling the disks: %w", err)
	}
	limit := report.Count(int64(t.DiskIOPS)) + " operations"
	switch {
	case t.DiskIOPS == 0:
		limit = report.Bytes(int64(t.DiskRate))
	case t.DiskRate > 0:
		limit += " and " + report.Bytes(int64(t.DiskRate))
	}
	r.note("", "%s: each disk of the volumes was throttled to %s a second while measured", t.Title, limit)
	return end, nil
}

// after looks at what went wrong in a phase: an error means that the set's
// other phases have nothing to work on.
func (r *runner) after(use []lane, shares []share, pt *report.BenchPoint) error {
	var stop []string
	for i := range shares {
		s := &shares[i]
		switch {
		case errors.Is(s.err, agent.ErrLost):
			r.note(use[i].client, "vanished: %v; what it last told is kept, its threads do not bound the common window", s.err)
			stop = append(stop, fmt.Sprintf("client %s vanished", use[i].client))
			continue
		case s.err != nil:
			stop = append(stop, fmt.Sprintf("%s: %v", use[i].client, s.err))
			continue
		case s.result == nil:
			continue // it was not begun, because of another
		}
		faults := map[string]int{}
		for _, t := range s.result.Threads {
			if t.Fault != "" {
				faults[t.Fault]++
			}
		}
		for fault, n := range faults {
			text := map[string]string{
				workload.FaultNoSpace:  "ran out of space",
				workload.FaultReadOnly: "found the file system read-only",
				workload.FaultVanished: "lost the mount or its files",
				workload.FaultStuck:    "made no more progress and were left behind",
			}[fault]
			if text == "" {
				text = "failed"
			}
			r.full = r.full || fault == workload.FaultNoSpace
			r.note(use[i].client, "%d of %s %s", n, report.Plural(len(s.result.Threads), "thread"), text)
			stop = append(stop, fmt.Sprintf("%s of client %s %s", report.Plural(n, "thread"), use[i].client, text))
		}
	}
	if pt != nil {
		if bad := pt.Runs[len(pt.Runs)-1].BadBytes; bad > 0 {
			r.note("", "%s read back WRONG: see errors in bench.json", report.Bytes(bad))
		}
	}
	// Clients that vanished are tried once more; else the rest goes on.
	var gone []string
	for i := range shares {
		if errors.Is(shares[i].err, agent.ErrLost) && !slices.Contains(gone, use[i].client) {
			gone = append(gone, use[i].client)
		}
	}
	for _, c := range gone {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := r.connect(ctx, c)
		cancel()
		if err != nil {
			r.note(c, "is not to be reached: the benchmark goes on without it")
			r.lanes = slices.DeleteFunc(r.lanes, func(l lane) bool { return l.client == c })
			r.clients = slices.DeleteFunc(r.clients, func(x string) bool { return x == c })
		}
	}
	if len(stop) > 0 {
		return errors.New(strings.Join(stop, "; "))
	}
	return nil
}

// record adds what a phase achieved to the run.
func (r *runner) record(s *Set, p setPhase, use []lane, shares []share, io []report.BenchIO, coldHow string) *report.BenchPoint {
	t := s.Test
	title, unit := t.title(p.op)
	evenly := even(p.op, t.IO == "direct")
	run := join(shares, p.op, unit, evenly)
	run.IO = io
	if !p.measured {
		return nil
	}
	for _, n := range run.Notes {
		r.noteOften(n)
	}
	name := t.Name + "/" + string(p.op)
	i := slices.IndexFunc(r.bench.Phases, func(x report.BenchPhase) bool { return x.Name == name })
	if i < 0 {
		i = len(r.bench.Phases)
		ph := report.BenchPhase{Name: name, Test: t.Name, Op: string(p.op), Title: title, Unit: unit, RecordBytes: s.RecordBytes, Method: t.method(p.op, r.opt.Engine), Window: "exact", Points: []report.BenchPoint{}}
		switch {
		case evenly:
			ph.Window = "even"
		case p.op == workload.Find:
			ph.Window = "whole"
		}
		r.bench.Phases = append(r.bench.Phases, ph)
	}
	ph := &r.bench.Phases[i]
	k := slices.IndexFunc(ph.Points, func(x report.BenchPoint) bool { return x.Threads == s.Threads })
	if k < 0 {
		k = len(ph.Points)
		ph.Points = append(ph.Points, report.BenchPoint{Threads: s.Threads, Hosts: len(laneClients(use)), FileBytes: s.FileBytes, TotalBytes: s.TotalBytes, Files: s.Files, Cold: coldHow, Runs: []report.BenchRun{}})
	}
	pt := &ph.Points[k]
	pt.Runs = append(pt.Runs, run)
	last := &pt.Runs[len(pt.Runs)-1]
	b := Progress{Phase: title, Threads: s.Threads, Hosts: pt.Hosts, Unit: unit, State: "done", Done: 1, Rate: run.Value, Finished: last, Left: r.left(0, 0)}
	r.say(b)
	return pt
}

// laneClients are the hosts of lanes, each once.
func laneClients(use []lane) []string {
	var out []string
	for _, l := range use {
		if !slices.Contains(out, l.client) {
			out = append(out, l.client)
		}
	}
	return out
}

// removeSet removes a data set: one client of each service does it for all.
func (r *runner) removeSet(ctx context.Context, use []lane, set string) error {
	var errs []error
	seen := map[string]bool{}
	for _, l := range use {
		if seen[l.service] || r.host(l.client) == nil {
			continue
		}
		_, err := host.Watch(ctx, r.host(l.client), workload.OpBenchCleanup, workload.BenchCleanupParams{RunID: l.runID, Dir: l.dir, Set: set}, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: removing files: %w", l.client, err))
			continue
		}
		seen[l.service] = true
	}
	if len(seen) > 0 && len(seen) == len(kind.Of(r.env.Design).Volumes(r.env.Design)) {
		return nil
	}
	return errors.Join(errs...)
}

// spaceTime is how long the space of removed files may take to be free again.
// A variable for tests.
var spaceTime = time.Minute

// awaitSpace waits, after a set has filled the volume and was removed, until
// its space is back: servers free it behind a client's back, later, and
// whatever comes next would fail for want of it, too. free is what was free
// before the removal.
func (r *runner) awaitSpace(ctx context.Context, st *setState, free int64) {
	l, written := st.use[0], int64(0)
	for _, x := range st.regions[l.service] {
		most := int64(0)
		for _, p := range x.Passes {
			most = max(most, p.Issued*p.RecordBytes)
		}
		written += min(most, x.Bytes)
	}
	now := int64(0)
	err := host.Wait{Limit: spaceTime, Poll: time.Second}.Until(ctx, func(context.Context) (string, error) {
		if now = r.free(ctx, l); now < 0 || now >= free+written/10*9 {
			return "", nil
		}
		r.say(Progress{State: "waiting for the space of the removed files"})
		return report.Bytes(now) + " free", nil
	})
	if errors.Is(err, host.ErrNotDone) {
		r.note(l.client, "%s of files were removed, and only %s more are free after %s: what follows may run out of space, too", report.Bytes(written), report.Bytes(max(now-free, 0)), report.Seconds(spaceTime.Seconds()))
	}
}

// free is what is free on a lane's volume; -1 if nobody can tell.
func (r *runner) free(ctx context.Context, l lane) int64 {
	f, err := r.prepared(ctx, l)
	if err != nil {
		return -1
	}
	return f.FreeBytes
}

// prepared has a lane's client make its directory and say what it finds there.
func (r *runner) prepared(ctx context.Context, l lane) (*workload.BenchFacts, error) {
	h := r.host(l.client)
	if h == nil {
		return nil, fmt.Errorf("%s is not reached", l.client)
	}
	return host.Ask(ctx, h, workload.OpBenchPrepare, workload.BenchPrepareParams{RunID: l.runID, Dir: l.dir})
}

// cleanup removes everything the run made.
func (r *runner) cleanup(ctx context.Context) {
	if r.runID == "" {
		return
	}
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if err := r.mountAll(cctx); err != nil {
		r.note("", "clients are left without their mounts (mortar apply mounts them): %v", err)
	}
	if err := r.removeSet(cctx, r.lanes, ""); err != nil {
		r.note("", "files may be left in %s: %v", benchDir, err)
	}
	for _, m := range r.env.Design.Mounts {
		on, dir, _ := r.dirOf(m)
		if i := slices.Index(r.dirs, dir); i >= 0 {
			r.dirs = slices.Delete(r.dirs, i, i+1)
			_ = r.do(cctx, on, "remove the benchmark's directory", "rmdir", "--ignore-fail-on-non-empty", dir)
		}
	}
}

// checkClocks measures the offsets again: a clock that was set, or runs at
// another speed, shifts timelines against each other.
func (r *runner) checkClocks(ctx context.Context) {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	for _, c := range r.clients {
		h := r.host(c)
		if h == nil {
			continue
		}
		off, rtt, err := h.ClockOffset(cctx)
		if err != nil {
			continue // it has been said already that it vanished
		}
		if moved := seconds(off - r.hosts.Clock(c).Offset); max(moved, -moved) > 0.1+seconds(rtt) {
			r.note(c, "its clock moved by %s against this machine's during the run: starts of later phases are off by as much", report.Seconds(max(moved, -moved)))
		}
	}
}
