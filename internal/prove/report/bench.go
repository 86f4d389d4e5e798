package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Kinds of runs, in summary.json's kind. Runs of old versions have no kind and are
// drills.
const (
	KindDrill = "drill"
	KindBench = "bench"
)

// Verdicts of a benchmark. Wrong: the benchmark read back data other than it had
// written.
const (
	Complete = "complete"
	Partial  = "partial"
	Wrong    = "wrong"
)

// BenchFile has all measurements of a benchmark; a drill's run has no such file.
const BenchFile = "bench.json"

// BenchSummary is summary.json of a benchmark: its outcome in one screen.
type BenchSummary struct {
	Schema  string `json:"schema"`
	Kind    string `json:"kind"`    // bench
	Verdict string `json:"verdict"` // complete, partial or wrong
	// Reasons describe why the verdict is not complete.
	Reasons []string `json:"reasons"`

	Suite  string `json:"suite"`
	Engine string `json:"engine"` // see workload.BenchEngine
	Tuning string `json:"tuning"` // profile of the brick: tuned or stock
	// Scale is the factor on the suite's sizes; 1: the papers' sizes.
	Scale float64 `json:"scale"`
	// Peaks has the best point of each phase, in the order of the suite.
	Peaks []Peak `json:"peaks"`
	// Score is io500's; null for other suites.
	Score *Score `json:"score"`
	// Bottleneck has a line for each layer that limits a load; empty without a
	// profile.
	Bottleneck string `json:"bottleneck"`

	VerifiedBytes int64 `json:"verified_bytes"` // read back and found as written
	BadBytes      int64 `json:"bad_bytes"`      // read back and found wrong

	Started         time.Time `json:"started"`
	DurationSeconds float64   `json:"duration_seconds"`
	Brick           string    `json:"brick"`
	Flavour         string    `json:"flavour"`
	Virtual         bool      `json:"virtual"`
	SpecSHA256      string    `json:"spec_sha256"`
	MortarVersion   string    `json:"mortar_version"`
	RunID           string    `json:"run_id"`
	// System is the example whose paper has the figures that suite paper
	// measures; absent for other suites and other bricks.
	System string `json:"system,omitempty"`
	// Cache is the mode of the SSDs in front of the volumes: write-back, write-through or none.
	Cache string `json:"cache,omitempty"`
}

// Peak is the best point of a phase: the median of its repetitions.
type Peak struct {
	Phase   string  `json:"phase"`
	Title   string  `json:"title"`
	Unit    string  `json:"unit"`
	Threads int     `json:"threads"`
	Value   float64 `json:"value"`
	P99     float64 `json:"p99_ms"` // 99th percentile of latency, of the same repetition
}

// Score is io500's: geometric means of the phases, and the square root of
// their product. Source: https://io500.org/rules-submission
type Score struct {
	Bandwidth float64 `json:"bandwidth_gib_per_second"`
	Metadata  float64 `json:"metadata_kiops"`
	Total     float64 `json:"total"`
	// Phases of the score, in io500's order and units.
	Phases []ScorePhase `json:"phases"`
	// Missing lists the phases of io500 that were not run. If it is not empty,
	// the score covers only the others and is no io500 score.
	Missing []string `json:"missing"`
}

// ScorePhase is one phase's part in a score.
type ScorePhase struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"` // GiB/s or kIOPS
	Value float64 `json:"value"`
}

// Bench is bench.json: everything a benchmark measured.
type Bench struct {
	BenchSummary
	// ServerMemoryBytes is the memory of the serving servers, which determines
	// the sizes of tests.
	ServerMemoryBytes int64        `json:"server_memory_bytes"`
	Clients           []string     `json:"clients"`
	Phases            []BenchPhase `json:"phases"`
	Layers            []Layer      `json:"layers"` // of a profile, bottom first
}

// BenchPhase is one kind of load at several thread counts.
type BenchPhase struct {
	Name  string `json:"name"`  // unique in the run, e.g. sequential-write
	Test  string `json:"test"`  // test of the suite it belongs to
	Op    string `json:"op"`    // phase of the load, see workload.BenchPhase
	Title string `json:"title"` // for people
	Unit  string `json:"unit"`  // MiB/s, GiB/s, ops/s
	// RecordBytes is the size of one operation; 0 for metadata.
	RecordBytes int64  `json:"record_bytes"`
	Method      string `json:"method"` // one sentence
	// Window is how Value of a run was computed: "even" spreads each thread's
	// bytes over its own time (writes with a flush at the end), "exact" counts
	// the operations completed within the window, "whole" uses the whole time
	// instead of a window (find).
	Window string       `json:"window"`
	Points []BenchPoint `json:"points"`
}

// BenchPoint is a phase at one thread count.
type BenchPoint struct {
	Threads    int        `json:"threads"`
	Hosts      int        `json:"hosts"`            // client hosts they ran on
	FileBytes  int64      `json:"file_bytes"`       // of one file
	TotalBytes int64      `json:"total_bytes"`      // planned
	Files      int64      `json:"files,omitempty"`  // metadata: files of all threads together
	Cold       string     `json:"cold"`             // how the caches were emptied before; "": not at all
	Runs       []BenchRun `json:"runs"`             // repetitions
	Failed     string     `json:"failed,omitempty"` // what failed: the figures are of the rest
}

// BenchRun is one repetition of a point.
type BenchRun struct {
	StartNS int64 `json:"start_ns"` // administrator's clock: when the first thread began
	// Value is over the common window: from the last thread's start to the
	// first thread's end. WholeValue is everything over the whole time, from
	// the first start to the last end.
	Value         float64 `json:"value"`
	WindowSeconds float64 `json:"window_seconds"`
	WholeValue    float64 `json:"whole_value"`
	WholeSeconds  float64 `json:"whole_seconds"`
	// StonewallSeconds is when the first thread was done, after StartNS;
	// StonewallShare the share of all work done by then.
	StonewallSeconds float64 `json:"stonewall_seconds"`
	StonewallShare   float64 `json:"stonewall_share"`
	// Limited: the time limit ended the repetition, not the end of its work.
	Limited bool `json:"limited"`

	Bytes         int64         `json:"bytes"`
	Ops           int64         `json:"ops"`
	VerifiedBytes int64         `json:"verified_bytes"`
	BadBytes      int64         `json:"bad_bytes"`
	Latency       *Latency      `json:"latency"`
	Histogram     string        `json:"histogram,omitempty"` // HdrHistogram V2, compressed, base64; nanoseconds
	Timeline      BenchTimeline `json:"timeline"`
	Clients       []BenchClient `json:"clients"`
	Threads       []BenchThread `json:"threads"`
	Errors        []string      `json:"errors"`
	Notes         []string      `json:"notes"` // caveats for the reader of the figures
	// IO is the I/O of each volume's devices meanwhile; none if the servers did
	// not report it.
	IO []BenchIO `json:"io,omitempty"`
}

// Groups of devices of a volume.
const (
	IOVolume = "volume" // the device below the file system
	IODisks  = "disks"  // disks or LUNs below it, all together
	IOSSDs   = "SSDs"   // of the cache, all together
)

// BenchIO is the I/O of a volume's devices, sampled about once a second.
type BenchIO struct {
	Service string `json:"service"`
	Server  string `json:"server"`
	// Times of the samples, ns since 1970 by the administrator's clock.
	Times   []int64       `json:"times_ns"`
	Devices []BenchDevice `json:"devices"`
	// Dirty is the data on SSDs only, at each sample; none without a cache.
	Dirty []int64 `json:"dirty_bytes,omitempty"`
}

// BenchDevice is the I/O of a group of devices between successive samples.
type BenchDevice struct {
	Name       string  `json:"name"`
	Reads      []int64 `json:"reads"`
	ReadBytes  []int64 `json:"read_bytes"`
	Writes     []int64 `json:"writes"`
	WriteBytes []int64 `json:"write_bytes"`
}

// Add adds the I/O between two samples of the counters.
func (d *BenchDevice) Add(from, to linux.BlockIO) {
	d.Reads, d.ReadBytes = append(d.Reads, to.Reads-from.Reads), append(d.ReadBytes, to.ReadBytes-from.ReadBytes)
	d.Writes, d.WriteBytes = append(d.Writes, to.Writes-from.Writes), append(d.WriteBytes, to.WriteBytes-from.WriteBytes)
}

// BenchTimeline is the completed work of all threads in each bucket.
type BenchTimeline struct {
	StartNS       int64     `json:"start_ns"`
	BucketSeconds float64   `json:"bucket_seconds"`
	Ops           []int64   `json:"ops"`
	Bytes         []int64   `json:"bytes"`
	P50           []float64 `json:"p50_ms"`
	P99           []float64 `json:"p99_ms"`
	Max           []float64 `json:"max_ms"`
}

// BenchClient is one client's share.
type BenchClient struct {
	Name    string   `json:"name"`
	Threads int      `json:"threads"`
	Value   float64  `json:"value"` // over the common window
	Bytes   int64    `json:"bytes"`
	Ops     int64    `json:"ops"`
	Latency *Latency `json:"latency"`
	// CPUSeconds of the load itself on the client, user and system.
	CPUSeconds float64 `json:"cpu_seconds"`
	Error      string  `json:"error,omitempty"`
}

// BenchThread is one thread's share.
type BenchThread struct {
	Client  string  `json:"client"`
	Thread  int     `json:"thread"` // of all threads, from 0
	Start   float64 `json:"start_seconds"`
	End     float64 `json:"end_seconds"`
	Bytes   int64   `json:"bytes"`
	Ops     int64   `json:"ops"`
	Error   string  `json:"error,omitempty"`
	Stalled float64 `json:"stalled_seconds,omitempty"` // longest time without a completed operation
}

// Layer is one layer of a profile.
type Layer struct {
	Name    string       `json:"name"` // disks, raid, volume, file system, network, nfs-one, nfs-many
	Title   string       `json:"title"`
	Results []LayerValue `json:"results"`
	Source  string       `json:"source,omitempty"` // the paper's tool and figures for the same
	Error   string       `json:"error,omitempty"`  // why it could not be measured
}

// LayerValue is a layer's figures for one kind of load.
type LayerValue struct {
	Load  string  `json:"load"` // sequential read, sequential write, random read …
	Unit  string  `json:"unit"`
	Best  float64 `json:"best"`
	At    string  `json:"at"`    // parameters of Best: 4 threads, 8 streams
	Below string  `json:"below"` // layer to compare with; "": none
	// Share is Best divided by that of layer Below; null without one.
	Share *float64     `json:"share"`
	Grid  []LayerPoint `json:"grid"`
}

// LayerPoint is one measurement: X is the number of regions, objects, streams, clients or
// threads; Y the number of threads or concurrent requests in each.
type LayerPoint struct {
	X       int     `json:"x"`
	Y       int     `json:"y"`
	Value   float64 `json:"value"`
	Seconds float64 `json:"seconds"`
}

// Values returns the values of the point's repetitions.
func (p *BenchPoint) Values() []float64 {
	out := make([]float64, len(p.Runs))
	for i := range p.Runs {
		out[i] = p.Runs[i].Value
	}
	return out
}

// Median returns the median run of a point by value; nil if it has no run. Of an
// even number of runs it returns the lower of the two in the middle, so that all
// figures shown are of the same repetition.
func (p *BenchPoint) Median() *BenchRun {
	if len(p.Runs) == 0 {
		return nil
	}
	order := make([]*BenchRun, len(p.Runs))
	for i := range p.Runs {
		order[i] = &p.Runs[i]
	}
	slices.SortStableFunc(order, func(a, b *BenchRun) int { return cmp.Compare(a.Value, b.Value) })
	return order[(len(order)-1)/2]
}

// Value is the median of a point's repetitions, of an even number the mean of the
// two in the middle; 0 without repetitions. It is for comparisons, which show
// nothing else of a repetition.
func (p *BenchPoint) Value() float64 {
	return Median(p.Values())
}

// At is the point of a thread count, nil if there is no measurement.
func (p *BenchPhase) At(threads int) *BenchPoint {
	return lists.Find(p.Points, func(at *BenchPoint) bool { return at.Threads == threads && len(at.Runs) > 0 })
}

// Peak is the phase's best point; nil without a measurement.
func (p *BenchPhase) Peak() *BenchPoint {
	var best *BenchPoint
	for i := range p.Points {
		if m := p.Points[i].Median(); m != nil && (best == nil || m.Value > best.Median().Value) {
			best = &p.Points[i]
		}
	}
	return best
}

// best is the best point of a phase, with the figures of its median run; nil without a
// measurement.
func (p *BenchPhase) best() *Peak {
	at := p.Peak()
	if at == nil {
		return nil
	}
	m := at.Median()
	out := &Peak{Phase: p.Name, Title: p.Title, Unit: p.Unit, Threads: at.Threads, Value: m.Value}
	if m.Latency != nil {
		out.P99 = m.Latency.P99
	}
	return out
}

// PeakList returns the best point of each phase.
func (b *Bench) PeakList() []Peak {
	out := []Peak{}
	for i := range b.Phases {
		if p := b.Phases[i].best(); p != nil {
			out = append(out, *p)
		}
	}
	return out
}

// ScaleText names a scale: 1/256, 1, 2.
func ScaleText(f float64) string {
	if f > 0 && f < 1 {
		if n := 1 / f; n == float64(int64(n)) {
			return fmt.Sprintf("1/%d", int64(n))
		}
	}
	return chart.Num(f)
}
