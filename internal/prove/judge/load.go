package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Load is what one client's load came to, by the client's clock.
type Load struct {
	Client string
	Offset int64 // client clock minus administrator's, ns
	Result workload.Result
	Mounts map[string]design.ClientMount // by worker
}

// Of returns the results of the workers on a service's mounts; "": all.
func Of(ls []Load, service string) []Load {
	if service == "" {
		return ls
	}
	var out []Load
	for _, l := range ls {
		other := func(worker string) bool { m := l.Mounts[worker]; return !kind.For(m).Uses(m, service) }
		l.Result.Workers = slices.DeleteFunc(slices.Clone(l.Result.Workers), func(w workload.WorkerResult) bool { return other(w.Worker) })
		l.Result.Stalls = slices.DeleteFunc(slices.Clone(l.Result.Stalls), func(s workload.Stall) bool { return other(s.Worker) })
		if len(l.Result.Workers) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// workerKinds are the kinds of lock workers, as the report names them.
var workerKinds = map[string]string{"lock-hold": "lock-holder", "lock-probe": "lock-prober", "lock-challenge": "lock-challenger", lockTake: "lock-taker"}

func isIO(kind string) bool { return slices.Contains([]string{"writer", "reader", "names"}, kind) }

// timeline joins the timelines of all clients on the administrator's clock.
func timeline(ls []Load, faultNS int64) report.Timeline {
	const bucketMS = 100
	t := report.Timeline{FaultNS: faultNS, BucketMS: bucketMS}
	for _, l := range ls {
		for _, w := range l.Result.Workers {
			if s := w.Timeline.StartNs - l.Offset; t.StartNS == 0 || s < t.StartNS {
				t.StartNS = s
			}
		}
	}
	for _, l := range ls {
		for _, w := range l.Result.Workers {
			m := l.Mounts[w.Worker]
			pattern, mode, _ := strings.Cut(w.Mode, "/")
			rw := report.Worker{Client: l.Client, Name: w.Worker, Kind: cmp.Or(workerKinds[w.Kind], w.Kind), Version: m.Version, Mode: mode, Pattern: pattern, Stuck: w.Stuck}
			rw.Ops = rebucket(w.Timeline.Ops, w.Timeline.StartNs-l.Offset-t.StartNS, w.Timeline.BucketSeconds, bucketMS)
			rw.Bytes = rebucket(w.Timeline.Bytes, w.Timeline.StartNs-l.Offset-t.StartNS, w.Timeline.BucketSeconds, bucketMS)
			for _, s := range l.Result.Stalls {
				if s.Worker == w.Worker {
					rw.Stalls = append(rw.Stalls, report.Stall{StartNS: s.StartNs - l.Offset, Seconds: s.Seconds, Open: s.Open})
				}
			}
			rw.Latency, rw.FsyncLatency = w.Latency, w.FsyncLatency
			for _, e := range l.Result.Errors {
				if e.Worker == w.Worker {
					rw.Errors = append(rw.Errors, fmt.Sprintf("%s: %s", e.Op, e.Error))
				}
			}
			t.Workers = append(t.Workers, rw)
		}
	}
	return t
}

// rebucket moves counts into the common buckets.
func rebucket(vals []int64, shiftNS int64, seconds float64, bucketMS int) []int64 {
	if seconds <= 0 {
		return nil
	}
	var out []int64
	for i, v := range vals {
		at := float64(shiftNS)/1e6 + (float64(i)+0.5)*seconds*1e3
		b := max(0, int(math.Floor(at/float64(bucketMS))))
		for len(out) <= b {
			out = append(out, 0)
		}
		out[b] += v
	}
	return out
}

// served has the first operations of the clients after a moment, by the
// administrator's clock in ns; 0: none.
type served struct {
	firstIO   map[string]int64 // by client: the first acknowledged write or name
	allIO     int64            // when every writer and reader had completed an operation
	firstLock int64            // the first lock granted
	allLocks  int64            // when every lock worker had completed an operation
}

// servedAfter finds the first operations after a moment on the administrator's
// clock, the beginning of the service's start.
//
// An NFSv4 client with a delegation locks without asking the server, even while
// no server runs. A lock therefore counts only if the client
// waited for the lock across the start, or asked for it by NFSv3, which has no
// delegations, after the first served write.
//
// A writer of Lustre does not need every server. If some of
// a client's workers stalled, only those show when the client was served again.
func servedAfter(ls []Load, afterNS int64) served {
	r := served{firstIO: map[string]int64{}}
	earlier := func(a *int64, b int64) {
		if *a == 0 || b < *a {
			*a = b
		}
	}
	for _, l := range ls {
		held := heldUp(l, afterNS)
		for _, w := range l.Result.Workers {
			done := firstDone(w, l.Offset, afterNS)
			if done == 0 {
				continue
			}
			if !isIO(w.Kind) {
				r.allLocks = max(r.allLocks, done)
				continue
			}
			r.allIO = max(r.allIO, done)
			if w.Kind != "reader" && (len(held) == 0 || held[w.Worker]) {
				f := r.firstIO[l.Client]
				earlier(&f, done)
				r.firstIO[l.Client] = f
			}
		}
	}
	var first int64
	for _, t := range r.firstIO {
		earlier(&first, t)
	}
	for _, l := range ls {
		for _, w := range l.Result.Workers {
			if w.Kind != "lock-probe" {
				continue
			}
			m := l.Mounts[w.Worker]
			asks := kind.For(m).AsksForLocks(m)
			for _, c := range w.Completions {
				issued, at := c.IssuedNs-l.Offset, c.DoneNs-l.Offset
				if c.Op != "lock" || at < afterNS {
					continue
				}
				if at-issued >= stallNS || asks && first != 0 && issued >= first {
					earlier(&r.firstLock, at)
				}
			}
		}
	}
	return r
}

// heldUp returns a client's writers and makers of names that were stalled at the
// moment ns.
func heldUp(l Load, ns int64) map[string]bool {
	held := map[string]bool{}
	for _, w := range l.Result.Workers {
		for _, s := range l.Result.Stalls {
			if from := s.StartNs - l.Offset; isIO(w.Kind) && w.Kind != "reader" && s.Worker == w.Worker && from < ns && from+int64(s.Seconds*1e9) >= ns {
				held[w.Worker] = true
			}
		}
	}
	return held
}

// stallNS is the shortest stall in ns, the default of package workload.
const stallNS = int64(500e6)

// firstDone is when a worker completed its first operation after a moment, on the
// administrator's clock in ns. The end of a stall is exact. A worker that never
// stalled has its first operation in the timeline, to the precision of a bucket.
func firstDone(w workload.WorkerResult, offset, afterNS int64) (done int64) {
	for _, c := range w.Completions {
		if at := c.DoneNs - offset; at >= afterNS && (done == 0 || at < done) {
			done = at
		}
	}
	bucket := int64(w.Timeline.BucketSeconds * 1e9)
	for i, n := range w.Timeline.Ops {
		begin := w.Timeline.StartNs - offset + int64(i)*bucket
		if n > 0 && begin >= afterNS {
			if end := begin + bucket; done == 0 || end < done {
				done = end
			}
			break
		}
	}
	return done
}

// LongestStall is the longest stall that ended after the fault, in seconds. With
// io it covers writers, readers and makers of names, otherwise lock workers.
func (l Load) LongestStall(faultNS int64, io bool) float64 {
	kinds := map[string]string{}
	for _, w := range l.Result.Workers {
		kinds[w.Worker] = w.Kind
	}
	longest := 0.0
	for _, s := range l.Result.Stalls {
		if isIO(kinds[s.Worker]) == io && s.StartNs-l.Offset+int64(s.Seconds*1e9) >= faultNS {
			longest = max(longest, s.Seconds)
		}
	}
	return longest
}

// VerifyReport converts the reports of package stream, by client, for the run.
func VerifyReport(rs map[string]stream.Report) report.Verify {
	v := report.Verify{Classes: map[string]report.Class{}}
	for _, client := range slices.Sorted(maps.Keys(rs)) {
		r := rs[client]
		v.Totals.Add(r.Totals)
		v.BadBytes += r.BadBytes
		v.Seconds = max(v.Seconds, r.Seconds)
		v.Omitted += int(r.ExtentsOmitted)
		for c, n := range r.ByClass {
			e := v.Classes[string(c)]
			e.Bytes += n
			v.Classes[string(c)] = e
		}
		for _, x := range r.Extents {
			e := v.Classes[string(x.Class)]
			e.Extents++
			v.Classes[string(x.Class)] = e
			v.Extents = append(v.Extents, report.Extent{Client: client, File: path.Base(x.Path), Offset: x.Offset, Bytes: x.Bytes, Class: string(x.Class), Detail: x.String()})
		}
		for _, e := range r.Errors {
			v.Errors = append(v.Errors, client+": "+e)
		}
	}
	return v
}
