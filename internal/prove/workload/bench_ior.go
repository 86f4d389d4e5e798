package workload

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
)

// ior is the engine IOR. Source: ior(1) of IOR 4
var ior = engine{
	name: "ior", phases: []BenchPhase{SeqWrite, SeqRead, RandRead, RandWrite}, layouts: BenchLayouts, endsByTime: true, mpi: true,
	command: iorCommand, parse: parseIOR,
	notes: []string{"IOR's time includes opening the files"},
}

// iorCommand builds IOR's command of a phase.
func iorCommand(j *BenchJob, w work) []string {
	argv := []string{
		"ior", "-a", "POSIX", "-k", "-o", filepath.Join(w.dir, fmt.Sprintf("c%03d", w.owner)), "-t", strconv.FormatInt(j.RecordBytes, 10),
		"-O", "summaryFormat=JSON", "-O", "summaryFile=" + reportFile,
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
		argv = append(argv, "-w", "-e")
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
func parseIOR(j *BenchJob, _ work, out output) (*outcome, error) {
	var r struct {
		Summary []struct {
			Operation string  `json:"operation"`
			BW        float64 `json:"bwMaxMIB"`
			Seconds   float64 `json:"MeanTime"`
		} `json:"summary"`
	}
	if err := json.Unmarshal(out.report, &r); err != nil {
		return nil, err
	}
	want := "read"
	if j.Phase.Writes() {
		want = "write"
	}
	for _, s := range r.Summary {
		if s.Operation == want && s.BW > 0 && s.Seconds > 0 {
			// Round to whole records: IOR prints the time with four decimals.
			records := int64(math.Round(s.BW * (1 << 20) * s.Seconds / float64(j.RecordBytes)))
			if all := int64(j.Threads) * j.FileBytes / j.RecordBytes; j.DurationSeconds == 0 {
				records = all
			}
			bytes := records * j.RecordBytes
			return &outcome{
				threads: []threadOutcome{{ops: records, bytes: bytes, seconds: float64(bytes) / (s.BW * (1 << 20))}},
			}, nil
		}
	}
	return nil, fmt.Errorf("its summary does not tell of a %s", want)
}
