package events

import (
	"fmt"
	"io"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/screen"
)

// Render prints a line for each event, with a heading for each day. With bricks
// each line names its brick. paint marks up the word of a level by the code of a
// terminal's attribute; it may be nil.
func Render(w io.Writer, all []Event, bricks bool, paint func(code, text string) string) error {
	var b strings.Builder
	hosts := 0
	for _, e := range all {
		hosts = max(hosts, len(where(e, bricks)))
	}
	day := ""
	for _, e := range all {
		local := e.Time.Local()
		if d := local.Format("Monday 2 January 2006 (MST)"); d != day {
			if day != "" {
				b.WriteByte('\n')
			}
			day = d
			fmt.Fprintln(&b, day)
		}
		level := ""
		if e.Level != journal.OK {
			level = e.Level
		}
		mark := fmt.Sprintf("%-7s", level)
		if paint != nil {
			mark = paint(map[string]string{journal.Warning: "33", journal.Fault: "1;31"}[e.Level], mark)
		}
		fmt.Fprintf(&b, "%s  %-*s  %-9s  %s  %s\n", local.Format("15:04:05"), hosts, where(e, bricks), e.Part, mark, screen.Line(e.sentence()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func where(e Event, bricks bool) string {
	if bricks {
		return e.Brick + "/" + e.Host
	}
	return e.Host
}

// sentence is the text of an event with its author and its count.
func (e Event) sentence() string {
	s := e.Text
	if e.By != "" {
		s = e.By + ", " + e.Command + ": " + s
	}
	if e.Count == 1 {
		return s
	}
	times := fmt.Sprintf("%d times, ", e.Count)
	if e.Part == "mortar" && e.Level == journal.OK {
		times = "" // the text counts changes
	}
	return fmt.Sprintf("%s (%suntil %s)", s, times, e.Until.Local().Format("15:04:05"))
}
