package demo

import (
	"path/filepath"
	"strings"
	"testing"
)

// Without a variant, a demo has the drill's first one.
func TestVariant(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for flags, want := range map[string]string{"server-crash/": "freeze", "server-crash/power": "power"} {
		name, how, _ := strings.Cut(flags, "/")
		d := Demo{Dir: none, Drill: name, How: how}
		if err := d.check(); d.How != want || err != nil {
			t.Errorf("%s: %q, %v", flags, d.How, err)
		}
	}
}

// Each step is words of a command line, the drill with the variant.
func TestSteps(t *testing.T) {
	var all []string
	for _, s := range (&Demo{Dir: "d", Drill: "server-crash", How: "power"}).steps() {
		all = append(all, strings.Join(s.args, " "))
	}
	if got := strings.Join(all, "\n"); !strings.Contains(got, "\ndrill run d/brick.yaml server-crash --how power --seconds 6 --out d\n") {
		t.Errorf("%s", got)
	}
}
