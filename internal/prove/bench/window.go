package bench

import (
	"math"
)

// thread is what one thread did, on the administrator's clock.
type thread struct {
	lane       int   // index of its share
	rank       int   // among the threads of all clients
	start, end int64 // begin of the first record; end of the last, or of the flush and close if the timing includes them
	amount     int64 // bytes or operations, depending on the phase
	faulty     bool  // the thread ended early: it keeps its figures, but does not end the window
	// Timeline: amount in buckets of bucket ns from origin on.
	origin, bucket int64
	buckets        []int64

	ops, bytes  int64
	fault, text string  // why the thread ended early: with the kind of fault, and in words alone
	stalled     float64 // seconds of its longest operation, if that was a stall
}

// windowed has the figures of all threads together.
type windowed struct {
	start, end   int64   // first start, last end
	from, to     int64   // common window; from == to: none
	amount       float64 // in the window
	whole        int64   // in total
	perThread    []float64
	stonewall    int64   // first end of a thread without fault
	wallShare    float64 // share of all work done until stonewall
	windowedRate float64 // per second
	wholeRate    float64
}

// within is the part of a thread's work that falls into a window. even spreads
// the work over the thread's own time: data may reach the server only in the
// final flush, so the time of each write call says nothing.
func (t *thread) within(from, to int64, even bool) float64 {
	if even || len(t.buckets) == 0 {
		return float64(t.amount) * overlap(t.start, t.end, from, to)
	}
	sum := 0.0
	for i, n := range t.buckets {
		if n == 0 {
			continue
		}
		// The first and last bucket may be covered in part only.
		a := max(t.origin+int64(i)*t.bucket, t.start)
		b := min(t.origin+int64(i+1)*t.bucket, t.end)
		sum += float64(n) * overlap(a, b, from, to)
	}
	return sum
}

// overlap is the share of [a, b] that lies within [from, to].
func overlap(a, b, from, to int64) float64 {
	if b <= a {
		if a >= from && a < to {
			return 1
		}
		return 0
	}
	return math.Max(0, float64(min(b, to)-max(a, from))) / float64(b-a)
}

// window finds the time in which all threads worked, and their work in it. If
// some threads have no fault, only those bound the window; the work of all
// threads within it counts.
func window(ts []thread, even bool) windowed {
	var w windowed
	healthy := 0
	for i := range ts {
		if !ts[i].faulty && ts[i].amount > 0 {
			healthy++
		}
	}
	first := true
	for i := range ts {
		t := &ts[i]
		w.whole += t.amount
		if t.amount == 0 {
			continue
		}
		if w.start == 0 || t.start < w.start {
			w.start = t.start
		}
		w.end = max(w.end, t.end)
		if t.faulty && healthy > 0 {
			continue
		}
		if first {
			w.from, w.to, first = t.start, t.end, false
			continue
		}
		w.from, w.to = max(w.from, t.start), min(w.to, t.end)
	}
	w.stonewall = w.to
	if w.to < w.from {
		w.stonewall = w.from
		w.to = w.from
	}
	w.perThread = make([]float64, len(ts))
	done := 0.0
	for i := range ts {
		w.perThread[i] = ts[i].within(w.from, w.to, even)
		w.amount += w.perThread[i]
		done += ts[i].within(w.start, w.stonewall, even)
	}
	if w.whole > 0 {
		w.wallShare = math.Min(done/float64(w.whole), 1)
	}
	if d := w.end - w.start; d > 0 {
		w.wholeRate = float64(w.whole) / (float64(d) / 1e9)
	}
	if d := w.to - w.from; d > 0 {
		w.windowedRate = w.amount / (float64(d) / 1e9)
	} else {
		// The threads did not work at the same time at all.
		w.windowedRate = w.wholeRate
	}
	return w
}

// wholly makes the whole time the window: if the threads divide the work
// unevenly, the end of the first thread says nothing.
func (w *windowed) wholly(ts []thread) {
	w.from, w.to, w.amount, w.windowedRate = w.start, w.end, float64(w.whole), w.wholeRate
	for i := range ts {
		w.perThread[i] = float64(ts[i].amount)
	}
}
