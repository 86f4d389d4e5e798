package forecast

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number formats a figure for people: four digits at most, thousands apart.
func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "no limit"
	case math.Abs(v) < 9.995:
		return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	case math.Abs(v) < 99.95:
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(share float64) string {
	if math.Abs(share) < 0.0005 {
		return "·"
	}
	if math.Abs(share) < 0.0995 {
		return fmt.Sprintf("%+.1f %%", 100*share)
	}
	return fmt.Sprintf("%+.0f %%", 100*share)
}

// table prints rows whose first cell is left- and whose others are
// right-aligned.
func table(w io.Writer, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				b.WriteString("  " + c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// Text prints a forecast for people. Explain adds every formula and every
// coefficient with its source.
func (f *Forecast) Text(w io.Writer, c Coefficients, explain bool) error {
	h := &f.Hardware
	var b strings.Builder
	fmt.Fprintf(&b, "%s: what it should deliver to up to %d clients with one file each\n\n", h.Name, h.Clients)
	fmt.Fprintf(&b, "  %-17s %9s %-5s %-11s  %s\n", "", "peak", "", "from", "limited by")
	for _, l := range f.Lines {
		at := ""
		if l.Clients > 0 {
			who := "client"
			if l.Pattern == Create || l.Pattern == Stat || l.Pattern == Remove {
				who = "thread"
			}
			at = count(float64(l.Clients), who)
		}
		fmt.Fprintf(&b, "  %-17s %9s %-5s %-11s  %s: %s\n", l.Pattern, number(l.Peak), l.Unit, at, l.Bottleneck, l.Why)
	}
	f.publishedText(&b)
	b.WriteString("\nThe chain, MB/s (▸ the narrowest)\n\n")
	table(&b, f.chain())
	b.WriteString("\nWhat one more buys\n\n")
	table(&b, f.gains())
	for _, m := range f.Missing {
		fmt.Fprintf(&b, "\nNot forecast: %s.\n", m)
	}
	if len(h.Assumed) > 0 {
		b.WriteString("\nAssumed (change with --set name=value)\n\n")
		var whys []string
		by := map[string][]string{}
		for _, a := range h.Assumed {
			whys = append(whys, a.Why)
			by[a.Why] = append(by[a.Why], a.Name+"="+a.Value)
		}
		for _, why := range distinct(whys) {
			fmt.Fprintf(&b, "  %s: %s\n", why, strings.Join(by[why], " "))
		}
	}
	if explain {
		f.explain(&b, c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// distinct drops what is in a list already.
func distinct(list []string) []string {
	var out []string
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// chain is a table of the stages of streams.
func (f *Forecast) chain() [][]string {
	rows := [][]string{{"", "write", "read"}}
	wr, _ := f.Line(SeqWrite)
	rd, _ := f.Line(SeqRead)
	var names []string
	for _, s := range slices.Concat(wr.Stages, rd.Stages) {
		names = append(names, s.Name)
	}
	for _, n := range distinct(names) {
		row := []string{n}
		for _, l := range []Line{wr, rd} {
			cell := "–"
			for _, s := range l.Stages {
				if s.Name == n {
					cell = number(s.Limit)
					if n == l.Bottleneck {
						cell = "▸ " + cell
					}
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// gains is a table of what one more of each part buys; a part that buys nothing is left out.
func (f *Forecast) gains() [][]string {
	rows := [][]string{{""}}
	short := map[Pattern]string{SeqWrite: "seq. write", SeqRead: "seq. read", RandomWrite: "random write", RandomRead: "random read", Create: "create", Stat: "stat", Remove: "remove"}
	var parts []string
	for _, l := range f.Lines {
		rows[0] = append(rows[0], short[l.Pattern])
		for _, b := range l.Buys {
			parts = append(parts, b.Part)
		}
	}
	for _, p := range distinct(parts) {
		row, gain := []string{p}, false
		for _, l := range f.Lines {
			i := slices.IndexFunc(l.Buys, func(b Buy) bool { return b.Part == p })
			cell := percent(l.Buys[i].Gain)
			gain = gain || cell != "·"
			row = append(row, cell)
		}
		if gain {
			rows = append(rows, row)
		}
	}
	return rows
}

// explain writes every formula, coefficient and fact of the hardware.
func (f *Forecast) explain(w io.Writer, c Coefficients) {
	fmt.Fprint(w, "\nEvery stage\n")
	used := map[string]bool{}
	for _, l := range f.Lines {
		fmt.Fprintf(w, "\n  %s\n", l.Pattern)
		for _, s := range l.Stages {
			fmt.Fprintf(w, "    %-16s %10s %-5s = %s\n", s.Name, number(s.Limit), l.Unit, s.Formula)
			for _, u := range s.Uses {
				used[u] = true
			}
		}
	}
	writeCoefficients(w, "Coefficients in use (change with --set name=value)", c, func(name string) bool { return used[name] })
	writeCoefficients(w, "Further coefficients", c, func(name string) bool { return !used[name] && !strings.HasPrefix(name, "sim.") })
	fmt.Fprint(w, "\nFacts of the hardware (change with --set name=value)\n\n")
	for _, n := range hardwareNames() {
		fmt.Fprintf(w, "  %-16s %-14s %s\n", n, facts()[n].show(&f.Hardware), facts()[n].doc)
	}
}

// writeCoefficients lists those whose names are wanted.
func writeCoefficients(w io.Writer, title string, c Coefficients, wanted func(name string) bool) {
	fmt.Fprintf(w, "\n%s\n\n", title)
	for _, k := range c.All() {
		if !wanted(k.Name) {
			continue
		}
		mark := ""
		if k.Changed {
			mark = " (changed)"
		}
		fmt.Fprintf(w, "  %s = %s %s%s\n      %s\n", k.Name, strconv.FormatFloat(k.Value, 'g', -1, 64), k.Unit, mark, k.Source)
	}
}
