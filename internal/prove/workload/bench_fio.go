package workload

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// threadWork is the part of a phase that one thread does: a process of its own. It runs
// in a directory of its own, in which it may write files: reportFile, or the log
// of latencies.
type threadWork struct {
	rank  int    // of that thread
	owner int    // the rank whose files it uses
	dir   string // of the set
	bytes int64  // that the owner has in the set, or is to write
	files int64  // likewise
}

// reportFile is the name of a program's report. A program that writes none is
// read from its standard output.
const reportFile = "report"

// output is what a program has left.
type output struct {
	report []byte
	said   string // standard error
	log    []byte // of latencies
}

// outcome is what a program reports of its phase.
type outcome struct {
	ops, bytes int64
	seconds    float64
	spells     []spell // none of find
	err        error
	verified   *BenchVerify
}

// The load is fio's, with find(1) for the one phase that fio has no load for.
// Each thread is a process of its own: one that fails or hangs costs its own
// figures. apply installs fio.
// Source: fio(1) of fio 3.33, and of 3.39 for directories
const (
	fio = "fio"
	// FioInstall tells how fio comes to a client.
	FioInstall = "mortar apply installs it, or apt-get install fio"
	// gateFile is a FIFO in the directory of a fio process. Its job opens the
	// FIFO once its files are set up, and begins when the writer closes it.
	gateFile = "gate"
	// latencyLog is the prefix of fio's log of latencies.
	latencyLog = "latency"
	// verifyBytes is the size of a block with a checksum of its own. Records that
	// are no multiple of it have one checksum each.
	verifyBytes = 4096
	// leastVerified is the least size of a file with contents that are checked:
	// fio's header takes up to 80 bytes of it.
	leastVerified = 512
)

// rankName begins the names of a rank's files. It has no leading zeros, which
// would look like the pattern of find.
func rankName(rank int) string { return fmt.Sprintf("r%d", rank) }

// fioCommand builds the command of a thread: one call at a time, each record or
// file once, a flush inside the time of a phase that writes.
func fioCommand(j *BenchJob, w threadWork) []string {
	if j.Phase == Find {
		return findCommand(j, w)
	}
	argv := []string{
		"fio", "--name=" + rankName(w.owner), "--thread=1", "--fallocate=none",
		// Without this, fio makes files in their full size before it starts.
		"--create_on_open=1",
		// By default fio doubles the kernel's read-ahead (posix_fadvise(2)). The
		// papers' programs do not.
		"--fadvise_hint=0",
		fmt.Sprintf("--randseed=%d", xxh3.HashString(fmt.Sprintf("%s/%s/%s/%d", j.RunID, j.Set, j.Phase, w.owner))>>33),
		"--exec_prerun=cat " + gateFile,
		"--eta=never", "--output-format=json+", "--output=" + reportFile,
		"--write_hist_log=" + latencyLog, "--log_hist_msec=" + strconv.Itoa(max(int(j.BucketSeconds*1000), 1)),
	}
	if j.DurationSeconds > 0 {
		argv = append(argv, fmt.Sprintf("--runtime=%dms", int64(j.DurationSeconds*1000)))
	}
	if j.SmallBytes > 0 { // neither part of a mixture is to be done first
		argv = append(argv, "--time_based=1")
	}
	if !j.Phase.Writes() {
		argv = append(argv, "--allow_file_create=0", "--invalidate="+fioBool(j.DropCache))
	}
	if j.Phase.Metadata() {
		return append(argv, fioFiles(j, w)...)
	}
	return append(argv, fioRecords(j, w)...)
}

// fioFiles are the options of a metadata phase. fio's engines for metadata move
// no data; a size of 1 makes each file one operation.
func fioFiles(j *BenchJob, w threadWork) []string {
	order, size := "sequential", int64(1)
	engine := map[BenchPhase]string{MDCreate: "filecreate", MDStat: "filestat", MDRemove: "filedelete", MDRead: "psync",
		MDMkdir: "dircreate", MDDirStat: "dirstat", MDRmdir: "dirdelete"}[j.Phase]
	if j.Phase == MDStat || j.Phase == MDDirStat {
		order = "random"
	}
	var contents []string
	if j.Phase == MDRead || j.Phase == MDCreate && j.ItemBytes > 0 {
		engine, size = "psync", j.ItemBytes
		contents = []string{"--rw=" + map[bool]string{true: "write", false: "read"}[j.Phase.Writes()]}
		if j.ItemBytes >= leastVerified {
			contents = append(contents, fioVerify...)
		}
		if j.Phase == MDCreate && j.ItemSync {
			contents = append(contents, "--fsync_on_close=1")
		}
	}
	return append([]string{
		"--ioengine=" + engine, "--directory=" + escapeFio(treeDir(j, w)), "--filename_format=" + rankName(w.owner) + ".$filenum",
		fmt.Sprintf("--nrfiles=%d", w.files), "--openfiles=1", "--file_service_type=" + order,
		fmt.Sprintf("--filesize=%d", size), fmt.Sprintf("--bs=%d", size),
	}, contents...)
}

// treeDir is where the files of a rank are.
func treeDir(j *BenchJob, w threadWork) string {
	if j.Shared {
		return w.dir
	}
	return filepath.Join(w.dir, rankName(w.owner)+".tree")
}

// fioVerify has each block written with its place and a checksum, and checked
// when it is read. fio goes on after a wrong one, with the next record.
var fioVerify = []string{"--verify=crc32c", "--do_verify=0", "--verify_state_save=0", "--continue_on_error=verify"}

// fioRecords are the options of a phase that moves records.
func fioRecords(j *BenchJob, w threadWork) []string {
	rw := map[BenchPhase]string{SeqWrite: "write", SeqRewrite: "write", SeqRead: "read", RandWrite: "randwrite", RandRead: "randread"}[j.Phase]
	random := j.Phase == RandRead || j.Phase == RandWrite
	direct := j.Direct || random && !j.Buffered
	file, offset := filepath.Join(w.dir, rankName(w.owner)+".data"), int64(0)
	if j.Layout != OwnFile {
		file = filepath.Join(w.dir, "shared.data")
	}
	records := w.bytes / j.RecordBytes
	among := int64(1) // of how many records one is this thread's
	switch {
	case j.Layout == Segmented:
		offset = int64(w.owner) * j.FileBytes
	case j.Layout == Strided:
		among, offset = int64(j.Clients*j.Threads), int64(w.owner)*j.RecordBytes
	}
	if among > 1 && !random {
		rw += fmt.Sprintf(":%d", (among-1)*j.RecordBytes)
	}
	bytes := records * j.RecordBytes
	if j.Limit > 0 {
		bytes = min(bytes, j.Limit*j.RecordBytes)
	}
	argv := []string{
		"--ioengine=psync", "--rw=" + rw, fmt.Sprintf("--bs=%d", j.RecordBytes), "--filename=" + escapeFio(file),
		fmt.Sprintf("--offset=%d", offset), fmt.Sprintf("--size=%d", ((records-1)*among+1)*j.RecordBytes), fmt.Sprintf("--io_size=%d", bytes), "--direct=" + fioBool(direct),
	}
	argv = append(argv, fioVerify...)
	if j.RecordBytes%verifyBytes == 0 {
		argv = append(argv, fmt.Sprintf("--verify_interval=%d", verifyBytes))
	}
	if j.Phase.Writes() {
		argv = append(argv, "--end_fsync=1")
	}
	return argv
}

// escapeFio escapes the ':' with which fio separates files.
func escapeFio(path string) string { return strings.ReplaceAll(path, ":", `\:`) }

func fioBool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// fioReport is the part of fio's JSON that is read.
type fioReport struct {
	Jobs []struct {
		Error int     `json:"error"`
		Read  fioSide `json:"read"`
		Write fioSide `json:"write"`
	} `json:"jobs"`
}

type fioSide struct {
	TotalIOs int64 `json:"total_ios"`
	Runtime  int64 `json:"runtime"` // ms
	Clat     struct {
		Bins Bins `json:"bins"`
	} `json:"clat_ns"`
}

// parseFio reads --output-format=json+, the log of latencies, and the messages
// about blocks that are not what was written. Latencies are those of completion,
// which for the engine psync are the times of the system calls.
func parseFio(j *BenchJob, w threadWork, out output) (*outcome, error) {
	if j.Phase == Find {
		return parseFind(j, w, out)
	}
	// Messages may precede the JSON.
	text := out.report
	if i := bytes.Index(text, []byte("{\n")); i > 0 {
		text = text[i:]
	}
	var r fioReport
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if len(r.Jobs) != 1 {
		return nil, fmt.Errorf("it tells of %d jobs", len(r.Jobs))
	}
	// filecreate, filestat and filedelete count as reading.
	side := r.Jobs[0].Read
	if s := r.Jobs[0].Write; s.TotalIOs > 0 {
		side = s
	}
	// fio counts a record when it issues it, so that of one that failed counts,
	// too; a latency has what was completed.
	t := &outcome{seconds: float64(max(side.Runtime, 1)) / 1e3}
	for ns, n := range side.Clat.Bins {
		if ns < 0 || n < 0 || n > math.MaxInt64/2-t.ops {
			return nil, fmt.Errorf("latency bin %d: %d", ns, n)
		}
		t.ops += n
	}
	switch {
	case !j.Phase.Metadata():
		t.bytes = t.ops * j.RecordBytes
	case j.Phase == MDRead || j.Phase == MDCreate:
		t.bytes = t.ops * j.ItemBytes
	}
	var err error
	if t.spells, err = fioSpells(out.log, t, side.Clat.Bins); err != nil {
		return nil, err
	}
	if data := !j.Phase.Writes() && !j.Phase.Metadata(); data || j.Phase == MDRead && j.ItemBytes >= leastVerified {
		t.verified = fioVerified(j, t.bytes, out.said)
	}
	// EILSEQ means that a block was wrong: the findings tell which.
	if e := unix.Errno(r.Jobs[0].Error); e != 0 && (e != unix.EILSEQ || t.verified == nil || t.verified.BadBytes == 0) {
		t.err = fmt.Errorf("fio: %s: %w", lastLines(out.said, 1), e)
	}
	return t, nil
}

// fioSpells reads the log of --write_hist_log: a line for each interval with the
// time in ms since the start, direction, block size, and how many operations
// completed in each of fio's latency bins. Bytes in no line ended after the
// last one.
// Source: fio(1), log_hist_msec; plat_idx_to_val in stat.c of fio
func fioSpells(log []byte, t *outcome, all Bins) ([]spell, error) {
	left, rest := maps.Clone(all), t.ops
	var out []spell
	for line := range strings.Lines(string(log)) {
		f := strings.Split(strings.TrimSpace(line), ",")
		ms, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || len(f) < 4 || len(f) > 2048 || ms < 0 || ms > 1e12 {
			return nil, fmt.Errorf("line of latencies %.40q", line)
		}
		s := spell{ms * 1e6, Bins{}}
		for i, x := range f[3:] {
			if x = strings.TrimSpace(x); x == "0" {
				continue
			}
			n, err := strconv.ParseInt(x, 10, 64)
			if err != nil || n < 0 || n > rest {
				return nil, fmt.Errorf("line of latencies %.40q: %q operations, of %d that are left", line, x, rest)
			}
			rest -= n
			s.bins[fioBin(i)] = n
			left[fioBin(i)] -= n
		}
		out = append(out, s)
	}
	if rest > 0 {
		maps.DeleteFunc(left, func(_, n int64) bool { return n <= 0 })
		out = append(out, spell{int64(t.seconds * 1e9), left})
	}
	return out, nil
}

// fioBin is the middle of fio's i-th latency bin, in ns: the first 64 are 1 ns
// wide, then each 64 are twice as wide as those before.
func fioBin(i int) int64 {
	if i < 2*64 {
		return int64(i)
	}
	width := i/64 - 1
	return 1<<(width+6) + int64(i%64)<<width + 1<<width/2
}

// fioBad is fio's message about a block.
var fioBad = regexp.MustCompile(`(?m)^(.*) at file (.*) offset (\d+), length`)

func fioVerified(j *BenchJob, read int64, said string) *BenchVerify {
	v := &BenchVerify{Bytes: read, Findings: []string{}}
	block := j.ItemBytes
	if !j.Phase.Metadata() {
		if block = j.RecordBytes; block%verifyBytes == 0 {
			block = verifyBytes
		}
	}
	for _, m := range fioBad.FindAllStringSubmatch(said, -1) {
		v.BadBytes += block
		if len(v.Findings) < MaxFindings {
			v.Findings = append(v.Findings, fmt.Sprintf("%s: the block at %s is not what was written there: %s", m[2], m[3], m[1]))
		}
	}
	v.Bytes = max(v.Bytes, v.BadBytes)
	return v
}

// findPattern is the part of a name that matches.
const findPattern = "01"

// findCommand builds io500's find over all files of a run:
//
//	find RUN -newer MARK -size ITEM_BYTESc -name '*01*'
//
// Each thread looks at the entries that begin with its rank's name, and leaves out the trees of
// other ranks. find prints a '.' for each entry that is no directory, and a '+' for each
// match in the job's set. Only entries whose names match are statted.
// Source: pfind.c (find_do_readdir, find_do_lstat), phase_find.c of IO500
func findCommand(j *BenchJob, w threadWork) []string {
	run := filepath.Dir(w.dir)
	mine := []string{"-name", rankName(w.rank) + ".*"}
	if w.rank == 0 {
		mine = []string{"(", "-name", rankName(w.rank) + ".*", "-o", "-name", "shared.*", ")"}
	}
	return slices.Concat([]string{"find", run, "-mindepth", "2", "-type", "d", "!"}, mine, []string{"-prune", "-o", "!", "-type", "d"}, mine, []string{
		"-printf", ".", "-name", "*" + findPattern + "*", "-newer", filepath.Join(run, benchMarker), "-size", fmt.Sprintf("%dc", j.ItemBytes),
		"-path", "*/" + j.Set + "/*", "-printf", "+",
	})
}

// parseFind counts what find has printed, and compares the matches with those
// among the names of the rank's files.
func parseFind(j *BenchJob, w threadWork, out output) (*outcome, error) {
	found := int64(bytes.Count(out.report, []byte("+")))
	t := &outcome{ops: int64(bytes.Count(out.report, []byte(".")))}
	if found+t.ops != int64(len(out.report)) || t.ops == 0 {
		return nil, fmt.Errorf("it printed other than '.' and '+': %.80q", out.report)
	}
	want := int64(0)
	for n := range w.files {
		if strings.Contains(fmt.Sprintf("%s.%d", rankName(w.rank), n), findPattern) {
			want++
		}
	}
	t.verified = &BenchVerify{Bytes: found * j.ItemBytes, Findings: []string{}}
	if found != want {
		t.verified.BadBytes = max(j.ItemBytes, 1)
		t.verified.Findings = []string{fmt.Sprintf("%s: %d files of %d bytes with %s in their names were found, and %d were made", w.dir, found, j.ItemBytes, findPattern, want)}
	}
	return t, nil
}

// fioVersion is the version that fio prints, "" if it is not installed. A busy client may take
// long to start a program.
func fioVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no answer within a minute"))
	defer cancel()
	out, err := exec.CommandContext(ctx, fio, "--version").Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("fio --version: %w", cmp.Or(context.Cause(ctx), err))
	}
	return strings.TrimSpace(string(out)), nil
}

// DoesDirectories reports whether a version of fio, as fio prints it, has the
// engines dircreate, dirstat and dirdelete. Source: commit a7a817a2 of fio
func DoesDirectories(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "fio-%d.%d", &major, &minor)
	return err == nil && (major > 3 || major == 3 && minor >= 37)
}
