// Package screen is the way of text to a terminal. Much of it comes from hosts: names of files
// and devices, stderr, messages of any user of a server. So the writer shows each control
// character that a terminal would obey, or that changes the order of what is read, as an escape.
package screen

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// mark stands before a control character of Mortar's own. No host can know it: it is another
// one in each process.
var mark = "\x00" + rand.Text()

// own marks the control characters of a sequence.
func own(sequence string) string {
	var b strings.Builder
	for _, r := range sequence {
		if unicode.IsControl(r) {
			b.WriteString(mark)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Sequences for a Writer that is on a terminal.
var (
	ClearLine = own("\r\x1b[K")
	LineStart = own("\r")            // what follows is written over the line
	Home      = own("\x1b[H\x1b[2J") // clearing after the cursor moves flickers less
)

// Paint wraps text in an attribute, such as "1;31" for bold and red.
func Paint(code, text string) string { return own("\x1b["+code+"m") + text + own("\x1b[0m") }

// Writer writes text to a terminal, a file or a pipe. It is safe for concurrent use.
//
// An escape is written as in JSON, so that a string of JSON with such a character stays the
// same string. A byte of invalid UTF-8 becomes \x and two hexadecimal digits, as in Go.
type Writer struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte // the begin of a character or a mark that the last Write has cut
}

func To(w io.Writer) *Writer { return &Writer{to: w} }

// File is the file that w writes to, nil if there is none.
func (w *Writer) File() *os.File {
	f, _ := w.to.(*os.File)
	return f
}

func (w *Writer) Terminal() bool {
	f := w.File()
	return f != nil && term.IsTerminal(int(f.Fd()))
}

func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(append(w.rest, p...))
	shown, rest := show(text, "\n\t")
	w.rest = []byte(rest)
	if _, err := io.WriteString(w.to, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Line is text as one line: what would end the line or move in it is an escape too. It is for
// a name that stands in a line of its own or of a list, where what follows a line's end
// would pass for another entry.
func Line(text string) string {
	shown, rest := show(text, "")
	for i := range len(rest) {
		shown += escapeByte(rest[i])
	}
	return shown
}

// show writes control characters as escapes, all but those in keep and those that have a mark.
// rest is the end of text if it may go on.
func show(text, keep string) (shown, rest string) {
	var b strings.Builder
	for text != "" {
		if text[0] == mark[0] && len(text) <= len(mark) && strings.HasPrefix(mark, text) {
			return b.String(), text
		}
		if after, ours := strings.CutPrefix(text, mark); ours && len(after) > 0 {
			b.WriteByte(after[0])
			text = after[1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1 && !utf8.FullRuneInString(text):
			return b.String(), text
		case r == utf8.RuneError && n == 1:
			b.WriteString(escapeByte(text[0]))
		case unicode.IsGraphic(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(escape(r))
		}
		text = text[n:]
	}
	return b.String(), ""
}

func escapeByte(b byte) string { return fmt.Sprintf(`\x%02x`, b) }

func escape(r rune) string {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
