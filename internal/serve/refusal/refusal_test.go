package refusal

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
)

var named = regexp.MustCompile(`\{(\w+)`)

// Each kind is filled by its arguments, and has a code that leaves Pacemaker's 128 bytes to the
// text.
func TestKinds(t *testing.T) {
	left := regexp.MustCompile(`[{}\[\]]|%!`)
	for code, k := range Kinds {
		args := Args{}
		for _, m := range named.FindAllStringSubmatch(k.Text, -1) {
			args[m[1]] = "x"
		}
		err := New(code, args)
		r := (*Refusal)(nil)
		if !errors.As(err, &r) || r.Text == "" || left.MatchString(r.Text) {
			t.Errorf("%s: %q", code, err)
		}
		if _, has := args[k.Subject]; has && r.Subject != "x" {
			t.Errorf("%s is about %q", code, r.Subject)
		}
		if left.MatchString(k.Mend) && !strings.Contains(k.Mend, "](") || k.Mend == "" || k.Level != health.OK {
			t.Errorf("%s: %+v", code, k)
		}
		if _, twice := Parts[code]; twice {
			t.Errorf("%s is in both tables", code)
		}
		if got := CodeIn(fmt.Sprintf("[%s] %v", CodeOf(err), err)); got != code || len(code) > 13 {
			t.Errorf("%s is read as %q, %d bytes", code, got, len(code))
		}
	}
	for code, p := range Parts {
		if p[0] == "" || p[1] == "" || !Known(code) {
			t.Errorf("%s: %q", code, p)
		}
	}
}

// What an error wraps is found through a refusal, and a refusal stays the one that it is.
func TestCauses(t *testing.T) {
	cause := errors.New("cause")
	damaged := New(Damaged, Args{"at": "/srv", Why: cause})
	if damaged.Error() != "mount /srv: the file system is damaged: cause" || !errors.Is(damaged, cause) {
		t.Error(damaged)
	}
	if err := Because("luns", damaged); err != damaged {
		t.Error(err)
	}
	because := Because("luns", Give("nfsd", cause))
	if because.Error() != "cause" || !errors.Is(because, cause) || CodeOf(because) != "luns" || !errors.As(because, new(*Refusal)) {
		t.Error(because)
	}
	failed := Give("mount", fmt.Errorf("more: %w", cause))
	if errors.As(failed, new(*Refusal)) || !errors.Is(failed, cause) || CodeOf(Give("nfsd", failed)) != "mount" || CodeOf(cause) != Failed {
		t.Error(failed)
	}
	if err := New("not-stopped", Args{"service": "home", Why: error(nil)}); err.Error() != "service home is not stopped here: a volume that is mounted is not touched" || errors.Unwrap(err) != nil {
		t.Error(err)
	}
	if Give(Late, nil) != nil || CodeIn("a reason [late] of another agent") != "" || Known("nonsense") {
		t.Error("a code where none is")
	}
}

// Each call that makes a refusal has a code of the table, and the arguments that its text needs
// and no others; and each kind is made somewhere.
func TestRefusalsHaveTheirArguments(t *testing.T) {
	consts := map[string]Code{"BadConfig": BadConfig, "Unable": Unable, "Busy": Busy, "Late": Late, "Taken": Taken, "InDoubt": InDoubt, "Comparing": Comparing, "Damaged": Damaged, "Stranger": Stranger, "Failed": Failed}
	code := func(e ast.Expr) Code {
		switch x := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
				return Code(s)
			}
		case *ast.SelectorExpr:
			if p, ok := x.X.(*ast.Ident); ok && p.Name == "refusal" {
				return consts[x.Sel.Name]
			}
		}
		return ""
	}
	files, _ := filepath.Glob("../*/*.go") // the pattern is right
	said, calls := map[Code]bool{}, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../refusal/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				said[code(e)] = true
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := fun.X.(*ast.Ident)
			c := code(call.Args[0])
			if pkg == nil || pkg.Name != "refusal" || c == "" {
				return true
			}
			if _, part := Parts[c]; fun.Sel.Name != "New" && !part {
				t.Errorf("%s: %s has a text of its own", name, c)
			}
			args, literal := call.Args[1].(*ast.CompositeLit)
			if fun.Sel.Name != "New" || !literal {
				return true
			}
			calls++
			k, known := Kinds[c]
			if !known {
				t.Errorf("%s: no refusal has the code %s", name, c)
				return true
			}
			var have []string
			for _, e := range args.Elts {
				switch key := e.(*ast.KeyValueExpr).Key.(type) {
				case *ast.BasicLit:
					s, _ := strconv.Unquote(key.Value)
					have = append(have, s)
				case *ast.SelectorExpr: // refusal.Why
					have = append(have, Why)
				}
			}
			always := regexp.MustCompile(`\[[^][]*\]`).ReplaceAllString(k.Text, "")
			for _, m := range named.FindAllStringSubmatch(always, -1) {
				if !slices.Contains(have, m[1]) {
					t.Errorf("%s: %s needs %q, and has %q", name, c, m[1], have)
				}
			}
			for _, a := range have {
				if a != k.Subject && !strings.Contains(k.Text, "{"+a+"}") && !strings.Contains(k.Text, "{"+a+"%") {
					t.Errorf("%s: %s does not use %q", name, c, a)
				}
			}
			return true
		})
	}
	if calls < 30 {
		t.Errorf("only %d calls were looked at", calls)
	}
	for c := range Kinds {
		if !said[c] {
			t.Errorf("nothing refuses for %s", c)
		}
	}
}
