package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/agent"
	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/report"
	"github.com/mortarhpc/mortar/internal/resource"
	"github.com/mortarhpc/mortar/internal/spec"
	"github.com/mortarhpc/mortar/internal/testbed"
	"github.com/mortarhpc/mortar/internal/workload"
)

// Unfit says that a brick cannot be measured as it is; nothing was changed.
type Unfit struct{ Problems []string }

func (e *Unfit) Error() string { return strings.Join(e.Problems, "; ") }

// Host is a session with one host's agent, as host.Host gives it.
type Host interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
	Close()
}

// Env is what a benchmark works with.
type Env struct {
	Design  *design.Design
	Dial    func(ctx context.Context, host string) (Host, error)
	Virtual bool   // a virtual rack
	Version string // of mortar
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

	mu      sync.Mutex
	hosts   map[string]Host
	offsets map[string]int64
	sayMu   sync.Mutex

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
	reasons     []string
	software    []report.Row
	coldSeconds float64
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
	s := *suite
	if opt.Repeat > 0 {
		s.Repeat = opt.Repeat
	}
	if opt.Cold != "" {
		s.Cold = opt.Cold
	}
	if err := pick(&s, opt.Tests); err != nil {
		return nil, err
	}
	r := &runner{env: env, suite: &s, opt: opt, began: time.Now(), hosts: map[string]Host{}, offsets: map[string]int64{}, facts: map[string]workload.BenchFacts{}}
	defer r.close()
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
	return run, errors.Join(err, serr)
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
		switch r.opt.Engine {
		case workload.EngineMdtest:
			return t.metadata() && !t.shared() && !slices.ContainsFunc(t.phases(), func(p workload.BenchPhase) bool { return p == workload.Find || p == workload.MDRead })
		case workload.EngineMortar:
			return true
		}
		return !t.metadata()
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

func (r *runner) host(name string) Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hosts[name]
}

func (r *runner) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.hosts {
		h.Close()
	}
}

// connect reaches a host and measures its clock.
func (r *runner) connect(ctx context.Context, name string) error {
	h, err := r.env.Dial(ctx, name)
	if err != nil {
		return err
	}
	off, rtt, err := testbed.ClockOffset(ctx, h)
	if err != nil {
		h.Close()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.hosts[name]; old != nil {
		old.Close()
	}
	r.hosts[name] = h
	r.offsets[name] = off
	if s := seconds(off); s > 1 || s < -1 {
		ahead := "ahead of"
		if s < 0 {
			ahead, s = "behind", -s
		}
		r.notes = append(r.notes, fmt.Sprintf("%s's clock is %s %s this machine's; that is corrected for, to within %s (chrony would mend it)", name, report.Seconds(s), ahead, report.Seconds(seconds(rtt/2))))
	}
	return nil
}

// prepare reaches every host, finds where the services run, checks the
// mounts and makes the directories of the run. Only the last changes
// anything.
func (r *runner) prepare(ctx context.Context) error {
	d := r.env.Design
	for _, s := range d.Spec.Servers {
		r.servers = append(r.servers, s.Name)
	}
	for _, m := range d.Mounts {
		if !slices.Contains(r.clients, m.Client) {
			r.clients = append(r.clients, m.Client)
		}
	}
	if len(r.clients) == 0 {
		return &Unfit{[]string{"no client mounts the brick: a benchmark needs load; give the spec a client (clients:)"}}
	}
	r.say(Progress{State: "reaching " + strings.Join(append(slices.Clone(r.servers), r.clients...), ", ")})
	err := testbed.Each(append(slices.Clone(r.servers), r.clients...), func(name string) error { return r.connect(ctx, name) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &Unfit{[]string{err.Error()}}
	}
	for _, n := range r.notes {
		r.say(Progress{Note: n})
	}
	if err := r.findActive(ctx); err != nil {
		return err
	}
	for _, s := range r.active() {
		var hello struct {
			Mem int64 `json:"mem_bytes"`
		}
		if err := r.host(s).Call(ctx, "hello", nil, &hello, nil); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.memory += hello.Mem
	}
	r.noteArrays(ctx)
	r.runID = fmt.Sprintf("bench-%s-%s", r.began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	if err := r.findLanes(ctx); err != nil {
		return err
	}
	r.bench.Phases, r.bench.Layers = []report.BenchPhase{}, []report.Layer{}
	if err := r.makeDirs(ctx); err != nil {
		return err
	}
	all := append(slices.Clone(r.active()), r.clients...)
	r.software = testbed.Versions(ctx, all, func(name string) testbed.Host { return r.host(name) })
	return nil
}

// noteArrays says which arrays are not as they should be: figures are lower
// while they are rebuilt.
func (r *runner) noteArrays(ctx context.Context) {
	for _, s := range r.active() {
		var f struct {
			Content []byte `json:"content"`
		}
		if err := r.host(s).Call(ctx, "read", map[string]string{"path": "/proc/mdstat"}, &f, nil); err != nil {
			continue // no md on this server
		}
		for _, text := range arrayTroubles(string(f.Content)) {
			r.note(s, "%s", text)
		}
	}
}

var (
	mdArray    = regexp.MustCompile(`^(md\S+) : `)
	mdDisks    = regexp.MustCompile(`\[(\d+)/(\d+)\] \[[U_]+\]`)
	mdProgress = regexp.MustCompile(`(resync|recovery|check|reshape) = *([0-9.]+%)`)
)

// arrayTroubles reads /proc/mdstat. Source: md(4)
func arrayTroubles(mdstat string) []string {
	var out []string
	name := ""
	for line := range strings.Lines(mdstat) {
		if m := mdArray.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if m := mdDisks.FindStringSubmatch(line); m != nil && m[1] != m[2] {
			out = append(out, fmt.Sprintf("array %s is degraded (%s of %s disks): figures are lower for it", name, m[2], m[1]))
		}
		if m := mdProgress.FindStringSubmatch(line); m != nil {
			out = append(out, fmt.Sprintf("array %s is busy with %s (%s done): figures are lower until that ends (mortar status shows it)", name, m[1], m[2]))
		}
	}
	return out
}

// findLanes chooses a mount of each service on each client.
func (r *runner) findLanes(ctx context.Context) error {
	d := r.env.Design
	var problems []string
	chosen := map[string]design.ClientMount{} // client/service
	for _, m := range d.Mounts {
		key := m.Client + "/" + m.Service
		if _, have := chosen[key]; !have && (r.opt.NFSVersion == "" || m.Version == r.opt.NFSVersion) {
			chosen[key] = m
		}
	}
	mounts := map[string][]resource.Mount{}
	for _, c := range r.clients {
		ms, err := testbed.Mounts(ctx, r.host(c))
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		mounts[c] = ms
	}
	// Neighbouring lanes are on different clients and different services.
	n, k := len(r.clients), len(d.Services)
	for i := range n * k {
		c, s := r.clients[i%n], d.Services[(i+i/n)%k]
		m, ok := chosen[c+"/"+s.Name]
		if !ok {
			problems = append(problems, fmt.Sprintf("client %s has no mount of service %s by NFSv%s", c, s.Name, r.opt.NFSVersion))
			continue
		}
		live, there := resource.MountAt(mounts[c], m.Path)
		switch {
		case !there || live.Source != m.Source:
			problems = append(problems, fmt.Sprintf("%s is not mounted on %s of client %s (mortar apply mounts it)", m.Source, m.Path, c))
		case slices.Contains(live.Options, "ro"):
			problems = append(problems, fmt.Sprintf("%s is mounted read-only on client %s: a benchmark writes; mount it rw", m.Path, c))
		}
		if d := differs(m.Options, live.Options); there && d != "" {
			r.note(c, "%s is mounted with %s: what server and client agreed on", m.Path, d)
		}
		r.lanes = append(r.lanes, lane{client: c, service: s.Name, dir: path.Join(m.Path, benchDir), runID: r.runID + "-" + s.Name})
	}
	if len(problems) > 0 {
		return &Unfit{problems}
	}
	return nil
}

// differs tells which values of mount options are not those asked for.
func differs(want, have []string) string {
	var out []string
	for _, w := range want {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			continue
		}
		for _, h := range have {
			if k, v, ok := strings.Cut(h, "="); ok && k == key && v != value {
				out = append(out, fmt.Sprintf("%s, not %s", h, w))
			}
		}
	}
	return strings.Join(out, "; ")
}

// benchDir, on a mount, is where a run's files go: <mount>/.mortar/<run id>.
const benchDir = ".mortar"

// makeDirs makes the directories of the run and sees whether the suite fits.
func (r *runner) makeDirs(ctx context.Context) error {
	d := r.env.Design
	for _, m := range d.Mounts {
		_, dir, _ := strings.Cut(m.Source, ":")
		dir = path.Join(dir, benchDir)
		if slices.Contains(r.dirs, dir) {
			continue
		}
		// Clients' root may be squashed to nobody, so the directory is nobody's.
		if err := action(ctx, r.host(r.serves[m.Service]), "directory for the benchmark's files", "install", "-d", "-o", "nobody", "-g", "nogroup", "-m", "0755", dir); err != nil {
			return fmt.Errorf("%s: %w", r.serves[m.Service], err)
		}
		r.dirs = append(r.dirs, dir)
	}
	free := int64(-1)
	for _, l := range r.lanes {
		var f workload.BenchFacts
		if err := r.host(l.client).Call(ctx, "bench.prepare", workload.BenchPrepareParams{RunID: l.runID, Dir: l.dir}, &f, nil); err != nil {
			r.cleanup(ctx)
			return &Unfit{[]string{fmt.Sprintf("%s: %v", l.client, err)}}
		}
		r.facts[l.client] = f
		if free < 0 || f.FreeBytes < free {
			free = f.FreeBytes
		}
		if v, ok := f.Engines[string(r.opt.Engine)]; !ok && r.opt.Engine != workload.EngineMortar {
			r.cleanup(ctx)
			return &Unfit{[]string{fmt.Sprintf("%s is not installed on client %s: install it there, or use another --engine", r.opt.Engine, l.client)}}
		} else if v != "" {
			r.software = append(r.software, report.Row{Name: string(r.opt.Engine) + " on " + l.client, Value: v})
		}
	}
	// Services may share the load; the smallest volume must hold its part.
	need := int64(0)
	for _, round := range rounds(r.suite, r.sets()) {
		together := int64(0)
		for _, s := range round.sets {
			if s.Test.Seconds == 0 {
				together += s.TotalBytes / int64(len(d.Services))
			}
		}
		need = max(need, together)
	}
	if need > free*9/10 {
		r.cleanup(ctx)
		mend := "use a smaller --scale, or fewer --tests"
		if r.opt.Scale*float64(free)*0.9/float64(need) > 1e-6 {
			n := 1
			for float64(need)/r.opt.Scale/float64(n) > float64(free)*0.9 {
				n *= 2
			}
			mend = fmt.Sprintf("use --scale 1/%d or less, or fewer --tests", n)
		}
		return &Unfit{[]string{fmt.Sprintf("the suite needs %s at a time, and %s are free; %s", report.Bytes(need), report.Bytes(free), mend)}}
	}
	r.limitSizes(free)
	return nil
}

// limitSizes bounds what a test that is ended by time would do at most: it
// shall not end by running out of space. Tests that share the space share it
// evenly.
func (r *runner) limitSizes(free int64) {
	if len(r.suite.Order) > 0 {
		free /= int64(len(r.suite.Tests))
	}
	for i := range r.suite.Tests {
		t := &r.suite.Tests[i]
		if t.Seconds > 0 && t.metadata() && t.ItemBytes > 0 {
			r.limitItems(t, free)
		}
		if t.Seconds == 0 || t.metadata() || t.File != 0 {
			continue
		}
		total := int64(t.Total)
		if total == 0 {
			total = 2 * r.memory
		}
		if limit := int64(float64(free) / 2 / r.opt.Scale); total > limit {
			total = limit
		}
		t.Total = spec.Bytes(total)
	}
}

// limitItems does the same for files that hold something; a file takes whole
// blocks of 4 KiB.
func (r *runner) limitItems(t *Test, free int64) {
	each := (int64(t.ItemBytes) + 4095) / 4096 * 4096
	most := int64(0)
	for _, s := range r.sets() {
		if s.Test == t {
			most = max(most, s.Files)
		}
	}
	if fit := free / 2 / each; most > fit {
		t.Items = max(int(float64(t.Items)*float64(fit)/float64(most)), 1)
	}
}

func (r *runner) sets() []Set {
	return Sets(r.suite, Sizing{Memory: r.memory, Scale: r.opt.Scale, Threads: r.opt.Threads, Lanes: len(r.lanes)})
}

// measure does every set.
func (r *runner) measure(ctx context.Context) error {
	all := rounds(r.suite, r.sets())
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
			return err
		}
		if len(r.lanes) == 0 {
			break
		}
	}
	return errors.Join(failed...)
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

// setPhase does one phase of a set.
func (r *runner) setPhase(ctx context.Context, s *Set, p setPhase, st *setState) error {
	coldHow := ""
	if p.cold && r.suite.Cold != ColdNone {
		coldHow = r.suite.Cold
		if err := r.cold(ctx, coldHow); err != nil {
			return err
		}
	}
	began := time.Now()
	shares, err := r.phase(ctx, s, p, st.use, st.regions)
	if err != nil {
		return errors.Join(err, r.after(st.use, shares, nil))
	}
	for i := range shares {
		if res := shares[i].result; res != nil {
			service := st.use[i].service
			st.regions[service] = workload.MergeRegions(st.regions[service], res.Regions)
		}
	}
	pt := r.record(s, p, st.use, shares, coldHow)
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
			r.note(use[i].client, "%d of %d threads %s", n, len(s.result.Threads), text)
			stop = append(stop, fmt.Sprintf("%d threads of client %s %s", n, use[i].client, text))
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

// job of a phase on a lane.
func (r *runner) job(s *Set, p setPhase, l lane, regions []workload.BenchRegion) workload.BenchJob {
	t := s.Test
	j := workload.BenchJob{
		RunID: l.runID, Set: s.Name, Client: l.client, ClientIndex: l.index, Clients: l.of, Dir: l.dir, Phase: p.op, Engine: r.opt.Engine,
		Threads: s.PerLane, Hold: true, ProgressSeconds: 0.5, Regions: regions,
	}
	if l.device != "" {
		j.Device, j.Dir, j.RegionThreads = l.device, "", s.RegionThreads
	}
	if p.measured && t.Seconds > 0 {
		j.DurationSeconds = float64(t.Seconds)
		if t.Seconds <= 30 {
			j.BucketSeconds = 0.25
		}
	}
	if t.metadata() {
		j.Branch, j.Items, j.ItemBytes, j.ItemSync, j.Shared = s.Dirs, s.Items, int64(t.ItemBytes), t.ItemSync == "fsync", t.shared()
		j.ReadShift = t.ReadShift
		return j
	}
	j.Layout, j.FileBytes, j.RecordBytes = workload.BenchLayout(t.Layout), s.FileBytes, s.RecordBytes
	switch p.op {
	case workload.SeqWrite, workload.SeqRead:
		j.Direct = t.IO == "direct"
	default:
		j.Buffered = t.IO != "direct"
	}
	if !p.measured {
		j.RecordBytes, j.Direct = layRecord, false
	}
	if !p.op.Writes() {
		j.ReadShift = t.ReadShift
		// Without a restart the client's own pages are dropped all the same.
		j.DropCache = r.suite.Cold != ColdNone && l.device == ""
	}
	return j
}

// laneRun is one lane's bench.run under way.
type laneRun struct {
	mu       sync.Mutex
	progress workload.BenchProgress
	result   *workload.BenchResult
	err      error
	done     chan struct{}
}

func (l *laneRun) look() (workload.BenchProgress, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return l.progress, true, l.err
	default:
		return l.progress, false, nil
	}
}

// errNotBegun says that a phase was not begun on any lane.
var errNotBegun = errors.New("not begun")

// startLead is how far ahead the common start is set: every client must have
// heard of it. A variable for tests.
var startLead = 400 * time.Millisecond

// phase has all lanes do one phase together. An error means that it did not
// begin; whose fault that was, and whatever happens later, is in the shares.
func (r *runner) phase(ctx context.Context, s *Set, p setPhase, use []lane, regions map[string][]workload.BenchRegion) ([]share, error) {
	title, unit := s.Test.title(p.op)
	if !p.measured {
		title = s.Test.Title + ": laying out files"
	}
	base := Progress{Phase: title, Threads: s.Threads, Hosts: len(laneClients(use)), Unit: unit}
	runs := make([]*laneRun, len(use))
	for i, l := range use {
		job := r.job(s, p, l, regions[l.service])
		lr := &laneRun{done: make(chan struct{})}
		runs[i] = lr
		h := r.host(l.client)
		go func() {
			defer close(lr.done)
			var res workload.BenchResult
			// Not the caller's context: an interrupt stops the phase in order,
			// so that what was measured is told.
			err := h.Call(context.WithoutCancel(ctx), "bench.run", job, &res, func(raw json.RawMessage) {
				var pr workload.BenchProgress
				if json.Unmarshal(raw, &pr) == nil {
					lr.mu.Lock()
					lr.progress = pr
					lr.mu.Unlock()
				}
			})
			lr.mu.Lock()
			defer lr.mu.Unlock()
			if lr.err = err; err == nil {
				lr.result = &res
			}
		}()
	}
	start, err := r.startTogether(ctx, use, runs, base)
	out := make([]share, len(use))
	if err != nil {
		for i, l := range use {
			_, _, lerr := runs[i].look()
			out[i] = share{client: l.client, err: lerr}
		}
		r.stopAll(use)
		waitAll(runs, time.Minute)
		if slices.ContainsFunc(out, func(s share) bool { return s.err != nil }) {
			err = nil // which after tells
		}
		return out, errors.Join(errNotBegun, err)
	}
	r.follow(ctx, s, p, use, runs, base)

	for i, l := range use {
		pr, ended, err := runs[i].look()
		out[i] = share{client: l.client, offset: r.offset(l.client), progress: pr, start: start, err: err}
		switch {
		case !ended:
			out[i].err = errors.New("it did not end when told to")
		case err == nil:
			out[i].result = runs[i].result
		}
	}
	return out, nil
}

func (r *runner) offset(name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offsets[name]
}

// startTogether waits until every lane is ready and gives all of them one
// moment to start at.
func (r *runner) startTogether(ctx context.Context, use []lane, runs []*laneRun, base Progress) (int64, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	told := time.Now()
	for ready := false; !ready; {
		ready = true
		for i, lr := range runs {
			pr, ended, err := lr.look()
			if ended {
				if err == nil {
					err = errors.New("it ended before it began")
				}
				return 0, fmt.Errorf("%s: %w", use[i].client, err)
			}
			ready = ready && pr.State == "waiting"
		}
		if ready {
			break
		}
		if time.Since(told) > time.Second {
			told = time.Now()
			b := base
			b.State = "preparing"
			b.Left = r.left(0, 0)
			r.say(b)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	start := time.Now().Add(startLead).UnixNano()
	var wg sync.WaitGroup
	errs := make([]error, len(use))
	for i, l := range use {
		wg.Go(func() {
			if err := r.host(l.client).Call(ctx, "bench.start", workload.BenchStartParams{RunID: l.runID, StartNs: start + r.offset(l.client)}, nil, nil); err != nil {
				errs[i] = fmt.Errorf("%s: %w", l.client, err)
			}
		})
	}
	wg.Wait()
	return start, errors.Join(errs...)
}

// stopAll ends the phase under way on every lane.
func (r *runner) stopAll(use []lane) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range use {
		wg.Go(func() {
			_ = r.host(l.client).Call(ctx, "bench.stop", workload.BenchStopParams{RunID: l.runID}, nil, nil)
		})
	}
	wg.Wait()
}

func waitAll(runs []*laneRun, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for _, lr := range runs {
		select {
		case <-lr.done:
		case <-t.C:
			return
		}
	}
}

// follow waits for the end of a phase and tells how it goes. An interrupt
// stops it, and waits for what was measured.
func (r *runner) follow(ctx context.Context, s *Set, p setPhase, use []lane, runs []*laneRun, base Progress) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	over := make(chan struct{})
	go func() {
		for _, lr := range runs {
			<-lr.done
		}
		close(over)
	}()
	began, last, lastAt, rate := time.Now(), 0.0, time.Now(), 0.0
	stopped := false
	for {
		open, amount, total, flushing := 0, 0.0, 0.0, 0
		for _, lr := range runs {
			pr, ended, _ := lr.look()
			if !ended {
				open++
			}
			if pr.State == "flushing" {
				flushing++
			}
			if base.Unit == "MiB/s" {
				amount, total = amount+float64(pr.Bytes)/(1<<20), total+float64(pr.TotalBytes)/(1<<20)
			} else {
				amount, total = amount+float64(pr.Ops), total+float64(pr.TotalOps)
			}
		}
		if open == 0 {
			return
		}
		if stopped && time.Since(began) > 4*time.Minute {
			return
		}
		if d := time.Since(lastAt).Seconds(); d >= 0.9 {
			rate = (amount - last) / d
			last, lastAt = amount, time.Now()
		}
		b := base
		b.State, b.Rate = "running", rate
		if flushing == open {
			b.State = "flushing"
		}
		if total > 0 {
			b.Done = amount / total
		}
		elapsed := time.Since(began).Seconds()
		if p.measured && s.Test.Seconds > 0 {
			b.Done = max(b.Done, min(elapsed/float64(s.Test.Seconds), 1))
		}
		b.Left = r.left(elapsed, b.Done)
		r.say(b)
		done := ctx.Done()
		if stopped {
			done = nil
		}
		select {
		case <-done:
			stopped, began = true, time.Now()
			r.say(Progress{Phase: base.Phase, State: "interrupted: stopping the load"})
			r.stopAll(use)
		case <-over:
		case <-tick.C:
		}
	}
}

// left estimates the seconds until everything is done: what remains of this
// measurement, and the mean of those behind us for each that is to come.
func (r *runner) left(elapsed, done float64) float64 {
	mean := 0.0
	for _, s := range r.stepSeconds {
		mean += s / float64(len(r.stepSeconds))
	}
	here := mean
	if done > 0.05 && elapsed > 1 {
		here = elapsed * (1 - done) / done
	}
	if len(r.stepSeconds) > 0 {
		mean += r.coldSeconds / float64(len(r.stepSeconds))
	} else if done > 0.05 && elapsed > 1 {
		mean = elapsed / done
	}
	return here + mean*float64(max(r.steps-r.step, 0))
}

// record adds what a phase achieved to the run.
func (r *runner) record(s *Set, p setPhase, use []lane, shares []share, coldHow string) *report.BenchPoint {
	t := s.Test
	title, unit := t.title(p.op)
	evenly := even(p.op, t.IO == "direct")
	run := join(shares, p.op, unit, evenly)
	if !p.measured {
		return nil
	}
	for _, n := range run.Notes {
		r.note("", "%s", n)
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
		err := r.host(l.client).Call(ctx, "bench.cleanup", workload.BenchCleanupParams{RunID: l.runID, Dir: l.dir, Set: set}, nil, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: removing files: %w", l.client, err))
			continue
		}
		seen[l.service] = true
	}
	if len(seen) > 0 && len(seen) == len(r.env.Design.Services) {
		return nil
	}
	return errors.Join(errs...)
}

// cleanup removes everything the run made.
func (r *runner) cleanup(ctx context.Context) {
	if r.runID == "" {
		return
	}
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if err := r.removeSet(cctx, r.lanes, ""); err != nil {
		r.note("", "files may be left in %s: %v", benchDir, err)
	}
	for _, m := range r.env.Design.Mounts {
		_, dir, _ := strings.Cut(m.Source, ":")
		dir = path.Join(dir, benchDir)
		if i := slices.Index(r.dirs, dir); i >= 0 {
			r.dirs = slices.Delete(r.dirs, i, i+1)
			_ = action(cctx, r.host(r.serves[m.Service]), "remove the benchmark's directory", "rmdir", "--ignore-fail-on-non-empty", dir)
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
		off, rtt, err := testbed.ClockOffset(cctx, h)
		if err != nil {
			continue // it has been said already that it vanished
		}
		if moved := seconds(off - r.offset(c)); max(moved, -moved) > 0.1+seconds(rtt) {
			r.note(c, "its clock moved by %s against this machine's during the run: starts of later phases are off by as much", report.Seconds(max(moved, -moved)))
		}
	}
}
