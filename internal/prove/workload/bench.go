package workload

import (
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
	SeqWrite  BenchPhase = "seq-write"  // each thread writes its region from start to end; fsync and close are inside the timing (iozone -i 0 -c -e -w)
	SeqRead   BenchPhase = "seq-read"   // each thread reads a region from start to end (iozone -i 1 -c)
	RandWrite BenchPhase = "rand-write" // each thread writes each record of its region once, in random order (iozone -i 2 -I -O; O_DIRECT unless Buffered)
	RandRead  BenchPhase = "rand-read"  // each thread reads each record of a region once, in random order
	MDCreate  BenchPhase = "md-create"  // each thread creates its files: open with O_CREAT, write ItemBytes, close
	MDStat    BenchPhase = "md-stat"    // each thread stats each file once, in random order (mdtest -T -R)
	MDRead    BenchPhase = "md-read"    // each thread opens, reads whole and closes each file, in the order of names (mdtest -E -e)
	MDRemove  BenchPhase = "md-remove"  // each thread unlinks the files
	// Find walks all sets in the run's directory. An operation is one entry
	// that is no directory. Find stats the entries with 01 in their names for
	// their size and age (io500's find).
	Find BenchPhase = "find"
)

// BenchPhases lists every phase, each after those whose files it needs.
var BenchPhases = []BenchPhase{SeqWrite, SeqRead, RandRead, RandWrite, MDCreate, Find, MDStat, MDRead, MDRemove}

// Metadata reports whether the phase works on trees of files and so counts
// operations. The other phases count bytes too.
func (p BenchPhase) Metadata() bool {
	return p == MDCreate || p == Find || p == MDStat || p == MDRead || p == MDRemove
}

// Writes reports whether the phase needs a writable file system.
func (p BenchPhase) Writes() bool {
	return p == SeqWrite || p == RandWrite || p == MDCreate || p == MDRemove
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
// (only for a job with Hold: the moment to begin at), OpBenchStop,
// OpBenchCleanup. OpBench also delivers the results of a stopped phase.
//
// OpBench knows no other client. The coordinator starts it with Hold on each
// client and waits until all are in the state "waiting" (making a tree or
// opening files may take long, or never end). Then it sends OpBenchStart with
// one moment shortly ahead, and joins the results.
//
// Every client of a run gets the same job, except for Client, ClientIndex and
// StartNs. Ranks number the threads of all clients: rank = ClientIndex *
// Threads + thread. Files are <Dir>/<RunID>/<Set>/...; a job touches nothing
// else in Dir, and OpBenchCleanup removes only these.
type BenchJob struct {
	RunID       string      `json:"run_id"`           // letters, digits, '.', '_', '-'; the same on every client and in every phase of a run
	Set         string      `json:"set,omitempty"`    // name of the data set or tree; default "data" or "tree". Phases with the same RunID and Set share files
	Client      string      `json:"client,omitempty"` // name of this client, carried into the result
	ClientIndex int         `json:"client_index"`     // 0 ... Clients-1
	Clients     int         `json:"clients"`          // how many clients run this phase
	Dir         string      `json:"dir"`              // absolute: the directory under test
	Phase       BenchPhase  `json:"phase"`
	Engine      BenchEngine `json:"engine,omitempty"` // default fio
	Threads     int         `json:"threads"`          // on this client; the same on every client

	Layout      BenchLayout `json:"layout,omitempty"`       // default own
	FileBytes   int64       `json:"file_bytes,omitempty"`   // per thread: the size of its region; a multiple of RecordBytes
	RecordBytes int64       `json:"record_bytes,omitempty"` // one call; default 1 MiB (sequential) or 4096 (random: a multiple of it)
	Direct      bool        `json:"direct,omitempty"`       // O_DIRECT in sequential phases
	Buffered    bool        `json:"buffered,omitempty"`     // no O_DIRECT in random phases
	Limit       int64       `json:"limit,omitempty"`        // rand-read: each thread reads at most this many records, the first in its order; 0: all
	ReadShift   int         `json:"read_shift,omitempty"`   // work on the files of the client with this much higher an index (IOR -C is 1), so that this client's cache does not help; md-read: twice as far, md-remove: three times (mdtest -N)
	DropCache   bool        `json:"drop_cache,omitempty"`   // reading: before the start, drop the files' pages from this client's page cache (posix_fadvise)

	Branch    int   `json:"branch,omitempty"`     // metadata: each thread has Branch times Items files. mdtest spreads them over Branch directories (-b with -z 1 -L -u), fio has them in one; default 320
	Items     int   `json:"items,omitempty"`      // default 3000 (mdtest -I)
	ItemBytes int64 `json:"item_bytes,omitempty"` // written to each new file, and compared by md-read (mdtest -w)
	Shared    bool  `json:"shared,omitempty"`     // one directory holds the files of all threads, Branch times Items of each thread (mdtest without -u)
	ItemSync  bool  `json:"item_sync,omitempty"`  // fsync each new file after ItemBytes (mdtest -y, which does nothing without -w)

	// Device, instead of Dir, is a block device to read from with O_DIRECT, in
	// equal parts (sgpdd's regions). Device phases never write or verify.
	// RegionThreads (default 1) threads take turns with the records of one part,
	// so there are Threads/RegionThreads parts.
	Device        string `json:"device,omitempty"`
	RegionThreads int    `json:"region_threads,omitempty"`

	Hold            bool    `json:"hold,omitempty"`             // once ready, wait for OpBenchStart
	StartNs         int64   `json:"start_ns,omitempty"`         // without Hold: wall clock of this client at which all threads begin; 0: at once
	DurationSeconds float64 `json:"duration_seconds,omitempty"` // end after this time, finished or not; 0: end when all work is done
	StallSeconds    float64 `json:"stall_seconds,omitempty"`    // an operation that takes longer is a stall; default 0.5
	GiveUpSeconds   float64 `json:"give_up_seconds,omitempty"`  // a program that uses no CPU for so long is ended, and its threads reported as stuck; default 180
	BucketSeconds   float64 `json:"bucket_seconds,omitempty"`   // timeline resolution; default 1
	ProgressSeconds float64 `json:"progress_seconds,omitempty"` // interval of progress events; default 1

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
	Files int64 `json:"files,omitempty"` // created, numbered from 0 on
}

// BenchProgress is the event that OpBench emits every ProgressSeconds.
type BenchProgress struct {
	RunID          string                `json:"run_id"`
	Phase          BenchPhase            `json:"phase"`
	TNs            int64                 `json:"t_ns"`            // wall clock of this client
	State          string                `json:"state"`           // preparing, waiting (for OpBenchStart or StartNs), running
	ElapsedSeconds float64               `json:"elapsed_seconds"` // since StartNs
	Ops            int64                 `json:"ops"`             // all threads so far; 0 in metadata phases
	Bytes          int64                 `json:"bytes"`           // moved by read(2) and write(2)
	TotalOps       int64                 `json:"total_ops"`       // planned, all threads of this client; 0: unknown
	TotalBytes     int64                 `json:"total_bytes"`
	Threads        []BenchThreadProgress `json:"threads"`
}

// BenchThreadProgress is one thread's part of a BenchProgress. If the client
// vanishes, the last one is all that remains of the thread's figures.
type BenchThreadProgress struct {
	Thread int   `json:"thread"`
	Ops    int64 `json:"ops"`
	Bytes  int64 `json:"bytes"`
}

// BenchResult is the answer of OpBench. Failures of threads are part of the
// result; the op itself fails only if the job could not begin.
type BenchResult struct {
	RunID         string      `json:"run_id"`
	Set           string      `json:"set"`
	Client        string      `json:"client,omitempty"`
	ClientIndex   int         `json:"client_index"`
	Phase         BenchPhase  `json:"phase"`
	Engine        BenchEngine `json:"engine"`
	EngineVersion string      `json:"engine_version,omitempty"` // that the program prints
	Command       []string    `json:"command,omitempty"`        // of the first thread

	StartNs   int64  `json:"start_ns"`   // when the threads began
	EndNs     int64  `json:"end_ns"`     // when the last thread had done its last operation, and its flush
	StoppedBy string `json:"stopped_by"` // done, duration, stop, cancelled

	Ops            int64         `json:"ops"` // sums over the threads
	Bytes          int64         `json:"bytes"`
	Latency        BenchLatency  `json:"latency"` // all threads
	Timeline       BenchTimeline `json:"timeline"`
	Threads        []BenchThread `json:"threads"`
	UserCPUSeconds float64       `json:"user_cpu_seconds"` // of the programs, from start to end
	SysCPUSeconds  float64       `json:"sys_cpu_seconds"`

	Verified *BenchVerify  `json:"verified,omitempty"` // reading: absent if nothing was checked
	Regions  []BenchRegion `json:"regions,omitempty"`  // seq-write, md-create: what this client's ranks have now
	FSType   string        `json:"fs_type,omitempty"`
	Source   string        `json:"source,omitempty"`
	Notes    []string      `json:"notes,omitempty"` // caveats for the reader of the figures
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
	Thread        int          `json:"thread"` // 0 ... Threads-1
	Rank          int          `json:"rank"`
	StartNs       int64        `json:"start_ns"`
	EndNs         int64        `json:"end_ns"`                  // of the last operation, and of the flush after writing
	Finished      bool         `json:"finished"`                // the thread did all of its work
	Ops           int64        `json:"ops"`                     // records, or files created, statted, read, removed
	Bytes         int64        `json:"bytes"`                   // moved by the operations
	Latency       BenchLatency `json:"latency"`                 // of the operations
	TimelineOps   []int64      `json:"timeline_ops"`            // per bucket of the result's Timeline
	TimelineBytes []int64      `json:"timeline_bytes"`          // likewise; null in metadata phases
	StallSeconds  float64      `json:"stall_seconds,omitempty"` // the longest operation, if it took longer than StallSeconds of the job
	Fault         string       `json:"fault,omitempty"`         // why the thread ended early: one of the Fault constants
	Errno         string       `json:"errno,omitempty"`
	Error         string       `json:"error,omitempty"` // in words, with a remedy
}

// BenchLatency is a distribution of operation times in seconds, from issue to
// completion. Only fio reports it.
type BenchLatency struct {
	Count     int64   `json:"count"`
	Mean      float64 `json:"mean_seconds"`
	Min       float64 `json:"min_seconds"`
	P50       float64 `json:"p50_seconds"`
	P90       float64 `json:"p90_seconds"`
	P99       float64 `json:"p99_seconds"`
	P999      float64 `json:"p999_seconds"`
	Max       float64 `json:"max_seconds"`
	Histogram string  `json:"histogram,omitempty"` // HdrHistogram V2 compressed, base64; unit: nanoseconds
}

// BenchTimeline is throughput and latency over time: bucket i covers
// BucketSeconds from StartNs + i*BucketSeconds on. An operation counts in the
// bucket in which it completed. Empty buckets are kept, so that a stall is
// visible.
type BenchTimeline struct {
	StartNs       int64             `json:"start_ns"`
	BucketSeconds float64           `json:"bucket_seconds"`
	Buckets       []BenchTimeBucket `json:"buckets"`
}

// BenchTimeBucket is one bucket, over all threads of a client.
type BenchTimeBucket struct {
	Ops       int64   `json:"ops"`
	Bytes     int64   `json:"bytes"`
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
	Max       float64 `json:"max_seconds"`
	Histogram string  `json:"histogram,omitempty"` // as in BenchLatency, to merge clients with
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

// BenchPrepareParams are the parameters of OpBenchPrepare, which the coordinator
// calls once per run and client, before the first phase. The op makes
// <dir>/<run id> and answers with BenchFacts. It fails if dir is missing, not
// writable, or has less than NeedBytes free.
type BenchPrepareParams struct {
	RunID     string `json:"run_id"`
	Dir       string `json:"dir"`
	NeedBytes int64  `json:"need_bytes,omitempty"` // the largest amount the whole run holds at once
	NeedFiles int64  `json:"need_files,omitempty"`
}

// BenchFacts is the answer of OpBenchPrepare.
type BenchFacts struct {
	NowNs        int64             `json:"now_ns"` // wall clock, to compare the clients' clocks
	CPUs         int               `json:"cpus"`
	MemBytes     int64             `json:"mem_bytes"`
	FSType       string            `json:"fs_type"`
	Source       string            `json:"source"`
	MountOptions string            `json:"mount_options"`
	FreeBytes    int64             `json:"free_bytes"`
	FreeFiles    int64             `json:"free_files"` // 0: the file system does not report it
	Engines      map[string]string `json:"engines"`    // engine -> version, those installed
	Others       []string          `json:"others"`     // directories of other runs, which are under way or were killed
}

// BenchCleanupParams are the parameters of OpBenchCleanup. The op removes
// <dir>/<run id>, or only one set in it, with everything in it, if OpBenchPrepare
// made it for that run. The coordinator calls it on one client.
type BenchCleanupParams struct {
	RunID string `json:"run_id"`
	Dir   string `json:"dir"`
	Set   string `json:"set,omitempty"`
}

// BenchCleanupProgress is the event that OpBenchCleanup emits each second.
type BenchCleanupProgress struct {
	Removed int64 `json:"removed"` // files and directories so far
}

// BenchCleanupResult is the answer of OpBenchCleanup.
type BenchCleanupResult struct {
	Removed int64 `json:"removed"`
}

// BenchStartParams are the parameters of OpBenchStart.
type BenchStartParams struct {
	RunID   string `json:"run_id"`
	StartNs int64  `json:"start_ns"` // wall clock of this client; 0 or past: at once
}

// BenchStopParams are the parameters of OpBenchStop. The phase under way ends,
// flushes and closes its files, and OpBench answers with the results so far.
type BenchStopParams struct {
	RunID string `json:"run_id"`
}

// MergeRegions adds the regions that later phases or other clients report to
// the known regions of a set.
func MergeRegions(known, news []BenchRegion) []BenchRegion {
	out := append([]BenchRegion(nil), known...)
	at := map[int]int{}
	for i, r := range out {
		at[r.Rank] = i
	}
	for _, r := range news {
		if i, ok := at[r.Rank]; ok {
			out[i] = r
			continue
		}
		at[r.Rank] = len(out)
		out = append(out, r)
	}
	return out
}

// fill sets defaults and returns the first mistake as an error.
func (j *BenchJob) fill() error {
	bad := func(format string, a ...any) error { return fmt.Errorf(format, a...) }
	if !isName(j.RunID) {
		return bad("run_id %q: use letters, digits, '.', '_' and '-'", j.RunID)
	}
	if !slices.Contains(BenchPhases, j.Phase) {
		return bad("phase %q: use one of %s", j.Phase, join(BenchPhases))
	}
	if j.Engine == "" {
		j.Engine = EngineFio
	}
	if err := j.Engine.Check(); err != nil {
		return err
	}
	if j.Set == "" {
		j.Set = "data"
		if j.Phase.Metadata() {
			j.Set = "tree"
		}
	}
	if !isName(j.Set) {
		return bad("set %q: use letters, digits, '.', '_' and '-'", j.Set)
	}
	if j.Clients == 0 {
		j.Clients = 1
	}
	if j.Clients < 0 || j.ClientIndex < 0 || j.ClientIndex >= j.Clients {
		return bad("client_index %d of %d clients: it must be 0 to clients-1", j.ClientIndex, j.Clients)
	}
	if j.Threads == 0 {
		j.Threads = 1
	}
	if j.Threads < 0 || j.Threads > maxThreads {
		return bad("threads is %d: use 1 to %d", j.Threads, maxThreads)
	}
	switch {
	case j.Device != "" && (j.Phase != SeqRead && j.Phase != RandRead):
		return bad("phase %s on device %s: only seq-read and rand-read may touch a device", j.Phase, j.Device)
	case j.Device != "" && j.Engine != EngineFio:
		return bad("engine %s: a device is read by fio only", j.Engine)
	case j.Device != "" && !filepath.IsAbs(j.Device):
		return bad("device %q is not an absolute path", j.Device)
	case j.Device == "" && !filepath.IsAbs(j.Dir):
		return bad("dir %q is not an absolute path", j.Dir)
	}
	if j.RegionThreads == 0 {
		j.RegionThreads = 1
	}
	if j.RegionThreads < 0 || j.Threads%j.RegionThreads != 0 || j.RegionThreads > 1 && j.Device == "" {
		return bad("region_threads %d of %d threads: use a divisor, on a device", j.RegionThreads, j.Threads)
	}
	if j.Layout == "" {
		j.Layout = OwnFile
	}
	if !slices.Contains(BenchLayouts, j.Layout) {
		return bad("layout %q: use own, segmented or strided", j.Layout)
	}
	for _, f := range []struct {
		v    *float64
		def  float64
		name string
	}{
		{&j.DurationSeconds, 0, "duration_seconds"}, {&j.StallSeconds, 0.5, "stall_seconds"}, {&j.GiveUpSeconds, 180, "give_up_seconds"},
		{&j.BucketSeconds, 1, "bucket_seconds"}, {&j.ProgressSeconds, 1, "progress_seconds"},
	} {
		if *f.v < 0 {
			return bad("%s is %g: must not be negative", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if j.BucketSeconds < 0.001 {
		return bad("bucket_seconds is %g: must be at least 0.001", j.BucketSeconds)
	}
	if j.Phase.Metadata() {
		return j.fillMetadata()
	}
	return j.fillData()
}

const maxThreads = 1024

func (j *BenchJob) fillMetadata() error {
	if j.Branch == 0 {
		j.Branch = 320
	}
	if j.Items == 0 {
		j.Items = 3000
	}
	if j.Branch < 0 || j.Items < 0 || j.ItemBytes < 0 {
		return fmt.Errorf("branch %d, items %d, item_bytes %d: must not be negative", j.Branch, j.Items, j.ItemBytes)
	}
	if int64(j.Branch)*int64(j.Items) > 1<<31 {
		return fmt.Errorf("branch %d times items %d: more than 2^31 files for one thread", j.Branch, j.Items)
	}
	return nil
}

func (j *BenchJob) fillData() error {
	random := j.Phase == RandRead || j.Phase == RandWrite
	if j.RecordBytes == 0 {
		j.RecordBytes = 1 << 20
		if random {
			j.RecordBytes = 4096
		}
	}
	if j.RecordBytes < 512 || j.RecordBytes > 64<<20 {
		return fmt.Errorf("record_bytes %d: use 512 to 64 MiB", j.RecordBytes)
	}
	if j.RecordBytes%512 != 0 && (j.Device != "" || j.Direct || random && !j.Buffered) {
		return fmt.Errorf("record_bytes %d: use a multiple of 512 for O_DIRECT", j.RecordBytes)
	}
	if j.Device == "" && j.RecordBytes%verifyBytes != 0 && j.Engine == EngineFio && random {
		return fmt.Errorf("record_bytes %d: use a multiple of %d, the block that has a checksum, in random phases", j.RecordBytes, verifyBytes)
	}
	if j.FileBytes < 0 || j.FileBytes%j.RecordBytes != 0 || j.FileBytes == 0 && j.Device == "" {
		return fmt.Errorf("file_bytes %d is not a multiple of record_bytes %d", j.FileBytes, j.RecordBytes)
	}
	if j.Limit < 0 || j.Limit > 0 && (j.Phase != RandRead || j.Engine != EngineFio || j.Device != "") {
		return fmt.Errorf("limit %d: is for rand-read of engine fio on files, and not negative", j.Limit)
	}
	return nil
}

func join[T ~string](l []T) string {
	s := make([]string, len(l))
	for i := range l {
		s[i] = string(l[i])
	}
	return strings.Join(s, ", ")
}
