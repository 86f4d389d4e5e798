package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fio is the engine fio. Source: fio(1)
var fio = engine{
	name: "fio", pack: "fio", phases: []BenchPhase{SeqWrite, SeqRead, RandRead, RandWrite}, layouts: []BenchLayout{OwnFile, Segmented}, endsByTime: true,
	command: fioCommand, parse: parseFio,
	version: func(ctx context.Context, path string) string { return firstLine(ctx, path, "--version") },
}

// fioCommand builds the command of a phase: fio uses a file per thread, makes
// one call at a time, moves each record once, and flushes and closes the file
// inside its runtime.
func fioCommand(j *BenchJob, dir, report string, client int) []string {
	rw := map[BenchPhase]string{SeqWrite: "write", SeqRead: "read", RandWrite: "randwrite", RandRead: "randread"}[j.Phase]
	direct := j.Direct
	if j.Phase == RandRead || j.Phase == RandWrite {
		direct = !j.Buffered
	}
	argv := []string{
		"fio", "--name=mortar", "--directory=" + escapeFio(dir), "--rw=" + rw, "--bs=" + strconv.FormatInt(j.RecordBytes, 10),
		"--size=" + strconv.FormatInt(j.FileBytes, 10), "--numjobs=" + strconv.Itoa(j.Threads), "--ioengine=psync", "--thread=1",
		"--direct=" + bit(direct), "--fallocate=none", "--invalidate=" + bit(j.DropCache && !j.Phase.Writes()),
		// By default fio doubles the kernel's read-ahead (posix_fadvise(2)). The
		// papers' programs and Mortar do not.
		"--fadvise_hint=0",
		"--output-format=json+", "--output=" + report,
	}
	if j.Layout == OwnFile {
		argv = append(argv, fmt.Sprintf("--filename_format=c%03d-t$jobnum.data", client))
	} else {
		argv = append(argv, "--filename=shared.data", fmt.Sprintf("--offset=%d", int64(client)*int64(j.Threads)*j.FileBytes),
			fmt.Sprintf("--offset_increment=%d", j.FileBytes))
	}
	switch {
	case !j.Phase.Writes():
		argv = append(argv, "--allow_file_create=0")
	case j.Phase == SeqWrite && j.Layout == OwnFile:
		// Without this, fio makes the file in its full size before it starts.
		argv = append(argv, "--create_on_open=1")
	}
	if j.Phase.Writes() && !j.NoFsync {
		argv = append(argv, "--end_fsync=1")
	}
	if j.DurationSeconds > 0 {
		argv = append(argv, fmt.Sprintf("--runtime=%dms", int64(j.DurationSeconds*1000)))
	}
	return argv
}

// escapeFio escapes the ':' with which fio separates directories.
func escapeFio(path string) string { return strings.ReplaceAll(path, ":", `\:`) }

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// fioReport is the part of fio's JSON that is read.
type fioReport struct {
	Version string `json:"fio version"`
	Jobs    []struct {
		Error int     `json:"error"`
		Read  fioSide `json:"read"`
		Write fioSide `json:"write"`
	} `json:"jobs"`
}

type fioSide struct {
	IOBytes  int64 `json:"io_bytes"`
	TotalIOs int64 `json:"total_ios"`
	Runtime  int64 `json:"runtime"` // ms
	Clat     struct {
		Bins map[string]int64 `json:"bins"` // ns -> count
	} `json:"clat_ns"`
}

// parseFio reads --output-format=json+. Latencies are those of completion,
// which for the engine psync are the times of the system calls.
func parseFio(j *BenchJob, out []byte) (*foreignResult, error) {
	// Messages may precede the JSON.
	if i := bytes.Index(out, []byte("{\n")); i > 0 {
		out = out[i:]
	}
	var r fioReport
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	if len(r.Jobs) == 0 {
		return nil, fmt.Errorf("it tells of no jobs")
	}
	res := &foreignResult{version: r.Version}
	all := benchHistogram(3)
	for _, job := range r.Jobs {
		side := job.Read
		if j.Phase.Writes() {
			side = job.Write
		}
		h := benchHistogram(3)
		for ns, n := range side.Clat.Bins {
			v, err := strconv.ParseInt(ns, 10, 64)
			if err != nil || v < 0 || n < 0 {
				return nil, fmt.Errorf("latency bin %q: %d", ns, n)
			}
			_ = h.RecordValues(min(v, h.HighestTrackableValue()), n)
		}
		all.Merge(h)
		t := foreignThread{ops: side.TotalIOs, bytes: side.IOBytes, seconds: float64(side.Runtime) / 1e3, latency: benchLatency(h)}
		if job.Error != 0 {
			t.err = fmt.Errorf("fio: %w", unix.Errno(job.Error))
		}
		res.threads = append(res.threads, t)
	}
	l := benchLatency(all)
	res.all = &l
	if slices.ContainsFunc(res.threads, func(t foreignThread) bool { return t.err == nil && t.ops > 0 && t.seconds == 0 }) {
		return nil, fmt.Errorf("a job took less than a millisecond, the unit of fio's times: give it more to do")
	}
	return res, nil
}
