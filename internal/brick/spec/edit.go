package spec

import (
	"math"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// nesting is by how much a bracket changes the depth.
var nesting = map[token.Type]int{token.MappingStartType: 1, token.SequenceStartType: 1, token.MappingEndType: -1, token.SequenceEndType: -1}

// entryAt finds the entry at a path of a spec: an item of a list, or a key with its value, without
// a comment behind it. sep divides it from another one: in brackets a comma. "": there is none.
func entryAt(text, path string) (from, to int, sep string) {
	pos, _ := decode("", "spec", "", []byte(text), new(Spec))
	place, ok := pos[path] // of a value that is left out: behind its colon
	type word struct {
		position
		kind     token.Type
		from, to int
	}
	var before, left word // left of the value: a dash, bracket or comma, or a key and its colon
	at, depth, item := 0, 0, true
	end := &token.Token{Position: &token.Position{Line: math.MaxInt, Column: 1}} // beyond all
	for _, t := range append(lexer.Tokenize(text), end) {
		body := strings.TrimLeft(t.Origin, " \t\n")
		at += len(t.Origin)
		w := word{tokenPos(t), t.Type, at - len(body), at - len(body) + len(strings.TrimRight(body, " \t\n"))}
		switch {
		case !ok || w.kind == token.CommentType:
			continue
		case w.line < place.line || w.line == place.line && w.col < place.col:
			before, left = left, w
			depth += nesting[w.kind]
			continue
		case sep == "": // the value begins
			if from, to = w.from, left.to; left.kind == token.MappingValueType {
				item, from, left = false, before.from, before
			}
			switch sep = "\n" + strings.Repeat(" ", left.col-1); {
			case depth > 0:
				sep, depth = ", ", 0
			case item:
				sep += "- "
			}
		}
		beyond := w.line > left.line && (w.col < left.col || w.col == left.col && (item || w.kind != token.SequenceEntryType))
		if sep == ", " {
			beyond = w.kind == token.CollectEntryType || nesting[w.kind] < 0
		}
		if beyond && depth == 0 {
			break
		}
		depth += nesting[w.kind]
		to = w.to
	}
	return from, to, sep
}

// splice returns the text of a spec with others in the place of an entry; with keep, behind it and
// its comment. Without others its lines go. ok is false if there is no such entry, or if brackets
// around it do not take these.
func splice(src []byte, path string, keep bool, others ...string) (out []byte, ok bool) {
	text := unixLines(src)
	from, to, sep := entryAt(text, path)
	flow := sep == ", "
	if sep == "" || flow && (len(others) == 0 || strings.Contains(others[0], "\n")) {
		return src, false
	}
	put := ""
	for i, o := range others {
		if i > 0 || keep {
			put += sep
		}
		put += strings.ReplaceAll(o, "\n", "\n"+strings.Repeat(" ", len(sep)-1))
	}
	switch eol := to + strings.IndexByte(text[to:], '\n'); {
	case keep && flow:
		from = to
	case keep:
		from, to = eol, eol
	case put == "":
		to = eol + 1
	}
	return linesAsIn(src, text[:from]+put+text[to:]), true
}

// setKey returns the text of a spec with this entry for a key at the top, which is the last if it
// is new, or without one.
func setKey(src []byte, key string, entry ...string) []byte {
	out, ok := splice(src, key, false, entry...)
	if !ok && len(entry) > 0 {
		out = linesAsIn(src, unixLines(src)+"\n"+entry[0]+"\n")
	}
	return out
}

func unixLines(src []byte) string {
	return strings.TrimSuffix(strings.ReplaceAll(string(src), "\r\n", "\n"), "\n") + "\n"
}

// linesAsIn gives a text lines that end with \r\n, if those of another text do.
func linesAsIn(src []byte, text string) []byte {
	if unix := strings.ReplaceAll(string(src), "\r\n", "\n"); len(unix) < len(src) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return []byte(text)
}
