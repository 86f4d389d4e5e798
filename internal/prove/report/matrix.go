package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Entry is one drill of a matrix: the summary of its run or of its repeats. With
// repeats the summary is that of the run with the median stall; its verdict is pass
// only if all runs passed.
type Entry struct {
	Summary
	Dir  string   `json:"dir"`  // of the summary's run, relative to the list
	Dirs []string `json:"dirs"` // of all runs
	// StallsSeconds are the longest stalls of all runs, in order of time.
	StallsSeconds      []float64 `json:"stalls_seconds"`
	MedianStallSeconds *float64  `json:"median_stall_seconds"`
	Repeats            int       `json:"repeats"` // runs with a verdict
	// Smallest: of the seed's faults, no part that was tried fails, but these do.
	Smallest bool `json:"smallest,omitempty"`
}

// Name is the drill with its variant: DRILL-HOW.
func (e *Entry) Name() string { return e.Drill + "-" + e.How }

// EntryOf makes the entry of one drill's runs; dir is the directory of the list.
func EntryOf(dir string, runs []*Run) Entry {
	e := Entry{Repeats: len(runs), Dirs: []string{}, StallsSeconds: []float64{}}
	if len(runs) == 0 {
		return e
	}
	rel := func(r *Run) string {
		p, err := filepath.Rel(dir, r.Dir)
		if err != nil {
			return r.Dir
		}
		return p
	}
	for _, r := range runs {
		e.Dirs = append(e.Dirs, rel(r))
		e.StallsSeconds = append(e.StallsSeconds, r.Summary.LongestStallSeconds)
	}
	byStall := slices.Clone(runs)
	slices.SortStableFunc(byStall, func(a, b *Run) int {
		return cmp.Compare(a.Summary.LongestStallSeconds, b.Summary.LongestStallSeconds)
	})
	mid := byStall[(len(byStall)-1)/2]
	e.Summary, e.Dir = mid.Summary, rel(mid)
	m := Median(e.StallsSeconds)
	e.MedianStallSeconds = &m
	if t := e.StallTargetSeconds; t != nil {
		e.StallTargetMet = new(m <= max(*t, stallThreshold))
	}
	for _, r := range runs {
		if r != mid && r.Summary.Verdict != Pass {
			e.Verdict = r.Summary.Verdict
			for _, why := range r.Summary.Reasons {
				e.Reasons = append(e.Reasons, rel(r)+": "+why)
			}
		}
	}
	return e
}

// stallThreshold is the shortest stall in seconds.
const stallThreshold = 0.5

// Median returns the median of values; 0 without values.
func Median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(vs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Listed returns the entries as a matrix's list has them: each with the schema, and with []
// where nothing is, not null.
func Listed(es []Entry) []Entry {
	list := make([]Entry, 0, len(es))
	for _, e := range es {
		r := Run{Summary: e.Summary}
		fillEmpty(&r)
		e.Summary = r.Summary
		e.Schema = Schema
		list = append(list, e)
	}
	return list
}

// SaveEntries writes the list of a matrix.
func SaveEntries(dir string, es []Entry) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := marshal(Listed(es))
	if err != nil {
		return fmt.Errorf("%s: %w", SummaryFile, err)
	}
	return writeFile(filepath.Join(dir, SummaryFile), b)
}

// LoadEntries reads a matrix's list, and every run of each entry.
func LoadEntries(dir string) (es []Entry, runs []*Run, err error) {
	file := filepath.Join(dir, SummaryFile)
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(b, &es); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, e := range es {
		for _, d := range e.Dirs {
			r, err := Load(filepath.Join(dir, d))
			if err != nil {
				return nil, nil, err
			}
			runs = append(runs, r)
		}
	}
	return es, runs, nil
}
