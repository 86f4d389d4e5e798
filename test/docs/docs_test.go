// Package docs_test holds the words and the length of what people read: pages, changelog,
// comments. CONTRIBUTING.md has the rules.
package docs_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	root = "../.."

	// A paragraph, an item of a list or a cell of a table has at most so many words.
	paragraphWords = 120

	// An entry of the changelog has at most two lines of 120 characters, links counted by
	// their text.
	entryRunes = 240
)

// actors matches words that name no actor, and "what is" as the subject of a sentence or of a
// clause after a colon or semicolon, but for a question.
var actors = regexp.MustCompile(`(?i:\b(?:somebody|nobody|whoever)\b)|(?:(?:^|\. |\*\*)What|[:;] what) is\b(?:[^?.]*[.;:]|[^?]*$)`)

// files returns the files below root that have one of the extensions, by their path from there.
// Directories of runs and of versions are left out, and so is the laboratory's diary, which
// stays as it was written.
func files(t *testing.T, exts ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "out" || name == "testdata" || name == "lab") {
			return filepath.SkipDir
		}
		if e.IsDir() || !slices.Contains(exts, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		found[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d files %v", len(found), exts)
	}
	return found
}

// paragraph is a block of text, an item of a list or a cell of a table.
type paragraph struct {
	line int
	text string
}

var item = regexp.MustCompile(`^(?:[-*+]|\d+\.) `)

// paragraphs takes a page apart; blocks of code are left out.
func paragraphs(text string) []paragraph {
	var all []paragraph
	fence, open := false, false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fence, open = !fence, false
		case fence, strings.HasPrefix(line, "    ") && !open:
		case trimmed == "":
			open = false
		case strings.HasPrefix(trimmed, "|"):
			for cell := range strings.SplitSeq(strings.ReplaceAll(trimmed, `\|`, "/"), "|") {
				all = append(all, paragraph{i + 1, cell})
			}
			open = false
		case open && !item.MatchString(trimmed) && !strings.HasPrefix(trimmed, "#"):
			all[len(all)-1].text += " " + trimmed
		default:
			all = append(all, paragraph{i + 1, trimmed})
			open = !strings.HasPrefix(trimmed, "#")
		}
	}
	return all
}

func TestParagraphsAreShort(t *testing.T) {
	for file, text := range files(t, ".md") {
		for _, p := range paragraphs(text) {
			if n := len(strings.Fields(p.text)); n > paragraphWords {
				t.Errorf("%s:%d: a paragraph of %d words, more than %d: %.60s …", file, p.line, n, paragraphWords, p.text)
			}
		}
	}
}

var linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

func TestEntriesOfTheChangelogAreShort(t *testing.T) {
	text, err := os.ReadFile(root + "/CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, p := range paragraphs(string(text)) {
		if !item.MatchString(p.text) {
			continue
		}
		entries++
		if n := utf8.RuneCountInString(linked.ReplaceAllString(p.text, "$1")); n > entryRunes {
			t.Errorf("CHANGELOG.md:%d: an entry of %d characters, more than %d: %.60s …", p.line, n, entryRunes, p.text)
		}
	}
	if entries < 50 {
		t.Errorf("only %d entries", entries)
	}
}

// nobody is also a user of Unix, and an address of no host.
var user = regexp.MustCompile(`the user nobody|Nobody is the number|Nobody: commands run as uid|nobody is the hardware address`)

// Pages, help, templates, rules, comments, and what programs print. CONTRIBUTING.md quotes bad
// words on purpose.
func TestActorsHaveNames(t *testing.T) {
	check := func(file string, line int, text string) {
		if w := actors.FindString(strings.TrimSpace(user.ReplaceAllString(text, ""))); w != "" {
			t.Errorf("%s:%d: %q names no actor", file, line, w)
		}
	}
	for file, text := range files(t, ".md", ".txt") {
		if file != "CONTRIBUTING.md" {
			for _, p := range paragraphs(text) {
				check(file, p.line, p.text)
			}
		}
	}
	for file, text := range files(t, ".tmpl", ".yml", ".yaml", ".js") {
		for i, line := range strings.Split(text, "\n") {
			check(file, i+1, line)
		}
	}
	for file, text := range files(t, ".go") {
		var s scanner.Scanner
		set := token.NewFileSet()
		s.Init(set.AddFile(file, -1, len(text)), []byte(text), nil, scanner.ScanComments)
		for pos, tok, lit := s.Scan(); tok != token.EOF; pos, tok, lit = s.Scan() {
			if test := strings.HasSuffix(file, "_test.go"); tok == token.COMMENT && !strings.HasPrefix(file, "test/docs/") || tok == token.STRING && !test {
				check(file, set.Position(pos).Line, strings.Trim(lit, "/\"`"))
			}
		}
	}
}
