package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Rate formats a figure with its unit, with three digits or so: "23.4 MiB/s",
// "1 234 ops/s".
func Rate(v float64, unit string) string {
	switch {
	case v >= 1000:
		return Count(int64(v+0.5)) + " " + unit
	case v >= 100:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v >= 10:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

// figure formats a figure without its unit.
func figure(v float64) string { return strings.TrimSuffix(Rate(v, ""), " ") }

// BenchText prints the result of a benchmark for a person; bold marks the verdict. Its tables have a
// row for each phase, a column for each thread count.
func BenchText(w io.Writer, r *Run, bold func(string) string) error {
	b := r.Bench
	fmt.Fprintf(w, "\n%s on brick %s: %s\n", b.Suite, b.Brick, bold(strings.ToUpper(b.Verdict)))
	for _, reason := range b.Reasons {
		fmt.Fprintf(w, "  %s\n", reason)
	}
	var counts []int
	for i := range b.Phases {
		for _, p := range b.Phases[i].Points {
			counts = addSorted(counts, p.Threads)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(counts) > 0 {
		fmt.Fprint(tw, "  threads\t\t")
		for _, n := range counts {
			fmt.Fprintf(tw, "%d\t", n)
		}
		fmt.Fprintln(tw, "p99 at peak\t")
	}
	for i := range b.Phases {
		ph := &b.Phases[i]
		fmt.Fprintf(tw, "  %s\t%s\t", ph.Title, ph.Unit)
		for _, n := range counts {
			cell := "–"
			if pt := ph.At(n); pt != nil {
				cell = figure(pt.Median().Value)
			}
			fmt.Fprintf(tw, "%s\t", cell)
		}
		p99 := "–"
		if best := ph.best(); best != nil && best.P99 > 0 {
			p99 = millis(best.P99)
		}
		fmt.Fprintf(tw, "%s\t\n", p99)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := papersText(w, b); err != nil {
		return err
	}
	if s := b.Score; s != nil {
		fmt.Fprintf(w, "  io500's formula over %d of its 12 phases: bandwidth %.4g GiB/s, metadata %.4g kIOPS, score %.4g\n", len(s.Phases), s.Bandwidth, s.Metadata, s.Total)
		if len(s.Missing) > 0 {
			fmt.Fprintf(w, "  no score of IO500's: %s were not run\n", strings.Join(s.Missing, ", "))
		}
	}
	if err := layersText(w, b); err != nil {
		return err
	}
	if b.VerifiedBytes+b.BadBytes > 0 {
		fmt.Fprintf(w, "  %s read back and checked, %s of it wrong\n", Bytes(b.VerifiedBytes+b.BadBytes), Bytes(b.BadBytes))
	}
	_, err := fmt.Fprintf(w, "  written to %s (mortar report %s makes a page)\n", r.Dir, r.Dir)
	return err
}

// papersText prints the figures of the paper of the brick's system beside what was measured, in the paper's
// units.
func papersText(w io.Writer, b *Bench) error {
	p := papersFiguresOf(b)
	if p == nil {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "  %s\tPAPER\tHERE\tper cent\t\n", p.Title)
	for _, f := range p.Drawn {
		for _, c := range f.Curves {
			if c.Here == nil {
				continue
			}
			fmt.Fprintf(tw, "  %s, %s\t%s\t%s\t%s\t\n", c.Where, c.Verb(), c.Number(), Rate(c.Here.Value, c.Here.Unit), c.PercentText())
		}
	}
	return tw.Flush()
}

func layersText(w io.Writer, b *Bench) error {
	if len(b.Layers) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  LAYER\tLOAD\tBEST\tAT\tOF THE LAYER BELOW")
	for _, l := range b.Layers {
		if l.Error != "" {
			fmt.Fprintf(tw, "  %s\tnot measured\t\t\t\n", l.Title)
		}
		for _, v := range l.Results {
			share := "–"
			if v.Share != nil {
				share = percent(*v.Share)
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", l.Title, v.Load, Rate(v.Best, v.Unit), v.At, share)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if b.Bottleneck != "" {
		_, err := fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(b.Bottleneck, "\n", "\n  "))
		return err
	}
	return nil
}

// addSorted adds a number to a rising list, once.
func addSorted(list []int, n int) []int {
	i, have := slices.BinarySearch(list, n)
	if have {
		return list
	}
	return slices.Insert(list, i, n)
}
