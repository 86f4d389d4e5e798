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
	src := s.Source
	switch {
	case s.Given(at + ".wwns"):
		return nil, fmt.Errorf("%s: array %s has wwns already", s.File, array)
	case !s.Given("arrays"):
		src = setKey(src, "arrays", fmt.Sprintf("arrays:\n  - {name: %s, model: %s, %s}", array, s.Arrays[i].Model, text))
	default:
		src, _ = splice(src, at+".model", true, text)
	}
	next, err := Parse(s.File, src)
	if err != nil {
		return nil, fmt.Errorf("with these WWNs, %w", err)
	}
	if !slices.Equal(next.Arrays[i].WWNs, wwns) {
		return nil, fmt.Errorf("%s: array %s is written in a way that cannot be edited here; add %s by hand", s.File, array, text)
	}
	return src, nil
}
