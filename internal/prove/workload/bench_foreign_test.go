package workload

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFioLatency(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-rand-read.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: RandRead}, out)
	if err != nil || len(r.threads) != 2 {
		t.Fatal(err, r)
	}
	l := r.threads[0].latency
	// fio's own percentiles of that job: 50th 2.256 us, 99th 8.16 us in its coarser bins.
	if l.Count != 16384 || l.Histogram == "" || l.P50 <= l.Min || l.P50 >= l.P99 || l.P99 >= l.Max || l.Min < 700e-9 || l.Min > 900e-9 {
		t.Errorf("%+v", l)
	}
	if r.all.Count != 32768 {
		t.Errorf("%+v", r.all)
	}
}

// On a full file system the error of fio has its errno.
func TestFioNoSpace(t *testing.T) {
	out, err := os.ReadFile("testdata/fio-no-space.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseFio(&BenchJob{Phase: SeqWrite}, append([]byte("fio: a message before it\n"), out...))
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

// Bench ends a program that uses no CPU, and the error says so.
func TestForeignHangs(t *testing.T) {
	p := &program{argv: []string{"sleep", "3600"}, clock: newClock(), emit: func(string, float64) {}, every: 20 * time.Millisecond, giveUp: 300 * time.Millisecond}
	res := &BenchResult{}
	p.run(t.Context(), nil, res)
	err := p.failure(nil)
	if benchFault(err) != FaultStuck || !strings.Contains(err.Error(), "did nothing") || res.StoppedBy != "" {
		t.Errorf("%v, stopped by %q", err, res.StoppedBy)
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
		for _, engine := range engines[1:] { // Mortar prints nothing
			for _, p := range BenchPhases {
				j := BenchJob{Phase: p, Engine: engine.name, Threads: 2, FileBytes: 1 << 20, RecordBytes: 4096, Branch: 10, Items: 100}
				r, err := engine.read(&j, out)
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
