package release

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// number writes a rate; zero is none.
func number(v float64) string {
	if v == 0 {
		return "–"
	}
	return paper.Thousands(v)
}

// cell is a value for people, with the paper's beside Mortar's.
func (v Value) cell() string {
	text := v.Mortar
	if text == "" {
		text = "–"
	}
	if v.Paper != "" {
		text += " (paper: " + v.Paper + ")"
	}
	return text
}

// percents writes the per cent of a capacity: of Mortar's values, and of the published ones.
func (r Row) percents() string {
	if r.Percent == nil {
		return ""
	}
	text := paper.PercentText(r.Percent)
	if r.PaperPercent != nil {
		text += " (paper: " + paper.PercentText(r.PaperPercent) + ")"
	}
	return text
}

// crossed are the forecasts of one side beside what is published of the other one: rows of load, side, forecast,
// side, published, per cent. A side that has published figures of its own is left out.
func (c *Comparison) crossed() [][]string {
	var out [][]string
	for _, p := range c.Peaks {
		if p.ForecastAOverPaperB != nil && !c.published(c.A) {
			out = append(out, []string{string(p.Load), c.A.Name, number(p.ForecastA), c.B.Name, number(p.PaperB), paper.PercentText(p.ForecastAOverPaperB), p.Unit})
		}
		if p.ForecastBOverPaperA != nil && !c.published(c.B) {
			out = append(out, []string{string(p.Load), c.B.Name, number(p.ForecastB), c.A.Name, number(p.PaperA), paper.PercentText(p.ForecastBOverPaperA), p.Unit})
		}
	}
	return out
}

func (c *Comparison) published(s *Side) bool {
	return slices.ContainsFunc(c.Peaks, func(p Peak) bool { return s == c.A && p.PaperA > 0 || s == c.B && p.PaperB > 0 })
}

// Text prints a comparison for people.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A: %s (%s)\nB: %s (%s)\n", c.A.Name, c.A.From, c.B.Name, c.B.From)
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	part := ""
	for _, r := range c.Rows {
		if r.Part != part {
			part = r.Part
			fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(part))
		}
		fmt.Fprintf(&b, "  %s\n", r.What)
		switch {
		case r.Same && r.A.Paper == r.B.Paper:
			fmt.Fprintf(&b, "    A, B  %s\n", r.A.cell())
		case r.Same:
			fmt.Fprintf(&b, "    A, B  %s\n", r.A.Mortar)
			for i, v := range []string{r.A.Paper, r.B.Paper} {
				if v != "" {
					fmt.Fprintf(&b, "          (paper of %c: %s)\n", 'A'+rune(i), v)
				}
			}
		default:
			fmt.Fprintf(&b, "    A     %s\n    B     %s\n", r.A.cell(), r.B.cell())
		}
		if p := r.percents(); p != "" {
			fmt.Fprintf(&b, "    B against A: %s\n", p)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if len(c.Peaks) > 0 {
		fmt.Fprint(w, "\nPEAKS\n")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range c.peakRows() {
			fmt.Fprintf(tw, "  %s\t\n", strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if rows := c.crossed(); len(rows) > 0 {
		fmt.Fprint(w, "\nFORECAST BESIDE WHAT WAS PUBLISHED OF THE OTHER\n")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, r := range rows {
			fmt.Fprintf(tw, "  %s\tforecast of %s\t%s %s\tpublished of %s\t%s %s\t%s\n", r[0], r[1], r[2], r[6], r[3], r[4], r[6], r[5])
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// peakRows are the peaks as a table with its head. Per cent after a published value is by how much the
// forecast of the same brick is above it.
func (c *Comparison) peakRows() [][]string {
	rows := [][]string{{"", "unit", "A forecast", "A published", "per cent", "B forecast", "B published", "per cent", "B against A: forecast", "on average", "published"}}
	for _, p := range c.Peaks {
		rows = append(rows, []string{string(p.Load), p.Unit,
			number(p.ForecastA), number(p.PaperA), paper.PercentText(p.ForecastOverPaperA),
			number(p.ForecastB), number(p.PaperB), paper.PercentText(p.ForecastOverPaperB),
			paper.PercentText(p.Percent), paper.PercentText(p.AveragePercent), paper.PercentText(p.PaperPercent)})
	}
	return rows
}
