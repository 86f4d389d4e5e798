package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Unfit is the error of a brick that cannot be measured in its present state.
// Nothing was changed.
type Unfit struct{ Problems []string }

func (e *Unfit) Error() string { return strings.Join(e.Problems, "; ") }

// Env is the environment of a benchmark.
type Env struct {
	Design  *design.Design
	Dial    host.Dial
	Virtual bool   // a virtual rack
	Version string // of mortar
	// Throttle limits every disk of the volumes to iops operations and rate
	// bytes a second; 0 is no limit. Nil: the disks cannot be throttled.
	Throttle func(ctx context.Context, iops int, rate int64) error
	// Progress receives each event of the run. Run calls it from several
	// goroutines, one at a time. It may be nil.
	Progress func(Progress)
}

// Options of a run.
type Options struct {
	Dir        string   // directory to write the run to
	Scale      float64  // factor on the suite's sizes; 0: 1
	Threads    []int    // replaces the suite's thread counts; nil: the suite's
	Tests      []string // of the suite, in its order; nil: all
	Repeat     int      // replaces the suite's; 0: the suite's
	Cold       string   // replaces the suite's; "": the suite's
	Seconds    int      // upper limit of each phase's duration; 0: the suite's
	NFSVersion string   // selects the mount of a client by its version; "": its first mount
	Profile    bool     // measure every layer below NFS too
	Layers     []string // of the profile; nil: all
	Survey     bool     // with the grids of the Lustre paper's surveys
}

// Progress is the present state of a run.
type Progress struct {
	Step, Steps int    // number of the measurement under way, and of all
	Phase       string // title of the phase; empty between phases
	Threads     int
	Hosts       int
	State       string // preparing, running, emptying caches …
	Rate        float64
	Unit        string
	Done        float64 // of this measurement, 0 to 1
	Left        float64 // estimated seconds until the end of the run; 0: unknown
	Note        string  // a message for the user
	Finished    *report.BenchRun
}

// lane is one mount of one client, on which threads run.
type lane struct {
	client  string
	service string
	dir     string // on the client
	runID   string // each service has a run of its own, so that one client can load both
	index   int    // among the used lanes of its service
	of      int    // number of the used lanes of its service
}

// site is the brick under test as a run has it: hosts, mounts and caches, and what is to
// be told about them.
type site struct {
	env   Env
	began time.Time

	hosts testbed.Hosts
	sayMu sync.Mutex

	servers   []string
	clients   []string
	serves    map[string]string // service → server
	memory    int64
	unmounted bool // cold has unmounted the clients

	events      []report.Event
	notes       []string
	coldSeconds float64
	steps, step int
}

// runner is one benchmark under way.
type runner struct {
	site
	suite *Suite
	opt   Options
	runID string
	lanes []lane
	facts map[string]workload.BenchFacts // by client
	dirs  []string                       // on the servers' volumes, made for the run

	bench       report.Bench
	reasons     []string
	software    []report.Row
	stepSeconds []float64
}

// cleanTime bounds the clean-up after an interrupt or failure.
const cleanTime = 10 * time.Minute

// Run carries out a suite, saves its run in opt.Dir and returns it. It saves
// after each data set, so that a crash loses no finished measurement. An error of
// type *Unfit means that nothing was measured or changed. With any other error
// the run may still be returned; its verdict is partial.
func Run(ctx context.Context, env Env, suite *Suite, opt Options) (*report.Run, error) {
	if suite.Name == SuiteRaw {
		return raw(ctx, env, suite, opt)
	}
	opt.Scale = cmp.Or(opt.Scale, 1)
	cold, err := coldOf(env.Design, suite, opt.Cold)
	if err != nil {
		return nil, err
	}
	opt.Cold = cold
	s, err := opt.of(suite.on(env.Design))
	if err != nil {
		return nil, err
	}
	if _, err := opt.layersOf(env.Design, len(testbed.Clients(env.Design)), env.Virtual); err != nil {
		return nil, err
	}
	r := &runner{suite: &s, opt: opt, facts: map[string]workload.BenchFacts{}}
	r.env, r.began = env, time.Now()
	defer r.hosts.Close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.cleanup(ctx)
	// Keep the results of an earlier run.
	if old, aerr := report.Aside(opt.Dir); aerr != nil {
		r.note("", "the earlier run in %s cannot be moved away: %v", opt.Dir, aerr)
	} else if old != "" {
		r.say(Progress{Note: fmt.Sprintf("the earlier run in %s is now in %s", opt.Dir, old)})
	}
	err = r.measure(ctx)
	if opt.Profile && err == nil && ctx.Err() == nil {
		(&profiler{r}).profile(ctx)
	}
	if ctx.Err() != nil {
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

// elsewhere writes a run to a temporary directory after a failed write to its
// own, so that a full disk does not cost hours of measurements.
func elsewhere(run *report.Run, failed error) error {
	dir, err := os.MkdirTemp("", "mortar-bench-")
	if err == nil {
		run.Dir = dir
		err = run.Save()
	}
	if err != nil {
		return fmt.Errorf("cannot write the measurements: %w", errors.Join(failed, err))
	}
	return fmt.Errorf("the measurements are in %s, because the run's own directory cannot be written: %w", dir, failed)
}

// of returns a copy of suite with the options applied.
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
		if o.Repeat > 0 {
			t.Repeat = 0
		}
		switch {
		case o.Seconds > 0 && (t.Seconds == 0 || t.Seconds > o.Seconds):
			t.Seconds = o.Seconds
		case o.Seconds == 0 && t.Seconds == 0 && o.Scale > 0 && o.Scale < 1:
			t.Seconds = s.ScaledSeconds
		}
	}
	err := keepTests(&s, o.Tests)
	return s, err
}

// keepTests keeps only the named tests.
func keepTests(s *Suite, names []string) error {
	if len(names) == 0 {
		return nil
	}
	have := lists.Map(s.Tests, func(t Test) string { return t.Name })
	for _, n := range names {
		if !slices.Contains(have, n) {
			return &Unfit{[]string{fmt.Sprintf("suite %s has no test %q; it has %s", s.Name, n, strings.Join(have, ", "))}}
		}
	}
	s.keep(func(t *Test) bool { return slices.Contains(names, t.Name) })
	return nil
}

// keep leaves the other tests out, and their phases of the order. It returns the names of those.
func (s *Suite) keep(kept func(*Test) bool) (left []string) {
	s.Tests = slices.DeleteFunc(s.Tests, func(t Test) bool {
		if kept(&t) {
			return false
		}
		left = append(left, t.Name)
		return true
	})
	s.Order = slices.DeleteFunc(slices.Clone(s.Order), func(step string) bool {
		test, _, _ := strings.Cut(step, "/")
		return slices.Contains(left, test)
	})
	return left
}

// leaveDirectories removes the tests with directories if a client's fio is too old
// for them.
func (r *runner) leaveDirectories() {
	out := r.suite.keep(func(t *Test) bool { return !t.phases()[0].Directories() })
	if len(out) > 0 {
		r.note("", "left out, because they need fio 3.37 (Debian 13) on each client: %s", strings.Join(out, ", "))
	}
}

func (r *site) say(p Progress) {
	if r.env.Progress == nil {
		return
	}
	r.sayMu.Lock()
	defer r.sayMu.Unlock()
	p.Step, p.Steps = r.step, r.steps
	r.env.Progress(p)
}

// note keeps a message for the run's record and reports it at once.
func (r *site) note(host, format string, args ...any) {
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

func (r *site) host(name string) *host.Session { return r.hosts.Session(name) }

func (r *site) connect(ctx context.Context, name string) error {
	_, err := r.hosts.Connect(ctx, r.env.Dial, name)
	return err
}

// noteClock notes a host's clock that differs from ours.
func (r *site) noteClock(name string) {
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

// measure carries out all sets.
func (r *runner) measure(ctx context.Context) error {
	all := rounds(r.suite, r.sets())
	if left := r.suite.leftOut(r.sizing()); len(left) > 0 {
		r.note("", "%s", leftOutText(r.suite, left))
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
			r.note("", "the measurements cannot be written now; mortar tries again after the next data set: %v", err)
		}
		if len(r.lanes) == 0 {
			break
		}
	}
	return errors.Join(failed...)
}

// leftOutText names the thread counts that are left out, and the flag that
// includes them.
func leftOutText(s *Suite, left []int) string {
	words := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(left)), ", "), "[]")
	return fmt.Sprintf("at this scale thread counts of more than %d on each mount are left out: %s (--clients has any measured)", s.ScaledThreads, words)
}

// numbered numbers lanes within their services.
func numbered(use []lane) []lane {
	of := map[string]int{}
	for i := range use {
		use[i].index = of[use[i].service]
		of[use[i].service]++
	}
	for i := range use {
		use[i].of = of[use[i].service]
	}
	return use
}

// setState is the state of a set during its phases.
type setState struct {
	use     []lane
	regions map[string][]workload.BenchRegion // by service
	err     error                             // why the remaining phases are left out
}

// begin chooses a set's lanes.
func (r *runner) begin(s *Set) *setState {
	st := &setState{regions: map[string][]workload.BenchRegion{}}
	// A client may have vanished since the plan of the sets.
	if s.Lanes > len(r.lanes) {
		if len(r.lanes) == 0 {
			st.err = errors.New("no client is left")
			return st
		}
		s.Lanes = evenLanes(s.Threads, len(r.lanes))
		s.PerLane = s.Threads / s.Lanes
	}
	st.use = numbered(slices.Clone(r.lanes[:s.Lanes]))
	return st
}

// round makes the sets of a round, carries out their phases and removes them.
// After an error it skips the remaining phases of that set. It reports each
// set's error at once and returns all of them.
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
		for _, s := range rd.sets {
			st := states[s]
			if err := r.removeSet(cctx, st.use, s.Name); err != nil && st.err == nil {
				fail(s, err)
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

// setPhase carries out one phase of a set.
func (r *runner) setPhase(ctx context.Context, s *Set, p setPhase, st *setState) error {
	if err := r.mountAll(ctx); err != nil {
		return fmt.Errorf("the clients cannot mount the brick again: %w", err)
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
		if aerr := r.after(st.use, shares); aerr != nil {
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
	pts := []*report.BenchPoint{r.record(s, p, st.use, shares, io, coldHow)}
	if p.measured && s.Test.Small > 0 {
		pts = append(pts, r.record(s.beside(), setPhase{op: p.op.Beside(), measured: true}, st.use, besides(shares), io, coldHow))
	}
	if p.measured {
		r.stepSeconds = append(r.stepSeconds, time.Since(began).Seconds())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.after(st.use, shares); err != nil {
		for _, pt := range pts {
			if pt != nil {
				pt.Failed = err.Error()
			}
		}
		return err
	}
	return nil
}

// throttle slows down the disks of a virtual rack for a measured phase, if the
// test asks for it. The function that it returns ends that.
func (r *runner) throttle(ctx context.Context, t *Test, p setPhase) (func(), error) {
	if !p.measured || t.DiskIOPS == 0 && t.DiskRate == 0 {
		return func() {}, nil
	}
	if r.env.Throttle == nil {
		r.note("", "the disks are not throttled: disk_iops and disk_rate of the suite work only on virtual racks")
		return func() {}, nil
	}
	end := func() {
		// Not the caller's context: an interrupt must not leave the disks slow.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := r.env.Throttle(ctx, 0, 0); err != nil {
			r.note("", "disks may still be throttled (mortar rack fault ... throttle DISK 0 0 ends that): %v", err)
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

// after notes the failures of a phase. It returns an error if the set's other
// phases have nothing to work on.
func (r *runner) after(use []lane, shares []laneResult) error {
	var stop []string
	for i := range shares {
		s := &shares[i]
		switch {
		case errors.Is(s.err, agent.ErrLost):
			r.note(use[i].client, "vanished: %v; the figures are those of the other clients", s.err)
			stop = append(stop, fmt.Sprintf("client %s vanished", use[i].client))
			continue
		case s.err != nil:
			stop = append(stop, fmt.Sprintf("%s: %v", use[i].client, s.err))
			continue
		case s.result == nil:
			continue // another lane's failure kept this lane from beginning
		}
		faults := map[string]int{}
		threads := s.result.Threads
		if b := s.result.Beside; b != nil {
			threads = slices.Concat(threads, b.Threads)
		}
		for _, t := range threads {
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
			text = cmp.Or(text, "failed")
			r.note(use[i].client, "%d of %s %s", n, report.Plural(len(threads), "thread"), text)
			stop = append(stop, fmt.Sprintf("%s of client %s %s", report.Plural(n, "thread"), use[i].client, text))
		}
	}
	// Connect once more to clients that vanished. If that fails, go on without
	// them.
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
			r.note(c, "cannot be reached: the benchmark goes on without this client")
			r.lanes = slices.DeleteFunc(r.lanes, func(l lane) bool { return l.client == c })
			r.clients = slices.DeleteFunc(r.clients, func(x string) bool { return x == c })
		}
	}
	if len(stop) > 0 {
		return errors.New(strings.Join(stop, "; "))
	}
	return nil
}

// record adds the figures of a phase to the run.
func (r *runner) record(s *Set, p setPhase, use []lane, shares []laneResult, io []report.BenchIO, coldHow string) *report.BenchPoint {
	t := s.Test
	title, unit := t.title(p.op)
	evenly := spreadEvenly(p.op, t.IO == "direct")
	run := join(shares, p.op, unit, evenly)
	run.IO = io
	if !p.measured {
		return nil
	}
	for _, n := range run.Notes {
		r.note("", "%s", n)
	}
	if run.BadBytes > 0 {
		r.note("", "%s read back WRONG: see errors in bench.json", report.Bytes(run.BadBytes))
	}
	name := t.Name + "/" + string(p.op)
	i := slices.IndexFunc(r.bench.Phases, func(x report.BenchPhase) bool { return x.Name == name })
	if i < 0 {
		i = len(r.bench.Phases)
		ph := report.BenchPhase{Name: name, Test: t.Name, Op: string(p.op), Title: title, Unit: unit, RecordBytes: s.RecordBytes, Method: t.method(p.op), Window: "exact", Points: []report.BenchPoint{}}
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

// laneClients returns the hosts of lanes, without duplicates.
func laneClients(use []lane) []string {
	return lists.Distinct(lists.Map(use, func(l lane) string { return l.client }))
}

// removeSet removes a data set, with one client for each service.
func (r *site) removeSet(ctx context.Context, use []lane, set string) error {
	var errs []error
	seen := map[string]bool{}
	for _, l := range use {
		if seen[l.service] || r.host(l.client) == nil {
			continue
		}
		_, err := host.Ask(ctx, r.host(l.client), workload.OpBenchCleanup, workload.BenchParams{RunID: l.runID, Dir: l.dir, Set: set})
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

// prepared calls OpBenchPrepare on a lane's client: it makes the run's directory
// and returns the facts.
func (r *site) prepared(ctx context.Context, l lane) (*workload.BenchFacts, error) {
	h := r.host(l.client)
	if h == nil {
		return nil, fmt.Errorf("%s is not reached", l.client)
	}
	return host.Ask(ctx, h, workload.OpBenchPrepare, workload.BenchParams{RunID: l.runID, Dir: l.dir})
}

// cleanup removes all files of the run.
func (r *runner) cleanup(ctx context.Context) {
	if r.runID == "" {
		return
	}
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if err := r.mountAll(cctx); err != nil {
		r.note("", "clients have no mounts of the brick (mortar apply mounts them): %v", err)
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

// checkClocks measures the offsets again: a clock that was set or drifts shifts
// timelines against each other.
func (r *site) checkClocks(ctx context.Context) {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	for _, c := range r.clients {
		h := r.host(c)
		if h == nil {
			continue
		}
		off, rtt, err := h.ClockOffset(cctx)
		if err != nil {
			continue // the run already has a note that the client vanished
		}
		if moved := seconds(off - r.hosts.Clock(c).Offset); max(moved, -moved) > 0.1+seconds(rtt) {
			r.note(c, "the clock moved by %s against this machine's during the run: starts of later phases are off by as much", report.Seconds(max(moved, -moved)))
		}
	}
}
