package workload

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// maxTimeline bounds the buckets of a timeline, since a result travels as one
// line of JSON. A longer phase gets wider buckets.
const maxTimeline = 3600

// spell is what one thread completed between the spell before it and at.
type spell struct {
	at   int64 // ns since the thread's start
	bins Bins
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
	res.BucketSeconds, res.Buckets = seconds(width), make([]Bins, n)
	for i := range res.Buckets {
		res.Buckets[i] = Bins{}
	}
	for i := range res.Threads {
		t := &res.Threads[i]
		t.TimelineOps = make([]int64, n)
		for _, s := range spells[i] {
			b := min(int(max(s.at-1, 0)/width), n-1) // a spell that ends with a bucket counts in it
			t.TimelineOps[b] += s.bins.Ops()
			res.Buckets[b].Add(s.bins)
		}
	}
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
