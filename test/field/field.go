// Package field reads the corpora of parsers: files testdata/field/NAME.txt with cases
// after real outputs, each with values of our own making, the source of the real one, and
// what the parser is to read.
//
//	=== name of the case
//	source: repository, file
//	--- input
//	…
//	--- want
//	…
//
// Escapes: \e is an escape character, \ufeff a byte order mark, \x00 a zero byte.
package field

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Case is one output of a tool.
type Case struct{ Name, Source, Input, Want string }

var escapes = strings.NewReplacer(`\e`, "\x1b", `\ufeff`, "\ufeff", `\x00`, "\x00")

// Cases reads a corpus.
func Cases(t testing.TB, name string) []Case {
	t.Helper()
	b, err := os.ReadFile(path(name))
	if err != nil {
		t.Fatal(err)
	}
	var out []Case
	for _, part := range strings.Split("\n"+string(b), "\n=== ")[1:] {
		head, rest, ok1 := strings.Cut(part, "\n--- input\n")
		input, want, ok2 := strings.Cut(rest, "\n--- want")
		title, source, ok3 := strings.Cut(head, "\nsource: ")
		if !ok1 || !ok2 || !ok3 {
			t.Fatalf("%s: case %.40q has no source, input or want", name, part)
		}
		out = append(out, Case{title, source, escapes.Replace(input) + "\n", strings.Trim(want, "\n")})
	}
	return out
}

func path(name string) string { return filepath.Join("testdata", "field", name+".txt") }

// Check has read turn each input of a corpus into text, and compares that with what is
// wanted; update writes it instead.
func Check(t *testing.T, name string, update bool, read func(input string) string) {
	t.Helper()
	var b strings.Builder
	for _, c := range Cases(t, name) {
		got := strings.Trim(read(c.Input), "\n")
		if got != c.Want && !update {
			t.Errorf("%s: %s (%s)\ngot\n%s\nwant\n%s", name, c.Name, c.Source, got, c.Want)
		}
		input := strings.NewReplacer("\x1b", `\e`, "\ufeff", `\ufeff`, "\x00", `\x00`).Replace(strings.TrimSuffix(c.Input, "\n"))
		fmt.Fprintf(&b, "=== %s\nsource: %s\n--- input\n%s\n--- want\n%s\n\n", c.Name, c.Source, input, got)
	}
	if update {
		if err := os.WriteFile(path(name), []byte(strings.TrimSuffix(b.String(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Banner is what hosts print before a tool's output, also with what looks like data.
const Banner = "\ufeff*** Authorized {use} only: [all] is logged ***\nsudo: unable to resolve host nss1\n\n"
