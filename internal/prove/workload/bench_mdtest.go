package workload

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// mdtest is the engine mdtest. Source: mdtest(1) of IOR 4
var mdtest = engine{
	name: "mdtest", phases: []BenchPhase{MDCreate, MDStat, MDRemove}, layouts: []BenchLayout{OwnFile}, mpi: true,
	command: mdtestCommand, parse: parseMdtest,
}

// mdtestCommand builds the command that the papers use, for files only, one
// phase at a time.
func mdtestCommand(j *BenchJob, w work) []string {
	argv := []string{
		"mdtest", "-d", filepath.Join(w.dir, fmt.Sprintf("c%03d", w.owner)), "-b", strconv.Itoa(j.Branch), "-z", "1", "-L", "-I", strconv.Itoa(j.Items),
		"-u", "-t", "-F",
	}
	if j.ItemBytes > 0 {
		argv = append(argv, "-w", strconv.FormatInt(j.ItemBytes, 10))
	}
	if j.ItemSync {
		argv = append(argv, "-y")
	}
	switch j.Phase {
	case MDCreate:
		return append(argv, "-C")
	case MDStat:
		return append(argv, "-T", "-R")
	}
	return append(argv, "-r")
}

// parseMdtest reads the summary of rates.
func parseMdtest(j *BenchJob, _ work, out output) (*outcome, error) {
	files := regexp.MustCompile(`(?m)^\d+ tasks, (\d+) files`).FindSubmatch(out.report)
	if files == nil {
		return nil, fmt.Errorf("no line tells the number of files")
	}
	n, err := strconv.ParseInt(string(files[1]), 10, 64)
	if err != nil {
		return nil, err
	}
	want := map[BenchPhase]string{MDCreate: "File creation", MDStat: "File stat", MDRemove: "File removal"}[j.Phase]
	// Operation, then the maximum over the iterations; mdtest runs only one.
	m := regexp.MustCompile(`(?m)^\s+` + want + `\s*:?\s+([0-9.]+)`).FindSubmatch(out.report)
	if want == "" || m == nil {
		return nil, fmt.Errorf("no line tells the rate of %q", want)
	}
	rate, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || rate <= 0 {
		return nil, fmt.Errorf("rate %q of %q", m[1], want)
	}
	return &outcome{threads: []threadOutcome{{ops: n, seconds: float64(n) / rate}}}, nil
}
