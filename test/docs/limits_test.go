package docs_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// limitOf matches a row of the table of limits.
var limitOf = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+\\.[A-Za-z0-9]+)` \\| ([^|]+) \\|")

// plainTime matches a time that is a literal.
var plainTime = regexp.MustCompile(`^(?:(\d+) ?\* ?)?time\.(Millisecond|Second|Minute|Hour)$`)

// TestLimits: docs/limits.md has each named time of the code, with its value, and no other.
func TestLimits(t *testing.T) {
	inCode := map[string]string{}
	for path, text := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || !regexp.MustCompile(`^internal/(serve|host|converge|run)/`).MatchString(path) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			g, ok := n.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				return true
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, val := range v.Values {
					is := text[val.Pos()-1 : val.End()-1]
					name := v.Names[i].Name
					if strings.Contains(is, "time.") && !strings.HasPrefix(is, `"`) || strings.HasSuffix(name, "Seconds") {
						inCode[strings.TrimPrefix(filepath.Dir(path), "internal/")+"."+name] = is
					}
				}
			}
			return true
		})
	}
	said := map[string]bool{}
	for _, m := range limitOf.FindAllStringSubmatch(files(t, ".md")["docs/limits.md"], -1) {
		is, there := inCode[m[1]]
		if said[m[1]] = true; !there {
			t.Errorf("docs/limits.md has %s, which is not in the code", m[1])
			continue
		}
		if p := plainTime.FindStringSubmatch(is); p != nil {
			unit := map[string]string{"Millisecond": "ms", "Second": "s", "Minute": "min", "Hour": "h"}[p[2]]
			if want := fmt.Sprintf("%s %s", cmp.Or(p[1], "1"), unit); m[2] != want {
				t.Errorf("docs/limits.md says that %s is %s; it is %s", m[1], m[2], want)
			}
		}
	}
	for name, is := range inCode {
		if !said[name] {
			t.Errorf("docs/limits.md lacks %s (%s): what does the largest brick need?", name, is)
		}
	}
	if len(said) < 50 {
		t.Errorf("only %d limits", len(said))
	}
}
