package report

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// EntriesText prints a line for each drill.
func EntriesText(w io.Writer, entries []Entry, dir string) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DRILL\tVERDICT\tSTALL\tTARGET\tLOST\tCHECKED\t")
	passed := 0
	for i := range entries {
		e := &entries[i]
		stall, target := "-", "-"
		if e.MedianStallSeconds != nil {
			stall = Seconds(*e.MedianStallSeconds)
			if e.Repeats > 1 {
				stall += fmt.Sprintf(" (median of %d)", e.Repeats)
			}
		}
		if e.StallTargetSeconds != nil {
			target = Seconds(*e.StallTargetSeconds)
			if e.StallTargetMet != nil && !*e.StallTargetMet {
				target += " missed"
			}
		}
		if e.Verdict == Pass {
			passed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Name(), e.Verdict, stall, target, Bytes(e.LostBytes), Bytes(e.VerifiedBytes), strings.Join(slices.Concat(e.Schedule, e.Reasons), "; "))
	}
	_ = tw.Flush() // the exit code reports a closed terminal
	fmt.Fprintf(w, "%d of %d passed; written to %s, page: %s\n", passed, len(entries), dir, filepath.Join(dir, HTMLFile))
}

// SummaryText prints the result of a drill for a person; bold marks the verdict.
func SummaryText(w io.Writer, r *Run, bold func(string) string) error {
	s := r.Summary
	fmt.Fprintf(w, "\n%s (%s): %s\n", s.Drill, s.How, bold(strings.ToUpper(s.Verdict)))
	for _, c := range s.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "  %s  %-26s %s\n", mark, c.Name, c.Detail)
	}
	for _, l := range s.Status {
		if l.Level == "fault" {
			fmt.Fprintf(w, "  meanwhile, mortar status: %s\n", l.Text)
		}
	}
	fmt.Fprintf(w, "  longest stall %s", Seconds(s.LongestStallSeconds))
	if t := s.StallTargetSeconds; t != nil {
		fmt.Fprint(w, targetText(*t, *s.StallTargetMet))
	}
	fmt.Fprint(w, s.PhasesText())
	if s.LongestLockStallSeconds > 0 {
		fmt.Fprintf(w, "\n  longest stall of locks %s", Seconds(s.LongestLockStallSeconds))
	}
	if t := s.LocksTargetSeconds; t != nil {
		fmt.Fprintf(w, "\n  all locks back %s after the start%s", Seconds(*s.LocksBackSeconds), targetText(*t, *s.LocksTargetMet))
	}
	_, err := fmt.Fprintf(w, "\n  written to %s (mortar report %s makes a page)\n", r.Dir, r.Dir)
	return err
}

// PhasesText names the phases of the stall that are known, behind a colon; "" if none is.
func (s *Summary) PhasesText() string {
	var parts []string
	for _, p := range phasesOf(s) {
		if p.Seconds != nil {
			parts = append(parts, p.lower()+" "+Seconds(*p.Seconds))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// targetText says whether a target, in seconds, was met.
func targetText(seconds float64, met bool) string {
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf(" (target %s: %s)", Seconds(seconds), word)
}
