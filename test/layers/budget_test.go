package layers_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the budget to what the packages need")

// limits of a package, of a type and of a function. A budget above one says why.
var limits = size{Lines: 5000, Methods: 40, Function: 100}

// slack is how many lines a package may fall below its budget before the budget has to
// be lowered: small changes do not touch it.
const slack = 50

// size of a package without its tests.
type size struct {
	Lines    int // of all files
	Methods  int // of the type that has most
	Function int // lines of the longest function
}

func (s size) above(o size) []string {
	var out []string
	for _, x := range []struct {
		what    string
		is, max int
	}{{"lines", s.Lines, o.Lines}, {"methods of one type", s.Methods, o.Methods}, {"lines of one function", s.Function, o.Function}} {
		if x.is > x.max {
			out = append(out, fmt.Sprintf("%d %s, more than %d", x.is, x.what, x.max))
		}
	}
	return out
}

// TestBudget holds each package to its line of budget.txt. A change that makes a package
// larger raises its line by hand, with the reason in the commit; -update only lowers.
func TestBudget(t *testing.T) {
	const file = "budget.txt"
	have, err := sizes("../..")
	if err != nil || len(have) < 20 {
		t.Fatalf("%d packages, %v", len(have), err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	budget := map[string]size{}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		line := sc.Text()
		head, why, _ := strings.Cut(line, "#")
		if strings.TrimSpace(head) == "" {
			fmt.Fprintln(&out, line)
			continue
		}
		var name string
		var s size
		if _, err := fmt.Sscan(head, &name, &s.Lines, &s.Methods, &s.Function); err != nil {
			t.Fatalf("%s: %q: want PACKAGE LINES METHODS FUNCTION # why: %v", file, line, err)
		}
		budget[name] = s
		is, there := have[name]
		if !there {
			if !*update {
				t.Errorf("%s: %s has no code any more: remove its line (go test ./test/layers -update)", file, name)
			}
			continue
		}
		for _, x := range is.above(s) {
			t.Errorf("%s: %s: take code away, or raise the budget and say in the commit what the new code replaces", name, x)
		}
		if len(s.above(limits)) > 0 && strings.TrimSpace(why) == "" {
			t.Errorf("%s: the budget of %s is above the limit (%+v) and does not say why", file, name, limits)
		}
		if is.Lines < s.Lines-slack && !*update {
			t.Errorf("%s: %s has %d lines, its budget %d: lower it (go test ./test/layers -update)", file, name, is.Lines, s.Lines)
		}
		s = size{min(s.Lines, is.Lines), min(s.Methods, is.Methods), min(s.Function, is.Function)}
		fmt.Fprint(&out, row(name, s, why))
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, known := budget[name]; !known {
			t.Errorf("%s: the budget has no line for %s: add\n%s", file, name, row(name, have[name], ""))
		}
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func row(name string, s size, why string) string {
	line := fmt.Sprintf("%-32s %5d %3d %3d", name, s.Lines, s.Methods, s.Function)
	if why = strings.TrimSpace(why); why != "" {
		line += " # " + why
	}
	return line + "\n"
}

// sizes measures each package below root that has code outside tests.
func sizes(root string) (map[string]size, error) {
	all, methods := map[string]size{}, map[string]map[string]int{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "out" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && p != root) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		s := all[pkg]
		s.Lines += fset.File(f.Pos()).LineCount()
		if methods[pkg] == nil {
			methods[pkg] = map[string]int{}
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			s.Function = max(s.Function, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
			if fn.Recv != nil {
				of := receiver(fn.Recv.List[0].Type)
				methods[pkg][of]++
				s.Methods = max(s.Methods, methods[pkg][of])
			}
		}
		all[pkg] = s
		return nil
	})
	return all, err
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
