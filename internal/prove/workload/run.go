package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/stream"
)

const (
	ledgerSuffix = ".ledger"
	jobFile      = "job.json"
	resultFile   = "result.json"
	lockFile     = "lock"
	stopFile     = "stop"
)

// member is a worker with its goroutine.
type member struct {
	w    *worker
	run  func() error
	done chan struct{}
}

// run is one job under way.
type run struct {
	job     Job
	clock   *clock
	members []*member
	stop    chan struct{}
	halt    func() // closes stop, once
	marks   *atomic.Int64
	ended   chan struct{} // closed when every worker has ended
	lock    *os.File
}

// Control lets the caller of Run steer a run under way.
type Control struct {
	Stop <-chan struct{} // the caller closes it to end the run; nil: the caller never does
	// Marks: the caller adds one before a fault. Writers then leave the data
	// written so far as it is, and go on behind it. nil: no marks.
	Marks *atomic.Int64
}

// Run carries out a job until c.Stop is closed or ctx ends, and then waits at most StuckSeconds for workers that hang. Run calls
// progress, which may be nil, from one goroutine; a progress that blocks does
// not delay the run.
func Run(ctx context.Context, job Job, c Control, progress func(Progress)) (*Result, error) {
	if c.Marks == nil {
		c.Marks = new(atomic.Int64)
	}
	r, err := prepare(job, c.Marks)
	if err != nil {
		return nil, err
	}
	res, err := r.drive(ctx, c.Stop, progress)
	select {
	case <-r.ended:
		r.lock.Close()
	default:
		// A worker that hangs may still write to its ledger later. The lock keeps
		// other runs away from the ledger until the worker ends.
		go func() {
			<-r.ended
			r.lock.Close()
		}()
	}
	return res, err
}

// prepare makes the ledgers and the workers. It does not touch the file system
// under test.
func prepare(job Job, marks *atomic.Int64) (_ *run, err error) {
	if err := job.fill(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(job.LedgerDir, 0o755); err != nil {
		return nil, err
	}
	r := &run{job: job, clock: newClock(), marks: marks, stop: make(chan struct{}), ended: make(chan struct{})}
	r.halt = sync.OnceFunc(func() { close(r.stop) })
	// After a broken connection another agent may still run this job.
	r.lock, err = os.OpenFile(filepath.Join(job.LedgerDir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	var ledgers []*stream.Ledger
	defer func() {
		if err != nil {
			for _, l := range ledgers {
				l.Close()
			}
			r.lock.Close()
		}
	}()
	if free, err := tryLock(r.lock); err != nil {
		return nil, err
	} else if !free {
		return nil, fmt.Errorf("run %s is under way in another process", job.RunID)
	}
	if err := writeJSON(filepath.Join(job.LedgerDir, jobFile), job); err != nil {
		return nil, err
	}
	for _, old := range []string{resultFile, stopFile} {
		if err := os.Remove(filepath.Join(job.LedgerDir, old)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}

	seed := fnv.New64a()
	fmt.Fprint(seed, job.RunID, job.Client, job.StreamBase)
	for i, cfg := range job.Writers {
		id := job.StreamBase + uint32(i) + 1
		w := &writer{worker: r.worker(cfg.Name, "writer"), cfg: cfg, id: id, marks: marks}
		rel := filepath.Join(job.RunID, cfg.Name+".data")
		w.path = filepath.Join(cfg.Dir, rel)
		w.res.Mode = string(cfg.Pattern) + "/" + string(cfg.Mode)
		h := stream.LedgerHeader{Run: job.RunID, Client: job.Client, Worker: cfg.Name, Stream: id, Dir: cfg.Dir, File: rel}
		w.ledger, err = stream.CreateLedger(filepath.Join(job.LedgerDir, cfg.Name+ledgerSuffix), h, r.clock.now)
		if err != nil {
			return nil, fmt.Errorf("%w: use another run id, or load.clean", err)
		}
		ledgers = append(ledgers, w.ledger)
		if job.Durable {
			if err = w.ledger.Durable(); err != nil {
				return nil, err
			}
		}
		w.stream = w.ledger.Index().Stream()
		w.rng = rand.New(rand.NewPCG(seed.Sum64(), uint64(id)))
		r.add(w.worker, w.run)
	}
	if job.Durable {
		for _, d := range []string{job.LedgerDir, filepath.Dir(job.LedgerDir)} {
			if err = syncDir(d); err != nil {
				return nil, err
			}
		}
	}
	for _, cfg := range job.Locks {
		l := &locker{worker: r.worker(cfg.Name, "lock-"+string(cfg.Role)), cfg: cfg}
		l.path = filepath.Join(cfg.Dir, job.RunID, cfg.File+".lock")
		l.all, l.keep = true, 5000
		r.add(l.worker, l.run)
	}
	for _, cfg := range job.Names {
		n := &namer{worker: r.worker(cfg.Name, "names"), cfg: cfg, path: namesPath(job.RunID, cfg)}
		r.add(n.worker, n.run)
	}
	return r, nil
}

func namesPath(runID string, n Names) string { return filepath.Join(n.Dir, runID, n.Name+".names") }

// bucketNs is the resolution of timelines.
const bucketNs = int64(100 * time.Millisecond)

func (r *run) worker(name, kind string) *worker {
	w := &worker{
		clock: r.clock, stall: int64(r.job.StallSeconds * 1e9), bucket: bucketNs, keep: MaxErrors, lat: newHistogram(), stop: r.stop, fd: -1,
	}
	w.res.Worker, w.res.Kind = name, kind
	return w
}

func (r *run) add(w *worker, f func() error) {
	r.members = append(r.members, &member{w: w, run: f, done: make(chan struct{})})
}

func (r *run) drive(ctx context.Context, stop <-chan struct{}, progress func(Progress)) (*Result, error) {
	for _, m := range r.members {
		go func() {
			defer close(m.done)
			m.w.end(m.run())
		}()
	}
	go func() {
		defer close(r.ended)
		for _, m := range r.members {
			<-m.done
		}
	}()
	events, emitted := forward(progress)
	tick := time.NewTicker(time.Duration(r.job.ProgressSeconds * 1e9))
	defer tick.Stop()
	by := ""
	for by == "" {
		select {
		case <-tick.C:
			select {
			case events <- r.progress():
			default: // the previous event is still waiting
			}
			// load.stop of another session writes this file: the connection of
			// this session may be dead without the agent noticing.
			if _, err := os.Lstat(filepath.Join(r.job.LedgerDir, stopFile)); err == nil {
				by = "stop"
			}
		case <-stop:
			by = "stop"
		case <-ctx.Done():
			by = "cancelled"
		case <-r.ended:
			by = "workers"
		}
	}
	r.halt()
	patience := time.NewTimer(time.Duration(r.job.StuckSeconds * 1e9))
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case <-r.ended:
			waiting = false
		case <-patience.C:
			waiting = false
		case <-tick.C:
			select {
			case events <- r.progress():
			default:
			}
		}
	}
	close(events)
	// The last event should come before the result, if the pipe moves at all.
	select {
	case <-emitted:
	case <-time.After(time.Second):
	}
	res := r.result(by)
	return res, writeJSON(filepath.Join(r.job.LedgerDir, resultFile), res)
}

func (r *run) progress() Progress {
	t := r.clock.now()
	var p Progress
	for _, m := range r.members {
		p.Workers = append(p.Workers, m.w.progress(t))
	}
	return p
}

func (r *run) result(by string) *Result {
	t := r.clock.now()
	res := &Result{
		RunID: r.job.RunID, Ledger: r.job.LedgerDir, StoppedBy: by,
		Stalls: []Stall{}, Errors: []OpError{}, Stuck: []string{},
	}
	for _, m := range r.members {
		running := true
		select {
		case <-m.done:
			running = false
		default:
		}
		w, stalls, errs := m.w.result(t, running)
		res.Workers = append(res.Workers, w)
		res.Stalls = append(res.Stalls, stalls...)
		res.Errors = append(res.Errors, errs...)
		res.ErrorCount += w.Errors
		res.Violations += w.Violations
		if w.Kind == "writer" {
			res.AcknowledgedBytes += w.AckedBytes
		}
		if w.Stuck {
			res.Stuck = append(res.Stuck, w.Worker)
		}
	}
	slices.SortStableFunc(res.Stalls, func(a, b Stall) int { return cmp.Compare(b.Seconds, a.Seconds) })
	slices.SortStableFunc(res.Errors, func(a, b OpError) int { return cmp.Compare(a.TNs, b.TNs) })
	return res
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o644)
}

// tryLock takes the lock that the process of a run holds. It returns false if
// another process holds the lock.
func tryLock(f *os.File) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET})
	if denied(err) {
		return false, nil
	}
	return err == nil, err
}

// busy reports whether a process is carrying out the run kept in dir. It tests
// the lock without taking it, so a run can start meanwhile.
func busy(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}

// forward passes each event to progress, which may be nil, in a goroutine of its
// own: the reader of the pipe may be slow, and a stop must not wait for it.
// emitted is closed after events is closed and progress has had every event.
func forward[T any](progress func(T)) (events chan T, emitted <-chan struct{}) {
	events = make(chan T, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range events {
			if progress != nil {
				progress(p)
			}
		}
	}()
	return events, done
}
