package storage

import (
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/test/field"
)

var update = flag.Bool("update", false, "rewrite testdata/field")

func saidTarget(text string) string {
	f := parseTarget(text)
	return fmt.Sprintf("%s of %s, index %d, mgs %q, service %q", f.name, f.fsname, f.index, f.mgs, f.service)
}

func saidLVM(text string) string {
	rows, err := parseLVM(text)
	if err != nil {
		return "error: " + err.Error()
	}
	out := ""
	for _, r := range rows {
		for _, k := range slices.Sorted(maps.Keys(r)) {
			out += k + "=" + r[k] + " "
		}
		out += "\n"
	}
	return out
}

func saidWipefs(text string) string {
	all, err := parseWipefs(text)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("%+v", all)
}

func TestField(t *testing.T) {
	field.Check(t, "target", *update, saidTarget)
	field.Check(t, "lvm", *update, saidLVM)
	field.Check(t, "wipefs", *update, saidWipefs)
}

// Text before the data changes nothing. A list of NIDs keeps each one, of IPv6 too.
var nid = regexp.MustCompile(`^[0-9a-fA-F:.]+@[a-z][a-z0-9]*$`)

func FuzzField(f *testing.F) {
	for _, name := range []string{"target", "lvm", "wipefs"} {
		for _, c := range field.Cases(f, name) {
			f.Add(c.Input, "fd00::5@tcp", "10.0.0.1@o2ib1", true)
		}
	}
	f.Fuzz(func(t *testing.T, text, a, b string, colon bool) {
		for name, said := range map[string]func(string) string{"lvm": saidLVM, "wipefs": saidWipefs, "target": saidTarget} {
			if strings.TrimSpace(text) == "" || strings.HasPrefix(said(text), "error") {
				continue
			}
			if d := cmp.Diff(said(text), said(field.Banner+text)); d != "" {
				t.Errorf("%s under a banner: %s", name, d)
			}
		}
		if !nid.MatchString(a) || !nid.MatchString(b) {
			return
		}
		sep := ","
		if colon {
			sep = ":"
		}
		if got := splitNIDs(a + sep + b); !slices.Equal(got, []string{a, b}) {
			t.Errorf("%s%s%s is %q", a, sep, b, got)
		}
	})
}
