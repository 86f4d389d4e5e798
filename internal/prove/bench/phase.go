package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// job returns the job of a phase on a lane.
func (r *runner) job(s *Set, p setPhase, l lane, regions []workload.BenchRegion) workload.BenchJob {
	t := s.Test
	j := workload.BenchJob{
		RunID: l.runID, Set: s.Name, ClientIndex: l.index, Clients: l.of, Dir: l.dir, Phase: p.op,
		Threads: s.PerLane, Regions: regions,
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
	if t.Small > 0 {
		j.Threads *= 2
		if p.measured {
			j.SmallBytes = int64(t.Small)
		}
	}
	switch {
	case p.op.Sequential():
		j.Direct = t.IO == "direct"
		// Small files get short buckets, as the phase may last only a second; big
		// ones long buckets, since fio keeps 10 KB for each in memory.
		switch {
		case s.FileBytes <= 16<<20:
			j.BucketSeconds = 0.05
		case s.FileBytes <= 256<<20:
			j.BucketSeconds = 0.25
		case s.FileBytes > 64<<30:
			j.BucketSeconds = 10
		}
	default:
		j.Buffered = t.IO != "direct"
	}
	if p.lays() {
		j.RecordBytes, j.Direct = layRecord, false
	}
	if p.op == workload.RandRead {
		j.Limit = int64(t.Reread)
	}
	if !p.op.Writes() {
		j.ReadShift = t.ReadShift
		// Without a restart the client may still have pages in its cache.
		j.DropCache = r.suite.Cold != ColdNone
	}
	return j
}

// laneRun is one lane's OpBench under way.
type laneRun struct {
	progress atomic.Pointer[workload.BenchProgress]
	result   *workload.BenchResult
	err      error
	done     chan struct{} // closed once there are a result and an error
}

func (l *laneRun) look() (pr workload.BenchProgress, ended bool) {
	if p := l.progress.Load(); p != nil {
		pr = *p
	}
	select {
	case <-l.done:
		return pr, true
	default:
		return pr, false
	}
}

// startLead is how far ahead the common start lies, so that every client knows
// the start in time. A variable for tests.
var startLead = 400 * time.Millisecond

// phase runs one phase on all lanes together. It returns an error if the phase
// did not begin; the shares have the lanes' own errors, also those after the
// begin.
func (r *runner) phase(ctx context.Context, s *Set, p setPhase, use []lane, regions map[string][]workload.BenchRegion) ([]laneResult, error) {
	title, unit := s.Test.title(p.op)
	switch {
	case p.lays():
		title = s.Test.Title + ": laying out files"
	case !p.measured:
		title = s.Test.Title + ": reading once"
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
			// Not the caller's context: an interrupt stops the phase with OpBenchStop,
			// so that its measurements are kept.
			lr.result, lr.err = host.Watch(context.WithoutCancel(ctx), h, workload.OpBench, job, func(pr workload.BenchProgress) { lr.progress.Store(&pr) })
		}()
	}
	err := r.startTogether(ctx, use, runs, base, p.op.Metadata() && r.suite.Cold != ColdNone)
	out := make([]laneResult, len(use))
	if err != nil {
		for i, l := range use {
			out[i].client = l.client
			if _, ended := runs[i].look(); ended {
				out[i].err = runs[i].err
			}
		}
		r.stopAll(use)
		waitAll(runs, time.Minute)
		if slices.ContainsFunc(out, func(s laneResult) bool { return s.err != nil }) {
			return out, errors.New("not begun") // r.after notes the reasons in the shares
		}
		return out, fmt.Errorf("not begun: %w", err)
	}
	r.follow(ctx, s, p, use, runs, base)

	for i, l := range use {
		out[i] = laneResult{client: l.client, offset: r.hosts.Clock(l.client).Offset, err: errors.New("the phase did not end after a stop")}
		if _, ended := runs[i].look(); !ended {
			continue
		}
		if out[i].err = runs[i].err; out[i].err == nil {
			out[i].result = runs[i].result
		}
	}
	return out, nil
}

// startTogether waits until every lane is ready and sends all of them the same
// start. forget has the clients forget the names and attributes that fio has looked at to
// set up its files.
func (r *runner) startTogether(ctx context.Context, use []lane, runs []*laneRun, base Progress, forget bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	told := time.Now()
	for ready := false; !ready; {
		ready = true
		for i, lr := range runs {
			pr, ended := lr.look()
			if ended {
				return fmt.Errorf("%s: %w", use[i].client, cmp.Or(lr.err, endedEarly(lr.result)))
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
			return ctx.Err()
		case <-tick.C:
		}
	}
	if forget {
		err := host.Each(ctx, laneClients(use), func(ctx context.Context, client string) error {
			return r.do(ctx, client, "drop names and attributes from the client's cache", "sysctl", "-q", "-w", "vm.drop_caches=2")
		})
		if err != nil {
			return err
		}
	}
	start := time.Now().Add(startLead).UnixNano()
	return eachLane(ctx, use, func(ctx context.Context, l lane) error {
		_, err := host.Ask(ctx, r.host(l.client), workload.OpBenchStart, workload.BenchStartParams{RunID: l.runID, StartNs: start + r.hosts.Clock(l.client).Offset})
		return err
	})
}

// eachLane runs f for all lanes concurrently. A client has a lane for each service.
func eachLane(ctx context.Context, use []lane, f func(context.Context, lane) error) error {
	by := map[string]lane{}
	for _, l := range use {
		by[l.client+" service "+l.service] = l
	}
	return host.Each(ctx, slices.Sorted(maps.Keys(by)), func(ctx context.Context, key string) error { return f(ctx, by[key]) })
}

// endedEarly returns why a lane ended before its start.
func endedEarly(res *workload.BenchResult) error {
	if res != nil {
		for _, t := range res.Threads {
			if t.Fault != "" {
				return fmt.Errorf("%s: %s", t.Fault, t.Error)
			}
		}
	}
	return errors.New("the phase ended before its start")
}

// stopAll ends the phase under way on every lane.
func (r *runner) stopAll(use []lane) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = eachLane(ctx, use, func(ctx context.Context, l lane) error {
		_, err := host.Ask(ctx, r.host(l.client), workload.OpBenchStop, workload.StopParams{RunID: l.runID})
		return err
	})
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

// follow waits for the end of a phase and reports its progress. After an
// interrupt it stops the phase and waits for the measurements.
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
	one := float64(max(s.RecordBytes, 1)) // in bytes, of the unit
	if base.Unit == "MiB/s" {
		one = 1 << 20
	}
	stopped := false
	for {
		open, amount, total := 0, 0.0, 0.0
		for _, lr := range runs {
			pr, ended := lr.look()
			if !ended {
				open++
			}
			amount, total = amount+float64(pr.Bytes)/one, total+float64(pr.TotalBytes)/one
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

// left estimates the seconds until the end of the run: the rest of this
// measurement, and for each later one the mean of the finished ones.
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
