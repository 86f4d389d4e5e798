// Package report has the files of a run (summary, timeline, events, verification,
// configuration, all JSON), and renders runs as a page that opens offline, or as a
// comparison. It measures nothing, judges nothing and reaches no host: packages
// drill and bench fill in the runs. docs/json-drill.md and docs/json-bench.md
// describe the files.
package report

import (
	"encoding/json"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// Schema is the version of every file of a run.
const Schema = "mortar.run/v1"

// Verdicts of a run. The last two occur only in the list of a matrix.
const (
	Pass      = "pass"
	Fail      = "fail"
	Refused   = "refused"    // the drill is impossible with this brick or here
	NoVerdict = "no verdict" // the drill began and ended with an error
)

// Summary is summary.json of a drill: its outcome in one screen. Times are in
// seconds, sizes in bytes. A benchmark has a BenchSummary instead.
type Summary struct {
	Schema  string `json:"schema"`
	Kind    string `json:"kind"`          // drill
	Drill   string `json:"drill"`         // name of the drill, e.g. server-crash
	How     string `json:"how,omitempty"` // variant: freeze, panic, power
	Verdict string `json:"verdict"`       // pass or fail
	// Seed is the seed of a random drill, and Schedule its faults as text.
	Seed     *uint64  `json:"seed,omitempty"`
	Schedule []string `json:"schedule,omitempty"`
	// NotDone are the faults of Schedule that could not be carried out, and why: another
	// one made them impossible, or undid them.
	NotDone []string `json:"not_done,omitempty"`
	// Checks determine the verdict; Reasons has the failed ones as text.
	Checks  []Check  `json:"checks"`
	Reasons []string `json:"reasons"`

	// LongestStallSeconds is the longest time without a completed operation of
	// any client's writer or reader; LongestLockStallSeconds that of lock
	// workers.
	LongestStallSeconds     float64 `json:"longest_stall_seconds"`
	LongestLockStallSeconds float64 `json:"longest_lock_stall_seconds"`
	// StallTargetSeconds is the drill's target of the longest stall on a virtual
	// rack, StallTargetMet whether the drill met it; null without a target. It is
	// no part of the verdict.
	StallTargetSeconds *float64 `json:"stall_target_seconds"`
	StallTargetMet     *bool    `json:"stall_target_met"`
	// LocksBackSeconds is the time from the start of the service on the other server until
	// every lock worker has gone on; nil unless a drill of NFS has a target for it. The
	// target is no part of the verdict.
	LocksBackSeconds   *float64 `json:"locks_back_seconds,omitempty"`
	LocksTargetSeconds *float64 `json:"locks_target_seconds,omitempty"`
	LocksTargetMet     *bool    `json:"locks_target_met,omitempty"`
	Phases             Phases   `json:"phases"`
	Marks              Marks    `json:"marks"`

	stream.Totals
	// WrittenBytes counts every acknowledged write.
	WrittenBytes int64 `json:"written_bytes"`

	Clients []Client `json:"clients"`
	// Status has the faults and warnings of `mortar status` during the fault.
	Status []StatusLine `json:"status"`

	Started         time.Time `json:"started"`
	DurationSeconds float64   `json:"duration_seconds"`
	SteadySeconds   float64   `json:"steady_seconds"` // load before the fault
	Brick           string    `json:"brick"`
	Service         string    `json:"service"`
	Target          string    `json:"target"`   // part with the fault, e.g. the active server
	Survivor        string    `json:"survivor"` // server that must take over; "": none
	Virtual         bool      `json:"virtual"`  // true: a virtual rack
	Profile         string    `json:"profile"`  // tuned or stock
	SpecSHA256      string    `json:"spec_sha256"`
	MortarVersion   string    `json:"mortar_version"`
	RunID           string    `json:"run_id"`
}

// Phases are the successive parts of a failover, each in seconds; null if the drill
// did not reach the phase or has none. Detect lasts from the fault until the
// cluster notices it, Fence from there to the confirmed fencing, Start from there
// to the end of the service's start, first I/O and first lock from there to the
// first acknowledged write and the first granted lock. A client may be served a
// moment before the start is reported as finished: then the phase is 0 and Marks
// has the exact time.
type Phases struct {
	Detect    *float64 `json:"detect_seconds"`
	Fence     *float64 `json:"fence_seconds"`
	Start     *float64 `json:"start_seconds"`
	FirstIO   *float64 `json:"first_io_seconds"`
	FirstLock *float64 `json:"first_lock_seconds"`
}

// Marks are the moments between the phases: seconds after the fault, null if the
// drill did not reach the moment.
type Marks struct {
	Detected  *float64 `json:"detected_at_seconds"`
	Fenced    *float64 `json:"fenced_at_seconds"`
	Started   *float64 `json:"started_at_seconds"`
	FirstIO   *float64 `json:"first_io_at_seconds"`
	AllIO     *float64 `json:"all_io_at_seconds"` // every writer and reader went on
	FirstLock *float64 `json:"first_lock_at_seconds"`
	AllLocks  *float64 `json:"all_locks_at_seconds"` // every lock worker went on
}

// PhasesOf derives the phases from the marks.
func PhasesOf(m Marks) Phases {
	diff := func(from, to *float64) *float64 {
		if from == nil || to == nil {
			return nil
		}
		d := *to - *from
		if d < 0 {
			d = 0
		}
		return &d
	}
	zero := 0.0
	return Phases{
		Detect: diff(&zero, m.Detected), Fence: diff(m.Detected, m.Fenced), Start: diff(m.Fenced, m.Started),
		FirstIO: diff(m.Started, m.FirstIO), FirstLock: diff(m.Started, m.FirstLock),
	}
}

// Check is one thing the verdict depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// StatusLine is a fault or warning of `mortar status`.
type StatusLine struct {
	Level string `json:"level"` // fault or warning
	Code  string `json:"code,omitempty"`
	Text  string `json:"text"`
	Mend  string `json:"mend,omitempty"`
}

// Client is the outcome for one client.
type Client struct {
	Name                string  `json:"name"`
	LongestStallSeconds float64 `json:"longest_stall_seconds"`
	// FirstIO is when the client's first write after the failover was
	// acknowledged, in seconds after the fault.
	FirstIO           *float64 `json:"first_io_at_seconds"`
	Operations        int64    `json:"operations"`
	AcknowledgedBytes int64    `json:"acknowledged_bytes"`
	VerifiedBytes     int64    `json:"verified_bytes"`
	LostBytes         int64    `json:"lost_bytes"`
	WrittenBytes      int64    `json:"written_bytes"`
	Errors            int64    `json:"errors"`
	Workers           int      `json:"workers"`
}

// Timeline is timeline.json: the work of every worker, in buckets of equal length
// by the administrator's clock. Times of clients are corrected by the measured
// offset of their clocks.
type Timeline struct {
	Schema   string   `json:"schema"`
	StartNS  int64    `json:"start_ns"`  // wall clock of bucket 0, ns since 1970
	FaultNS  int64    `json:"fault_ns"`  // wall clock of the fault; 0: none
	BucketMS int      `json:"bucket_ms"` // length of a bucket
	Workers  []Worker `json:"workers"`
}

// Worker is one writer, reader, lock holder or lock prober.
type Worker struct {
	Client  string   `json:"client"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`    // writer, reader, names, lock-holder, lock-prober
	Version string   `json:"version"` // NFS version of its mount
	Mode    string   `json:"mode"`    // osync, fsync, direct; "" for locks
	Pattern string   `json:"pattern"` // seq, random-overwrite, append
	Ops     []int64  `json:"ops"`     // per bucket
	Bytes   []int64  `json:"bytes"`   // per bucket, acknowledged
	Stalls  []Stall  `json:"stalls"`
	Latency *Latency `json:"latency"`
	// FsyncLatency is the latency of the fsync calls in mode fsync, in which
	// Latency covers only the writes into the page cache.
	FsyncLatency *Latency `json:"fsync_latency"`
	Errors       []string `json:"errors,omitempty"`
	Stuck        bool     `json:"stuck"`
}

// Stall is a gap between two successive completed operations.
type Stall struct {
	StartNS int64   `json:"start_ns"`
	Seconds float64 `json:"seconds"`
	Open    bool    `json:"open,omitempty"` // had not ended when the load stopped
}

// Latency of a worker's operations from issue to completion, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// LatencyOf computes the percentiles of a histogram that has so many units in a millisecond; nil
// without an operation.
func LatencyOf(h *hdrhistogram.Histogram, ms float64) *Latency {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	q := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / ms }
	return &Latency{Count: h.TotalCount(), P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: float64(h.Max()) / ms}
}

// Kinds of events on the timeline: those of journals, and those that only a drill
// has.
const (
	EventFault      = "fault"
	EventDetected   = journal.Detected
	EventMembership = journal.Membership
	EventFencing    = journal.Fencing
	EventFenced     = journal.Fenced
	EventFenceFail  = journal.FenceFail
	EventStarting   = journal.Starting
	EventStep       = "step"
	EventStarted    = journal.Started
	EventStartFail  = journal.StartFail
	EventStopped    = journal.Stopped
	EventFirstIO    = "first-io"
	EventAllIO      = "all-io"
	EventFirstLock  = "first-lock"
	EventAllLocks   = "all-locks"
	EventBooted     = "booted" // a server came back from a reset or a power loss
	EventMended     = "mended" // a step of the drill mended a fault
	EventHealed     = "healed"
	EventLink       = journal.Link
	EventMultipath  = journal.Multipath
	EventRAID       = journal.RAID
	EventFS         = journal.FS
	EventConflict   = journal.Conflict
	EventMMP        = journal.MMP
	EventNote       = journal.Note
)

// Event is one entry of events.json.
type Event struct {
	NS      int64   `json:"t_ns"`    // administrator's clock, ns since 1970
	Seconds float64 `json:"seconds"` // after the fault; negative before
	Host    string  `json:"host"`
	Source  string  `json:"source"` // corosync, pacemaker, ocf, drill, load
	Kind    string  `json:"kind"`
	Text    string  `json:"text"`
	// Code and Subject are those of a note of the agent or its watcher; Pacemaker names a resource, and a server as Node.
	Code    string `json:"code,omitempty"`
	Subject string `json:"subject,omitempty"`
	Node    string `json:"node,omitempty"`
}

// Verify is verify.json: the result of reading all data back.
type Verify struct {
	Schema string `json:"schema"`
	stream.Totals
	BadBytes int64            `json:"bad_bytes"` // wrong, but never acknowledged
	Errors   []string         `json:"errors"`    // why files could not be read at all
	Method   string           `json:"method"`    // how the data was read
	Seconds  float64          `json:"seconds"`
	Classes  map[string]Class `json:"classes"`
	Extents  []Extent         `json:"extents"` // of classes other than ok; capped
	Omitted  int              `json:"omitted_extents"`
}

// Class counts the findings of one class.
type Class struct {
	Extents int64 `json:"extents"`
	Bytes   int64 `json:"bytes"`
}

// Extent is a range of a file of a class other than ok.
type Extent struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Class  string `json:"class"`
	Detail string `json:"detail"`
}

// Config is design.json: the system under test.
type Config struct {
	Schema   string          `json:"schema"`
	Hardware []Row           `json:"hardware"`
	Software []Row           `json:"software"`
	Settings []Setting       `json:"settings"`
	Mounts   []Row           `json:"mounts"`
	Method   []string        `json:"method"`  // sentences
	Caveats  []string        `json:"caveats"` // sentences
	Design   json.RawMessage `json:"design,omitempty"`
}

// Row is a name with its value.
type Row struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Setting is a tuning value with its reason.
type Setting struct {
	Role   string `json:"role"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
	Source string `json:"source,omitempty"`
}

// Run is everything in a run's directory. A benchmark fills Bench, Events and
// Config, and the fields of Summary that BenchSummary has too.
type Run struct {
	Dir      string
	Bench    *Bench
	Summary  Summary
	Timeline Timeline
	Events   []Event
	Verify   Verify
	Config   Config
}
