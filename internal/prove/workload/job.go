package workload

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// Job is one load on one client: the parameters of load.run.
type Job struct {
	RunID           string   `json:"run_id"`                     // letters, digits, '.', '_', '-'; the same on every client of a run
	Client          string   `json:"client,omitempty"`           // name of this client, carried into the result
	StreamBase      uint32   `json:"stream_base,omitempty"`      // stream ids are base+1, base+2, ...: give each client its own (client index * 1000)
	LedgerDir       string   `json:"ledger_dir,omitempty"`       // default /var/lib/mortar/runs/<run id>; never on the system under test
	Durable         bool     `json:"durable,omitempty"`          // ledgers survive a crash of the client: each record costs a write to its disk
	StallSeconds    float64  `json:"stall_seconds,omitempty"`    // a gap longer than this is a stall; default 0.5
	StuckSeconds    float64  `json:"stuck_seconds,omitempty"`    // how long to wait for a hanging worker after stop; default 10
	ProgressSeconds float64  `json:"progress_seconds,omitempty"` // interval of progress events; default 1
	Writers         []Writer `json:"writers"`
	Locks           []Lock   `json:"locks,omitempty"`
	Names           []Names  `json:"names,omitempty"`
}

// Pattern is the order in which a writer writes its file.
type Pattern string

// Mode is how a writer writes, and so when a write counts as acknowledged.
type Mode string

// Patterns and modes.
const (
	Seq    Pattern = "seq"    // from start to end of the file, then again (overwriting)
	Random Pattern = "random" // uniformly distributed within the file size
	Append Pattern = "append" // appends; with file_size_bytes 0 without end, else like seq once the file has that size

	OSync Mode = "osync" // O_SYNC: acknowledged when write returns
	Fsync Mode = "fsync" // buffered: acknowledged when the fsync after it returns
)

// Writer is one worker writing one file of its own.
type Writer struct {
	Name         string  `json:"name"`                      // unique in the job
	Dir          string  `json:"dir"`                       // the file is <dir>/<run id>/<name>.data
	Pattern      Pattern `json:"pattern,omitempty"`         // default seq
	Mode         Mode    `json:"mode,omitempty"`            // default osync
	FsyncEvery   int     `json:"fsync_every,omitempty"`     // mode fsync: writes between fsyncs; default 16
	BlockBytes   int64   `json:"block_bytes,omitempty"`     // one write; a multiple of 4096, default 65536
	FileBytes    int64   `json:"file_size_bytes,omitempty"` // default 67108864; pattern append: 0 is without end
	OpsPerSecond float64 `json:"ops_per_second,omitempty"`  // rate limit; 0: none
	// ZoneBytes: every second write goes to so many bytes at the begin of the file, after
	// each mark too, so that some acknowledged data is being overwritten at any moment.
	ZoneBytes int64 `json:"zone_bytes,omitempty"`
}

// LockRole says what a lock worker does.
type LockRole string

// Lock roles.
const (
	Hold      LockRole = "hold"      // takes a lock at the start, keeps it to the end, and checks each interval that I/O under it still works
	Probe     LockRole = "probe"     // takes and releases a lock on a file of its own each interval: the latency shows the grace period
	Take      LockRole = "take"      // tries each interval to take what a client holds that dies; then holds it
	Challenge LockRole = "challenge" // tries each interval to take what another client holds: getting it is a violation
)

// Lock is one worker on one lock file.
type Lock struct {
	Name            string   `json:"name"`
	Dir             string   `json:"dir"`
	Role            LockRole `json:"role"`
	File            string   `json:"file,omitempty"`             // the file is <dir>/<run id>/<file>.lock; default the name; challenge, take: the holder's
	IntervalSeconds float64  `json:"interval_seconds,omitempty"` // default 0.5
}

// Names is one worker that makes and removes a directory in turns, so that a
// drill sees whether the file system's metadata server answers.
type Names struct {
	Name         string  `json:"name"`
	Dir          string  `json:"dir"`                      // the directory is <dir>/<run id>/<name>.names
	OpsPerSecond float64 `json:"ops_per_second,omitempty"` // pairs of mkdir and rmdir; 0: no limit
}

// Progress is the event that load.run emits every ProgressSeconds.
type Progress struct {
	Workers []WorkerProgress `json:"workers"`
}

// WorkerProgress is one worker's part of a Progress.
type WorkerProgress struct {
	Worker       string  `json:"worker"`
	Ops          int64   `json:"ops"`           // completed so far: writes, fsyncs, lock and unlock calls
	AckedBytes   int64   `json:"acked_bytes"`   // acknowledged so far
	Errors       int64   `json:"errors"`        // failed calls so far
	StallSeconds float64 `json:"stall_seconds"` // how long it has been without progress; 0 while below the threshold
	LastOpNs     int64   `json:"last_op_ns"`    // wall clock of the last completed operation; 0: none yet
	LastError    string  `json:"last_error,omitempty"`
	Violations   int64   `json:"violations,omitempty"`
	Took         bool    `json:"took,omitempty"`   // a lock worker with the role take has its lock
	Failed       string  `json:"failed,omitempty"` // why the worker has given up
}

// Result is the answer of load.run. The agent also writes it to
// <ledger dir>/result.json, for load.result after a broken connection.
type Result struct {
	RunID     string `json:"run_id"`
	Ledger    string `json:"ledger"`     // the directory: the parameter of verify.run
	StoppedBy string `json:"stopped_by"` // stop, cancelled, workers

	Workers           []WorkerResult `json:"workers"`
	Stalls            []Stall        `json:"stalls"`             // longest first
	AcknowledgedBytes int64          `json:"acknowledged_bytes"` // sum of bytes acknowledged to writers (overwrites counted each time)
	Errors            []OpError      `json:"errors"`             // the first MaxErrors of each worker, by time
	ErrorCount        int64          `json:"error_count"`
	Violations        int64          `json:"violations"` // locks were lost or given twice
	Stuck             []string       `json:"stuck"`      // workers that still hung in a call when the wait was over
}

// WorkerResult is one worker's part of a Result.
type WorkerResult struct {
	Worker     string          `json:"worker"`
	Kind       string          `json:"kind"`             // writer, names, lock-hold, lock-probe, lock-challenge, lock-take
	Mode       string          `json:"mode,omitempty"`   // writers: pattern/mode
	Failed     string          `json:"failed,omitempty"` // why the worker ended early
	Ops        int64           `json:"ops"`              // completed writes, fsyncs, lock and unlock calls
	AckedBytes int64           `json:"acked_bytes"`
	Errors     int64           `json:"errors"`
	Reopens    int64           `json:"reopens"`
	Violations int64           `json:"violations"`
	Stuck      bool            `json:"stuck"`
	LastOpNs   int64           `json:"last_op_ns"`
	Latency    *report.Latency `json:"latency,omitempty"`
	// FsyncLatency is separate because an fsync carries many writes.
	FsyncLatency *report.Latency `json:"fsync_latency,omitempty"`
	Timeline     Timeline        `json:"timeline"`
	// Completions are the operations that ended a stall or followed errors,
	// and every operation of a lock worker. The drill finds the first I/O and
	// the first lock after a failover here.
	Completions []Completion `json:"completions"`
}

// OpTook is the operation of a lock worker with the role take that got the lock.
const OpTook = "took"

// Completion is one completed operation.
type Completion struct {
	Op       string `json:"op"`
	IssuedNs int64  `json:"issued_ns"`
	DoneNs   int64  `json:"done_ns"`
}

// Timeline counts completed operations and acknowledged bytes in buckets from
// StartNs on. Trailing empty buckets are kept, so that a hang is visible.
type Timeline struct {
	StartNs       int64   `json:"start_ns"`
	BucketSeconds float64 `json:"bucket_seconds"`
	Ops           []int64 `json:"ops"`
	Bytes         []int64 `json:"bytes"`
}

// Stall is a time in which a worker had work to do and nothing completed:
// from the issue of the operation that hung (or first failed) to the next
// successful completion.
type Stall struct {
	Worker  string  `json:"worker"`
	StartNs int64   `json:"start_ns"`
	Seconds float64 `json:"seconds"`
	Open    bool    `json:"open,omitempty"` // still hanging at the end
}

// OpError is a failed call.
type OpError struct {
	Worker string `json:"worker"`
	TNs    int64  `json:"t_ns"`
	Op     string `json:"op"`
	Errno  string `json:"errno,omitempty"` // symbolic: EIO, ESTALE, ...
	Error  string `json:"error"`
}

// MaxErrors is how many errors and stalls of one worker are kept in full; all
// are counted.
const MaxErrors = 200

// StopParams are the parameters of load.stop, load.mark, load.result, load.clean and
// bench.stop; they name a run.
type StopParams struct {
	RunID     string `json:"run_id"`
	LedgerDir string `json:"ledger_dir,omitempty"` // of the job, if not the default; load.stop needs it only for a run of another session
}

// VerifyParams are the parameters of verify.run, which reads with O_DIRECT.
type VerifyParams struct {
	Ledger   string            `json:"ledger"`              // a ledger file, or a directory of them
	Dirs     map[string]string `json:"dirs,omitempty"`      // directory as written -> directory to read from (another mount)
	BeforeNs int64             `json:"before_ns,omitempty"` // wall clock of this client: see stream.Options
}

// isName reports whether s can be part of a file's name: letters, digits and
// '_', except at the start also '.' and '-'; at most 100 bytes.
func isName(s string) bool {
	if s == "" || len(s) > 100 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

// DefaultLedgerDir is where a run's ledgers are kept on a client.
func DefaultLedgerDir(runID string) string { return filepath.Join("/var/lib/mortar/runs", runID) }

// Workers counts the workers of a job.
func (j *Job) Workers() int { return len(j.Writers) + len(j.Locks) + len(j.Names) }

// fill sets defaults, and refuses names and directories that would lead to files that are not the
// run's.
func (j *Job) fill() error {
	if !isName(j.RunID) {
		return fmt.Errorf("run_id %q: use letters, digits, '.', '_' and '-'", j.RunID)
	}
	j.LedgerDir = cmp.Or(j.LedgerDir, DefaultLedgerDir(j.RunID))
	j.StallSeconds, j.StuckSeconds, j.ProgressSeconds = cmp.Or(j.StallSeconds, 0.5), cmp.Or(j.StuckSeconds, 10), cmp.Or(j.ProgressSeconds, 1)
	var err error
	check := func(dir string, names ...string) {
		switch i := slices.IndexFunc(names, func(n string) bool { return !isName(n) }); {
		case err != nil:
		case i >= 0:
			err = fmt.Errorf("worker or file %q: use letters, digits, '.', '_' and '-'", names[i])
		case !filepath.IsAbs(dir):
			err = fmt.Errorf("worker %s: dir %q is not an absolute path", names[0], dir)
		}
	}
	for i := range j.Writers {
		w := &j.Writers[i]
		w.Pattern, w.Mode, w.FsyncEvery, w.BlockBytes = cmp.Or(w.Pattern, Seq), cmp.Or(w.Mode, OSync), cmp.Or(w.FsyncEvery, 16), cmp.Or(w.BlockBytes, 64<<10)
		if w.Pattern != Append {
			w.FileBytes = cmp.Or(w.FileBytes, 64<<20)
		}
		check(w.Dir, w.Name)
		// Blocks that do not fit would make the verdict on the file's sectors wrong.
		if b := w.BlockBytes; err == nil && (b <= 0 || b%stream.BlockSize != 0 || w.FileBytes%b != 0 || w.ZoneBytes < 0 || w.ZoneBytes%b != 0 || w.ZoneBytes > w.FileBytes) {
			err = fmt.Errorf("writer %s: block_bytes %d, file_size_bytes %d and zone_bytes %d are no multiples", w.Name, b, w.FileBytes, w.ZoneBytes)
		}
	}
	for i := range j.Locks {
		l := &j.Locks[i]
		l.File, l.IntervalSeconds = cmp.Or(l.File, l.Name), cmp.Or(l.IntervalSeconds, 0.5)
		check(l.Dir, l.Name, l.File)
	}
	for _, n := range j.Names {
		check(n.Dir, n.Name)
	}
	return err
}
