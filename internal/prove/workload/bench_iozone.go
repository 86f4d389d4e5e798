package workload

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// iozone is the engine iozone. Source: iozone(1)
var iozone = engine{
	name: "iozone", phases: []BenchPhase{SeqWrite, SeqRead, RandRead, RandWrite}, layouts: []BenchLayout{OwnFile},
	command: iozoneCommand, parse: parseIozone,
	notes: []string{"iozone's rate is what its children see up to the moment the first of them is done"},
}

// iozoneCommand builds the command that the papers use: -i 0|1 -c -e -w, or
// -i 2 -w -I -O, each with -+n (no retest), in throughput mode with named files.
func iozoneCommand(j *BenchJob, w work) []string {
	argv := []string{"iozone"}
	switch j.Phase {
	case SeqWrite:
		argv = append(argv, "-i", "0", "-c", "-e")
	case SeqRead:
		argv = append(argv, "-i", "1", "-c")
	default:
		argv = append(argv, "-i", "2", "-O")
	}
	if j.Direct || (j.Phase == RandRead || j.Phase == RandWrite) && !j.Buffered {
		argv = append(argv, "-I")
	}
	argv = append(argv, "-w", "-+n", "-r", kib(j.RecordBytes), "-s", kib(j.FileBytes), "-t", strconv.Itoa(j.Threads), "-F")
	for t := range j.Threads {
		argv = append(argv, filepath.Join(w.dir, fmt.Sprintf("c%03d-t%03d.data", w.owner, t)))
	}
	return argv
}

func kib(n int64) string { return strconv.FormatInt(n/1024, 10) + "k" }

// parseIozone finds the phase's line. iozone prints one rate for all its
// processes together; the time is the planned amount divided by that rate.
func parseIozone(j *BenchJob, _ work, out output) (*outcome, error) {
	want := map[BenchPhase]string{SeqWrite: "initial writers", SeqRead: "readers", RandRead: "random readers", RandWrite: "random writers"}[j.Phase]
	line := regexp.MustCompile(`Children see throughput for\s+(\d+) (initial writers|readers|random readers|random writers)\s*=\s*([0-9.]+) (kB|ops)/sec`)
	for _, m := range line.FindAllSubmatch(out.report, -1) {
		if string(m[2]) != want {
			continue
		}
		rate, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil || rate <= 0 {
			return nil, fmt.Errorf("rate %q of %s", m[3], want)
		}
		bytes := int64(j.Threads) * j.FileBytes
		t := threadOutcome{ops: bytes / j.RecordBytes, bytes: bytes}
		if string(m[4]) == "ops" {
			t.seconds = float64(t.ops) / rate
		} else {
			t.seconds = float64(bytes) / 1024 / rate
		}
		return &outcome{threads: []threadOutcome{t}}, nil
	}
	return nil, fmt.Errorf("no line tells the throughput of the %s", want)
}
