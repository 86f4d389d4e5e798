package resource

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/test/field"
)

var update = flag.Bool("update", false, "rewrite testdata/field")

func TestField(t *testing.T) {
	field.Check(t, "lnet", *update, func(text string) string {
		nets, err := parseLNet(text)
		if err != nil {
			return "error: " + err.Error()
		}
		out := ""
		for _, n := range nets {
			slices.Sort(n.interfaces)
			out += fmt.Sprintf("%s on %s\n", n.name, strings.Join(n.interfaces, ", "))
		}
		return out
	})
	field.Check(t, "show", *update, func(text string) string {
		out := ""
		all := parseShow(text)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out += fmt.Sprintf("%s: %s, %s, %q\n", name, all[name]["LoadState"], all[name]["ActiveState"], all[name]["UnitFileState"])
		}
		return out
	})
}
