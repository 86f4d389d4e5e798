package screen

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func shown(text string) string {
	var b bytes.Buffer
	_, _ = To(&b).Write([]byte(text))
	return b.String()
}

func TestWriter(t *testing.T) {
	for text, want := range map[string]string{
		"nfs1: Größe 4 → 5\tof 10 k\n": "nfs1: Größe 4 → 5\tof 10 k\n",
		"\x1b]0;owned\x07a":            `\u001b]0;owned\u0007a`,
		"a\rb\bc\x7f":                  `a\u000db\u0008c\u007f`,
		"\u009b31m":                    `\u009b31m`,
		"a\u202efdp.exe\u2066\u200b":   `a\u202efdp.exe\u2066\u200b`,
		"a\u2028b\U000e0041":           `a\u2028b\udb40\udc41`,
		"a\xffb\xc3(":                  `a\xffb\xc3(`,
		"\x00ABC":                      `\u0000ABC`,
		Paint("1;31", "x\x1b[2J"):      "\x1b[1;31mx\\u001b[2J\x1b[0m",
		ClearLine + "x" + Home:         "\r\x1b[Kx\x1b[H\x1b[2J",
	} {
		if got := shown(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// A character or a sequence that comes in pieces is the same as a whole one.
func TestPieces(t *testing.T) {
	text := Paint("31", "ä→\U0001f600\x1b]0;x\x07\xff") + "\x00" + ClearLine + "end"
	var b bytes.Buffer
	w := To(&b)
	for i := range len(text) {
		if n, err := w.Write([]byte{text[i]}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := b.String(); got != shown(text) {
		t.Errorf("in pieces %q, whole %q", got, shown(text))
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\nservice home: healthy\x1b[2J\t\xe2"); got != `a\u000aservice home: healthy\u001b[2J\u0009\xe2` {
		t.Error(got)
	}
}

// What a terminal would obey is never in what is shown, and JSON stays what it was.
func FuzzWriter(f *testing.F) {
	for _, s := range []string{"", "\x1b[31m", "\u202e", "\x00", "\xc3", "\r\n", "\u009d0;x\u009c", "\U000e0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := shown(s + ".")
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x07\x08\x0b\x0c\r\x1b\x7f\u0085\u009b\u009d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028") {
			t.Errorf("%q is shown as %q", s, got)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, back string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(shown(string(raw))), &back); err != nil || back != want {
			t.Errorf("%q became %q: %v", s, back, err)
		}
	})
}
