package workload

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// BenchPhase is what the threads of a benchmark phase do.
type BenchPhase string

// Phases. Sequential and random ones move records of a data set, one region
// of it per thread; metadata ones work on a tree per thread.
const (
	SeqWrite  BenchPhase = "seq-write"  // each thread writes its region from start to end; fsync and close are inside the timing (iozone -i 0 -c -e -w)
	SeqRead   BenchPhase = "seq-read"   // each thread reads a region from start to end (iozone -i 1 -c)
	RandWrite BenchPhase = "rand-write" // each record of the region once, in random order (iozone -i 2 -I -O; O_DIRECT unless Buffered)
	RandRead  BenchPhase = "rand-read"  // likewise
	MDCreate  BenchPhase = "md-create"  // the tree is made first and timed apart, then the files: open with O_CREAT, write ItemBytes, close
	MDStat    BenchPhase = "md-stat"    // each file once, in random order (mdtest -T -R)
	MDRead    BenchPhase = "md-read"    // each file is opened, read whole and closed, in the order of their names (mdtest -E -e)
	MDRemove  BenchPhase = "md-remove"  // the files are unlinked; then the tree is removed, timed apart
	// Find looks at everything in the run's directory, of all its sets: an
	// operation is an entry that is no directory. Those with 01 in their names
	// are statted for their size and age (io500's find).
	Find BenchPhase = "find"
)

// BenchPhases lists every phase, each after those whose files it needs.
var BenchPhases = []BenchPhase{SeqWrite, SeqRead, RandRead, RandWrite, MDCreate, Find, MDStat, MDRead, MDRemove}

// Metadata says that the phase is one on trees of files, whose unit is the
// operation; the others move data.
func (p BenchPhase) Metadata() bool {
	return p == MDCreate || p == Find || p == MDStat || p == MDRead || p == MDRemove
}

// Writes says that the phase needs a writable file system.
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

// BenchJob is one phase on one client: the parameters of OpBench. The ops for
// benchmarks are used in the order OpBenchPrepare, OpBench, OpBenchStart (for a
// job with Hold: begin at that time), OpBenchStop, OpBenchCleanup. The results
// of a phase that is stopped come from OpBench.
//
// OpBench knows of no other client: whoever coordinates starts it with Hold
// on each, waits for the state "waiting" of all (making a tree or opening
// files may take its time, or never end), sends OpBenchStart with one moment
// shortly ahead, and joins the results.
//
// The same job goes to every client of a run, except for Client, ClientIndex
// and StartNs. Threads are counted over all clients: rank = ClientIndex *
// Threads + thread. Files are <Dir>/<RunID>/<Set>/...; nothing else in Dir is
// ever touched, and bench.cleanup removes just these.
type BenchJob struct {
	RunID       string      `json:"run_id"`           // letters, digits, '.', '_', '-'; the same on every client and in every phase of a run
	Set         string      `json:"set,omitempty"`    // name of the data set or tree; default "data" or "tree". Phases with the same RunID and Set share files
	Client      string      `json:"client,omitempty"` // name of this client, carried into the result
	ClientIndex int         `json:"client_index"`     // 0 ... Clients-1
	Clients     int         `json:"clients"`          // how many clients run this phase
	Dir         string      `json:"dir"`              // absolute: the directory under test
	Phase       BenchPhase  `json:"phase"`
	Engine      BenchEngine `json:"engine,omitempty"` // default mortar
	Threads     int         `json:"threads"`          // on this client; the same on every client

	Layout      BenchLayout `json:"layout,omitempty"`       // default own
	FileBytes   int64       `json:"file_bytes,omitempty"`   // per thread: the size of its region; a multiple of RecordBytes
	RecordBytes int64       `json:"record_bytes,omitempty"` // one call; default 1 MiB (sequential) or 4096 (random: a multiple of it)
	Direct      bool        `json:"direct,omitempty"`       // O_DIRECT in sequential phases
	Buffered    bool        `json:"buffered,omitempty"`     // no O_DIRECT in random phases
	Limit       int64       `json:"limit,omitempty"`        // rand-read: no more of each thread's records, in its order
	NoFsync     bool        `json:"no_fsync,omitempty"`     // seq-write, rand-write: leave the flush out of the timing; what is then unwritten counts as written
	ReadShift   int         `json:"read_shift,omitempty"`   // work on what the client this many further on wrote (IOR -C is 1), so that this one's cache does not help; md-read: twice as far, md-remove: three times (mdtest -N)
	DropCache   bool        `json:"drop_cache,omitempty"`   // reading: before the start, have this client forget the cached pages of the files (posix_fadvise)
	Unverified  bool        `json:"unverified,omitempty"`   // reading: do not compare with what was written. Writing is always self-describing

	Branch    int   `json:"branch,omitempty"`     // metadata: directories in each thread's tree (mdtest -b with -z 1 -L -u); default 320
	Items     int   `json:"items,omitempty"`      // files in each (mdtest -I); default 3000
	ItemBytes int64 `json:"item_bytes,omitempty"` // written to each new file, and compared by md-read (mdtest -w)
	Shared    bool  `json:"shared,omitempty"`     // one directory for the files of all threads, Branch times Items of each (mdtest without -u)
	ItemSync  bool  `json:"item_sync,omitempty"`  // and fsynced (mdtest -y, which without -w does nothing)

	// Device, instead of Dir: reading phases on a block device in equal parts
	// (sgpdd's regions), FileBytes of each or all; O_DIRECT, never verified,
	// never written to. RegionThreads take turns with the records of each
	// part, so there are Threads/RegionThreads parts; default 1.
	Device        string `json:"device,omitempty"`
	RegionThreads int    `json:"region_threads,omitempty"`

	Hold            bool    `json:"hold,omitempty"`             // once ready, with files open, wait for bench.start
	StartNs         int64   `json:"start_ns,omitempty"`         // without Hold: wall clock of this client at which all threads begin; 0: at once
	DurationSeconds float64 `json:"duration_seconds,omitempty"` // stonewall: end then, finished or not; 0: when all is done
	StallSeconds    float64 `json:"stall_seconds,omitempty"`    // a gap longer than this is recorded as a stall; default 0.5
	GiveUpSeconds   float64 `json:"give_up_seconds,omitempty"`  // a thread without progress for so long is left behind as stuck; default 180
	BucketSeconds   float64 `json:"bucket_seconds,omitempty"`   // timeline resolution; default 1
	ProgressSeconds float64 `json:"progress_seconds,omitempty"` // interval of progress events; default 1

	// Regions is what the set holds: the Regions of the results of all
	// phases that wrote to it, of all clients, joined by MergeRegions. Reading
	// and overwriting need them.
	Regions []BenchRegion `json:"regions,omitempty"`
}

// BenchRegion is the region of one rank and all that was written to it. It is
// carried from results into jobs as it is.
type BenchRegion struct {
	Rank   int         `json:"rank"`
	Bytes  int64       `json:"bytes"`            // planned size
	Passes []BenchPass `json:"passes,omitempty"` // oldest first; the n-th writes generation n
}

// BenchPass is one phase's writing to a region: records in an order that its
// kind and the region's name determine, so that the counts say which.
type BenchPass struct {
	Random      bool  `json:"random,omitempty"`
	RecordBytes int64 `json:"record_bytes"`
	Issued      int64 `json:"issued"` // records begun
	Acked       int64 `json:"acked"`  // the first so many are safely written (fsynced unless NoFsync)
}

// BenchProgress is the event bench.run emits each second.
type BenchProgress struct {
	RunID          string                `json:"run_id"`
	Phase          BenchPhase            `json:"phase"`
	TNs            int64                 `json:"t_ns"`            // wall clock of this client
	State          string                `json:"state"`           // preparing (opening files, making a tree), waiting (ready: for bench.start or StartNs), running, flushing (every thread is past its last record)
	ElapsedSeconds float64               `json:"elapsed_seconds"` // since StartNs
	Ops            int64                 `json:"ops"`             // all threads so far
	Bytes          int64                 `json:"bytes"`
	TotalOps       int64                 `json:"total_ops"` // planned, all threads of this client
	TotalBytes     int64                 `json:"total_bytes"`
	Threads        []BenchThreadProgress `json:"threads"`
}

// BenchThreadProgress is one thread's line in it: what remains of its figures
// should the client vanish.
type BenchThreadProgress struct {
	Thread      int     `json:"thread"`
	Ops         int64   `json:"ops"`
	Bytes       int64   `json:"bytes"`
	Done        bool    `json:"done,omitempty"`
	IdleSeconds float64 `json:"idle_seconds,omitempty"` // since the last completed operation, once over StallSeconds
	Error       string  `json:"error,omitempty"`        // it has given up: why
}

// BenchResult is what bench.run answers. Failing threads are in it and no
// error of the op: that is for a job that could not begin.
type BenchResult struct {
	RunID         string      `json:"run_id"`
	Set           string      `json:"set"`
	Client        string      `json:"client,omitempty"`
	ClientIndex   int         `json:"client_index"`
	Phase         BenchPhase  `json:"phase"`
	Engine        BenchEngine `json:"engine"`
	EngineVersion string      `json:"engine_version,omitempty"` // other engines: what it says of itself
	Command       []string    `json:"command,omitempty"`        // other engines: as started

	StartNs   int64  `json:"start_ns"`   // the agreed start, or the moment it became
	LateNs    int64  `json:"late_ns"`    // how long after StartNs the last thread began: above some ms, it was not ready in time
	EndNs     int64  `json:"end_ns"`     // when the last thread had closed its file (stuck ones: when they were left)
	StoppedBy string `json:"stopped_by"` // done, duration, stop, cancelled

	Ops            int64         `json:"ops"` // sums over the threads
	Bytes          int64         `json:"bytes"`
	Latency        BenchLatency  `json:"latency"` // all threads
	Timeline       BenchTimeline `json:"timeline"`
	Threads        []BenchThread `json:"threads"`
	UserCPUSeconds float64       `json:"user_cpu_seconds"` // of the whole worker process, from start to end
	SysCPUSeconds  float64       `json:"sys_cpu_seconds"`

	TreeMakeSeconds   float64       `json:"tree_make_seconds,omitempty"`   // md-create: mkdir of the directories, before StartNs
	TreeRemoveSeconds float64       `json:"tree_remove_seconds,omitempty"` // md-remove: rmdir of them, after EndNs
	Verified          *BenchVerify  `json:"verified,omitempty"`            // reading: absent where nothing was compared
	Regions           []BenchRegion `json:"regions,omitempty"`             // writing: what the regions of this client's ranks hold now
	FSType            string        `json:"fs_type,omitempty"`
	Source            string        `json:"source,omitempty"`
	Notes             []string      `json:"notes,omitempty"` // what the reader of the figures must know
}

// Faults of a thread, as far as they have a name of their own.
const (
	FaultNoSpace  = "no-space"  // ENOSPC, EDQUOT
	FaultReadOnly = "read-only" // EROFS
	FaultVanished = "vanished"  // ESTALE, ENOENT, ENXIO, ENODEV, ENOTCONN: the file, mount or device is gone
	FaultStuck    = "stuck"     // no progress within GiveUpSeconds, or still hanging when all else was over
	FaultIO       = "io"        // anything else
)

// BenchThread is one thread's part. Its rate is Ops or Bytes over StartNs to
// EndNs; a rate over a window that all threads share is taken from Timeline.
type BenchThread struct {
	Thread        int          `json:"thread"` // 0 ... Threads-1
	Rank          int          `json:"rank"`
	Path          string       `json:"path"`
	StartNs       int64        `json:"start_ns"`       // first record begun
	LastNs        int64        `json:"last_ns"`        // last record done
	EndNs         int64        `json:"end_ns"`         // flushed and closed
	FlushSeconds  float64      `json:"flush_seconds"`  // fsync
	CloseSeconds  float64      `json:"close_seconds"`  // close
	OwnSeconds    float64      `json:"own_seconds"`    // of it, generating or verifying data; not in Latency
	Finished      bool         `json:"finished"`       // did all of its work
	Ops           int64        `json:"ops"`            // records, or files created, statted, removed
	Bytes         int64        `json:"bytes"`          // moved by them
	Latency       BenchLatency `json:"latency"`        // of each
	TimelineOps   []int64      `json:"timeline_ops"`   // per bucket of the result's Timeline
	TimelineBytes []int64      `json:"timeline_bytes"` // likewise; null in metadata phases
	Stalls        []Stall      `json:"stalls,omitempty"`
	Fault         string       `json:"fault,omitempty"` // why it ended early: one of the Fault constants
	Errno         string       `json:"errno,omitempty"`
	Error         string       `json:"error,omitempty"` // in words, with what may mend it
}

// BenchLatency is a distribution of operation times in seconds, from issue to
// completion. Other engines fill in what they tell; the histogram is then
// absent.
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

// BenchTimeBucket is all threads of a client together.
type BenchTimeBucket struct {
	Ops       int64   `json:"ops"`
	Bytes     int64   `json:"bytes"`
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
	Max       float64 `json:"max_seconds"`
	Histogram string  `json:"histogram,omitempty"` // as in BenchLatency, to merge clients with
}

// BenchVerify is what comparing with the data written has found. Lost and
// wrong are counted and named as in the drills' verification.
type BenchVerify struct {
	Bytes    int64    `json:"bytes"`             // compared
	BadBytes int64    `json:"bad_bytes"`         // not what was written: stale, misplaced, foreign, zero, torn, corrupt
	Findings []string `json:"findings"`          // the first MaxFindings, one line each
	Skipped  string   `json:"skipped,omitempty"` // why some of what was read was not compared
}

// MaxFindings is how many findings of one thread are kept in words.
const MaxFindings = 20

// BenchPrepareParams are the parameters of OpBenchPrepare, once per run and
// client, before the first phase: it makes <dir>/<run id> and tells what is
// there. It fails with a clear error when the directory is missing, not
// writable, or has less than NeedBytes free.
type BenchPrepareParams struct {
	RunID     string `json:"run_id"`
	Dir       string `json:"dir"`
	NeedBytes int64  `json:"need_bytes,omitempty"` // the largest amount the whole run holds at once
	NeedFiles int64  `json:"need_files,omitempty"`
}

// BenchFacts is what OpBenchPrepare answers.
type BenchFacts struct {
	NowNs        int64             `json:"now_ns"` // wall clock, to compare clients with
	CPUs         int               `json:"cpus"`
	MemBytes     int64             `json:"mem_bytes"`
	FSType       string            `json:"fs_type"`
	Source       string            `json:"source"`
	MountOptions string            `json:"mount_options"`
	FreeBytes    int64             `json:"free_bytes"`
	FreeFiles    int64             `json:"free_files"` // 0: the file system does not tell
	Engines      map[string]string `json:"engines"`    // engine -> version, those installed
	Others       []string          `json:"others"`     // directories that other runs made and have not removed: under way, or killed
}

// BenchCleanupParams are the parameters of bench.cleanup: <dir>/<run id>, or
// only one set in it, is removed with everything in it, if OpBenchPrepare made
// it for that run. One client does it for all.
type BenchCleanupParams struct {
	RunID string `json:"run_id"`
	Dir   string `json:"dir"`
	Set   string `json:"set,omitempty"`
}

// BenchCleanupProgress is the event bench.cleanup emits each second.
type BenchCleanupProgress struct {
	Removed int64 `json:"removed"` // files and directories so far
}

// BenchCleanupResult is what bench.cleanup answers.
type BenchCleanupResult struct {
	Removed int64 `json:"removed"`
}

// BenchStartParams are the parameters of bench.start.
type BenchStartParams struct {
	RunID   string `json:"run_id"`
	StartNs int64  `json:"start_ns"` // wall clock of this client; 0 or past: at once
}

// BenchStopParams are the parameters of bench.stop: the phase under way ends
// now, is flushed and closed, and bench.run answers with what there is.
type BenchStopParams struct {
	RunID string `json:"run_id"`
}

// MergeRegions adds what later phases, or other clients, report to what is
// known of a set.
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

// fill sets defaults and reports the first thing that is wrong.
func (j *BenchJob) fill() error {
	bad := func(format string, a ...any) error { return fmt.Errorf(format, a...) }
	if !isName(j.RunID) {
		return bad("run_id %q: use letters, digits, '.', '_' and '-'", j.RunID)
	}
	if !slices.Contains(BenchPhases, j.Phase) {
		return bad("phase %q: use one of %s", j.Phase, join(BenchPhases))
	}
	if j.Engine == "" {
		j.Engine = EngineMortar
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
	case j.Device != "" && j.Engine != EngineMortar:
		return bad("engine %s: a device is read by Mortar's own engine only", j.Engine)
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
	if j.Device == "" && j.RecordBytes%4096 != 0 && j.Engine == EngineMortar && random {
		return fmt.Errorf("record_bytes %d: use a multiple of 4096, the unit of self-describing data, in random phases", j.RecordBytes)
	}
	if j.FileBytes < 0 || j.FileBytes%j.RecordBytes != 0 || j.FileBytes == 0 && j.Device == "" {
		return fmt.Errorf("file_bytes %d is not a multiple of record_bytes %d", j.FileBytes, j.RecordBytes)
	}
	if j.Limit < 0 || j.Limit > 0 && (j.Phase != RandRead || j.Engine != EngineMortar || j.Device != "") {
		return fmt.Errorf("limit %d: is for rand-read of engine mortar on files, and not negative", j.Limit)
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
