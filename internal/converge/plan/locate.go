package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Locate finds where in a spec something stands that went wrong with a host:
// the disk whose serial is in the text, or the host's field ("address",
// "host_key" …), or the host, or the beginning of the file.
func Locate(s *spec.Spec, host, field, text string) (line, col int) {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' && r != '.'
	})
	for i, e := range s.Enclosures {
		for k, l := range e.Disks {
			serials, err := l.Serials()
			if err != nil {
				continue // a spec that was parsed has none such
			}
			if slices.ContainsFunc(serials, func(x string) bool { return slices.Contains(words, x) }) {
				return s.Pos(fmt.Sprintf("enclosures[%d].disks[%d].serial", i, k))
			}
		}
	}
	for i, h := range s.Servers {
		if h.Name == host {
			return s.Pos(fmt.Sprintf("servers[%d].%s", i, field))
		}
	}
	for i, h := range s.Clients {
		if h.Name == host {
			return s.Pos(fmt.Sprintf("clients[%d].%s", i, field))
		}
	}
	return 1, 1
}
