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

// benchThread is one thread of a phase. Its goroutine makes the system calls and
// never holds mu across one, so other goroutines can read the figures while the
// thread hangs.
type benchThread struct {
	run  *benchRun
	work benchWork
	// The thread closes ready when it can begin or has failed, and done at its
	// end.
	ready, done chan struct{}

	mu       sync.Mutex
	res      BenchThread
	total    *hdrhistogram.Histogram
	cur      tally // of the bucket that ends at edge
	edge     int64
	rolled   []tally // complete buckets not yet collected
	spare    *hdrhistogram.Histogram
	last     int64 // when the last operation completed, or before that the thread's start
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
	// open prepares the work; it is not timed.
	open() error
	// loop does the timed work. It ends early, without an error, when
	// benchRun.enough returns true.
	loop() error
	// verified returns what the comparison with the data written has found so
	// far, nil without a comparison. It may be called while loop runs.
	verified() *BenchVerify
	// close closes what open and loop have opened. It is called even if open
	// failed.
	close()
}

// benchHistogram keeps latencies from 64 ns to an hour. The phase keeps three
// significant digits, each bucket of the timeline two.
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

// record records an operation issued at begun and completed at end. From last,
// when the operation before it completed, until begun the thread generated or
// verified data.
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

// collect returns and clears the buckets that are complete at now.
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

// rest is collect with the bucket under way.
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

// recycle keeps a histogram for reuse.
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

// fail records why the thread ends early. The first reason counts.
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

// idle is the time since the last completed operation, in ns; 0 before the start
// and after the end of the thread's work.
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

// result copies the figures. left means that the goroutine still hangs.
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

// benchFault returns the Fault constant of an error.
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

// explain is the error's text with a remedy.
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

// pathError adds the failed call and the path to an error.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
