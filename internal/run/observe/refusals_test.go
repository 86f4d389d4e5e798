package observe_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	_ "github.com/mortarhpc/mortar/internal/run/change"
	_ "github.com/mortarhpc/mortar/internal/run/discover"
	_ "github.com/mortarhpc/mortar/internal/run/disk"
	_ "github.com/mortarhpc/mortar/internal/run/failover"
	_ "github.com/mortarhpc/mortar/internal/run/lustre"
	"github.com/mortarhpc/mortar/internal/run/observe"
	_ "github.com/mortarhpc/mortar/internal/run/procedure"
	_ "github.com/mortarhpc/mortar/internal/run/quota"
	_ "github.com/mortarhpc/mortar/internal/run/repair"
	_ "github.com/mortarhpc/mortar/internal/run/scrub"
	_ "github.com/mortarhpc/mortar/internal/run/upgrade"
)

func TestFindingsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n## Refusals of plan, apply and procedures\n\n" +
		"A refusal names what a command does not do, before it changes anything. With `--json` the error has its code, subject and arguments ([JSON](json.md)). LUNs that are not as designed have the codes of their findings.\n\n" +
		"| code | text | subject | what to do |\n|---|---|---|---|\n")
	codes := resource.Registered()
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", code, observe.Capitals(codes[code][1]), codes[code][0], observe.Capitals(codes[code][2]))
	}
	observe.FindingsReference(t, b.String())
}

// Each call that refuses has a code of the table and the arguments that its texts need, and no
// code is without a call, or that of a finding.
func TestRefusalsHaveTheirArguments(t *testing.T) {
	codes, calls := resource.Registered(), 0
	var source strings.Builder
	visit := func(name, pkg string, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			if x, ok := f.X.(*ast.Ident); !ok || x.Name != "resource" || f.Sel.Name != "Refuse" {
				return
			}
		case *ast.Ident:
			if f.Name != "Refuse" && f.Name != "refuse" || pkg != "resource" && pkg != "plan" {
				return
			}
		default:
			return
		}
		l, literal := call.Args[len(call.Args)-2].(*ast.BasicLit)
		if calls++; !literal {
			return // the code is a variable
		}
		code, _ := strconv.Unquote(l.Value)
		k, known := codes[code]
		if !known {
			t.Errorf("%s: %s is no code of a package that this test imports", name, code)
		}
		var have []string
		if args, ok := call.Args[len(call.Args)-1].(*ast.CompositeLit); ok {
			for _, e := range args.Elts {
				key, _ := strconv.Unquote(e.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
				have = append(have, key)
			}
		}
		always := regexp.MustCompile(`\[[^][]*\]`).ReplaceAllString(k[1]+k[2], "")
		for _, m := range observe.Argument.FindAllStringSubmatch(always+"{"+k[0]+"}", -1) {
			if !slices.Contains(have, m[1]) {
				t.Errorf("%s: %s needs %q, and has %q", name, code, m[1], have)
			}
		}
	}
	for _, root := range []string{"../..", "../../../cmd"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if filepath.Base(name) != "refusals.go" {
				source.Write(text)
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
			if err == nil {
				ast.Inspect(f, func(n ast.Node) bool { visit(name, f.Name.Name, n); return true })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls < 100 {
		t.Errorf("only %d calls were looked at", calls)
	}
	for code, k := range codes {
		if !strings.Contains(source.String(), `"`+code+`"`) {
			t.Errorf("nothing refuses with %s", code)
		}
		if observe.Taken(code) {
			t.Errorf("%s is the code of a finding or of the resource agent, too", code)
		}
		args := resource.With{}
		for _, m := range observe.Argument.FindAllStringSubmatch(k[1]+k[2], -1) {
			args[m[1]] = "x"
		}
		r := resource.Refuse(code, args)
		if r.What == "" || r.Mend == "" || observe.Argument.MatchString(r.Error()) {
			t.Errorf("%s: %s", code, r)
		}
	}
}
