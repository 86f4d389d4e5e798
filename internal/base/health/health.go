// Package health has what all parsers of a host's answers share: the level of a part,
// and the records that a parser does not understand. It is pure.
package health

import (
	"fmt"
	"strings"
)

// Level is the health of a part.
type Level int

// The levels from best to worst.
const (
	// OK: the part is as it should be.
	OK Level = iota
	// Unknown: there is no answer, or the parser does not understand it.
	Unknown
	// Warning: the part works, but an administrator should look.
	Warning
	// Fault: the part has failed, or is missing.
	Fault
)

var levelNames = [...]string{"ok", "unknown", "warning", "fault"}

func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level %d", int(l))
	}
	return levelNames[l]
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level's name; an unknown name is an error.
func (l *Level) UnmarshalText(b []byte) error {
	for i, n := range levelNames {
		if n == string(b) {
			*l = Level(i)
			return nil
		}
	}
	return fmt.Errorf("unknown level %q", b)
}

// Unread are the records of an answer that its parser does not understand, each as one
// line. A parser leaves nothing out in silence: what it cannot read is here.
type Unread []string

// Limits of what status shows of records, in bytes and in records.
const (
	recordLimit = 200
	shownLimit  = 3
)

func (u *Unread) Add(record string) {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(record, "?")), " ")
	if len(s) > recordLimit {
		s = strings.ToValidUTF8(s[:recordLimit], "") + "…"
	}
	*u = append(*u, s)
}

// String counts the records and shows the first ones; "" if there are none.
func (u Unread) String() string {
	if len(u) == 0 {
		return ""
	}
	text := "1 record is not understood: "
	if len(u) > 1 {
		text = fmt.Sprintf("%d records are not understood: ", len(u))
	}
	for i, r := range u[:min(len(u), shownLimit)] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q", r)
	}
	if len(u) > shownLimit {
		text += ", …"
	}
	return text
}

// Grade looks a word up. A word that the table lacks is Unknown.
func Grade(table map[string]Level, word string) Level {
	if l, known := table[word]; known {
		return l
	}
	return Unknown
}
