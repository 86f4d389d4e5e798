package workload

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// BenchPhase is what the threads of a benchmark phase do.
type BenchPhase string

// Phases. Sequential and random phases move the records of a data set, in which
// each thread has a region. Metadata phases work on a tree per thread.
const (
	SeqWrite   BenchPhase = "seq-write"   // each thread writes its region from start to end; fsync and close are inside the timing (iozone -i 0 -c -e -w)
	SeqRead    BenchPhase = "seq-read"    // each thread reads a region from start to end (iozone -i 1 -c)
	SeqRewrite BenchPhase = "seq-rewrite" // each thread writes its region again from start to end, with fsync and close (iozone -i 0 -c -e, its second pass)
	RandWrite  BenchPhase = "rand-write"  // each thread writes each record of its region once, in random order (iozone -i 2 -I -O; O_DIRECT unless Buffered)
	RandRead   BenchPhase = "rand-read"   // each thread reads each record of a region once, in random order
	MDCreate   BenchPhase = "md-create"   // each thread creates its files: open with O_CREAT, write ItemBytes, close
	MDStat     BenchPhase = "md-stat"     // each thread stats each file once, in random order (mdtest -T -R)
	MDRead     BenchPhase = "md-read"     // each thread opens, reads whole and closes each file, in the order of names (mdtest -E -e)
	MDRemove   BenchPhase = "md-remove"   // each thread unlinks the files
	// Directories instead of files (mdtest without -F); fio does them from 3.37 on.
	MDMkdir   BenchPhase = "md-mkdir"
	MDDirStat BenchPhase = "md-dirstat" // in random order
	MDRmdir   BenchPhase = "md-rmdir"
	// Find walks all sets in the run's directory. An operation is one entry
	// that is no directory. Find stats the entries with 01 in their names for
	// their size and age (io500's find).
	Find BenchPhase = "find"
)

// BenchPhases lists every phase, each after those whose files it needs.
var BenchPhases = []BenchPhase{SeqWrite, SeqRewrite, SeqRead, RandRead, RandWrite, MDCreate, Find, MDStat, MDRead, MDRemove, MDMkdir, MDDirStat, MDRmdir}

// Metadata reports whether the phase works on trees of files and so counts
// operations. The other phases count bytes too.
func (p BenchPhase) Metadata() bool {
	return p == Find || strings.HasPrefix(string(p), "md-")
}

// Directories reports whether the phase works on directories.
func (p BenchPhase) Directories() bool { return p == MDMkdir || p == MDDirStat || p == MDRmdir }

// Makes reports whether the phase makes what the other phases of a set need.
func (p BenchPhase) Makes() bool { return p == SeqWrite || p == MDCreate || p == MDMkdir }

// Sequential reports whether the phase moves streams.
func (p BenchPhase) Sequential() bool { return strings.HasPrefix(string(p), "seq-") }

// Beside is the phase of the small records that a mixture has beside streams; "": no mixture has
// these streams.
func (p BenchPhase) Beside() BenchPhase {
	return map[BenchPhase]BenchPhase{SeqRewrite: RandWrite, SeqRead: RandRead}[p]
}

// Writes reports whether the phase needs a writable file system.
func (p BenchPhase) Writes() bool {
	return p.Makes() || p == SeqRewrite || p == RandWrite || p == MDRemove || p == MDRmdir
}

// BenchLayout is how the regions of a data set lie in files.
type BenchLayout string

// Layouts.
const (
	OwnFile   BenchLayout = "own"       // N-to-N: a file per thread
	Segmented BenchLayout = "segmented" // N-to-1: one file, each thread a contiguous part of it (IOR -s 1)
	Strided   BenchLayout = "strided"   // N-to-1: one file, record i of thread r at (i*N + r) records (IOR -b = -t, -s many)
)

// BenchLayouts lists every layout.
var BenchLayouts = []BenchLayout{OwnFile, Segmented, Strided}

// BenchJob is one phase on one client: the parameters of OpBench. The
// coordinator calls the ops in the order OpBenchPrepare, OpBench, OpBenchStart
// (the moment to begin at), OpBenchStop, OpBenchCleanup. OpBench also delivers the results of a stopped phase.
//
// OpBench knows no other client. The coordinator starts it on each
// client and waits until all are in the state "waiting" (making a tree or
// opening files may take long, or never end). Then it sends OpBenchStart with
// one moment shortly ahead, and joins the results.
//
// Every client of a run gets the same job, except for ClientIndex. Ranks number the threads of all clients: rank = ClientIndex *
// Threads + thread. Files are <Dir>/<RunID>/<Set>/...; a job touches nothing
// else in Dir, and OpBenchCleanup removes only these.
type BenchJob struct {
	RunID       string     `json:"run_id"`        // letters, digits, '.', '_', '-'; the same on every client and in every phase of a run
	Set         string     `json:"set,omitempty"` // name of the data set or tree; default "data" or "tree". Phases with the same RunID and Set share files
	ClientIndex int        `json:"client_index"`  // 0 ... Clients-1
	Clients     int        `json:"clients"`       // how many clients run this phase
	Dir         string     `json:"dir"`           // absolute: the directory under test
	Phase       BenchPhase `json:"phase"`
	Threads     int        `json:"threads"` // on this client; the same on every client

	Layout      BenchLayout `json:"layout,omitempty"`       // default own
	FileBytes   int64       `json:"file_bytes,omitempty"`   // per thread: the size of its region; a multiple of RecordBytes
	RecordBytes int64       `json:"record_bytes,omitempty"` // one call; random: a multiple of 4096
	Direct      bool        `json:"direct,omitempty"`       // O_DIRECT in sequential phases
	Buffered    bool        `json:"buffered,omitempty"`     // no O_DIRECT in random phases
	SmallBytes  int64       `json:"small_bytes,omitempty"`  // a mixture: ranks that are odd have records of this size in the phase Beside; all go on for DurationSeconds
	Limit       int64       `json:"limit,omitempty"`        // rand-read: each thread reads at most this many records, the first in its order; 0: all
	ReadShift   int         `json:"read_shift,omitempty"`   // work on the files of the client with this much higher an index (IOR -C is 1), so that this client's cache does not help; md-read: twice as far, md-remove: three times (mdtest -N)
	DropCache   bool        `json:"drop_cache,omitempty"`   // reading: before the start, drop the files' pages from this client's page cache (posix_fadvise)

	Branch    int   `json:"branch,omitempty"`     // metadata: each thread has Branch times Items files. mdtest spreads them over Branch directories (-b with -z 1 -L -u), fio has them in one
	Items     int   `json:"items,omitempty"`      // (mdtest -I)
	ItemBytes int64 `json:"item_bytes,omitempty"` // written to each new file, and compared by md-read (mdtest -w)
	Shared    bool  `json:"shared,omitempty"`     // one directory holds the files of all threads, Branch times Items of each thread (mdtest without -u)
	ItemSync  bool  `json:"item_sync,omitempty"`  // fsync each new file after ItemBytes (mdtest -y, which does nothing without -w)

	DurationSeconds float64 `json:"duration_seconds,omitempty"` // end after this time, finished or not; 0: end when all work is done
	GiveUpSeconds   float64 `json:"give_up_seconds,omitempty"`  // a program that uses no CPU for so long is ended, and its threads reported as stuck; default 180
	BucketSeconds   float64 `json:"bucket_seconds,omitempty"`   // timeline resolution; default 1
	ProgressSeconds float64 `json:"progress_seconds,omitempty"` // interval of progress events; default 0.5

	// Regions is what the set holds. The coordinator joins the Regions in the
	// results of all phases that wrote to the set, of all clients, with
	// MergeRegions. Phases that read or overwrite need them.
	Regions []BenchRegion `json:"regions,omitempty"`
}

// BenchRegion is what one rank has of a set. The coordinator passes regions
// unchanged from results into later jobs.
type BenchRegion struct {
	Rank  int   `json:"rank"`
	Bytes int64 `json:"bytes,omitempty"` // written from the region's start on
	Files int64 `json:"files,omitempty"` // created files or directories, numbered from 0 on
}

// BenchProgress is the event that OpBench emits every ProgressSeconds.
type BenchProgress struct {
	State      string `json:"state"`       // preparing, waiting (for OpBenchStart, or its moment), running
	Bytes      int64  `json:"bytes"`       // moved by read(2) and write(2), all threads so far; 0 in metadata phases
	TotalBytes int64  `json:"total_bytes"` // planned, all threads of this client; 0: unknown
}

// BenchResult is the answer of OpBench. Failures of threads are part of the
// result; the op itself fails only if the job could not begin.
type BenchResult struct {
	StartNs   int64  `json:"start_ns"`   // when the threads began
	EndNs     int64  `json:"end_ns"`     // when the last thread had done its last operation, and its flush
	StoppedBy string `json:"stopped_by"` // done, duration, stop, cancelled

	Ops        int64         `json:"ops"` // sums over the threads
	Bytes      int64         `json:"bytes"`
	Threads    []BenchThread `json:"threads"`
	CPUSeconds float64       `json:"cpu_seconds"` // of the programs, user and system, from start to end
	// Buckets are the operations that completed in the BucketSeconds from StartNs +
	// i*BucketSeconds on. Empty ones are kept, so that a stall is visible. find reports none.
	BucketSeconds float64 `json:"bucket_seconds"`
	Buckets       []Bins  `json:"buckets"`

	Verified *BenchVerify  `json:"verified,omitempty"` // reading: absent if nothing was checked
	Regions  []BenchRegion `json:"regions,omitempty"`  // of a phase that Makes: what this client's ranks have now
	Beside   *BenchResult  `json:"beside,omitempty"`   // of a mixture: its small records; the rest is of the streams
	Notes    []string      `json:"notes,omitempty"`    // caveats for the reader of the figures
}

// Faults of a thread.
const (
	FaultNoSpace  = "no-space"  // ENOSPC, EDQUOT
	FaultReadOnly = "read-only" // EROFS
	FaultVanished = "vanished"  // ESTALE, ENOENT, ENOTDIR, ENXIO, ENODEV, ENOTCONN: the file, mount or device is gone
	FaultStuck    = "stuck"     // its program did nothing for GiveUpSeconds, or cannot be ended
	FaultIO       = "io"        // anything else
)

// BenchThread is one thread's part of a result. The thread's rate is Ops or
// Bytes over StartNs to EndNs. For a rate over a window that all threads share,
// use the timelines.
type BenchThread struct {
	Rank         int     `json:"rank"`
	StartNs      int64   `json:"start_ns"`
	EndNs        int64   `json:"end_ns"`                  // of the last operation, and of the flush after writing
	Ops          int64   `json:"ops"`                     // records, or files created, statted, read, removed
	Bytes        int64   `json:"bytes"`                   // moved by the operations
	TimelineOps  []int64 `json:"timeline_ops"`            // per bucket of the result
	StallSeconds float64 `json:"stall_seconds,omitempty"` // the longest operation, if it took longer than half a second
	Fault        string  `json:"fault,omitempty"`         // why the thread ended early: one of the Fault constants
	Error        string  `json:"error,omitempty"`         // in words, with a remedy
}

// Bins are how many operations took so long from issue to completion, by ns.
type Bins map[int64]int64

// Ops is the number of all operations.
func (b Bins) Ops() (n int64) {
	for _, k := range b {
		n += k
	}
	return n
}

// Add adds other operations.
func (b Bins) Add(o Bins) {
	for ns, n := range o {
		b[ns] += n
	}
}

// BenchVerify is the result of checking the data read: each block tells its place
// in its file, and its checksum.
type BenchVerify struct {
	Bytes    int64    `json:"bytes"`     // checked
	BadBytes int64    `json:"bad_bytes"` // in blocks that are not what was written there
	Findings []string `json:"findings"`  // the first MaxFindings, one line each
}

// MaxFindings bounds the findings of one thread that are kept as text.
const MaxFindings = 20

// BenchParams are the parameters of OpBenchPrepare and OpBenchCleanup.
//
// The coordinator calls OpBenchPrepare once per run and client, before the first
// phase. The op makes <dir>/<run id> and answers with BenchFacts. It fails if dir is
// missing or not writable.
//
// OpBenchCleanup removes <dir>/<run id>, or only one set in it, with everything in
// it, if OpBenchPrepare made it for that run. The coordinator calls it on one client.
type BenchParams struct {
	RunID string `json:"run_id"`
	Dir   string `json:"dir"`
	Set   string `json:"set,omitempty"` // of OpBenchCleanup
}

// BenchFacts is the answer of OpBenchPrepare.
type BenchFacts struct {
	CPUs         int      `json:"cpus"`
	MemBytes     int64    `json:"mem_bytes"`
	FSType       string   `json:"fs_type"`
	Source       string   `json:"source"`
	MountOptions string   `json:"mount_options"`
	FreeBytes    int64    `json:"free_bytes"`
	Fio          string   `json:"fio"`    // its version, e.g. fio-3.39; "": it is not installed
	Others       []string `json:"others"` // directories of other runs, which are under way or were killed
}

// BenchStartParams are the parameters of OpBenchStart.
type BenchStartParams struct {
	RunID   string `json:"run_id"`
	StartNs int64  `json:"start_ns"` // wall clock of this client; 0 or past: at once
}

// of is the part of a mixture that a rank has; of any other job, the job.
func (j BenchJob) of(rank int) *BenchJob {
	if j.SmallBytes > 0 && rank%2 == 1 {
		j.Phase, j.RecordBytes = j.Phase.Beside(), j.SmallBytes
	}
	return &j
}

// MergeRegions adds the regions that later phases or other clients report to
// the known regions of a set.
func MergeRegions(known, news []BenchRegion) []BenchRegion {
	out := slices.Clone(known)
	for _, r := range news {
		if i := slices.IndexFunc(out, func(o BenchRegion) bool { return o.Rank == r.Rank }); i >= 0 {
			out[i] = r
		} else {
			out = append(out, r)
		}
	}
	return out
}

// fill sets defaults. It refuses what could touch files that are not the run's; sizes come from the coordinator, which has checked the suite.
func (j *BenchJob) fill() error {
	j.Layout = cmp.Or(j.Layout, OwnFile)
	j.Set = cmp.Or(j.Set, map[bool]string{false: "data", true: "tree"}[j.Phase.Metadata()])
	j.Clients, j.Threads = cmp.Or(j.Clients, 1), cmp.Or(j.Threads, 1)
	j.GiveUpSeconds, j.BucketSeconds, j.ProgressSeconds = cmp.Or(j.GiveUpSeconds, 180), cmp.Or(j.BucketSeconds, 1), cmp.Or(j.ProgressSeconds, 0.5)
	switch {
	case !isName(j.RunID) || !isName(j.Set):
		return fmt.Errorf("run_id %q, set %q: use letters, digits, '.', '_' and '-'", j.RunID, j.Set)
	case !slices.Contains(BenchPhases, j.Phase) || !slices.Contains(BenchLayouts, j.Layout):
		return fmt.Errorf("there is no phase %q with layout %q", j.Phase, j.Layout)
	case !filepath.IsAbs(j.Dir):
		return fmt.Errorf("%q is not an absolute path", j.Dir)
	case j.SmallBytes > 0 && (j.Phase.Beside() == "" || j.DurationSeconds <= 0):
		return fmt.Errorf("phase %s of %g s has no small records beside it", j.Phase, j.DurationSeconds)
	case !j.Phase.Metadata() && (j.RecordBytes <= 0 || j.FileBytes%j.RecordBytes != 0 || j.FileBytes == 0):
		return fmt.Errorf("file_bytes %d is not a multiple of record_bytes %d", j.FileBytes, j.RecordBytes)
	}
	return nil
}
