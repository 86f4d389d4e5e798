package drill

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// report turns the evidence into a run.
func (e *engine) report(ev evidence, runID string, began time.Time) *report.Run {
	m, firstIO := marks(ev)
	undone := e.beside.left()
	ev.conditions = append(ev.conditions, e.variant.Schedule.nothingDone(undone)...)
	r := &report.Run{Dir: e.opt.Dir, Timeline: timeline(ev.loads, ev.fault), Verify: ev.verify, Events: ev.events}
	r.Summary = report.Summary{
		Drill: e.drill.Name, How: e.variant.How, Checks: judge(ev), Marks: m, Phases: report.PhasesOf(m),
		AcknowledgedBeforeFaultBytes: ev.verify.AcknowledgedBeforeFaultBytes, VerifiedBeforeFaultBytes: ev.verify.VerifiedBeforeFaultBytes,
		AcknowledgedBytes: ev.verify.AcknowledgedBytes, VerifiedBytes: ev.verify.VerifiedBytes, LostBytes: ev.verify.LostBytes, InDoubtBytes: ev.verify.InDoubtBytes,
		Started: began.UTC().Truncate(time.Millisecond), DurationSeconds: roundMS(time.Since(began).Seconds()), SteadySeconds: e.opt.Steady.Seconds(),
		Brick: e.env.Design.Name, Service: e.service.Name, Target: e.active, Virtual: e.env.Virtual,
		Profile: string(e.env.Design.Spec.Profile), SpecSHA256: e.env.Design.SHA256, MortarVersion: e.env.Version, RunID: runID,
	}
	s := &r.Summary
	s.Seed, s.Schedule = e.variant.drawn()
	s.NotDone = undone
	if ev.moved || e.expect.Where == Moves {
		s.Survivor = e.survivor
	}
	s.Status = ev.status
	s.Verdict = report.Pass
	for _, c := range s.Checks {
		if !c.OK {
			s.Verdict = report.Fail
			s.Reasons = append(s.Reasons, c.Name+": "+c.Detail)
		}
	}
	// Stalls are those of the service under test; random faults hit all.
	stalls, lockStalls := map[string]float64{}, map[string]float64{}
	under := of(ev.loads, e.service.Name)
	if s.Seed != nil {
		under = ev.loads
	}
	for _, l := range under {
		stalls[l.client] = max(stalls[l.client], longestStall(l, ev.fault, true))
		lockStalls[l.client] = max(lockStalls[l.client], longestStall(l, ev.fault, false))
	}
	for _, l := range ev.loads {
		c := report.Client{Name: l.client, LongestStallSeconds: stalls[l.client], Errors: l.result.ErrorCount, Workers: len(l.result.Workers), WrittenBytes: l.result.AcknowledgedBytes}
		if t := firstIO[l.client]; t != 0 {
			f := float64(t-ev.fault) / 1e9
			c.FirstIO = &f
		}
		for _, w := range l.result.Workers {
			c.Operations += w.Ops
		}
		v := ev.perClient[l.client]
		c.AcknowledgedBytes, c.VerifiedBytes, c.LostBytes = v.AcknowledgedBytes, v.VerifiedBytes, v.LostBytes
		s.WrittenBytes += c.WrittenBytes
		s.Clients = append(s.Clients, c)
		s.LongestStallSeconds = max(s.LongestStallSeconds, c.LongestStallSeconds)
		s.LongestLockStallSeconds = max(s.LongestLockStallSeconds, lockStalls[l.client])
	}
	if e.expect.Stall >= 0 && e.env.Virtual {
		// The targets apply to a virtual rack only.
		t := stallTarget(e.expect, e.env.Design.Flavour)
		met := s.LongestStallSeconds <= max(t, float64(stallNS)/1e9)
		s.StallTargetSeconds, s.StallTargetMet = &t, &met
	}
	s.LocksBackSeconds, s.LocksTargetSeconds, s.LocksTargetMet = e.locksBack(m)
	for _, x := range []struct {
		kind, text string
		at         *float64
	}{{report.EventFirstIO, "first write acknowledged by the surviving server", m.FirstIO}, {report.EventAllIO, "every writer of every client has completed something again", m.AllIO}, {report.EventFirstLock, "first lock granted by the surviving server", m.FirstLock}, {report.EventAllLocks, "every lock worker has completed something again", m.AllLocks}} {
		if x.at != nil {
			r.Events = append(r.Events, report.Event{NS: ev.fault + int64(*x.at*1e9), Seconds: *x.at, Source: "load", Kind: x.kind, Text: x.text})
		}
	}
	slices.SortStableFunc(r.Events, func(a, b report.Event) int { return cmp.Compare(a.NS, b.NS) })
	r.Config = e.config()
	return r
}

// locksTarget is how long locks of NFS are away at most after the service has started, if
// every client reclaims its own, in seconds.
const locksTarget = 15.0

// locksBack is how long the locks were away after the start of the service, its target, and
// whether it was met; nil if there is no target.
func (e *engine) locksBack(m report.Marks) (back, target *float64, met *bool) {
	if !kind.Of(e.env.Design).Graces() || e.expect.Where != Moves || e.expect.Stall < 0 || e.variant.ClientDies || m.Started == nil || m.AllLocks == nil {
		return nil, nil, nil
	}
	t, b := locksTarget, roundMS(max(0, *m.AllLocks-*m.Started))
	ok := b <= t
	return &b, &t, &ok
}

// stallTarget is the target of the longest stall on a rack, in seconds. A Lustre
// target that moves first waits for MMP (22 to 28 s); then its clients try the
// servers in turn.
func stallTarget(e Expect, f spec.Flavour) float64 {
	const lustreMoves = 45
	if f == spec.Lustre && e.Where == Moves {
		return max(e.Stall, lustreMoves)
	}
	return e.Stall
}

func roundMS(s float64) float64 { return float64(int64(s*1000+0.5)) / 1000 }

// config describes the system under test.
func (e *engine) config() report.Config {
	c := testbed.Describe(e.env.Design)
	c.Software = e.software
	rate := "as fast as they can"
	if e.opt.Rate > 0 {
		rate = fmt.Sprintf("at up to %g operations per second each", e.opt.Rate)
	}
	failure := "Detection, fencing and start are read from the logs of corosync, Pacemaker and the resource agent on the surviving server; first I/O and first lock from the clients' own operations. Each host's clock is corrected by its offset to the administrator's, measured over the session before the fault."
	if !e.env.Design.Clustered() {
		failure = "The brick has one server. Nobody takes over: the drill itself mends the fault, as a person would, and clients wait until then."
	}
	c.Method = []string{
		fmt.Sprintf("On every mount of every client one writer writes 16 KiB blocks with O_SYNC at random places, one writes 128 KiB blocks through the page cache and calls fsync after every fourth, %s, and one worker takes and gives back a lock twice a second. One lock on each mount is held through the whole drill while another mount keeps trying to get it.", rate),
		"Every 4 KiB block names its run, file, place and generation and carries checksums. A ledger on the client's own disk records each write before it is issued and again once it is acknowledged: when the O_SYNC write, or the fsync after it, has returned.",
		fmt.Sprintf("After %s of steady load, while the service runs on %s: %s.", report.Seconds(e.opt.Steady.Seconds()), e.active, e.variant.Title),
		failure,
		"An NFSv4 client that holds a delegation locks without asking the server, also while there is none. First lock is therefore the first one that was waited for across the take-over, or asked for by NFSv3 after it.",
		"Where names of files are served apart from their data, as in Lustre, one worker makes and removes directories. Where some workers of a client stalled over the start of the service, first I/O is theirs: the others did not need it.",
		"A stall is a time longer than half a second in which a worker had work to do and completed none of it.",
		"Once every worker goes on and the load has ended, the failed server is healed, and when the cluster is whole again every block is read back. Lost is any acknowledged block that does not read as its last acknowledged write or a later issued one.",
	}
	if e.variant.ClientDies {
		c.Method = append(c.Method, "The client that dies has each record of its ledgers on its disk before the write begins, and again once it is acknowledged. It reads its data back after it has booted. The rest of its load (timeline, stalls, errors) is lost with it. The workers that try its locks keep them once they have them.")
	}
	if e.variant.Rewrite {
		c.Method = append(c.Method, fmt.Sprintf("On every mount one writer more writes a file of %s over and over, as fast as it can, and calls fsync after each pass. It stops before the server wakes up and goes on elsewhere: nothing hides what that server writes.", report.Bytes(rewriteBytes)))
	}
	if e.env.Virtual {
		c.Caveats = append(c.Caveats,
			"The servers, disks, switches, BMCs and PDUs are virtual and may share a processor or two of one machine. Throughput and latency say nothing about real hardware; ratios within one run do. Times of a failover are upper bounds where the processors are emulated.",
			"The write cache of a virtual disk loses at a power cut what was not flushed, and no more: it never lies about a flush, as a real disk's may. A drill on real disks proves more.")
	}
	c.Caveats = append(c.Caveats, "One run shows that this failure was survived this time. Repeat it for a distribution.")
	return c
}
