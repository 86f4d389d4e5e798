package spec

import (
	"fmt"
	"slices"
	"strings"
)

// SetWWNs returns the text of a spec in which an array that has no wwns yet has
// these. Nothing else of the text changes.
func (s *Spec) SetWWNs(array string, wwns []string) ([]byte, error) {
	i := slices.IndexFunc(s.Arrays, func(a Array) bool { return a.Name == array })
	if i < 0 {
		return nil, fmt.Errorf("%s: there is no array %s", s.File, array)
	}
	text := `wwns: ["` + strings.Join(wwns, `", "`) + `"]`
	at := fmt.Sprintf("arrays[%d]", i)
	var src string
	switch {
	case s.Given(at + ".wwns"):
		return nil, fmt.Errorf("%s: array %s has wwns already", s.File, array)
	case !s.Given("arrays"):
		src = strings.TrimRight(string(s.Source), "\n") + fmt.Sprintf("\narrays:\n  - {name: %s, model: %s, %s}\n", array, s.Arrays[i].Model, text)
	default:
		src = s.behind(at, at+".model", text)
	}
	next, err := Parse(s.File, []byte(src))
	if err != nil {
		return nil, fmt.Errorf("with these WWNs, %w", err)
	}
	if !slices.Equal(next.Arrays[i].WWNs, wwns) {
		return nil, fmt.Errorf("%s: array %s is written in a way that cannot be edited here; add %s by hand", s.File, array, text)
	}
	return []byte(src), nil
}

// behind puts a key and its value behind the plain value at path, in the mapping
// at parent.
func (s *Spec) behind(parent, path, text string) string {
	lines := strings.SplitAfter(string(s.Source), "\n")
	line, col := s.Pos(path)
	l := lines[line-1]
	if pl, pc := s.Pos(parent); lines[pl-1][pc-1] == '{' {
		end := col - 1
		for end < len(l) && !strings.ContainsRune(",}# \r\n", rune(l[end])) {
			end++
		}
		lines[line-1] = l[:end] + ", " + text + l[end:]
		return strings.Join(lines, "")
	}
	key := len(l) - len(strings.TrimLeft(l, " -"))
	if !strings.HasSuffix(l, "\n") {
		l += "\n"
	}
	lines[line-1] = l + strings.Repeat(" ", key) + text + "\n"
	return strings.Join(lines, "")
}
