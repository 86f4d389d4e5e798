package drill

import (
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// report turns the evidence into a run.
func (e *engine) report(runID string, began time.Time, software []report.Row) *report.Run {
	undone := e.beside.left()
	e.evidence.Conditions = append(e.evidence.Conditions, e.variant.Schedule.nothingDone(undone)...)
	var targets judge.Targets
	if e.expect.Stall >= 0 && e.Env.Virtual { // the targets apply to a virtual rack only
		targets.Stall = new(stallTarget(e.expect, e.Design.Flavour))
	}
	if kind.Of(e.Design).Is().Graces && e.expect.Where == judge.Moves && e.expect.Stall >= 0 && !e.variant.ClientDies {
		targets.Locks = new(locksTarget)
	}
	seed, schedule := e.variant.drawn()
	r := judge.Run(&e.evidence, targets, seed != nil) // random faults hit all services
	r.Dir = e.Options.Dir
	s := &r.Summary
	s.Drill, s.How, s.Seed, s.Schedule, s.NotDone, s.Status = e.drill.Name, e.variant.How, seed, schedule, undone, e.status
	s.Started, s.DurationSeconds, s.SteadySeconds = began.UTC().Truncate(time.Millisecond), judge.RoundMS(time.Since(began).Seconds()), e.Options.Steady.Seconds()
	s.Brick, s.Virtual, s.Profile, s.SpecSHA256, s.MortarVersion, s.RunID = e.Design.Name, e.Env.Virtual, string(e.Design.Spec.Profile), e.Design.SHA256, e.Env.Version, runID
	r.Config = e.config(software)
	return r
}

// locksTarget is how long locks of NFS are away at most after the service has started, if
// every client reclaims its own, in seconds.
const locksTarget = 15.0

// stallTarget is the target of the longest stall on a rack, in seconds. A Lustre
// target that moves first waits for MMP (22 to 28 s); then its clients try the
// servers in turn.
func stallTarget(e judge.Expect, f spec.Flavour) float64 {
	const lustreMoves = 45
	if f == spec.Lustre && e.Where == judge.Moves {
		return max(e.Stall, lustreMoves)
	}
	return e.Stall
}

// config describes the system under test.
func (e *engine) config(software []report.Row) report.Config {
	c := testbed.Describe(e.Design)
	c.Software = software
	rate := "as fast as they can"
	if e.Options.Rate > 0 {
		rate = fmt.Sprintf("at up to %g operations per second each", e.Options.Rate)
	}
	failure := "Detection, fencing and start are read from the logs of corosync, Pacemaker and the resource agent on the surviving server; first I/O and first lock from the clients' own operations. Each host's clock is corrected by its offset to the administrator's, measured over the session before the fault."
	if !e.Design.Clustered() {
		failure = "The brick has one server. No partner takes over: the drill itself mends the fault, as a person would, and clients wait until then."
	}
	c.Method = []string{
		fmt.Sprintf("On every mount of every client one writer writes 16 KiB blocks with O_SYNC at random places, one writes 128 KiB blocks through the page cache and calls fsync after every fourth, %s, and one worker takes and gives back a lock twice a second. One lock on each mount is held through the whole drill while another mount keeps trying to get it.", rate),
		"Every 4 KiB block names its run, file, place and generation and carries checksums. A ledger on the client's own disk records each write before it is issued and again once it is acknowledged: when the O_SYNC write, or the fsync after it, has returned.",
		fmt.Sprintf("After %s of steady load, while the service runs on %s: %s.", report.Seconds(e.Options.Steady.Seconds()), e.Active, e.variant.Title),
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
	if e.Env.Virtual {
		c.Caveats = append(c.Caveats,
			"The servers, disks, switches, BMCs and PDUs are virtual and may share a processor or two of one machine. Throughput and latency say nothing about real hardware; ratios within one run do. Times of a failover are upper bounds where the processors are emulated.",
			"The write cache of a virtual disk loses at a power cut what was not flushed, and no more: it never lies about a flush, as a real disk's may. A drill on real disks proves more.")
	}
	c.Caveats = append(c.Caveats, "One run shows that this failure was survived this time. Repeat it for a distribution.")
	return c
}
