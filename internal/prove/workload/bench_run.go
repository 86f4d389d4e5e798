package workload

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// benchRun is one phase under way.
type benchRun struct {
	job     BenchJob
	dir     string // of the set
	clock   *clock
	stall   int64 // ns
	bucket  int64 // ns
	threads []*benchThread

	gate     chan struct{} // closed when startNs is decided
	startNs  int64         // read only after gate is closed
	deadline int64         // the stonewall, wall clock; 0: none; like startNs
	over     atomic.Bool   // tells the threads to end after the operation under way

	timeline recorder
}

// Bench carries out one phase on this client. For a job with Hold, start
// delivers the moment to begin at. When stop is closed or ctx ends, the phase
// ends early and returns the results so far. Bench calls progress, which may be
// nil, from one goroutine; a progress that blocks does not delay the phase.
// Bench returns an error only if the job could not begin; failures of threads
// are in the result.
func Bench(ctx context.Context, job BenchJob, start <-chan int64, stop <-chan struct{}, progress func(BenchProgress)) (*BenchResult, error) {
	if err := job.fill(); err != nil {
		return nil, err
	}
	if job.Engine != EngineMortar {
		return benchForeign(ctx, job, start, stop, progress)
	}
	r := &benchRun{
		job: job, dir: filepath.Join(job.Dir, job.RunID, job.Set), clock: newClock(),
		stall: int64(job.StallSeconds * 1e9), bucket: int64(job.BucketSeconds * 1e9), gate: make(chan struct{}),
	}
	if err := r.makeThreads(); err != nil {
		return nil, err
	}
	r.timeline = recorder{bucket: r.bucket, ops: make([][]int64, len(r.threads)), bytes: make([][]int64, len(r.threads))}
	return r.drive(ctx, start, stop, progress), nil
}

func (r *benchRun) makeThreads() error {
	for n := range r.job.Threads {
		t := &benchThread{run: r, ready: make(chan struct{}), done: make(chan struct{}), total: benchHistogram(3)}
		t.res.Thread, t.res.Rank = n, r.job.ClientIndex*r.job.Threads+n
		var err error
		switch {
		case r.job.Phase == Find:
			t.work = newFindWork(t)
		case r.job.Phase.Metadata():
			t.work, err = newMDWork(t)
		default:
			t.work, err = newDataWork(t)
		}
		if err != nil {
			return err
		}
		r.threads = append(r.threads, t)
	}
	return nil
}

// waitStart waits for the start of the phase and returns its wall clock.
func (r *benchRun) waitStart() int64 {
	<-r.gate
	for !r.over.Load() {
		d := r.startNs - r.clock.now()
		if d <= 0 {
			break
		}
		// Sleep in steps to notice a stop before the start.
		time.Sleep(min(time.Duration(d), 100*time.Millisecond))
	}
	return r.startNs
}

// enough reports whether a thread must end: the phase is over, or now is past
// the stonewall.
func (r *benchRun) enough(now int64) bool {
	return r.over.Load() || r.deadline > 0 && now >= r.deadline
}

// hurry is how long a phase waits for hanging threads after a stop or a
// cancelled context.
const hurry = 10 * time.Second

func (r *benchRun) drive(ctx context.Context, start <-chan int64, stop <-chan struct{}, progress func(BenchProgress)) *BenchResult {
	var before unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	var ready, done sync.WaitGroup
	for _, t := range r.threads {
		ready.Add(1)
		done.Add(1)
		go t.main()
		go func() { <-t.ready; ready.Done(); <-t.done; done.Done() }()
	}
	allReady, allDone := closedAfter(&ready), closedAfter(&done)

	events, emitted := forward(progress)
	state := "preparing"
	emit := func() {
		select {
		case events <- r.progress(state):
		default: // the previous event is still waiting
		}
	}
	begin := func(at int64) {
		r.startNs = max(at, r.clock.now())
		r.timeline.start = r.startNs
		if r.job.DurationSeconds > 0 {
			r.deadline = r.startNs + int64(r.job.DurationSeconds*1e9)
		}
		close(r.gate)
		state, start = "running", nil
	}
	var due <-chan time.Time // without Hold: fires at StartNs, whether all threads are ready or not
	if r.job.Hold {
		if start == nil {
			start = make(chan int64)
		}
	} else {
		start = nil
		if r.job.StartNs > 0 {
			t := time.NewTimer(time.Duration(r.job.StartNs - r.clock.now()))
			defer t.Stop()
			due = t.C
		}
	}
	tick := time.NewTicker(time.Duration(r.job.ProgressSeconds * 1e9))
	defer tick.Stop()
	giveUp := int64(r.job.GiveUpSeconds * 1e9)
	began, by := r.clock.now(), ""
	var patience <-chan time.Time
	end := func(why string) {
		if by != "" {
			return
		}
		by = why
		r.over.Store(true)
		if state == "preparing" || state == "waiting" {
			begin(0)
		}
		stop = nil
		patience = time.After(min(hurry, time.Duration(giveUp)))
	}
	cancelled := ctx.Done()
loop:
	for {
		select {
		case <-allReady:
			allReady = nil
			if state == "preparing" {
				state = "waiting"
				if !r.job.Hold {
					begin(r.job.StartNs)
				}
				emit()
			}
		case <-due:
			due = nil
			if state == "preparing" {
				begin(r.job.StartNs)
			}
		case at := <-start:
			begin(at)
		case <-stop:
			end("stop")
		case <-cancelled:
			cancelled = nil
			end("cancelled")
		case <-allDone:
			break loop
		case <-patience:
			break loop
		case <-tick.C:
			now := r.clock.now()
			if state == "running" {
				r.timeline.collect(r.threads, now)
			}
			switch {
			case state == "preparing" && !r.job.Hold && now-began > giveUp:
				begin(0) // without the threads that hang
			case (state == "running" || state == "flushing") && r.hopeless(now, giveUp):
				break loop
			}
			if state == "running" && r.allPast() {
				state = "flushing"
			}
			emit()
		}
	}
	r.over.Store(true)
	if state == "preparing" || state == "waiting" {
		begin(0) // opens the gate, so that a thread that becomes ready later ends
	}
	treeSeconds := 0.0
	if r.job.Phase == MDRemove && by == "" {
		treeSeconds = r.removeTrees()
	}
	res := r.result(by)
	res.TreeRemoveSeconds = treeSeconds
	var after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	res.UserCPUSeconds = seconds(after.Utime.Nano() - before.Utime.Nano())
	res.SysCPUSeconds = seconds(after.Stime.Nano() - before.Stime.Nano())
	close(events)
	select {
	case <-emitted:
	case <-time.After(time.Second):
	}
	return res
}

func closedAfter(wg *sync.WaitGroup) <-chan struct{} {
	c := make(chan struct{})
	go func() { wg.Wait(); close(c) }()
	return c
}

// hopeless reports whether every thread is either done or without progress for
// giveUp.
func (r *benchRun) hopeless(now, giveUp int64) bool {
	for _, t := range r.threads {
		select {
		case <-t.done:
			continue
		default:
		}
		idle := t.idle(now)
		if idle == 0 {
			idle = now - r.startNs // the thread hung before the start
		}
		if idle < giveUp {
			return false
		}
	}
	return true
}

// allPast reports whether no thread has a record left.
func (r *benchRun) allPast() bool {
	for _, t := range r.threads {
		t.mu.Lock()
		past := t.finished || t.res.Finished || t.res.Fault != ""
		t.mu.Unlock()
		if !past {
			return false
		}
	}
	return true
}

func (r *benchRun) progress(state string) BenchProgress {
	now := r.clock.now()
	p := BenchProgress{RunID: r.job.RunID, Phase: r.job.Phase, TNs: now, State: state}
	if state == "running" || state == "flushing" {
		p.ElapsedSeconds = max(0, seconds(now-r.startNs))
	}
	for _, t := range r.threads {
		tp := t.progress(now)
		p.Ops += tp.Ops
		p.Bytes += tp.Bytes
		ops, bytes := planned(t.work)
		p.TotalOps += ops
		p.TotalBytes += bytes
		p.Threads = append(p.Threads, tp)
	}
	return p
}

// planned is how much work a thread has in total, 0 while that is unknown.
func planned(w benchWork) (ops, bytes int64) {
	switch w := w.(type) {
	case *dataWork:
		n := w.records.Load()
		return n, n * w.record
	case *mdWork:
		return w.files, 0
	}
	return 0, 0
}

func (r *benchRun) result(by string) *BenchResult {
	j := r.job
	res := &BenchResult{
		RunID: j.RunID, Set: j.Set, Client: j.Client, ClientIndex: j.ClientIndex, Phase: j.Phase, Engine: j.Engine,
		StartNs: r.startNs, EndNs: r.startNs, StoppedBy: by, Notes: []string{},
	}
	now := r.clock.now()
	all := benchHistogram(3)
	var verified BenchVerify
	compared, own, busy := false, 0.0, 0.0
	for i, t := range r.threads {
		left := true
		select {
		case <-t.done:
			left = false
		default:
		}
		r.timeline.add(i, t, t.rest())
		th := t.result(now, left)
		res.Ops += th.Ops
		res.Bytes += th.Bytes
		if th.StartNs > 0 {
			res.LateNs = max(res.LateNs, th.StartNs-r.startNs)
		}
		res.EndNs = max(res.EndNs, th.EndNs)
		own += th.OwnSeconds
		busy += seconds(max(0, th.LastNs-th.StartNs))
		t.mu.Lock()
		all.Merge(t.total)
		t.mu.Unlock()
		res.Threads = append(res.Threads, th)
		if v := t.work.verified(); v != nil {
			compared = true
			verified.add(v)
		}
		switch w := t.work.(type) {
		case *dataWork:
			if j.Phase.Writes() {
				res.Regions = append(res.Regions, w.written(left))
			}
		case *mdWork:
			res.TreeMakeSeconds = max(res.TreeMakeSeconds, w.makeSeconds())
			if j.Phase == MDCreate {
				res.Regions = append(res.Regions, BenchRegion{Rank: th.Rank, Passes: []BenchPass{{Issued: th.Ops, Acked: th.Ops}}})
			}
		}
	}
	if by == "" {
		res.StoppedBy = "done"
		for _, th := range res.Threads {
			if !th.Finished && th.Fault == "" {
				res.StoppedBy = "duration"
			}
		}
	}
	if compared {
		verified.Findings = append([]string{}, verified.Findings...)
		res.Verified = &verified
	}
	res.Latency = benchLatency(all)
	r.timeline.finish(res)
	path := j.Device
	if path == "" {
		path = j.Dir
	}
	m := mountOf(path)
	res.FSType, res.Source = m.Type, m.Source
	if busy > 0 && own > 0.05*busy {
		what := "generating the data"
		if !j.Phase.Writes() {
			what = "verifying the data"
		}
		res.Notes = append(res.Notes, fmt.Sprintf("%s took %.0f %% of the threads' time: where no read-ahead or write-back goes on meanwhile, the rate is lower by so much", what, 100*own/busy))
	}
	return res
}

// orNil is a copy of the result, or nil if the phase compared and found nothing.
func (v BenchVerify) orNil() *BenchVerify {
	if v.Bytes == 0 && len(v.Findings) == 0 {
		return nil
	}
	return &v
}

func (v *BenchVerify) add(o *BenchVerify) {
	v.Bytes += o.Bytes
	v.BadBytes += o.BadBytes
	v.Findings = append(v.Findings, o.Findings...)
	if o.Skipped != "" && !strings.Contains(v.Skipped, o.Skipped) {
		v.Skipped = strings.TrimPrefix(v.Skipped+"; "+o.Skipped, "; ")
	}
}

// recorder gathers the threads' buckets into one timeline. It is used from
// one goroutine.
type recorder struct {
	start   int64
	bucket  int64 // ns, of the threads' buckets
	double  uint  // one bucket here is 2^double buckets of the threads, since a result travels as one line of JSON
	merged  []*hdrhistogram.Histogram
	encoded []BenchTimeBucket
	ops     [][]int64 // per thread
	bytes   [][]int64
}

// maxTimeline bounds the buckets of a timeline. A longer phase gets wider
// buckets.
var maxTimeline = 3600

func (c *recorder) collect(threads []*benchThread, now int64) {
	for i, t := range threads {
		c.add(i, t, t.collect(now))
	}
	// Buckets before the previous one get few further operations, so keep them
	// encoded to save memory.
	c.fold(int((now-c.start)/c.bucket>>c.double) - 1)
}

func (c *recorder) add(i int, t *benchThread, tallies []tally) {
	for _, a := range tallies {
		b := int(a.bucket >> c.double)
		for b >= maxTimeline {
			c.coarsen()
			b = int(a.bucket >> c.double)
		}
		for len(c.merged) <= b {
			c.merged = append(c.merged, nil)
			c.encoded = append(c.encoded, BenchTimeBucket{})
		}
		c.unfold(b)
		c.merged[b].Merge(a.hist)
		c.encoded[b].Ops += a.ops
		c.encoded[b].Bytes += a.bytes
		c.ops[i] = addAt(c.ops[i], b, a.ops)
		c.bytes[i] = addAt(c.bytes[i], b, a.bytes)
		t.recycle(a.hist)
	}
}

func addAt(a []int64, i int, n int64) []int64 {
	for len(a) <= i {
		a = append(a, 0)
	}
	a[i] += n
	return a
}

// fold encodes the histograms of the buckets before end.
func (c *recorder) fold(end int) {
	for b := min(end, len(c.merged)) - 1; b >= 0 && c.merged[b] != nil; b-- {
		c.encode(b)
	}
}

func (c *recorder) encode(b int) {
	h := c.merged[b]
	if h == nil {
		return
	}
	c.merged[b] = nil
	if h.TotalCount() == 0 {
		return
	}
	e := &c.encoded[b]
	e.P50, e.P99, e.Max = float64(h.ValueAtQuantile(50))/1e9, float64(h.ValueAtQuantile(99))/1e9, float64(h.Max())/1e9
	e.Histogram = encodeHistogram(h)
}

// unfold decodes a bucket's histogram to add operations to it.
func (c *recorder) unfold(b int) {
	if c.merged[b] != nil {
		return
	}
	if s := c.encoded[b].Histogram; s != "" {
		if h, err := hdrhistogram.Decode([]byte(s)); err == nil {
			c.merged[b] = h
			return
		}
	}
	c.merged[b] = benchHistogram(2)
}

// coarsen joins neighbouring buckets two by two.
func (c *recorder) coarsen() {
	c.double++
	for b := range c.merged {
		if b%2 == 1 {
			continue
		}
		c.unfold(b)
		h, e := c.merged[b], c.encoded[b]
		if b+1 < len(c.merged) {
			c.unfold(b + 1)
			h.Merge(c.merged[b+1])
			e.Ops += c.encoded[b+1].Ops
			e.Bytes += c.encoded[b+1].Bytes
		}
		c.merged[b/2], c.encoded[b/2] = h, e
	}
	n := (len(c.merged) + 1) / 2
	c.merged, c.encoded = c.merged[:n], c.encoded[:n]
	for b := range c.merged {
		c.encode(b)
	}
	for i := range c.ops {
		c.ops[i], c.bytes[i] = pairs(c.ops[i]), pairs(c.bytes[i])
	}
}

// finish puts all timelines into the result, with the same length.
func (c *recorder) finish(res *BenchResult) {
	for b := range c.merged {
		c.encode(b)
	}
	var width int64
	var n int
	for {
		width = c.bucket << c.double
		n = max(len(c.encoded), int((res.EndNs-c.start+width-1)/width))
		if n <= maxTimeline {
			break
		}
		c.coarsen()
	}
	for len(c.encoded) < n {
		c.encoded = append(c.encoded, BenchTimeBucket{})
	}
	res.Timeline = BenchTimeline{StartNs: c.start, BucketSeconds: seconds(width), Buckets: c.encoded}
	for i := range res.Threads {
		res.Threads[i].TimelineOps = addAt(c.ops[i], max(n-1, 0), 0)
		if !res.Phase.Metadata() {
			res.Threads[i].TimelineBytes = addAt(c.bytes[i], max(n-1, 0), 0)
		}
	}
}
