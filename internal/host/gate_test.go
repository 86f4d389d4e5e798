package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// fakeHost notes what reaches a host.
type fakeHost struct {
	ran []agent.RunParams
	err error
}

func (f *fakeHost) Close() {}

func (f *fakeHost) Call(_ context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	if op != "run" {
		return fmt.Errorf("op %s", op)
	}
	f.ran = append(f.ran, params.(agent.RunParams))
	if onEvent != nil {
		onEvent(json.RawMessage("{}"))
	}
	*result.(*resource.Output) = resource.Output{Stdout: "said"}
	return f.err
}

// A file of the administrator's machine travels with the action, and only as it was when the plan was made.
func TestSessionRunFrom(t *testing.T) {
	from := filepath.Join(t.TempDir(), "lustre.deb")
	if err := os.WriteFile(from, []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{}
	s := &Session{Name: "nfs1", line: h}
	sum := sha256.Sum256([]byte("package"))
	a := resource.Action{Title: "copy", File: &resource.File{Path: "/x", From: from, SHA256: hex.EncodeToString(sum[:])}}
	if _, err := s.Run(t.Context(), a); err != nil || len(h.ran) != 1 || string(h.ran[0].Action.File.Content) != "package" || h.ran[0].Action.File.From != "" {
		t.Errorf("%v %+v", err, h.ran)
	}
	if a.File.Content != nil {
		t.Error("the plan has the content")
	}
	a.File.SHA256 = "0"
	if _, err := s.Run(t.Context(), a); err == nil || !strings.Contains(err.Error(), "has changed since the plan was made") || len(h.ran) != 1 {
		t.Errorf("another file: %v", err)
	}
}

func TestSessionRun(t *testing.T) {
	broken := errors.New("broken")
	plain := resource.Action{Title: "set", Cmd: []string{"set", "x"}}
	wipe := resource.Action{Title: "wipe", Cmd: []string{"wipefs"}, Destroys: []string{"MA01"}}
	file := resource.Action{Title: "write", File: &resource.File{Path: "/x", Content: []byte("secret")}, Secret: true}
	var refusal *resource.Refusal
	for _, c := range []struct {
		name string
		gate Gate
		a    resource.Action
		fail error // of the host
		want string
		is   func(error) bool
		log  []Change
	}{
		{name: "plain", a: plain, log: []Change{{"nfs1", Begins, "set", plain.Cmd, ""}, {"nfs1", Waiting, "set", plain.Cmd, ""}, {"nfs1", Done, "set", plain.Cmd, ""}}},
		{name: "file", a: file, log: []Change{{"nfs1", Begins, "write", nil, "/x"}, {"nfs1", Waiting, "write", nil, "/x"}, {"nfs1", Done, "write", nil, "/x"}}},
		{name: "fails", a: plain, fail: broken, is: func(err error) bool { return errors.Is(err, broken) },
			log: []Change{{"nfs1", Begins, "set", plain.Cmd, ""}, {"nfs1", Waiting, "set", plain.Cmd, ""}, {"nfs1", Failed, "set", plain.Cmd, ""}}},
		{name: "destroys, nothing permitted", a: wipe, is: func(err error) bool { return errors.As(err, &refusal) }},
		{name: "destroys, another permitted", a: wipe, gate: Gate{Permitted: []string{"MA02"}}, is: func(err error) bool { return errors.As(err, &refusal) }},
		{name: "destroys, permitted", a: wipe, gate: Gate{Permitted: []string{"MA02", "MA01"}},
			log: []Change{{"nfs1", Begins, "wipe", wipe.Cmd, ""}, {"nfs1", Waiting, "wipe", wipe.Cmd, ""}, {"nfs1", Done, "wipe", wipe.Cmd, ""}}},
		{name: "dry run", a: plain, gate: Gate{DryRun: true}, is: func(err error) bool { return errors.Is(err, ErrDryRun) }},
		{name: "dry run of what is refused", a: wipe, gate: Gate{DryRun: true}, is: func(err error) bool { return errors.As(err, &refusal) }},
	} {
		h := &fakeHost{err: c.fail}
		var log []Change
		c.gate.Log = func(x Change) { log = append(log, x) }
		out, err := New("nfs1", h).Under(c.gate).Run(t.Context(), c.a)
		if c.is == nil && (err != nil || out.Stdout != "said") || c.is != nil && !c.is(err) {
			t.Errorf("%s: %+v %v", c.name, out, err)
		}
		if d := cmp.Diff(c.log, log); d != "" {
			t.Errorf("%s: log:\n%s", c.name, d)
		}
		reached := len(c.log) > 0
		if reached != (len(h.ran) == 1) {
			t.Errorf("%s: %d actions reached the host", c.name, len(h.ran))
		}
		for _, p := range h.ran {
			if d := cmp.Diff(agent.RunParams{Action: c.a, Permitted: c.gate.Permitted, By: By()}, p); d != "" {
				t.Errorf("%s: %s", c.name, d)
			}
		}
	}
	h := &fakeHost{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New("nfs1", h).Run(ended, plain); !errors.Is(err, context.Canceled) || len(h.ran) > 0 {
		t.Errorf("ended before: %v, %d", err, len(h.ran))
	}
}

// No other program text names the op that changes hosts, so nothing passes
// the gate by: neither as an argument nor as a constant under another name.
func TestNothingElseRuns(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		switch filepath.ToSlash(strings.TrimPrefix(p, "../../")) {
		case "internal/host/session.go", "internal/host/agent/core.go", "internal/host/agent/ops.go":
			seen++
			return nil
		}
		for _, at := range runs(t, p, nil) {
			t.Errorf("%s: change hosts by host.Session.Run, never by op run", at)
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Fatal(seen, err)
	}
	// The search finds what it is for.
	for _, text := range []string{
		`package p; func f() { h.Call(ctx, "run", nil) }`, "package p; func f() { h.Call(ctx, `run`, nil) }",
		`package p; const op = "run"`, `package p; var p = agent.RunParams{}`, `package p; var ops = []string{"ru" + "n"}`, `package p; func f() { host.Watch(ctx, s, agent.OpRun, p, nil) }`,
	} {
		if len(runs(t, "x.go", text)) == 0 {
			t.Errorf("not found in %s", text)
		}
	}
	if at := runs(t, "x.go", `package p; var dir = filepath.Join(dir, "run")`+"; type t struct { Run string `json:\"run\"` }"); len(at) > 0 {
		t.Errorf("a path and a key are no op: %v", at)
	}
}

// runs gives where a file names the op, or its parameters.
func runs(t *testing.T, file string, text any) []string {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Join" {
				return false // a directory of that name
			}
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "command" && strings.HasPrefix(filepath.ToSlash(file), "../../cmd/mortar/") {
				n.Args = n.Args[1:] // mortar drill run
			}
		case *ast.Field:
			n.Tag = nil
		case *ast.BinaryExpr:
			if word(n) == "run" {
				out = append(out, set.Position(n.Pos()).String())
			}
		case *ast.BasicLit:
			if word(n) == "run" {
				out = append(out, set.Position(n.Pos()).String())
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "RunParams" || n.Sel.Name == "OpRun" {
				if id, ok := n.X.(*ast.Ident); ok && id.Name == "agent" {
					out = append(out, set.Position(n.Pos()).String())
				}
			}
		}
		return true
	})
	return out
}

// word is the value of a text that is written out, whole or in pieces.
func word(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strings.Trim(e.Value, "\"`")
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return word(e.X) + word(e.Y)
		}
	}
	return ""
}
