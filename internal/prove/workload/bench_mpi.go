package workload

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
)

// mdtestCommand is the papers' own, for files only, one phase at a time.
// Source: mdtest(1) of IOR 4
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
	// Operation, then the maximum over the iterations, of which there is one.
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

// iorCommand has IOR do what the phase means. Source: ior(1) of IOR 4
func iorCommand(j *BenchJob, dir, report string, client int) []string {
	argv := []string{
		"ior", "-a", "POSIX", "-k", "-o", filepath.Join(dir, fmt.Sprintf("c%03d", client)), "-t", strconv.FormatInt(j.RecordBytes, 10),
		"-O", "summaryFormat=JSON", "-O", "summaryFile=" + report,
	}
	if j.Layout == Strided {
		argv = append(argv, "-b", strconv.FormatInt(j.RecordBytes, 10), "-s", strconv.FormatInt(j.FileBytes/j.RecordBytes, 10))
	} else {
		argv = append(argv, "-b", strconv.FormatInt(j.FileBytes, 10))
	}
	if j.Layout == OwnFile {
		argv = append(argv, "-F")
	}
	random := j.Phase == RandRead || j.Phase == RandWrite
	if j.Phase.Writes() {
		argv = append(argv, "-w")
		if !j.NoFsync {
			argv = append(argv, "-e")
		}
	} else {
		argv = append(argv, "-r")
	}
	if random || !j.Phase.Writes() {
		argv = append(argv, "-E")
	}
	if random {
		argv = append(argv, "-z")
	}
	if j.Direct || random && !j.Buffered {
		argv = append(argv, "--posix.odirect")
	}
	if j.DurationSeconds > 0 {
		argv = append(argv, "-D", strconv.Itoa(int(math.Ceil(j.DurationSeconds))))
	}
	return argv
}

// parseIOR reads IOR's summary in JSON.
func parseIOR(j *BenchJob, out []byte) (*foreignResult, error) {
	var r struct {
		Version string `json:"Version"`
		Summary []struct {
			Operation string  `json:"operation"`
			BW        float64 `json:"bwMaxMIB"`
			Seconds   float64 `json:"MeanTime"`
		} `json:"summary"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	want := "read"
	if j.Phase.Writes() {
		want = "write"
	}
	for _, s := range r.Summary {
		if s.Operation == want && s.BW > 0 && s.Seconds > 0 {
			// To the record: the time is printed with four decimals.
			records := int64(math.Round(s.BW * (1 << 20) * s.Seconds / float64(j.RecordBytes)))
			if all := int64(j.Threads) * j.FileBytes / j.RecordBytes; j.DurationSeconds == 0 {
				records = all
			}
			bytes := records * j.RecordBytes
			return &foreignResult{
				version: "IOR " + r.Version, threads: []foreignThread{{ops: records, bytes: bytes, seconds: float64(bytes) / (s.BW * (1 << 20))}},
			}, nil
		}
	}
	return nil, fmt.Errorf("its summary does not tell of a %s", want)
}
