package observe

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Look has the options of Render.
type Look struct {
	// Paint wraps text in attributes of a terminal, by their code. It may be nil.
	Paint func(code, text string) string
	// All shows every part. Without it, Render leaves out the parts below a part
	// that is ok, from the third level on.
	All bool
	// Width of the terminal in columns; 0 does not wrap.
	Width int
}

var colors = map[Level]string{OK: "32", Warning: "33", Fault: "31", Unknown: "35"}

func (l Look) paint(level Level, s string) string {
	if l.Paint == nil {
		return s
	}
	code := colors[level]
	if level == Fault {
		code = "1;" + code
	}
	return l.Paint(code, s)
}

func (l Look) dim(s string) string {
	if l.Paint == nil {
		return s
	}
	return l.Paint("2", s)
}

type row struct {
	depth int
	part  *Part
}

// Render prints a status as a tree with aligned columns: name, level, text.
func Render(w io.Writer, s *Status, look Look) error {
	var rows []row
	var walk func(ps []*Part, depth int)
	walk = func(ps []*Part, depth int) {
		for _, p := range ps {
			rows = append(rows, row{depth, p})
			if look.All || depth == 0 || p.Level > OK {
				walk(p.Parts, depth+1)
			}
		}
	}
	walk(s.Parts, 0)
	names := 0
	for _, r := range rows {
		names = max(names, 2*r.depth+utf8.RuneCountInString(r.part.Name))
	}
	names = min(names, 36)

	var b strings.Builder
	head := fmt.Sprintf("%s  %s  %s  %s", s.Brick, s.Flavour, s.Time.Format("2006-01-02 15:04:05"), look.paint(s.Level, verdict(s)))
	fmt.Fprintln(&b, head)
	for _, svc := range s.Services {
		fmt.Fprintf(&b, "  %s\n", svc.sentence(s))
	}
	fmt.Fprintln(&b)
	for _, r := range rows {
		name := strings.Repeat("  ", r.depth) + oneLine(r.part.Name)
		pad := max(0, names-utf8.RuneCountInString(name))
		lead := name + strings.Repeat(" ", pad) + "  "
		level := fmt.Sprintf("%-7s", r.part.Level)
		if r.part.Level == OK {
			level = look.dim(level)
		} else {
			level = look.paint(r.part.Level, level)
		}
		indent := utf8.RuneCountInString(lead) + 9
		text := r.part.Text
		if r.part.Progress != nil && r.part.Progress.SecondsLeft != nil {
			text = progressBar(r.part.Progress.Percent) + " " + text
		}
		lines := wrap(text, look.Width-indent)
		if r.part.Mend != "" && r.part.Level > OK {
			for _, m := range wrap("→ "+r.part.Mend, look.Width-indent) {
				lines = append(lines, look.dim(m))
			}
		}
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(&b, "%s%s  %s\n", lead, level, line)
			} else {
				fmt.Fprintf(&b, "%s%s\n", strings.Repeat(" ", indent), line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func verdict(s *Status) string {
	var parts []string
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	count(s.Faults, "fault", "faults")
	count(s.Warnings, "warning", "warnings")
	count(s.Unknown, "unknown", "unknown")
	if len(parts) == 0 {
		return "healthy"
	}
	return strings.Join(parts, ", ")
}

func (w Where) sentence(s *Status) string {
	name := "service " + w.Service
	if w.Address != "" { // a target of Lustre has none
		name += " (" + w.Address + ")"
	}
	if w.Server == "" {
		return name + " is on no server known here"
	}
	text := name + " on " + w.Server
	if w.Since != nil {
		v := view{now: s.Time}
		text += " since " + v.clock(*w.Since)
	}
	return text
}

func progressBar(percent float64) string {
	const n = 20
	full := min(n, max(0, int(percent/100*n+0.5)))
	return "[" + strings.Repeat("=", full) + strings.Repeat(".", n-full) + "]"
}

// wrap breaks text at spaces into lines of at most width runes. With a width below
// 20 it returns one line: text of a host may have more.
func wrap(text string, width int) []string {
	if width < 20 {
		return []string{oneLine(text)}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
