package drill

import (
	"fmt"
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

// loadDir is the directory on a mount for the runs' files:
// <mount>/.mortar/<run id>/.
const loadDir = ".mortar"

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
		dir := path.Join(m.Path, loadDir)
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
		if kind.For(m).NamesApart() {
			j.job.Names = append(j.job.Names, workload.Names{Name: add(m.Client + "-names"), Dir: dir, OpsPerSecond: namesRate})
		}
		j.job.Locks = append(j.job.Locks, workload.Lock{Name: add(m.Client + "-lock"), Dir: dir, Role: workload.Probe, IntervalSeconds: 0.5})
	}
	// Held locks and their challengers.
	first := &out[0]
	var held []workload.Lock
	for _, w := range slices.Clone(first.job.Locks) {
		m := first.mounts[w.Name]
		l := w
		l.Name = strings.TrimSuffix(w.Name, "-lock") + "-held"
		l.Role, l.IntervalSeconds = workload.Hold, 1
		first.mounts[l.Name] = m
		first.job.Locks = append(first.job.Locks, l)
		held = append(held, l)
	}
	for _, h := range held {
		other := &out[len(out)-1]
		m := first.mounts[h.Name]
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
		if from.Name == "" {
			other = first
			m.Path = path.Join(base, runID, fmt.Sprintf("locks-%d", len(first.aside)))
			first.aside = append(first.aside, m)
			from = h
			from.Dir = path.Join(m.Path, loadDir)
		} else {
			m = other.mountAt(from.Dir)
		}
		from.Name = strings.TrimSuffix(h.Name, "-held") + "-tried"
		from.Role, from.File, from.IntervalSeconds = workload.Challenge, h.Name, 1
		other.mounts[from.Name] = m
		other.job.Locks = append(other.job.Locks, from)
	}
	return out, nil
}

// prefixOf is a short name of a mount: base (v4.1 or v3), with a number if the
// name is taken.
func prefixOf(base string, m design.ClientMount, have map[string]design.ClientMount) string {
	p := base
	for n := 2; ; n++ {
		taken := false
		for w, o := range have {
			if strings.HasPrefix(w, p+"-") && o.Path != m.Path {
				taken = true
			}
		}
		if !taken {
			return p
		}
		p = fmt.Sprintf("%s.%d", base, n)
	}
}

func (j *clientJob) mountAt(dir string) design.ClientMount {
	for _, m := range j.mounts {
		if path.Join(m.Path, loadDir) == dir {
			return m
		}
	}
	return design.ClientMount{}
}

// workerKind names a worker's kind as the report does.
func workerKind(k string) string {
	switch k {
	case "lock-hold":
		return "lock-holder"
	case "lock-probe":
		return "lock-prober"
	case "lock-challenge":
		return "lock-challenger"
	case lockTake:
		return "lock-taker"
	}
	return k
}

func isIO(kind string) bool { return slices.Contains([]string{"writer", "reader", "names"}, kind) }

// loaded is a client's result on the administrator's clock.
type loaded struct {
	client string
	offset int64 // client clock minus administrator's, ns
	result workload.Result
	mounts map[string]design.ClientMount
}

// timeline joins the timelines of all clients on the administrator's clock.
func timeline(ls []loaded, faultNS int64) report.Timeline {
	const bucketMS = 100
	t := report.Timeline{FaultNS: faultNS, BucketMS: bucketMS}
	for _, l := range ls {
		for _, w := range l.result.Workers {
			if s := w.Timeline.StartNs - l.offset; t.StartNS == 0 || s < t.StartNS {
				t.StartNS = s
			}
		}
	}
	for _, l := range ls {
		for _, w := range l.result.Workers {
			m := l.mounts[w.Worker]
			pattern, mode, _ := strings.Cut(w.Mode, "/")
			rw := report.Worker{Client: l.client, Name: w.Worker, Kind: workerKind(w.Kind), Version: m.Version, Mode: mode, Pattern: pattern, Stuck: w.Stuck}
			rw.Ops = rebucket(w.Timeline.Ops, w.Timeline.StartNs-l.offset-t.StartNS, w.Timeline.BucketSeconds, bucketMS)
			rw.Bytes = rebucket(w.Timeline.Bytes, w.Timeline.StartNs-l.offset-t.StartNS, w.Timeline.BucketSeconds, bucketMS)
			for _, s := range l.result.Stalls {
				if s.Worker == w.Worker {
					rw.Stalls = append(rw.Stalls, report.Stall{StartNS: s.StartNs - l.offset, Seconds: s.Seconds, Open: s.Open})
				}
			}
			if w.Latency.Count > 0 {
				lat := w.Latency
				rw.Latency = &report.Latency{Count: lat.Count, P50: lat.P50 * 1e3, P90: lat.P90 * 1e3, P99: lat.P99 * 1e3, P999: lat.P999 * 1e3, Max: lat.Max * 1e3}
			}
			if w.FsyncLatency != nil && w.FsyncLatency.Count > 0 {
				lat := *w.FsyncLatency
				rw.FsyncLatency = &report.Latency{Count: lat.Count, P50: lat.P50 * 1e3, P90: lat.P90 * 1e3, P99: lat.P99 * 1e3, P999: lat.P999 * 1e3, Max: lat.Max * 1e3}
			}
			for _, e := range l.result.Errors {
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
		b := int(math.Floor(at / float64(bucketMS)))
		if b < 0 {
			b = 0
		}
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
// clock: the beginning of the service's start, or the fault if the service does
// not move.
//
// An NFSv4 client with a delegation locks without asking the server, even while
// no server runs. If the service moves, a lock therefore counts only if the client
// waited for the lock across the start, or asked for it by NFSv3, which has no
// delegations, after the first served write.
//
// A writer of Lustre does not need every server. If the service moves and some of
// a client's workers stalled, only those show when the client was served again.
func servedAfter(ls []loaded, afterNS int64, moves bool) served {
	r := served{firstIO: map[string]int64{}}
	earlier := func(a *int64, b int64) {
		if *a == 0 || b < *a {
			*a = b
		}
	}
	for _, l := range ls {
		held := heldUp(l, afterNS)
		for _, w := range l.result.Workers {
			done := firstDone(w, l.offset, afterNS)
			if done == 0 {
				continue
			}
			if !isIO(w.Kind) {
				r.allLocks = max(r.allLocks, done)
				continue
			}
			r.allIO = max(r.allIO, done)
			if w.Kind != "reader" && (!moves || len(held) == 0 || held[w.Worker]) {
				f := r.firstIO[l.client]
				earlier(&f, done)
				r.firstIO[l.client] = f
			}
		}
	}
	var first int64
	for _, t := range r.firstIO {
		earlier(&first, t)
	}
	for _, l := range ls {
		for _, w := range l.result.Workers {
			if w.Kind != "lock-probe" {
				continue
			}
			m := l.mounts[w.Worker]
			asks := kind.For(m).AsksForLocks(m)
			for _, c := range w.Completions {
				issued, at := c.IssuedNs-l.offset, c.DoneNs-l.offset
				if c.Op != "lock" || at < afterNS {
					continue
				}
				waited := at-issued >= stallNS
				if !moves || waited || asks && first != 0 && issued >= first {
					earlier(&r.firstLock, at)
				}
			}
		}
	}
	return r
}

// heldUp returns a client's writers and makers of names that were stalled at the
// moment ns.
func heldUp(l loaded, ns int64) map[string]bool {
	held := map[string]bool{}
	for _, w := range l.result.Workers {
		for _, s := range l.result.Stalls {
			if from := s.StartNs - l.offset; isIO(w.Kind) && w.Kind != "reader" && s.Worker == w.Worker && from < ns && from+int64(s.Seconds*1e9) >= ns {
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

// longestStall is the longest stall that ended after the fault, in seconds. With
// io it covers writers, readers and makers of names, otherwise lock workers.
func longestStall(l loaded, faultNS int64, io bool) float64 {
	kinds := map[string]string{}
	for _, w := range l.result.Workers {
		kinds[w.Worker] = w.Kind
	}
	longest := 0.0
	for _, s := range l.result.Stalls {
		if isIO(kinds[s.Worker]) == io && s.StartNs-l.offset+int64(s.Seconds*1e9) >= faultNS {
			longest = max(longest, s.Seconds)
		}
	}
	return longest
}

// verifyReport converts the reports of package stream, by client, for the run.
func verifyReport(rs map[string]stream.Report) report.Verify {
	v := report.Verify{Classes: map[string]report.Class{}}
	clients := make([]string, 0, len(rs))
	for c := range rs {
		clients = append(clients, c)
	}
	slices.Sort(clients)
	for _, client := range clients {
		r := rs[client]
		v.AcknowledgedBeforeFaultBytes += r.AcknowledgedBeforeBytes
		v.VerifiedBeforeFaultBytes += r.VerifiedBeforeBytes
		v.AcknowledgedBytes += r.AcknowledgedBytes
		v.VerifiedBytes += r.VerifiedBytes
		v.LostBytes += r.LostBytes
		v.InDoubtBytes += r.InDoubtBytes
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
