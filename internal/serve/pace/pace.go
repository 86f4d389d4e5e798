// Package pace measures block devices and tells which of them is much slower than its peers.
// It may not know arrays or LUNs, nor act on what it finds.
package pace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	rule "github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A disk that answers late slows down its whole group: each write waits for it. This
// file decides, without I/O, whether a disk is so slow, and whether its group can go
// on without it. slowdisk.go measures and acts.
//
// In one window it is slow by the rule of package pace. One window says nothing.
const (
	// PaceWindow is long enough for eight answers of a disk that answers twice a second,
	// and a multiple of WatchTick.
	PaceWindow = 2 * unit.WatchTick
	// PaceWindows are the windows that a decision is about, a minute.
	PaceWindows = 15
	// SlowWindows of them must be slow, with no well one after the first of these: a disk
	// that repeats the read of a bad sector is slow for some seconds.
	SlowWindows = 11
	// alsoSlow windows make a second disk suspect: then the disks are not the cause.
	alsoSlow = 4
	// slowShare is the part of a window in which a process waited for a slow disk at
	// least: a disk that does little is not judged by one late answer.
	slowShare = 0.25
	// aQueue is how many answers a second a disk gives that is not slow but has a queue.
	// A hard disk gives some hundred, and some 25 if each is for 4 MiB.
	aQueue = 10
	// wellAnswers in a window are enough to call a disk well.
	wellAnswers = 5
	// fewestPeers show which disk is the slow one.
	fewestPeers = 3
)

// Pace is how fast a disk was in a window.
type Pace struct {
	Verdict     verdictOfPace
	Took, Peers time.Duration // of an answer
}

type verdictOfPace int

const (
	unjudged verdictOfPace = iota // it did too little, or its peers did
	well
	Slow
)

// PaceOf judges a member of a group by its answers and those of its peers.
func PaceOf(own rule.Answers, peers []rule.Answers, window time.Duration) Pace {
	p := Pace{Took: own.Mean(window)}
	var times []time.Duration
	most := int64(0)
	for _, a := range peers {
		if a.Done > 0 || a.Stuck {
			times = append(times, a.Mean(window))
		}
		most = max(most, a.Done)
	}
	var late bool
	p.Peers, late = rule.Slow(p.Took, times)
	switch {
	case len(peers) < fewestPeers:
	case !late && own.Done >= wellAnswers:
		p.Verdict = well
	case !late:
	case own.Stuck:
		// Peers that were asked nothing have answered everything.
		p.Verdict = Slow
	case len(times) > 0 && !queued(own, most, window) && own.Took >= time.Duration(slowShare*float64(window)):
		p.Verdict = Slow
	}
	return p
}

// queued says whether a disk may be late only because all clients want its blocks: the
// busiest of its peers has answered most requests.
func queued(own rule.Answers, most int64, window time.Duration) bool {
	return own.Done > 2*most && float64(own.Done) >= aQueue*window.Seconds()
}

// History has the paces of the members of a service's arrays, by kernel name; the
// newest is the last.
type History map[string][]Pace

// Add takes in a window.
func (h History) Add(dev string, p Pace) {
	h[dev] = append(h[dev], p)
	h[dev] = h[dev][max(0, len(h[dev])-PaceWindows):]
}

// slowIn counts the slow windows among the last minute's, and since is the number of
// those since the disk was well.
func (h History) slowIn(dev string) (all, since int) {
	for _, p := range h[dev] {
		switch p.Verdict {
		case Slow:
			all, since = all+1, since+1
		case well:
			since = 0
		}
	}
	return all, since
}

// Suspect returns the disk that was slow for most of the last minute, with its
// slowest pace, or "". The error says why that disk may not be the cause.
func (h History) Suspect() (dev string, p Pace, err error) {
	var also []string
	for d := range h {
		all, since := h.slowIn(d)
		if all >= alsoSlow {
			also = append(also, d)
		}
		if since >= SlowWindows {
			dev = d
		}
	}
	if dev == "" {
		return "", p, nil
	}
	if slices.Sort(also); len(also) > 1 {
		return also[0], h.slowest(also[0]), fmt.Errorf("%d disks are slow at once (%s), so it is what they share: an enclosure, a path, or the load", len(also), strings.Join(also, ", "))
	}
	return dev, h.slowest(dev), nil
}

func (h History) slowest(dev string) (out Pace) {
	for _, p := range h[dev] {
		if p.Verdict == Slow && p.Took > out.Took {
			out = p
		}
	}
	return out
}

// OfThePath says why not the disk but one of its paths may be slow; nil: each path
// is. whole is what the disk answered over all of them while it was slow, seen what
// each path did.
//
// The kernel counts a request that a path with a full queue refuses as one that it
// has answered at once (blk_insert_cloned_request in block/blk-mq.c), so what a path
// did is taken from its bytes.
func OfThePath(whole rule.Answers, paths []string, seen map[string]rule.Answers) error {
	if len(paths) < 2 {
		return nil // its peers use the same path, and are well
	}
	size := int64(1) // bytes of a request
	if whole.Done > 0 {
		size = max(size, whole.Bytes/whole.Done)
	}
	for _, p := range paths {
		a := seen[p]
		if a.Bytes == 0 {
			if !a.Open {
				return fmt.Errorf("its path %s carried nothing, so the slow part may be another path", p)
			}
			continue
		}
		if each := time.Duration(float64(a.Took) * float64(size) / float64(a.Bytes)); each < rule.Least {
			return fmt.Errorf("over its path %s it answers within %d ms, so another path is slow", p, each.Milliseconds())
		}
	}
	return nil
}

// MayDrop says why an array must not go on without a member; nil: it may. absent are
// disks of the configuration that the array does not have.
func MayDrop(a linux.MDArray, members []linux.MDMember, dev string, absent []string) error {
	is := func(states ...string) bool {
		return slices.ContainsFunc(members, func(m linux.MDMember) bool { return slices.ContainsFunc(states, m.Is) })
	}
	i := slices.IndexFunc(members, func(m linux.MDMember) bool { return m.Dev == dev })
	present := linux.MDPresent(a.RaidDisks, members, nil)
	without := linux.MDPresent(a.RaidDisks, members, func(m linux.MDMember) bool { return m.Dev != dev })
	level := md.Level(a.Level)
	switch {
	case !slices.Contains([]string{"clean", "active", "active-idle", "write-pending"}, a.State):
		return fmt.Errorf("the array is %s", a.State)
	case i < 0 || members[i].Slot < 0 || !members[i].Is("in_sync"):
		return errors.New("the array takes no data from it")
	case a.Degraded > 0 || slices.Contains(present, false) || is("faulty"):
		return errors.New("the array lacks another member")
	case len(absent) > 0:
		return fmt.Errorf("the array is without %s", strings.Join(absent, ", "))
	case a.Action != "idle":
		return fmt.Errorf("md is busy with the array (%s)", a.Action)
	case is("want_replacement", "replacement"):
		return errors.New("md copies a member to another disk")
	case md.CanLose(level, a.Layout, without) < 1:
		return fmt.Errorf("without it the %s has no redundancy left", a.Level)
	}
	return nil
}
