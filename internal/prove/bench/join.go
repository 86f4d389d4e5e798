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

// threads returns what the share's threads did, on the administrator's clock; bytes: they
// count bytes, not operations.
func (s *share) threads(bytes, evenly bool) []thread {
	var out []thread
	if s.result == nil {
		// The client vanished: its last progress is all there is.
		for _, w := range s.progress.Threads {
			t := thread{rank: w.Thread, start: s.start, end: max(s.progress.TNs-s.offset, s.start), amount: w.Ops, faulty: true, ops: w.Ops, bytes: w.Bytes, fault: s.err.Error()}
			switch {
			case evenly:
				t.amount = 0 // the client vanished before the flush, so its records may not have reached the brick
			case bytes:
				t.amount = w.Bytes
			}
			out = append(out, t)
		}
		return out
	}
	for _, w := range s.result.Threads {
		t := thread{
			rank: w.Rank, start: w.StartNs - s.offset, end: w.EndNs - s.offset, amount: w.Ops, ops: w.Ops, bytes: w.Bytes, stalled: w.StallSeconds,
			origin: s.result.Timeline.StartNs - s.offset, bucket: int64(s.result.Timeline.BucketSeconds * 1e9), buckets: w.TimelineOps,
		}
		if w.Fault != "" {
			t.faulty, t.fault, t.text = true, w.Fault+": "+w.Error, w.Error
		}
		if bytes {
			t.amount, t.buckets = w.Bytes, slices.Clone(w.TimelineOps)
			for i := range t.buckets {
				t.buckets[i] *= w.Bytes / max(w.Ops, 1)
			}
		}
		out = append(out, t)
	}
	return out
}

// join makes one run of the lanes' shares.
func join(shares []share, p workload.BenchPhase, unit string, evenly bool) report.BenchRun {
	bytes, scale := unit == "MiB/s", 1.0
	if bytes {
		scale = 1 << 20
	}
	var (
		ts    []thread
		hists []string
		of    = make([]int, len(shares)) // where each share's threads begin
		out   = report.BenchRun{Errors: []string{}, Notes: []string{}, Clients: []report.BenchClient{}, Threads: []report.BenchThread{}}
	)
	for i := range shares {
		s := &shares[i]
		of[i] = len(ts)
		ts = append(ts, s.threads(bytes, evenly)...)
		r := s.result
		if r == nil {
			continue
		}
		out.Limited = out.Limited || r.StoppedBy == "duration"
		hists = append(hists, r.Histogram)
		if v := r.Verified; v != nil {
			out.VerifiedBytes, out.BadBytes = out.VerifiedBytes+v.Bytes-v.BadBytes, out.BadBytes+v.BadBytes
			for _, f := range v.Findings {
				out.Errors = append(out.Errors, s.client+": wrong data: "+f)
			}
		}
	}
	w := window(ts, evenly)
	if p == workload.Find {
		w.wholly(ts)
	}
	out.StartNS, out.Value, out.WholeValue = w.start, w.windowedRate/scale, w.wholeRate/scale
	out.WindowSeconds, out.WholeSeconds = seconds(w.to-w.from), seconds(w.end-w.start)
	out.StonewallSeconds, out.StonewallShare = seconds(w.stonewall-w.start), w.wallShare
	out.Latency, out.Histogram = latency(merged(hists))

	told := map[string][]string{} // histograms by client
	for i := range shares {
		s := &shares[i]
		// Two services on one client are two lanes and one client.
		k := slices.IndexFunc(out.Clients, func(o report.BenchClient) bool { return o.Name == s.client })
		if k < 0 {
			k = len(out.Clients)
			out.Clients = append(out.Clients, report.BenchClient{Name: s.client})
		}
		c := &out.Clients[k]
		if s.err != nil {
			if c.Error == "" {
				c.Error = s.err.Error()
			}
			out.Errors = append(out.Errors, fmt.Sprintf("%s: %v", s.client, s.err))
		}
		end := len(ts)
		if i+1 < len(of) {
			end = of[i+1]
		}
		for n, t := range ts[of[i]:end] {
			c.Threads++
			if w.to > w.from {
				c.Value += w.perThread[of[i]+n] / seconds(w.to-w.from) / scale
			} else if w.end > w.start {
				c.Value += float64(t.amount) / seconds(w.end-w.start) / scale
			}
			if t.text != "" {
				out.Errors = append(out.Errors, fmt.Sprintf("%s, thread %d: %s", s.client, t.rank, t.text))
			}
			c.Bytes, c.Ops = c.Bytes+t.bytes, c.Ops+t.ops
			out.Threads = append(out.Threads, report.BenchThread{
				Client: s.client, Thread: t.rank, Start: seconds(t.start - w.start), End: seconds(t.end - w.start), Bytes: t.bytes, Ops: t.ops, Error: t.fault, Stalled: t.stalled,
			})
		}
		if s.result != nil {
			told[s.client] = append(told[s.client], s.result.Histogram)
			c.Latency, _ = latency(merged(told[s.client]))
			c.CPUSeconds += s.result.CPUSeconds
			for _, n := range s.result.Notes {
				out.Notes = append(out.Notes, s.client+": "+n)
			}
		}
	}
	for _, c := range out.Clients {
		out.Ops, out.Bytes = out.Ops+c.Ops, out.Bytes+c.Bytes
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
				out.Ops, out.Bytes, hists = append(out.Ops, 0), append(out.Bytes, 0), append(hists, nil)
			}
			out.Ops[n], out.Bytes[n] = out.Ops[n]+b.Ops, out.Bytes[n]+b.Bytes
			hists[n] = append(hists[n], b.Histogram)
		}
	}
	for _, encoded := range hists {
		l, _ := latency(merged(encoded))
		if l == nil {
			l = &report.Latency{}
		}
		out.P50, out.P99, out.Max = append(out.P50, l.P50), append(out.P99, l.P99), append(out.Max, l.Max)
	}
	return out
}

// merged sums encoded histograms of nanoseconds up; nil if none has an operation.
func merged(encoded []string) *hdrhistogram.Histogram {
	var sum *hdrhistogram.Histogram
	for _, e := range encoded {
		if e == "" {
			continue // the engine does not report latencies
		}
		x, err := hdrhistogram.Decode([]byte(e))
		switch {
		case err != nil || x.TotalCount() == 0:
		case sum == nil:
			sum = x
		default:
			sum.Merge(x)
		}
	}
	return sum
}

// latency computes percentiles of a histogram of nanoseconds, and encodes it; nil and ""
// without one.
func latency(h *hdrhistogram.Histogram) (*report.Latency, string) {
	if h == nil {
		return nil, ""
	}
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1e6 }
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		enc = nil
	}
	return &report.Latency{Count: h.TotalCount(), P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: float64(h.Max()) / 1e6}, string(enc)
}
