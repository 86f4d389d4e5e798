package forecast

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"unicode/utf8"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/paper"
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
	return paper.Thousands(v)
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

// table is rows whose first cell is left- and whose others are right-aligned.
func table(rows [][]string) string {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line += "  " + c + pad
			} else {
				line += "  " + pad + c
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

//go:embed text.tmpl
var text string

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("text").Funcs(template.FuncMap{
		"number": number, "table": table, "plural": plural, "chance": chance, "years": years, "share": share, "hours": hours,
		"count": func(n any) string { v, _ := strconv.ParseFloat(fmt.Sprint(n), 64); return number(v) },
		"cause": func(i int) Cause { return Cause(i) },
	}).Parse(text))
})

// explained is a forecast with every formula and coefficient, if a person asked for them.
type explained struct {
	*Forecast
	Explained bool
	c         Coefficients
}

// Text prints a forecast for people. Explain adds every formula and every
// coefficient with its source.
func (f *Forecast) Text(w io.Writer, c Coefficients, explain bool) error {
	return templates().ExecuteTemplate(w, "forecast", explained{f, explain, c})
}

// From is how many clients, or threads, reach the peak.
func (l Line) From() string {
	switch {
	case l.Clients == 0:
		return ""
	case l.Pattern == Create || l.Pattern == Stat || l.Pattern == Remove:
		return count(float64(l.Clients), "thread")
	}
	return count(float64(l.Clients), "client")
}

// Reasons are the assumptions, those with the same reason together.
func (h Hardware) Reasons() []string {
	var out []string
	by := map[string]string{}
	for _, a := range h.Assumed {
		by[a.Why] += " " + a.Name + "=" + a.Value
		out = append(out, a.Why)
	}
	out = lists.Distinct(out)
	for i, why := range out {
		out[i] += ":" + by[why]
	}
	return out
}

// Chain is a table of the stages of streams.
func (f *Forecast) Chain() [][]string {
	rows := [][]string{{"", "write", "read"}}
	wr, _ := f.Line(SeqWrite)
	rd, _ := f.Line(SeqRead)
	names := lists.Map(slices.Concat(wr.Stages, rd.Stages), func(s Stage) string { return s.Name })
	for _, n := range lists.Distinct(names) {
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

// Gains is a table of what one more of each part buys; a part that buys nothing is left out.
func (f *Forecast) Gains() [][]string {
	rows := [][]string{{""}}
	short := map[Pattern]string{SeqWrite: "seq. write", SeqRead: "seq. read", RandomWrite: "random write", RandomRead: "random read", Create: "create", Stat: "stat", Remove: "remove"}
	var parts []string
	for _, l := range f.Lines {
		rows[0] = append(rows[0], short[l.Pattern])
		for _, b := range l.Buys {
			parts = append(parts, b.Part)
		}
	}
	for _, p := range lists.Distinct(parts) {
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

// Used lists the coefficients that the forecast uses, or those that it does not.
func (e explained) Used(used bool) []Coefficient {
	var names []string
	for _, l := range e.Lines {
		for _, s := range l.Stages {
			names = append(names, s.Uses...)
		}
	}
	return slices.DeleteFunc(e.c.All(), func(k Coefficient) bool {
		in := slices.Contains(names, k.Name)
		return in != used || !in && strings.HasPrefix(k.Name, "sim.")
	})
}

// Facts are those of the hardware, each with its meaning.
func (e explained) Facts() []Assumption {
	return lists.Map(hardwareNames(), func(n string) Assumption { return Assumption{n, facts()[n].show(&e.Hardware), facts()[n].doc} })
}
