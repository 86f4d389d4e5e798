package judge

import (
	"cmp"
	"slices"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// marks finds the moments of a failover, and when each client's first write was acknowledged
// after it.
func marks(e *Evidence) (m report.Marks, io map[string]int64) {
	x := e.Subjects[0]
	sec := func(ns int64) *float64 {
		if ns == 0 {
			return nil
		}
		return new(float64(ns-e.Fault) / 1e9)
	}
	at := func(kind string, match func(report.Event) bool) int64 {
		ev, _ := First(e.Events, kind, e.Fault, match)
		return ev.NS
	}
	// Use the log of the server that serves in the end.
	moved, server := x.Moved(), x.Passive
	if !moved && x.Expect.Where != Moves {
		server = x.Active
	}
	here := func(ev report.Event) bool { return server == "" || ev.Host == server }
	ours := func(ev report.Event) bool { return here(ev) && x.about(ev) }
	detected := cmp.Or(at(report.EventDetected, here), at(report.EventMembership, here))
	// A heartbeat lost after the mending is no effect of the fault.
	if mended := at(report.EventMended, nil); !moved && mended != 0 && detected > mended {
		detected = 0
	}
	m.Detected = sec(detected)
	m.Fenced = sec(at(report.EventFenced, func(ev report.Event) bool { return ev.Node == x.Active }))
	started := at(report.EventStarted, ours)
	m.Started = sec(started)
	// A service that never stopped has no first I/O after the fault. A server cannot serve before
	// its start begins.
	begin := cmp.Or(at(report.EventStarting, ours), started)
	if !moved && started == 0 || begin == 0 {
		return m, nil
	}
	got := servedAfter(Of(e.Loads, x.Service), begin)
	first := int64(0)
	for _, t := range got.firstIO {
		if first == 0 || t < first {
			first = t
		}
	}
	m.FirstIO, m.FirstLock = sec(first), sec(got.firstLock)
	if e.Recovered {
		m.AllIO, m.AllLocks = sec(got.allIO), sec(got.allLocks)
	}
	return m, got.firstIO
}

// Targets are the targets of a drill, in seconds; nil: there is none. They are no part of the
// verdict.
type Targets struct {
	Stall *float64
	Locks *float64 // from the start of the service until every lock worker has gone on
}

// Run fills in what a run says of the evidence: verdict, moments, clients and timeline. every:
// stalls count on the mounts of every service, not only of the one under test.
func Run(e *Evidence, targets Targets, every bool) *report.Run {
	m, firstIO := marks(e)
	v, x := e.Verify, e.Subjects[0]
	r := &report.Run{Timeline: timeline(e.Loads, e.Fault), Verify: v, Events: e.Events}
	r.Summary = report.Summary{
		Checks: Judge(e), Marks: m, Phases: report.PhasesOf(m), Verdict: report.Pass, Service: x.Service, Target: x.Active,
		Totals: v.Totals,
	}
	s := &r.Summary
	if x.Moved() || x.Expect.Where == Moves {
		s.Survivor = x.Passive
	}
	for _, c := range s.Checks {
		if !c.OK {
			s.Verdict = report.Fail
			s.Reasons = append(s.Reasons, c.Name+": "+c.Detail)
		}
	}
	stalls, lockStalls := map[string]float64{}, map[string]float64{}
	under := e.Loads
	if !every {
		under = Of(e.Loads, x.Service)
	}
	for _, l := range under {
		stalls[l.Client], lockStalls[l.Client] = l.LongestStall(e.Fault, true), l.LongestStall(e.Fault, false)
	}
	for _, l := range e.Loads {
		of := e.PerClient[l.Client]
		c := report.Client{Name: l.Client, LongestStallSeconds: stalls[l.Client], Errors: l.Result.ErrorCount, Workers: len(l.Result.Workers), WrittenBytes: l.Result.AcknowledgedBytes,
			AcknowledgedBytes: of.AcknowledgedBytes, VerifiedBytes: of.VerifiedBytes, LostBytes: of.LostBytes}
		if t := firstIO[l.Client]; t != 0 {
			c.FirstIO = new(float64(t-e.Fault) / 1e9)
		}
		for _, w := range l.Result.Workers {
			c.Operations += w.Ops
		}
		s.WrittenBytes += c.WrittenBytes
		s.Clients = append(s.Clients, c)
		s.LongestStallSeconds = max(s.LongestStallSeconds, c.LongestStallSeconds)
		s.LongestLockStallSeconds = max(s.LongestLockStallSeconds, lockStalls[l.Client])
	}
	met := func(is float64, target *float64) (ok *bool) {
		return new(is <= *target)
	}
	if s.StallTargetSeconds = targets.Stall; targets.Stall != nil {
		s.StallTargetMet = met(s.LongestStallSeconds, new(max(*targets.Stall, float64(stallNS)/1e9)))
	}
	if targets.Locks != nil && m.Started != nil && m.AllLocks != nil {
		back := RoundMS(max(0, *m.AllLocks-*m.Started))
		s.LocksBackSeconds, s.LocksTargetSeconds, s.LocksTargetMet = &back, targets.Locks, met(back, targets.Locks)
	}
	for _, x := range []struct {
		kind, text string
		at         *float64
	}{{report.EventFirstIO, "first write acknowledged by the surviving server", m.FirstIO}, {report.EventAllIO, "every writer of every client has completed something again", m.AllIO}, {report.EventFirstLock, "first lock granted by the surviving server", m.FirstLock}, {report.EventAllLocks, "every lock worker has completed something again", m.AllLocks}} {
		if x.at != nil {
			r.Events = append(r.Events, report.Event{NS: e.Fault + int64(*x.at*1e9), Seconds: *x.at, Source: "load", Kind: x.kind, Text: x.text})
		}
	}
	slices.SortStableFunc(r.Events, func(a, b report.Event) int { return cmp.Compare(a.NS, b.NS) })
	return r
}

// RoundMS rounds seconds to milliseconds.
func RoundMS(s float64) float64 { return float64(int64(s*1000+0.5)) / 1000 }
