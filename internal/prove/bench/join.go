package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// laneResult is one lane's part of a phase: its result, nil if it vanished.
type laneResult struct {
	client string
	offset int64 // client's clock minus administrator's, ns
	result *workload.BenchResult
	err    error
}

// spreadEvenly reports whether a window counts a phase's work as spread evenly over its
// time. It does so for writes that end in a flush, because a record in the
// client's memory is not yet work of the brick.
func spreadEvenly(p workload.BenchPhase, direct bool) bool {
	return p.Sequential() && p.Writes() && !direct
}

// besides are the shares of the small records of a mixture.
func besides(shares []laneResult) []laneResult {
	out := slices.Clone(shares)
	for i := range out {
		if r := out[i].result; r != nil {
			out[i].result = r.Beside
		}
	}
	return out
}

// threads returns what the share's threads did, on the administrator's clock; bytes: they
// count bytes, not operations.
func (s *laneResult) threads(lane int, bytes bool) (out []thread) {
	if s.result == nil {
		return nil
	}
	for _, w := range s.result.Threads {
		t := thread{
			lane: lane, rank: w.Rank, start: w.StartNs - s.offset, end: w.EndNs - s.offset, amount: w.Ops, ops: w.Ops, bytes: w.Bytes, stalled: w.StallSeconds,
			origin: s.result.StartNs - s.offset, bucket: int64(s.result.BucketSeconds * 1e9), buckets: w.TimelineOps,
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
func join(shares []laneResult, p workload.BenchPhase, unit string, evenly bool) report.BenchRun {
	bytes, scale := unit == "MiB/s", 1.0
	if bytes {
		scale = 1 << 20
	}
	var (
		ts  []thread
		out = report.BenchRun{Errors: []string{}, Notes: []string{}, Clients: []report.BenchClient{}, Threads: []report.BenchThread{}}
	)
	for i := range shares {
		s := &shares[i]
		ts = append(ts, s.threads(i, bytes)...)
		r := s.result
		if r == nil {
			continue
		}
		out.Limited = out.Limited || r.StoppedBy == "duration"
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
			c.Error = cmp.Or(c.Error, s.err.Error())
			out.Errors = append(out.Errors, fmt.Sprintf("%s: %v", s.client, s.err))
		}
		for n, t := range ts {
			if t.lane != i {
				continue
			}
			c.Threads++
			if w.to > w.from {
				c.Value += w.perThread[n] / seconds(w.to-w.from) / scale
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
			c.Latency, _ = latency(binsOf(shares, s.client))
			c.CPUSeconds += s.result.CPUSeconds
			for _, n := range s.result.Notes {
				out.Notes = append(out.Notes, s.client+": "+n)
			}
		}
	}
	for _, c := range out.Clients {
		out.Ops, out.Bytes = out.Ops+c.Ops, out.Bytes+c.Bytes
	}
	out.Latency, out.Histogram = latency(binsOf(shares, ""))
	out.Timeline = joinTimelines(shares)
	return out
}

// binsOf are the operations of a client; "": of all.
func binsOf(shares []laneResult, client string) workload.Bins {
	out := workload.Bins{}
	for i := range shares {
		if r := shares[i].result; r != nil && (client == "" || client == shares[i].client) {
			for _, b := range r.Buckets {
				out.Add(b)
			}
		}
	}
	return out
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// joinTimelines adds up the lanes' buckets by the administrator's clock.
func joinTimelines(shares []laneResult) report.BenchTimeline {
	out := report.BenchTimeline{Ops: []int64{}, Bytes: []int64{}, P50: []float64{}, P99: []float64{}, Max: []float64{}}
	for i := range shares {
		if r := shares[i].result; r != nil && len(r.Buckets) > 0 {
			if at := r.StartNs - shares[i].offset; out.StartNS == 0 || at < out.StartNS {
				out.StartNS = at
			}
			out.BucketSeconds = math.Max(out.BucketSeconds, r.BucketSeconds)
		}
	}
	if out.BucketSeconds <= 0 {
		return out
	}
	var joined []workload.Bins
	for i := range shares {
		r := shares[i].result
		if r == nil {
			continue
		}
		for k, b := range r.Buckets {
			// A bucket goes into the joined bucket that its middle lies in.
			at := float64(r.StartNs-shares[i].offset-out.StartNS)/1e9 + (float64(k)+0.5)*r.BucketSeconds
			n := max(int(at/out.BucketSeconds), 0)
			for len(joined) <= n {
				out.Bytes, joined = append(out.Bytes, 0), append(joined, workload.Bins{})
			}
			out.Bytes[n] += b.Ops() * (r.Bytes / max(r.Ops, 1))
			joined[n].Add(b)
		}
	}
	for _, b := range joined {
		l, _ := latency(b)
		l = cmp.Or(l, &report.Latency{})
		out.Ops, out.P50, out.P99, out.Max = append(out.Ops, b.Ops()), append(out.P50, l.P50), append(out.P99, l.P99), append(out.Max, l.Max)
	}
	return out
}

// latency computes percentiles of operations, and encodes their histogram of nanoseconds; nil
// and "" without one.
func latency(b workload.Bins) (*report.Latency, string) {
	h := hdrhistogram.New(64, int64(time.Hour), 3)
	for ns, n := range b {
		_ = h.RecordValues(min(ns, h.HighestTrackableValue()), n) // it is within the bounds
	}
	if h.TotalCount() == 0 {
		return nil, ""
	}
	enc, _ := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase) // it cannot fail in memory
	return report.LatencyOf(h, 1e6), string(enc)
}
