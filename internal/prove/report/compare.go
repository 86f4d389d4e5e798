package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Comparison puts two runs side by side.
type Comparison struct {
	Schema string       `json:"schema"`
	A      string       `json:"a"` // directories of the runs
	B      string       `json:"b"`
	Notes  []string     `json:"notes"` // why the runs may not be comparable
	Rows   []ComparedBy `json:"rows"`
}

// ComparedBy is one value of both runs.
type ComparedBy struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // seconds, bytes, operations/second, milliseconds
	// A and B are null if the run has no such value.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// Ratio is B divided by A; null if that is meaningless.
	Ratio *float64 `json:"ratio"`
}

// Compare compares two runs.
func Compare(a, b *Run) Comparison {
	c := Comparison{Schema: Schema, A: a.Dir, B: b.Dir, Notes: []string{}}
	sa, sb := a.Summary, b.Summary
	differ := func(what, x, y string) {
		if x != y {
			c.Notes = append(c.Notes, fmt.Sprintf("%s differs: %s and %s", what, x, y))
		}
	}
	differ("drill", sa.Drill, sb.Drill)
	differ("variant", sa.How, sb.How)
	differ("verdict", sa.Verdict, sb.Verdict)
	differ("profile", sa.Profile, sb.Profile)
	differ("spec", fmt.Sprintf("%.12s", sa.SpecSHA256), fmt.Sprintf("%.12s", sb.SpecSHA256))
	differ("mortar version", sa.MortarVersion, sb.MortarVersion)
	if sa.Virtual != sb.Virtual {
		c.Notes = append(c.Notes, "one run is of a virtual rack: compare no absolute value")
	}
	row := func(name, unit string, x, y *float64) {
		r := ComparedBy{Name: name, Unit: unit, A: x, B: y}
		if x != nil && y != nil && *x > 0 {
			r.Ratio = new(*y / *x)
		}
		c.Rows = append(c.Rows, r)
	}
	row("longest stall", "seconds", &sa.LongestStallSeconds, &sb.LongestStallSeconds)
	row("longest lock stall", "seconds", &sa.LongestLockStallSeconds, &sb.LongestLockStallSeconds)
	phases := phasesOf(&sb)
	for i, p := range phasesOf(&sa) {
		row(p.lower(), "seconds", p.Seconds, phases[i].Seconds)
	}
	bytes := func(name string, x, y int64) {
		row(name, "bytes", new(float64(x)), new(float64(y)))
	}
	bytes("acknowledged", sa.AcknowledgedBytes, sb.AcknowledgedBytes)
	bytes("verified", sa.VerifiedBytes, sb.VerifiedBytes)
	bytes("lost", sa.LostBytes, sb.LostBytes)
	lb := latencies(&b.Timeline)
	for _, la := range latencies(&a.Timeline) {
		for _, x := range lb {
			if x.Label == la.Label {
				row(la.Label+" p50", "milliseconds", &la.Latency.P50, &x.Latency.P50)
				row(la.Label+" p99", "milliseconds", &la.Latency.P99, &x.Latency.P99)
				break
			}
		}
	}
	return c
}

// Text prints the comparison as a table.
func (c Comparison) Text(w io.Writer) error {
	for _, n := range c.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t%s\tratio\t\n", c.A, c.B)
	show := func(unit string, v *float64) string {
		switch {
		case v == nil:
			return "–"
		case unit == "bytes":
			return Bytes(int64(*v))
		case unit == "milliseconds":
			return millis(*v)
		}
		return Seconds(*v)
	}
	for _, r := range c.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t\n", r.Name, show(r.Unit, r.A), show(r.Unit, r.B), ratio(r.Ratio))
	}
	return tw.Flush()
}
