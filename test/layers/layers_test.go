// Package layers_test checks the architecture: which package may import which, and that
// docs/architecture.md has a row for each, and names files that exist.
package layers_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mortarhpc/mortar/"

// layers lists the folders below internal from the bottom to the top. A package imports
// packages of its own folder and of those below it.
var layers = []string{"base", "brick", "serve", "host", "converge", "run", "prove", "rack"}

// never lists imports that the order of the layers would allow and that are forbidden all the
// same.
var never = map[string][]string{
	"serve":      {"brick"},                                            // what runs on servers gets its configuration as a file
	"rack":       {"brick/design", "host", "converge", "run", "prove"}, // a rack is hardware
	"host/agent": {"brick"},
}

// pure lists packages that read no file and run no command.
var pure = []string{"base/chart", "base/distro", "base/journal", "base/linux", "base/md", "brick/array", "brick/design", "brick/forecast"}

func TestLayers(t *testing.T) {
	for pkg, imports := range imports(t) {
		mine := slices.Index(layers, folder(pkg))
		if mine < 0 {
			t.Errorf("internal/%s is in no folder of the architecture (%s)", pkg, strings.Join(layers, ", "))
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
			case slices.Index(layers, folder(of)) > mine:
				t.Errorf("internal/%s imports internal/%s, which is above it", pkg, of)
			case forbidden(pkg, of):
				t.Errorf("internal/%s may not import internal/%s", pkg, of)
			case of == "rack":
				t.Errorf("internal/%s imports the rack: only cmd/mortar may, so that nothing else knows what hosts are made of", pkg)
			}
		}
	}
}

// folder returns the first element of a package's path.
func folder(pkg string) string {
	f, _, _ := strings.Cut(pkg, "/")
	return f
}

// forbidden looks up a package and its folder in never.
func forbidden(pkg, of string) bool {
	for _, who := range []string{pkg, folder(pkg)} {
		for _, what := range never[who] {
			if of == what || strings.HasPrefix(of, what+"/") {
				return true
			}
		}
	}
	return false
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

// changes are the rows that the table "What goes where" must have at least.
var changes = []string{
	"an array family", "a distribution", "a storage kind", "a fault", "an export option with client side",
	"NVMe-oF LUNs", "a metric with alert", "a bench engine", "a fence agent", "a snapshot command",
}

// named matches a file or folder of the repository within `code` of the page.
var named = regexp.MustCompile("`((?:cmd|docs|examples|internal|packaging|scripts|test)/[\\w./-]+)`")

// The page answers which files a change touches, and each file that it names exists.
func TestWhatGoesWhere(t *testing.T) {
	b, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	_, table, _ := strings.Cut(page, "\n## What goes where\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, c := range changes {
		_, row, found := strings.Cut(table, "\n| "+c+" |")
		row, _, _ = strings.Cut(row, "\n")
		if !found || !named.MatchString(row) {
			t.Errorf("docs/architecture.md names no file for %s", c)
		}
	}
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat("../../" + m[1]); err != nil {
			t.Errorf("docs/architecture.md names %s, which is not there", m[1])
		}
	}
}

// imports returns the imports of each package below internal, without those of tests.
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
		if rel == "host/sshtest" || rel == "host/hosttest" { // test helpers
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

// asks matches code that branches on the kind of a service or of its storage.
var asks = regexp.MustCompile(`\.(NFS|Lustre) [!=]= nil|\.Flavour [!=]= spec\.|len\([\w.()\[\]]*\.LUNs\) [>=!]|\.Array [!=]= ""|Storage\.Kind`)

// mayAsk lists the files that may branch on a kind, and why.
var mayAsk = map[string]string{
	"converge/plan/kind.go":              "chooses the kind of service of a pair",
	"converge/plan/storage.go":           "chooses the kind of storage of a pair",
	"converge/plan/offline.go":           "makes the hosts of a plan without hosts",
	"prove/kind/kind.go":                 "chooses the kind of service of a brick",
	"prove/fault/storage.go":             "chooses the kind of storage of a drill's service",
	"run/change/grow.go":                 "shows the spares of new md groups; an array has its own",
	"run/clientconfig/clientconfig.go":   "names the packages that come first; plan plans for either kind",
	"run/lustre/lustre.go":               "refuses a brick without Lustre",
	"run/observe/kinds.go":               "chooses both",
	"run/quota/run.go":                   "refuses Lustre, whose clients set quotas",
	"run/scrub/scrub.go":                 "refuses a group that is inside of an array",
	"serve/ocf/kinds.go":                 "chooses both, from the configuration",
	"serve/lun/kind.go":                  "checks its own section of the configuration",
	"host/resource/storage/ocfconfig.go": "compares two lists of LUNs",
}

// Each package chooses the kind of a service and of its storage in one file; the rest calls
// the kind's methods. Package brick derives the kinds.
func TestNobodyAsksWhichKindItIs(t *testing.T) {
	seen := map[string]bool{}
	root := "../../internal"
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil || folder(rel) == "brick" || folder(rel) == "rack" {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(b), "\n") {
			if !asks.MatchString(line) {
				continue
			}
			seen[rel] = true
			if mayAsk[rel] == "" {
				t.Errorf("internal/%s:%d asks which kind it is: %s", rel, n+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil || !seen["converge/plan/kind.go"] || !seen["run/observe/kinds.go"] {
		t.Fatalf("%v: the search finds nothing where there is something (%v)", seen, err)
	}
}

// Only package screen spells what a terminal obeys, and commands print through it. The exceptions
// speak to programs: the administrator's end of an agent, and Pacemaker.
func TestOneWayToTheTerminal(t *testing.T) {
	escape := regexp.MustCompile(`\\x1b|\\033|\\u001b|"\\r`)
	direct := regexp.MustCompile(`\bos\.Std(out|err)\b|\bfmt\.Print`)
	allowed := []string{"main.go", "host.go"}
	for _, dir := range []string{"../../cmd", "../../internal"} {
		err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "base/screen/") {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if escape.MatchString(line) && !strings.Contains(line, "Trim") && !strings.Contains(line, "Replace") {
					t.Errorf("%s: %s: have package screen make it", file, strings.TrimSpace(line))
				}
				if strings.Contains(file, "/cmd/") && !slices.Contains(allowed, filepath.Base(file)) && direct.MatchString(line) {
					t.Errorf("%s: %s: print to the command's writer, or to stdout and stderr of main.go", file, strings.TrimSpace(line))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
