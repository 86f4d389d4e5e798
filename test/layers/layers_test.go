// Package layers_test holds the architecture: which package may import which,
// and that docs/architecture.md has a row for each.
package layers_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mortarhpc/mortar/"

// layers go from the bottom to the top. A package imports packages of its own
// layer and of those below, and none above: a later stage of the way of the data
// never reaches into an earlier one.
var layers = []struct {
	about    string
	packages []string
}{
	{"tools that know no brick", []string{"axis", "durable", "flock", "initrd", "lazyregexp", "linux", "md", "netns", "strictjson", "stream", "raid6"}},
	{"what the brick is", []string{"spec", "design", "array", "forecast"}},
	{"serving, on the servers", []string{"cache", "ocf"}},
	{"reaching hosts", []string{"resource", "agent", "gate", "host", "netprobe"}},
	{"building", []string{"plan"}},
	{"running", []string{"observe", "failover", "fencetest", "scrub"}},
	{"proving", []string{"report", "testbed", "workload", "bench", "drill"}},
	{"the virtual rack", []string{"rack"}},
}

// never are imports that the order of the layers would allow.
var never = map[string][]string{
	"cache": {"spec", "design"}, // its config comes as a file
	"ocf":   {"spec", "design"},
	"rack":  {"design", "plan", "agent", "host", "observe", "drill"}, // it is hardware
	"agent": {"spec", "design"},
}

// pure packages read no file and run no command.
var pure = []string{"axis", "design", "linux", "md", "array", "forecast"}

func TestLayers(t *testing.T) {
	rank := map[string]int{}
	for i, l := range layers {
		for _, p := range l.packages {
			rank[p] = i
		}
	}
	for pkg, imports := range imports(t) {
		if _, ok := rank[pkg]; !ok {
			t.Errorf("internal/%s is in no layer: put it into one here and into docs/architecture.md", pkg)
		}
		for _, path := range imports {
			if slices.Contains(pure, pkg) && slices.Contains([]string{"os", "os/exec", "net"}, path) {
				t.Errorf("internal/%s imports %s, and is meant to be pure", pkg, path)
			}
			of, ok := strings.CutPrefix(path, module+"internal/")
			if !ok {
				continue
			}
			switch {
			case rank[of] > rank[pkg]:
				t.Errorf("internal/%s (%s) imports internal/%s (%s)", pkg, layers[rank[pkg]].about, of, layers[rank[of]].about)
			case slices.Contains(never[pkg], of):
				t.Errorf("internal/%s may not import internal/%s", pkg, of)
			case of == "rack":
				t.Errorf("internal/%s imports the rack: only cmd/mortar may, so that nothing else knows what hosts are made of", pkg)
			}
		}
	}
}

func TestEveryRoomIsOnThePlan(t *testing.T) {
	b, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range imports(t) {
		if !strings.Contains(string(b), "| `internal/"+pkg+"` |") {
			t.Errorf("docs/architecture.md has no row for internal/%s", pkg)
		}
	}
}

// imports are those of each package below internal, tests left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	root := "../../internal"
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		if rel == "host/sshtest" { // a helper of tests
			return nil
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			all[rel] = append(all[rel], path)
		}
		if all[rel] == nil {
			all[rel] = []string{}
		}
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d packages, %v", len(all), err)
	}
	return all
}
