package workload

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestFioLatency(t *testing.T) {
	report, err := os.ReadFile("testdata/fio-seq-write.json")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile("testdata/fio-seq-write.log")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, work{}, output{report: report, log: log})
	if err != nil {
		t.Fatal(err)
	}
	h := benchHistogram(3)
	record(h, r.threads[0].bins)
	if p50, p99 := h.ValueAtQuantile(50), h.ValueAtQuantile(99); h.TotalCount() != 64 || encodeHistogram(h) == "" || p50 <= h.Min() || p50 >= p99 || p99 > h.Max() {
		t.Errorf("%d operations, %d to %d ns", h.TotalCount(), h.Min(), h.Max())
	}
	// The log has the same operations in the same bins as the report.
	want, got := map[int64]int64{}, map[int64]int64{}
	for _, b := range r.threads[0].bins {
		want[b.ns] += b.n
	}
	last := int64(0)
	for _, s := range r.threads[0].spells {
		for _, b := range s.bins {
			got[b.ns] += b.n
		}
		if s.at < last {
			t.Errorf("%d ns after %d", s.at, last)
		}
		last = s.at
	}
	if d := cmp.Diff(want, got); d != "" || len(r.threads[0].spells) < 3 {
		t.Errorf("%d spells: %s", len(r.threads[0].spells), d)
	}
	if _, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, work{}, output{report: report, log: append(log, log...)}); err == nil {
		t.Error("a log with twice the operations passes")
	}
}

// On a full file system the error of fio has its errno.
func TestFioNoSpace(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-no-space.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite, RecordBytes: mib}, work{}, output{report: append([]byte("fio: a message before it\n"), out...)})
	if err != nil || len(r.threads) != 1 || benchFault(r.threads[0].err) != FaultNoSpace {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestForeignFailure(t *testing.T) {
	p := &program{argv: []string{"ior"}, err: &exec.ExitError{ProcessState: &os.ProcessState{}}}
	p.errOut.WriteString("one\ntwo\nthree\nERROR: write() failed, No space left on device\n")
	err := p.failure(nil)
	if benchFault(err) != FaultNoSpace || !strings.Contains(err.Error(), "write() failed") || strings.Contains(err.Error(), "one") || errno(err) != unix.ErrnoName(unix.ENOSPC) {
		t.Error(err)
	}
}

// A program that uses no CPU is ended, and the error says so.
func TestForeignHangs(t *testing.T) {
	p := &program{argv: []string{"sleep", "3600"}, dir: t.TempDir(), giveUp: 300 * time.Millisecond}
	begin := make(chan struct{})
	close(begin)
	p.run(func() {}, begin, nil)
	if err := p.failure(nil); benchFault(err) != FaultStuck || !strings.Contains(err.Error(), "did nothing") {
		t.Error(err)
	}
}

// For any output of a program, its parser returns plausible figures or an error.
func FuzzForeignOutputs(f *testing.F) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, engine := range engines {
			for _, p := range BenchPhases {
				j := BenchJob{Phase: p, Engine: engine.name, Threads: 2, FileBytes: 1 << 20, RecordBytes: 4096, Branch: 10, Items: 100}
				r, err := engine.read(&j, work{files: 10}, output{report: out, log: out, said: string(out)})
				if err != nil {
					continue
				}
				for _, th := range r.threads {
					if th.err == nil && (th.ops < 0 || th.bytes < 0 || th.seconds < 0 || math.IsNaN(th.seconds) || math.IsInf(th.seconds, 0)) {
						t.Errorf("%s: %+v of %q", engine.name, th, out)
					}
				}
			}
		}
	})
}
