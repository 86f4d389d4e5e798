package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// clientJob is the load on one client, with each worker's mount for the report.
type clientJob struct {
	client string
	job    workload.Job
	mounts map[string]design.ClientMount // by worker
	// aside are mounts that the drill makes for challengers, at Path.
	aside []design.ClientMount
}

// zoneBytes is how much of an O_SYNC writer's file is overwritten again and again: so few
// blocks that all of them are acknowledged before the fault, which then cuts an overwrite.
const zoneBytes = 256 << 10

// namesRate is how many directories a worker makes and removes per second: enough
// to see a stall of half a second, and little load for a server.
const namesRate = 5

// jobs makes the load. Each mount of each client has an O_SYNC writer at random
// places, a buffered writer that calls fsync, and a worker that takes and releases
// a lock. If a server of its own holds the names of files, another worker makes
// and removes directories. On every mount of the first client a worker holds a
// lock for the whole run. A challenger tries to take that lock from another mount:
// on a second client if there is one, else on the same client. If nothing else mounts
// the export, the drill mounts it once more, below base.
func jobs(d *design.Design, service, runID, base string, rate float64) ([]clientJob, error) {
	var out []clientJob
	if !slices.ContainsFunc(d.Mounts, func(m design.ClientMount) bool { return kind.For(m).Uses(m, service) }) {
		return nil, fmt.Errorf("service %s is mounted on no client: a drill needs load; give the spec a client (clients:)", service)
	}
	for _, m := range d.Mounts {
		i := slices.IndexFunc(out, func(j clientJob) bool { return j.client == m.Client })
		if i < 0 {
			i = len(out)
			out = append(out, clientJob{client: m.Client, mounts: map[string]design.ClientMount{}, job: workload.Job{
				RunID: runID, Client: m.Client, StreamBase: uint32(i+1) * 1000,
			}})
		}
		j := &out[i]
		label := kind.For(m).Label(m)
		if len(d.Services()) > 1 {
			label = m.Service + "-" + label
		}
		prefix := prefixOf(label, m, j.mounts)
		dir := path.Join(m.Path, fault.LoadDir)
		add := func(name string) string {
			name = prefix + "-" + name
			j.mounts[name] = m
			return name
		}
		j.job.Writers = append(j.job.Writers,
			// Names contain the client: all clients share one directory.
			workload.Writer{Name: add(m.Client + "-osync"), Dir: dir, Pattern: workload.Random, Mode: workload.OSync, BlockBytes: 16 << 10, FileBytes: 16 << 20, ZoneBytes: zoneBytes, OpsPerSecond: rate},
			workload.Writer{Name: add(m.Client + "-fsync"), Dir: dir, Pattern: workload.Seq, Mode: workload.Fsync, FsyncEvery: 4, BlockBytes: 128 << 10, FileBytes: 32 << 20, OpsPerSecond: rate},
		)
		if kind.For(m).Is().NamesApart {
			j.job.Names = append(j.job.Names, workload.Names{Name: add(m.Client + "-names"), Dir: dir, OpsPerSecond: namesRate})
		}
		j.job.Locks = append(j.job.Locks, workload.Lock{Name: add(m.Client + "-lock"), Dir: dir, Role: workload.Probe, IntervalSeconds: 0.5})
	}
	// Held locks and their challengers.
	first, other := &out[0], &out[len(out)-1]
	for _, h := range slices.Clone(first.job.Locks) {
		m := first.mounts[h.Name]
		h.Name = strings.TrimSuffix(h.Name, "-lock") + "-held"
		h.Role, h.IntervalSeconds = workload.Hold, 1
		first.mounts[h.Name] = m
		first.job.Locks = append(first.job.Locks, h)
		// The challenger is on another client, or on another mount of the same
		// client, with the same export. It uses the same protocol if possible.
		var from workload.Lock
		for _, l := range other.job.Locks {
			o := other.mounts[l.Name]
			if l.Role != workload.Probe || o.Source != m.Source || len(out) == 1 && o.Path == m.Path {
				continue
			}
			if from.Name == "" || o.Version == m.Version {
				from = l
			}
		}
		to := other
		if from.Name == "" {
			to = first
			m.Path = path.Join(base, runID, fmt.Sprintf("locks-%d", len(first.aside)))
			first.aside = append(first.aside, m)
			from.Dir = path.Join(m.Path, fault.LoadDir)
		} else {
			m = other.mounts[from.Name]
		}
		from.Name = strings.TrimSuffix(h.Name, "-held") + "-tried"
		from.Role, from.File, from.IntervalSeconds = workload.Challenge, h.Name, 1
		to.mounts[from.Name] = m
		to.job.Locks = append(to.job.Locks, from)
	}
	return out, nil
}

// prefixOf is a short name of a mount: base (v4.1 or v3), with a number if the
// name is taken.
func prefixOf(base string, m design.ClientMount, have map[string]design.ClientMount) string {
	p := base
	for n := 2; ; n++ {
		taken := maps.Clone(have)
		maps.DeleteFunc(taken, func(w string, o design.ClientMount) bool { return o.Path == m.Path || !strings.HasPrefix(w, p+"-") })
		if len(taken) == 0 {
			return p
		}
		p = fmt.Sprintf("%s.%d", base, n)
	}
}

// jobs returns the load of each client, as the variant wants it. An error is a refusal.
func (e *engine) jobs(runID string) ([]clientJob, error) {
	out, err := jobs(e.Design, e.Service.Name, runID, e.Options.verifyDir, e.Options.Rate)
	if err == nil && e.variant.ClientDies {
		err = firstClientDies(out)
	}
	if err != nil {
		return nil, err
	}
	for i := range out {
		if e.variant.Rewrite {
			out[i].addRewriters()
		}
		for k := range out[i].job.Writers {
			w := &out[i].job.Writers[k]
			if !e.variant.Append || w.Mode != workload.Fsync {
				continue
			}
			w.Pattern, w.FileBytes = workload.Append, 0
			if e.AppendOnly == "" {
				_, dir, _ := strings.Cut(out[i].mounts[w.Name].Source, ":")
				e.AppendOnly = path.Join(dir, fault.LoadDir, runID, w.Name+".data")
			}
		}
	}
	return out, nil
}

// running is the load on one client.
type running struct {
	clientJob
	mu       sync.Mutex
	progress workload.Progress
	result   workload.Result
	err      error
	done     chan struct{}
	dead     bool  // the client died: nothing more is heard of this load
	offset   int64 // of a dead client's clock, while it lived
}

// locked does something to what is known of the load.
func (r *running) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// loads are those of all clients.
type loads []*running

// living are the loads of the clients that live.
func (l loads) living() loads {
	return slices.DeleteFunc(slices.Clone(l), func(r *running) (dead bool) {
		r.locked(func() { dead = r.dead })
		return dead
	})
}

// startLoad makes the directories of the load's files, and starts the load on each client. It
// ends with load.stop.
func (e *engine) startLoad(ctx context.Context, jobs []clientJob) error {
	for _, m := range e.Design.Mounts {
		onServer, dir, create := kind.For(m).LoadDir(m, fault.LoadDir)
		if _, made := e.loadDirs[dir]; made {
			continue
		}
		e.loadDirs[dir] = m
		on := m.Client
		if i := slices.IndexFunc(e.subjects, func(x *judge.Subject) bool { return x.Service == m.Service }); onServer && i >= 0 {
			on = e.subjects[i].Active
		}
		for _, a := range append([]resource.Action{create}, kind.For(m).Spread(dir)...) {
			if err := e.Do(ctx, on, a); err != nil {
				return fmt.Errorf("%s: %w", on, err)
			}
		}
	}
	workers := 0
	for _, j := range jobs {
		for _, m := range j.aside {
			e.aside = append(e.aside, m)
			if err := mountAt(ctx, &e.Site, "mount point for challengers", m, m.Path); err != nil {
				return fmt.Errorf("%s: %w", m.Client, err)
			}
		}
		workers += j.job.Workers()
		r := &running{clientJob: j, done: make(chan struct{})}
		e.load = append(e.load, r)
		h := e.Hosts.Session(j.client)
		go func() {
			defer close(r.done)
			// Not the caller's context: an interrupt must stop the load in
			// order, not tear it down.
			res, err := host.Watch(context.WithoutCancel(ctx), h, workload.OpLoad, j.job, func(p workload.Progress) {
				r.locked(func() { r.progress = p })
				e.Watch.WakeUp()
			})
			r.locked(func() {
				if r.err = err; res != nil {
					r.result = *res
				}
			})
		}()
	}
	e.Say("load starts: %d workers on %s, files and locks, every block with a ledger", workers, strings.Join(e.clients, ", "))
	if err := e.waitWorkers(ctx, 2*time.Minute, func(p workload.WorkerProgress, _ int64) bool { return p.Ops > 0 }); err != nil {
		return fmt.Errorf("load did not get going: %w", err)
	}
	return nil
}

// markTime bounds a mark at a fault after the first one: a client may be cut off by then.
const markTime = 10 * time.Second

// markAt marks at a fault. Once a fault has been injected the drill goes on without a mark;
// the judge finds a load that has failed.
func (e *engine) markAt(ctx context.Context, first bool) error {
	if first {
		return e.mark(ctx)
	}
	once, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	if err := e.mark(once); err != nil && ctx.Err() == nil {
		what := fmt.Sprintf("data from before this fault may be overwritten: %v", err)
		e.Say("%s", what)
		e.note("", "%s", what)
	}
	return ctx.Err()
}

// mark tells the writers of every client to leave the data written so far as it
// is.
func (e *engine) mark(ctx context.Context) error {
	var names []string
	runs := map[string]string{}
	for _, r := range e.load.living() {
		names = append(names, r.client)
		runs[r.client] = r.job.RunID
	}
	return host.Each(ctx, names, func(ctx context.Context, client string) error {
		_, err := host.Ask(ctx, e.Hosts.Session(client), workload.OpLoadMark, workload.StopParams{RunID: runs[client]})
		return err
	})
}

// errors describes the errors of clients whose load failed.
func (l loads) errors() (out []string) {
	for _, r := range l.living() {
		r.locked(func() {
			if r.err != nil {
				out = append(out, fmt.Sprintf("load on %s: %v", r.client, r.err))
			}
		})
	}
	return out
}

// pause waits, and fails at once if the load on a client ends.
func (e *engine) pause(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := e.Sleep(ctx, min(200*time.Millisecond, time.Until(end))); err != nil {
			return err
		}
		if errs := e.load.errors(); len(errs) > 0 {
			return errors.New(strings.Join(errs, "; "))
		}
	}
	return nil
}

// waitWorkers waits until ok holds for every worker of every client; offset is
// how far the client's clock is ahead, in ns.
func (e *engine) waitWorkers(ctx context.Context, limit time.Duration, ok func(p workload.WorkerProgress, offset int64) bool) error {
	w := host.Wait{Limit: limit, Pause: func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		case <-e.Watch.Wake:
		}
	}}
	return w.Until(ctx, func(context.Context) (string, error) {
		waiting, err := e.workersLeft(ok)
		if errs := e.load.errors(); err == nil && len(waiting) > 0 && len(errs) > 0 {
			err = errors.New(strings.Join(errs, "; "))
		}
		return strings.Join(waiting, ", "), err
	})
}

// workersLeft names the workers for which ok does not hold.
func (e *engine) workersLeft(ok func(p workload.WorkerProgress, offset int64) bool) (waiting []string, err error) {
	for _, r := range e.load.living() {
		r.locked(func() {
			if len(r.progress.Workers) < r.job.Workers() {
				waiting = append(waiting, r.client+" has not reported")
			}
			for _, p := range r.progress.Workers {
				if p.Failed != "" {
					err = cmp.Or(err, fmt.Errorf("%s %s gave up: %s", r.client, p.Worker, p.Failed))
				}
				if !ok(p, e.Hosts.Clock(r.client).Offset) {
					w := r.client + " " + p.Worker + " does not go on"
					if p.LastError != "" {
						w += " (" + p.LastError + ")"
					}
					waiting = append(waiting, w)
				}
			}
		})
	}
	return waiting, err
}

// stopLoad ends the load on all clients and collects the results.
func (e *engine) stopLoad(ctx context.Context) (out []judge.Load) {
	if len(e.load) == 0 {
		return nil
	}
	e.Say("stopping the load")
	var wg sync.WaitGroup
	for _, r := range e.load.living() {
		wg.Go(func() {
			params := workload.StopParams{RunID: r.job.RunID}
			_, stop := host.Ask(ctx, e.Hosts.Session(r.client), workload.OpLoadStop, params)
			select {
			case <-r.done:
			case <-ctx.Done():
			}
			var failed error
			r.locked(func() { failed = r.err })
			if failed == nil && ctx.Err() == nil {
				return
			}
			// The session broke: the result is on the client's disk.
			h, err := e.Hosts.Connect(ctx, e.Env.Dial, r.client)
			var res *workload.Result
			if err == nil {
				_, _ = host.Ask(ctx, h, workload.OpLoadStop, params)
				res, err = host.Ask(ctx, h, workload.OpLoadResult, params)
			}
			r.locked(func() {
				if err == nil {
					r.result = *res
				} else {
					r.err = errors.Join(failed, stop, err)
				}
			})
		})
	}
	wg.Wait()
	for _, r := range e.load {
		r.locked(func() {
			switch {
			case r.dead: // the ledgers on its disk are left
				out = append(out, judge.Load{Client: r.client, Offset: r.offset, Mounts: r.mounts,
					Result: workload.Result{RunID: r.job.RunID, Ledger: cmp.Or(r.job.LedgerDir, workload.DefaultLedgerDir(r.job.RunID))}})
			case len(r.result.Workers) > 0:
				out = append(out, judge.Load{Client: r.client, Offset: e.Hosts.Clock(r.client).Offset, Result: r.result, Mounts: r.mounts})
			}
		})
	}
	return out
}

// loseClient takes the load of a client that is about to die for lost: no error of it counts, and
// no client waits for it.
func (e *engine) loseClient(client string) {
	for _, r := range e.load {
		if r.client == client {
			r.locked(func() { r.dead, r.offset = true, e.Hosts.Clock(client).Offset })
		}
	}
}

// taken counts the workers that have taken a lock on the mounts that of accepts, and names those
// that have none yet.
func (l loads) taken(of func(design.ClientMount) bool) (have int, missing []string) {
	for _, r := range l {
		r.locked(func() {
			for _, k := range r.job.Locks {
				switch {
				case k.Role != workload.Take || !of(r.mounts[k.Name]):
				case slices.ContainsFunc(r.progress.Workers, func(p workload.WorkerProgress) bool { return p.Worker == k.Name && p.Took }):
					have++
				default:
					missing = append(missing, r.client+" "+k.Name)
				}
			}
		})
	}
	return have, missing
}
