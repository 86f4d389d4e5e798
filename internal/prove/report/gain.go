package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Profiles of a brick, as Summary.Profile has them.
const (
	stock = "stock"
	tuned = "tuned"
)

// Gain is what the profile tuned gains over stock in one drill: the longest
// stalls of clients in runs on the same brick built with each profile.
type Gain struct {
	Drill string `json:"drill"` // with its variant
	// Stock and Tuned are the longest stalls of the runs in seconds, in order
	// of time, and their medians.
	Stock       []float64 `json:"stock_stalls_seconds"`
	Tuned       []float64 `json:"tuned_stalls_seconds"`
	StockMedian float64   `json:"stock_median_stall_seconds"`
	TunedMedian float64   `json:"tuned_median_stall_seconds"`
	// Ratio is tuned divided by stock; null if stock had no stall.
	Ratio *float64 `json:"ratio"`
	// StockPassed and TunedPassed count the runs with verdict pass.
	StockPassed int `json:"stock_passed"`
	TunedPassed int `json:"tuned_passed"`
}

// Gains compares the profiles for each drill that has runs with both, in the order
// in which drills first appear. It skips runs without a profile, which old versions
// wrote.
func Gains(runs []*Run) []Gain {
	by := map[string]*Gain{}
	var names []string
	for _, r := range runs {
		s := &r.Summary
		name := s.Drill + "-" + s.How
		g := by[name]
		if g == nil {
			g = &Gain{Drill: name}
			by[name] = g
			names = append(names, name)
		}
		passed := 0
		if s.Verdict == Pass {
			passed = 1
		}
		switch s.Profile {
		case stock:
			g.Stock = append(g.Stock, s.LongestStallSeconds)
			g.StockPassed += passed
		case tuned:
			g.Tuned = append(g.Tuned, s.LongestStallSeconds)
			g.TunedPassed += passed
		}
	}
	out := []Gain{}
	for _, n := range names {
		g := by[n]
		if len(g.Stock) == 0 || len(g.Tuned) == 0 {
			continue
		}
		g.StockMedian, g.TunedMedian = Median(g.Stock), Median(g.Tuned)
		if g.StockMedian > 0 {
			g.Ratio = new(g.TunedMedian / g.StockMedian)
		}
		out = append(out, *g)
	}
	return out
}

// ratio formats a ratio.
func ratio(q *float64) string {
	if q == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *q)
}

// GainsText prints a line for each drill.
func GainsText(w io.Writer, gs []Gain) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DRILL\tSTOCK\tPASSED\tTUNED\tPASSED\tTUNED/STOCK\t")
	for _, g := range gs {
		fmt.Fprintf(tw, "%s\t%s (median of %d)\t%d of %d\t%s (median of %d)\t%d of %d\t%s\t\n", g.Drill,
			Seconds(g.StockMedian), len(g.Stock), g.StockPassed, len(g.Stock), Seconds(g.TunedMedian), len(g.Tuned), g.TunedPassed, len(g.Tuned), ratio(g.Ratio))
	}
	return tw.Flush()
}
