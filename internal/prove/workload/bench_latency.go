package workload

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// benchHistogram keeps latencies from 64 ns to an hour. The phase keeps three
// significant digits, each bucket of the timeline two.
func benchHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(64, int64(time.Hour), digits)
}

// encodeHistogram returns "" for a histogram without operations.
func encodeHistogram(h *hdrhistogram.Histogram) string {
	if h.TotalCount() == 0 {
		return ""
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return ""
	}
	return string(b)
}

// maxTimeline bounds the buckets of a timeline, since a result travels as one
// line of JSON. A longer phase gets wider buckets.
const maxTimeline = 3600

// spell is what one thread completed between the spell before it and at.
type spell struct {
	at   int64 // ns since the thread's start
	ops  int64
	bins []bin
}

// bin is a number of operations that took about so long.
type bin struct{ ns, n int64 }

func record(h *hdrhistogram.Histogram, bins []bin) {
	for _, b := range bins {
		_ = h.RecordValues(min(b.ns, h.HighestTrackableValue()), b.n)
	}
}

// fillTimeline puts spells, a list for each of the result's threads, into
// buckets.
func (res *BenchResult) fillTimeline(job *BenchJob, spells [][]spell) {
	width := int64(job.BucketSeconds * 1e9)
	long := max(res.EndNs-res.StartNs, 1)
	for (long+width-1)/width > maxTimeline {
		width *= 2
	}
	n := int((long + width - 1) / width)
	buckets := make([]BenchTimeBucket, n)
	latencies := make([][]bin, n)
	for i := range res.Threads {
		t := &res.Threads[i]
		t.TimelineOps = make([]int64, n)
		for _, s := range spells[i] {
			b := min(int(max(s.at-1, 0)/width), n-1) // a spell that ends with a bucket counts in it
			latencies[b] = append(latencies[b], s.bins...)
			t.TimelineOps[b] += s.ops
			buckets[b].Ops += s.ops
			if !job.Phase.Metadata() {
				buckets[b].Bytes += s.ops * job.RecordBytes
			}
		}
	}
	h := benchHistogram(2)
	for b := range buckets {
		h.Reset()
		record(h, latencies[b])
		buckets[b].Histogram = encodeHistogram(h)
	}
	res.Timeline = BenchTimeline{StartNs: res.StartNs, BucketSeconds: seconds(width), Buckets: buckets}
}

// benchFault returns the Fault constant of an error.
func benchFault(err error) string {
	is := func(all ...unix.Errno) bool {
		return slices.ContainsFunc(all, func(e unix.Errno) bool { return errors.Is(err, e) })
	}
	switch {
	case is(unix.ENOSPC, unix.EDQUOT):
		return FaultNoSpace
	case is(unix.EROFS):
		return FaultReadOnly
	case errors.Is(err, errHung):
		return FaultStuck
	case is(unix.ESTALE, unix.ENOENT, unix.ENOTDIR, unix.ENXIO, unix.ENODEV, unix.ENOTCONN):
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
	}
	return s
}

// pathError adds the failed call and the path to an error.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
