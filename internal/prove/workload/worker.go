package workload

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// clock gives wall time that never jumps: the wall clock is read once, and
// monotonic differences are added.
type clock struct {
	start time.Time
	wall  int64
}

func newClock() *clock {
	t := time.Now()
	return &clock{start: t, wall: t.UnixNano()}
}

func (c *clock) now() int64 { return c.wall + int64(time.Since(c.start)) }

// worker holds one worker's figures. Its goroutine makes the system calls and
// never holds mu across one, so other goroutines can always read the figures.
type worker struct {
	clock  *clock
	stall  int64 // ns
	bucket int64 // ns
	keep   int   // bound of the completions kept
	all    bool  // keep every completion, not only those after a stall
	stop   <-chan struct{}
	fd     int // of its file; -1: not open

	mu      sync.Mutex
	res     WorkerResult
	lat     *hdrhistogram.Histogram
	flat    *hdrhistogram.Histogram
	stalls  []Stall
	errs    []OpError
	op      string // under way; "": idle
	issued  int64  // when op began
	waiting int64  // when the first operation since the last success began; 0: no operation is owed
	failed  bool   // errors since the last success
	hasLock bool   // role take: it has the lock
	lastErr string
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
}

// begin records that the worker issues an operation now.
func (w *worker) begin(op string) {
	t := w.clock.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op, w.issued = op, t
	w.waiting = cmp.Or(w.waiting, t)
}

// succeed records that the operation completed and acknowledged that many bytes.
func (w *worker) succeed(bytes int64) {
	t := w.clock.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.lat
	if w.op == "fsync" {
		if w.flat == nil {
			w.flat = newHistogram()
		}
		h = w.flat
	}
	_ = h.RecordValue(min((t-w.issued)/1000, h.HighestTrackableValue()))
	w.res.Ops++
	w.res.AckedBytes += bytes
	w.res.LastOpNs = t
	stalled := t-w.waiting > w.stall
	if stalled {
		w.addStall(Stall{Worker: w.res.Worker, StartNs: w.waiting, Seconds: seconds(t - w.waiting)})
	}
	if (stalled || w.failed || w.all) && len(w.res.Completions) < w.keep {
		w.res.Completions = append(w.res.Completions, Completion{Op: w.op, IssuedNs: w.issued, DoneNs: t})
	}
	i := w.at(t)
	w.res.Timeline.Ops[i]++
	w.res.Timeline.Bytes[i] += bytes
	w.op, w.waiting, w.failed = "", 0, false
}

// took records that the operation under way has got the worker its lock.
func (w *worker) took() {
	w.mu.Lock()
	w.op, w.hasLock = OpTook, true
	w.mu.Unlock()
	w.succeed(0)
}

// fail records that the operation failed.
func (w *worker) fail(err error) {
	t := w.clock.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addError(OpError{TNs: t, Op: w.op, Errno: errno(err), Error: err.Error()})
	w.op, w.failed = "", true
}

// done records that an operation completed that is no progress by itself (open,
// close).
func (w *worker) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op = ""
}

// violation records a wrong outcome of a call that returned no error.
func (w *worker) violation(op, what string) {
	t := w.clock.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.res.Violations++
	w.addError(OpError{TNs: t, Op: op, Error: what})
}

// shut closes the worker's file, to open it again after an error.
func (w *worker) shut() {
	w.begin("close")
	_ = unix.Close(w.fd)
	w.fd = -1
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op = ""
	w.res.Reopens++
}

// retry calls f until it succeeds, the run stops, or an error is hopeless.
func (w *worker) retry(f func() error, hopeless func(error) bool) error {
	var wait backoff
	for {
		err := f()
		if err == nil {
			w.done()
			return nil
		}
		w.fail(err)
		if hopeless(err) {
			return err
		}
		if !wait.wait(w.stop) {
			return errStopped
		}
	}
}

// end closes the file of a worker whose goroutine ends, and records why it ends
// early. A stall under way is kept with Open set. A close that hangs shows in the
// result as stuck; a slow close is no stall.
func (w *worker) end(why error) {
	t := w.clock.now()
	w.mu.Lock()
	if s, open := w.stalled(t); open {
		w.addStall(s)
	}
	w.op, w.waiting = "", 0
	if why != nil && !errors.Is(why, errStopped) {
		w.res.Failed = why.Error()
	}
	w.mu.Unlock()
	if w.fd >= 0 {
		w.begin("close")
		_ = unix.Close(w.fd)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op, w.waiting = "", 0
}

// stalled returns the stall under way, if there is one.
func (w *worker) stalled(t int64) (s Stall, open bool) {
	return Stall{Worker: w.res.Worker, StartNs: w.waiting, Seconds: seconds(t - w.waiting), Open: true}, w.waiting != 0 && t-w.waiting > w.stall
}

func (w *worker) addStall(s Stall) {
	if len(w.stalls) < MaxErrors {
		w.stalls = append(w.stalls, s)
		return
	}
	// The list is full: drop the shortest stall.
	short := slices.MinFunc(w.stalls, func(a, b Stall) int { return cmp.Compare(a.Seconds, b.Seconds) })
	if i := slices.Index(w.stalls, short); short.Seconds < s.Seconds {
		w.stalls[i] = s
	}
}

func (w *worker) addError(e OpError) {
	e.Worker = w.res.Worker
	w.res.Errors++
	w.lastErr = e.Op + ": " + e.Error
	if len(w.errs) < MaxErrors {
		w.errs = append(w.errs, e)
	}
}

// maxBuckets bounds a timeline, since a result travels as one line of JSON. A
// longer run gets wider buckets.
const maxBuckets = 20000

// at returns the bucket of a time and extends the timeline up to it.
func (w *worker) at(t int64) int {
	tl := &w.res.Timeline
	for (t-w.clock.wall)/w.bucket >= maxBuckets {
		w.bucket *= 2
		tl.Ops, tl.Bytes = pairs(tl.Ops), pairs(tl.Bytes)
	}
	i := int((t - w.clock.wall) / w.bucket)
	for len(tl.Ops) <= i {
		tl.Ops, tl.Bytes = append(tl.Ops, 0), append(tl.Bytes, 0)
	}
	return i
}

// pairs sums neighbouring buckets two by two.
func pairs(a []int64) []int64 {
	for i, n := range a {
		if i%2 == 0 {
			a[i/2] = n
		} else {
			a[i/2] += n
		}
	}
	return a[:(len(a)+1)/2]
}

func (w *worker) progress(t int64) WorkerProgress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := WorkerProgress{
		Worker: w.res.Worker, Ops: w.res.Ops, AckedBytes: w.res.AckedBytes, Errors: w.res.Errors, Violations: w.res.Violations, LastOpNs: w.res.LastOpNs, LastError: w.lastErr, Failed: w.res.Failed, Took: w.hasLock,
	}
	if s, open := w.stalled(t); open {
		p.StallSeconds = s.Seconds
	}
	return p
}

// result copies the figures as of t. running means that the goroutine has not
// ended.
func (w *worker) result(t int64, running bool) (WorkerResult, []Stall, []OpError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(t)
	r := w.res
	r.Timeline.StartNs, r.Timeline.BucketSeconds = w.clock.wall, seconds(w.bucket)
	r.Timeline.Ops, r.Timeline.Bytes, r.Completions = slices.Clone(r.Timeline.Ops), slices.Clone(r.Timeline.Bytes), slices.Concat([]Completion{}, r.Completions)
	r.Latency, r.FsyncLatency = report.LatencyOf(w.lat, 1e3), report.LatencyOf(w.flat, 1e3)
	stalls := slices.Clone(w.stalls)
	if s, open := w.stalled(t); open {
		stalls = append(stalls, s)
	}
	r.Stuck = running
	return r, stalls, slices.Clone(w.errs)
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// errno is the symbolic name of a system call's error, or "".
func errno(err error) string {
	var e unix.Errno
	if errors.As(err, &e) {
		return unix.ErrnoName(e)
	}
	return ""
}

func errnoNumber(err error) uint32 {
	var e unix.Errno
	if errors.As(err, &e) {
		return uint32(e)
	}
	return 0
}

// retryInterrupted repeats a system call that a signal interrupted.
func retryInterrupted(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func open(path string, flags int) (int, error) {
	fd, err := retryInterrupted(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0o644) })
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// pwrite writes all of b or returns an error. After a short write it writes the
// rest, since the next call returns the reason.
func pwrite(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := retryInterrupted(func() (int, error) { return unix.Pwrite(fd, b, off) })
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func fsync(fd int) error {
	_, err := retryInterrupted(func() (int, error) { return 0, unix.Fsync(fd) })
	return err
}

func syncDir(path string) error {
	fd, err := open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fsync(fd)
}

// pacer spaces operations evenly. After a stall it does not catch up: a burst
// would exceed the rate of the job.
type pacer struct {
	every time.Duration
	next  time.Time
}

func newPacer(perSecond float64) *pacer {
	p := &pacer{}
	if perSecond > 0 {
		p.every = time.Duration(float64(time.Second) / perSecond)
	}
	return p
}

// wait sleeps until the next operation is due. It returns false after a stop.
func (p *pacer) wait(stop <-chan struct{}) bool {
	now := time.Now()
	if p.every > 0 {
		if d := p.next.Sub(now); d > 0 {
			if !sleep(d, stop) {
				return false
			}
			p.next = p.next.Add(p.every)
			return true
		}
		p.next = now.Add(p.every)
	}
	select {
	case <-stop:
		return false
	default:
		return true
	}
}

// sleep returns false if stop was closed meanwhile.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-stop:
		return false
	case <-t.C:
		return true
	}
}

// backoff is the time between attempts after errors.
type backoff struct{ d time.Duration }

func (b *backoff) wait(stop <-chan struct{}) bool {
	b.d = min(max(2*b.d, 50*time.Millisecond), time.Second)
	return sleep(b.d, stop)
}

func (b *backoff) reset() { b.d = 0 }
