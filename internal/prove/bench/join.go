package bench

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// share is one lane's part of a phase: its result, or its last progress if it
// vanished.
type share struct {
	client   string
	offset   int64 // client's clock minus administrator's, ns
	result   *workload.BenchResult
	progress workload.BenchProgress
	start    int64 // agreed, administrator's clock
	err      error
}

// even reports whether a window counts a phase's work as spread evenly over its
// time. It does so for writes that end in a flush, because a record in the
// client's memory is not yet work of the brick.
func even(p workload.BenchPhase, direct bool) bool {
	return p == workload.SeqWrite && !direct
}

// join makes one run of the lanes' shares.
func join(shares []share, p workload.BenchPhase, unit string, evenly bool) report.BenchRun {
	bytes := unit == "MiB/s"
	scale := 1.0
	if bytes {
		scale = 1 << 20
	}
	var (
		ts     []thread
		owner  []int // share of each thread
		out    = report.BenchRun{Errors: []string{}, Notes: []string{}, Clients: []report.BenchClient{}, Threads: []report.BenchThread{}}
		merged = newHistogram()
		noHist *report.Latency
	)
	for si := range shares {
		s := &shares[si]
		if s.result == nil {
			// The client vanished: its last progress is all there is.
			for _, w := range s.progress.Threads {
				t := thread{client: s.client, rank: w.Thread, start: s.start, end: max(s.progress.TNs-s.offset, s.start), amount: w.Ops, faulty: true}
				switch {
				case evenly:
					t.amount = 0 // the client vanished before the flush, so its records may not have reached the brick
				case bytes:
					t.amount = w.Bytes
				}
				ts, owner = append(ts, t), append(owner, si)
				out.Ops, out.Bytes = out.Ops+w.Ops, out.Bytes+w.Bytes
			}
			continue
		}
		r := s.result
		out.Ops, out.Bytes = out.Ops+r.Ops, out.Bytes+r.Bytes
		out.Limited = out.Limited || r.StoppedBy == "duration"
		if r.Verified != nil {
			out.VerifiedBytes += r.Verified.Bytes - r.Verified.BadBytes
			out.BadBytes += r.Verified.BadBytes
			for _, f := range r.Verified.Findings {
				out.Errors = append(out.Errors, s.client+": wrong data: "+f)
			}
		}
		if !mergeInto(merged, r.Latency.Histogram) && r.Latency.Count > 0 {
			noHist = worst(noHist, latencyOf(r.Latency))
		}
		for i := range r.Threads {
			w := &r.Threads[i]
			t := thread{
				client: s.client, rank: w.Rank, start: w.StartNs - s.offset, end: w.EndNs - s.offset, amount: w.Ops, faulty: w.Fault != "",
				origin: r.Timeline.StartNs - s.offset, bucket: int64(r.Timeline.BucketSeconds * 1e9), buckets: w.TimelineOps,
			}
			if bytes {
				t.amount, t.buckets = w.Bytes, w.TimelineBytes
			}
			ts, owner = append(ts, t), append(owner, si)
		}
	}
	w := window(ts, evenly)
	if p == workload.Find {
		w.wholly(ts)
	}
	out.StartNS, out.Value, out.WholeValue = w.start, w.windowedRate/scale, w.wholeRate/scale
	out.WindowSeconds, out.WholeSeconds = seconds(w.to-w.from), seconds(w.end-w.start)
	out.StonewallSeconds, out.StonewallShare = seconds(w.stonewall-w.start), w.wallShare
	out.Latency, out.Histogram = latencyFrom(merged)
	if out.Latency == nil {
		out.Latency = noHist
	}

	for si := range shares {
		s := &shares[si]
		c := report.BenchClient{Name: s.client}
		if s.err != nil {
			c.Error = s.err.Error()
			out.Errors = append(out.Errors, fmt.Sprintf("%s: %v", s.client, s.err))
		}
		for i := range ts {
			if owner[i] != si {
				continue
			}
			c.Threads++
			if w.to > w.from {
				c.Value += w.perThread[i] / seconds(w.to-w.from) / scale
			} else if w.end > w.start {
				c.Value += float64(ts[i].amount) / seconds(w.end-w.start) / scale
			}
			bt := report.BenchThread{Client: s.client, Thread: ts[i].rank, Start: seconds(ts[i].start - w.start), End: seconds(ts[i].end - w.start)}
			if s.result != nil {
				wt := &s.result.Threads[c.Threads-1]
				bt.Bytes, bt.Ops = wt.Bytes, wt.Ops
				if wt.Fault != "" {
					bt.Error = wt.Fault + ": " + wt.Error
					out.Errors = append(out.Errors, fmt.Sprintf("%s, thread %d: %s", s.client, wt.Rank, wt.Error))
				}
				bt.Stalled = wt.StallSeconds
			} else if k := c.Threads - 1; k < len(s.progress.Threads) {
				bt.Bytes, bt.Ops, bt.Error = s.progress.Threads[k].Bytes, s.progress.Threads[k].Ops, c.Error
			}
			c.Bytes, c.Ops = c.Bytes+bt.Bytes, c.Ops+bt.Ops
			out.Threads = append(out.Threads, bt)
		}
		if s.result != nil {
			c.Latency = latencyOf(s.result.Latency)
			c.CPUSeconds = s.result.UserCPUSeconds + s.result.SysCPUSeconds
			for _, n := range s.result.Notes {
				out.Notes = append(out.Notes, s.client+": "+n)
			}
		}
		// Two services on one client are two lanes and one client.
		if k := slices.IndexFunc(out.Clients, func(o report.BenchClient) bool { return o.Name == c.Name }); k >= 0 {
			o := &out.Clients[k]
			o.Threads, o.Value, o.Bytes, o.Ops = o.Threads+c.Threads, o.Value+c.Value, o.Bytes+c.Bytes, o.Ops+c.Ops
			o.Latency = worst(o.Latency, c.Latency)
			o.CPUSeconds += c.CPUSeconds
			if o.Error == "" {
				o.Error = c.Error
			}
			continue
		}
		out.Clients = append(out.Clients, c)
	}
	out.Timeline = joinTimelines(shares)
	return out
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// joinTimelines adds up the lanes' buckets by the administrator's clock.
func joinTimelines(shares []share) report.BenchTimeline {
	out := report.BenchTimeline{Ops: []int64{}, Bytes: []int64{}, P50: []float64{}, P99: []float64{}, Max: []float64{}}
	for i := range shares {
		if r := shares[i].result; r != nil && len(r.Timeline.Buckets) > 0 {
			if at := r.Timeline.StartNs - shares[i].offset; out.StartNS == 0 || at < out.StartNS {
				out.StartNS = at
			}
			out.BucketSeconds = math.Max(out.BucketSeconds, r.Timeline.BucketSeconds)
		}
	}
	if out.BucketSeconds <= 0 {
		return out
	}
	var hists [][]string // of each joined bucket
	for i := range shares {
		r := shares[i].result
		if r == nil {
			continue
		}
		for k, b := range r.Timeline.Buckets {
			// A bucket goes into the joined bucket that its middle lies in.
			at := float64(r.Timeline.StartNs-shares[i].offset-out.StartNS)/1e9 + (float64(k)+0.5)*r.Timeline.BucketSeconds
			n := max(int(at/out.BucketSeconds), 0)
			for len(out.Ops) <= n {
				out.Ops, out.Bytes = append(out.Ops, 0), append(out.Bytes, 0)
				out.P50, out.P99, out.Max = append(out.P50, 0), append(out.P99, 0), append(out.Max, 0)
				hists = append(hists, nil)
			}
			out.Ops[n], out.Bytes[n] = out.Ops[n]+b.Ops, out.Bytes[n]+b.Bytes
			// Without a histogram keep the worst percentile of the lanes.
			out.P50[n] = math.Max(out.P50[n], b.P50*1e3)
			out.P99[n] = math.Max(out.P99[n], b.P99*1e3)
			out.Max[n] = math.Max(out.Max[n], b.Max*1e3)
			if b.Histogram != "" {
				hists[n] = append(hists[n], b.Histogram)
			}
		}
	}
	h := newHistogram() // one for all buckets: each takes a quarter of a MiB
	for n, encoded := range hists {
		if len(encoded) < 2 {
			continue // one lane's own percentiles are exact
		}
		h.Reset()
		for _, e := range encoded {
			mergeInto(h, e)
		}
		if h.TotalCount() > 0 {
			out.P50[n], out.P99[n] = float64(h.ValueAtQuantile(50))/1e6, float64(h.ValueAtQuantile(99))/1e6
		}
	}
	return out
}

// newHistogram holds latencies of 1 ns to 10 min with three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, 600e9, 3) }

// mergeInto adds an encoded histogram to h. It returns false if encoded has no
// histogram.
func mergeInto(h *hdrhistogram.Histogram, encoded string) bool {
	if encoded == "" {
		return false
	}
	x, err := hdrhistogram.Decode([]byte(encoded))
	if err != nil || x.TotalCount() == 0 {
		return false
	}
	h.Merge(x)
	return true
}

// latencyFrom computes percentiles of a histogram of nanoseconds.
func latencyFrom(h *hdrhistogram.Histogram) (*report.Latency, string) {
	if h.TotalCount() == 0 {
		return nil, ""
	}
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1e6 }
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		enc = nil
	}
	return &report.Latency{Count: h.TotalCount(), P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: float64(h.Max()) / 1e6}, string(enc)
}

func latencyOf(l workload.BenchLatency) *report.Latency {
	if l.Count == 0 {
		return nil
	}
	return &report.Latency{Count: l.Count, P50: l.P50 * 1e3, P90: l.P90 * 1e3, P99: l.P99 * 1e3, P999: l.P999 * 1e3, Max: l.Max * 1e3}
}

// worst joins two distributions of which only percentiles are known. It takes
// the larger value of each: no percentile of the union is above it.
func worst(a, b *report.Latency) *report.Latency {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return &report.Latency{Count: a.Count + b.Count, P50: math.Max(a.P50, b.P50), P90: math.Max(a.P90, b.P90), P99: math.Max(a.P99, b.P99), P999: math.Max(a.P999, b.P999), Max: math.Max(a.Max, b.Max)}
}
