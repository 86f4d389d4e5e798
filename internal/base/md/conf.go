package md

import "strings"

// ConfArray is an ARRAY line of mdadm.conf(5).
type ConfArray struct {
	Device string // "<ignore>": mdadm leaves the array alone
	UUID   string // as it is written; empty: the array goes by something else
	// First and Last are the lines of the text that it takes, from 0. Lines
	// between them that are empty or comments belong to it, too.
	First, Last int
}

// Ignored tells whether the line has mdadm leave its array alone.
func (a ConfArray) Ignored() bool { return strings.EqualFold(a.Device, "<ignore>") }

// ConfArrays finds the ARRAY lines of an mdadm.conf(5). It divides the text as
// mdadm does: a line that begins with a blank goes on with the one before,
// quotes keep blanks in a word, and keywords may be cut to three letters.
//
// Source: conf_word and match_keyword in config.c of mdadm.
func ConfArrays(text string) []ConfArray {
	var out []ConfArray
	var words []string
	var first, last int
	end := func() {
		if a, ok := confArray(words); ok {
			a.First, a.Last = first, last
			out = append(out, a)
		}
		words = nil
	}
	for i, line := range strings.Split(text, "\n") {
		w := confWords(line)
		if len(w) == 0 {
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			end()
			first = i
		}
		words, last = append(words, w...), i
	}
	end()
	return out
}

func confWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	in := false
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, in = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		case !in && c == '#':
			return words
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	return words
}

func confArray(words []string) (ConfArray, bool) {
	const keyword = "array"
	if len(words) == 0 || len(words[0]) < 3 || len(words[0]) > len(keyword) || !strings.EqualFold(words[0], keyword[:len(words[0])]) {
		return ConfArray{}, false
	}
	var a ConfArray
	for _, w := range words[1:] {
		switch key, value, ok := strings.Cut(w, "="); {
		case ok && strings.EqualFold(key, "uuid"):
			a.UUID = value
		case !ok || strings.HasPrefix(w, "/"):
			a.Device = w
		}
	}
	return a, true
}
