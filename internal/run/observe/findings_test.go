package observe

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// docs/findings.md is generated: `go test ./internal/run/observe -update`.
func TestFindingsReference(t *testing.T) {
	const file = "../../../docs/findings.md"
	var b strings.Builder
	b.WriteString("# Findings\n\n<!-- Made of the tables of findings and refusals by `go test ./internal/run/observe -update`; do not edit. -->\n\n" +
		"Each finding of `mortar status` has a code, which stays as it is when its text changes. `status --json`, the messages, the page and the metrics of `mortar watch` carry it.\n" +
		"Words in capitals are arguments of the finding; `args` in the JSON has each that is known. Text in brackets is left out if an argument in it is not. The subject is what the finding is about.\n\n" +
		Reference() +
		"\n## Refusals of the resource agent\n\nThe reason of a failed action begins with a code in brackets, for example `[in-doubt] a crash has left blocks in doubt …`. `crm_mon` shows it, and `mortar events` carries it.\n\n| code | what it means | what to do |\n|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(ocf.Codes)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, ocf.Codes[code][0], ocf.Codes[code][1])
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != b.String() {
		t.Errorf("docs/findings.md is not what the tables say (%v): go test ./internal/run/observe -run TestFindingsReference -update", err)
	}
}

// Each call that makes a finding has a code of the table and the arguments that its text needs
// and no others, and each kind of finding is made somewhere.
func TestFindingsHaveTheirArguments(t *testing.T) {
	pkgs, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // one package, no build tags
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Code{} // of constants
	said := map[Code]bool{}
	each := func(visit func(ast.Node) bool) {
		for name, f := range pkgs["observe"].Files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			ast.Inspect(f, visit)
		}
	}
	each(func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if l, ok := v.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				names[v.Names[0].Name] = Code(unquote(t, l))
			}
		}
		return true
	})
	calls := 0
	each(func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if _, constant := v.Values[0].(*ast.BasicLit); constant {
				return false
			}
		}
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if c, ok := kv.Value.(*ast.CompositeLit); ok && c.Type == nil {
				return false // the table
			}
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			code := Code(unquote(t, l))
			said[code] = true
			for _, which := range []string{"-unknown", "-missing", "-twice"} { // only
				said[code+Code(which)] = true
			}
			return true
		}
		if id, ok := n.(*ast.Ident); ok {
			said[names[id.Name]] = true
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		args, isMap := call.Args[len(call.Args)-1].(*ast.CompositeLit)
		if !ok || !isMap || f.Sel.Name != "find" && f.Sel.Name != "is" {
			return true
		}
		var code Code
		switch x := call.Args[len(call.Args)-2].(type) {
		case *ast.BasicLit:
			code = Code(unquote(t, x))
		case *ast.Ident:
			code = names[x.Name]
		}
		if code == "" {
			return true // a variable
		}
		calls++
		k := findings[code]
		if k.text == "" {
			t.Errorf("%s is no code", code)
			return true
		}
		var have []string
		for _, e := range args.Elts {
			have = append(have, unquote(t, e.(*ast.KeyValueExpr).Key.(*ast.BasicLit)))
		}
		always := regexp.MustCompile(`\[[^][]*\]`).ReplaceAllString(k.text+k.mend, "")
		for _, m := range regexp.MustCompile(`\{(\w+)`).FindAllStringSubmatch(always, -1) {
			if m[1] != specFile && !slices.Contains(have, m[1]) {
				t.Errorf("%s needs %q, and has %q", code, m[1], have)
			}
		}
		if k.subject != "" && !slices.Contains(have, k.subject) {
			t.Errorf("%s is about %q, and has %q", code, k.subject, have)
		}
		return true
	})
	if calls < 80 {
		t.Errorf("only %d calls were looked at", calls)
	}
	for code := range findings {
		if !said[code] && !strings.HasPrefix(string(code), "group-") { // which are md's states
			t.Errorf("nothing finds %s", code)
		}
	}
}

func unquote(t *testing.T, l *ast.BasicLit) string {
	s, err := strconv.Unquote(l.Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
