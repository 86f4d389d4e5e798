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
func mdtestCommand(j *BenchJob, dir, _ string, client int) []string {
	argv := []string{
		"mdtest", "-d", filepath.Join(dir, fmt.Sprintf("c%03d", client)), "-b", strconv.Itoa(j.Branch), "-z", "1", "-L", "-I", strconv.Itoa(j.Items),
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
func parseMdtest(j *BenchJob, out []byte) (*foreignResult, error) {
	res := &foreignResult{}
	if m := regexp.MustCompile(`(?m)^mdtest-(\S+) was launched`).FindSubmatch(out); m != nil {
		res.version = "mdtest " + string(m[1])
	}
	files := regexp.MustCompile(`(?m)^\d+ tasks, (\d+) files`).FindSubmatch(out)
	if files == nil {
		return nil, fmt.Errorf("no line tells the number of files")
	}
	n, err := strconv.ParseInt(string(files[1]), 10, 64)
	if err != nil {
		return nil, err
	}
	rates := map[string]float64{}
	// Operation, then the maximum over the iterations; mdtest runs only one.
	rate := regexp.MustCompile(`(?m)^\s+(File creation|File stat|File removal|Tree creation|Tree removal)\s*:?\s+([0-9.]+)`)
	for _, m := range rate.FindAllSubmatch(out, -1) {
		if rates[string(m[1])], err = strconv.ParseFloat(string(m[2]), 64); err != nil {
			return nil, err
		}
	}
	want := map[BenchPhase]string{MDCreate: "File creation", MDStat: "File stat", MDRemove: "File removal"}[j.Phase]
	if rates[want] <= 0 {
		return nil, fmt.Errorf("no line tells the rate of %q", want)
	}
	res.threads = []foreignThread{{ops: n, seconds: float64(n) / rates[want]}}
	// The rate counts the directories of one tree.
	dirs := float64(j.Branch + 1)
	if r := rates["Tree creation"]; r > 0 {
		res.makeSeconds = dirs / r
	}
	if r := rates["Tree removal"]; r > 0 {
		res.rmSeconds = dirs / r
	}
	return res, nil
}
