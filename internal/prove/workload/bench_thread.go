package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// benchThread is one thread of a phase. Its goroutine makes the system calls
// and holds mu only to write down what came of one, so that everyone may read
// the figures while it hangs.
type benchThread struct {
	run  *benchRun
	work benchWork
	// ready is closed when it could begin, done when all is over.
	ready, done chan struct{}

	mu       sync.Mutex
	res      BenchThread
	total    *hdrhistogram.Histogram
	cur      tally // of the bucket that ends at edge
	edge     int64
	rolled   []tally // complete buckets not yet collected
	spare    *hdrhistogram.Histogram
	last     int64 // when the last operation completed, or the first could be issued
	started  bool
	finished bool
	own      int64 // ns spent generating or verifying
}

// tally is what completed in one bucket.
type tally struct {
	bucket     int64
	ops, bytes int64
	hist       *hdrhistogram.Histogram
}

// benchWork is what a thread does.
type benchWork interface {
	// open gets everything ready that is not to be timed.
	open() error
	// loop does the timed work and ends early, without an error, once the run
	// is over.
	loop() error
	// verified is what was compared with what was written, nil where nothing
	// was; it may be asked while loop runs.
	verified() *BenchVerify
	// close releases what open and loop have opened; it is called in any case.
	close()
}

// Latencies are kept from 64 ns up to an hour: in three significant digits
// over the phase, in two for each bucket of the timeline.
func benchHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(64, int64(time.Hour), digits)
}

// main is the goroutine of the thread.
func (t *benchThread) main() {
	defer close(t.done)
	defer t.work.close()
	err := t.run.setDir()
	if err == nil {
		err = t.work.open()
	}
	if err != nil {
		t.fail(err)
		close(t.ready)
		return
	}
	close(t.ready)
	start := t.run.waitStart()
	now := t.run.clock.now()
	t.mu.Lock()
	t.started = true
	t.res.StartNs, t.res.LastNs, t.last = now, now, now
	t.edge = start
	t.roll(now)
	t.mu.Unlock()
	err = t.work.loop()
	t.mu.Lock()
	t.res.EndNs = t.run.clock.now()
	t.finished = true
	t.mu.Unlock()
	if err != nil {
		t.fail(err)
	}
}

// record writes down an operation that was issued at begun and completed at
// end; between the completion of the one before, at last, and its issue the
// thread was busy with the data itself.
func (t *benchThread) record(last, begun, end, bytes int64) {
	t.mu.Lock()
	if end >= t.edge {
		t.roll(end)
	}
	if end-begun > t.run.stall {
		t.stalled(begun, end, false)
	}
	took := min(end-begun, int64(time.Hour))
	_ = t.cur.hist.RecordValue(took)
	_ = t.total.RecordValue(took)
	t.cur.ops++
	t.cur.bytes += bytes
	t.res.Ops++
	t.res.Bytes += bytes
	t.own += begun - last
	t.last = end
	t.mu.Unlock()
}

// roll closes the bucket under way and opens the one that holds now.
func (t *benchThread) roll(now int64) {
	if t.cur.ops > 0 {
		t.rolled = append(t.rolled, t.cur)
		t.cur = tally{hist: t.spare}
		t.spare = nil
	}
	if t.cur.hist == nil {
		t.cur.hist = benchHistogram(2)
	}
	t.cur.bucket = (now - t.run.startNs) / t.run.bucket
	t.edge = t.run.startNs + (t.cur.bucket+1)*t.run.bucket
}

// collect takes the buckets that were complete at now.
func (t *benchThread) collect(now int64) []tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started && now >= t.edge {
		t.roll(now)
	}
	out := t.rolled
	t.rolled = nil
	return out
}

// rest takes the bucket under way as well.
func (t *benchThread) rest() []tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		t.roll(max(t.edge, t.run.clock.now()))
	}
	out := t.rolled
	t.rolled = nil
	return out
}

// recycle gives back an empty histogram.
func (t *benchThread) recycle(h *hdrhistogram.Histogram) {
	h.Reset()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare = h
}

func (t *benchThread) stalled(since, now int64, open bool) {
	if len(t.res.Stalls) < MaxErrors {
		t.res.Stalls = append(t.res.Stalls, Stall{
			Worker: fmt.Sprintf("thread %d", t.res.Thread), StartNs: since, Seconds: seconds(now - since), Op: string(t.run.job.Phase), Open: open,
		})
	}
}

// fail says why the thread ends early. The first reason counts.
func (t *benchThread) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.res.Fault != "" {
		return
	}
	t.res.Fault, t.res.Errno, t.res.Error = benchFault(err), errno(err), explain(err)
}

func (t *benchThread) set(f func(r *BenchThread)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.res)
}

// idle is how long nothing has completed, in ns; 0 when nothing is owed.
func (t *benchThread) idle(now int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started || t.finished || t.res.Fault != "" {
		return 0
	}
	return now - t.last
}

func (t *benchThread) progress(now int64) BenchThreadProgress {
	idle := t.idle(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := BenchThreadProgress{Thread: t.res.Thread, Ops: t.res.Ops, Bytes: t.res.Bytes, Done: t.finished, Error: t.res.Error}
	if idle > t.run.stall {
		p.IdleSeconds = seconds(idle)
	}
	return p
}

// result is a copy of everything; left says the goroutine still hangs.
func (t *benchThread) result(now int64, left bool) BenchThread {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left {
		if t.started && !t.finished && now-t.last > t.run.stall {
			t.stalled(t.last, now, true)
		}
		if t.res.Fault == "" {
			t.res.Fault = FaultStuck
			t.res.Error = fmt.Sprintf("no progress for %.0f s: a server or device that does not answer? Its figures up to then are kept", seconds(now-t.last))
			if !t.started {
				t.res.Error = "it hung before the start: does the mount answer?"
			}
		}
		t.res.EndNs = now
	}
	r := t.res
	r.LastNs = t.last
	r.OwnSeconds = seconds(t.own)
	r.Latency = benchLatency(t.total)
	r.Stalls = append([]Stall(nil), r.Stalls...)
	return r
}

func benchLatency(h *hdrhistogram.Histogram) BenchLatency {
	l := BenchLatency{Count: h.TotalCount()}
	if l.Count == 0 {
		return l
	}
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1e9 }
	l.Mean, l.Min, l.Max = h.Mean()/1e9, float64(h.Min())/1e9, float64(h.Max())/1e9
	l.P50, l.P90, l.P99, l.P999 = q(50), q(90), q(99), q(99.9)
	l.Histogram = encodeHistogram(h)
	return l
}

func encodeHistogram(h *hdrhistogram.Histogram) string {
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return ""
	}
	return string(b)
}

// benchFault names an error's kind.
func benchFault(err error) string {
	is := func(all ...unix.Errno) bool {
		for _, e := range all {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(unix.ENOSPC, unix.EDQUOT):
		return FaultNoSpace
	case is(unix.EROFS):
		return FaultReadOnly
	case errors.Is(err, errHung):
		return FaultStuck
	case is(unix.ESTALE, unix.ENOENT, unix.ENXIO, unix.ENODEV, unix.ENOTCONN):
		return FaultVanished
	}
	return FaultIO
}

// explain adds what may mend it.
func explain(err error) string {
	s := err.Error()
	switch benchFault(err) {
	case FaultNoSpace:
		s += ": make room there, or test with less data (--scale)"
	case FaultReadOnly:
		s += ": mount it read-write, or look why the server or kernel made it read-only"
	case FaultVanished:
		s += ": is it still mounted and exported?"
	default:
		if errors.Is(err, unix.EINVAL) && errors.Is(err, errDirect) {
			s += ": this file system does not support it; use buffered I/O"
		}
	}
	return s
}

var errDirect = errors.New("with O_DIRECT")

// pathError says which call on what failed.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
