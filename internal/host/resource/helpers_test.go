package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// diff runs Diff on a resource that went over the wire.
func diff(t *testing.T, r Resource, sys Sys) []Action {
	t.Helper()
	as, err := Diff(t.Context(), sys, wire(t, r))
	if err != nil {
		t.Fatalf("%s: %v", KindOf(r), err)
	}
	return as
}

func wire(t *testing.T, r Resource) Resource {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(Kinds, KindOf(r), b)
	if err != nil {
		t.Fatal(err)
	}
	if x := cmp.Diff(r, d); x != "" {
		t.Fatalf("%s is not the same after the wire:\n%s", KindOf(r), x)
	}
	return d
}

// refused runs Diff and wants a Refusal of a code that has arguments: names and values.
func refused(t *testing.T, r Resource, sys Sys, code string, args ...string) {
	t.Helper()
	as, err := Diff(t.Context(), sys, r)
	wantRefusal(t, as, err, code, args...)
}

func wantRefusal(t *testing.T, as []Action, err error, code string, args ...string) {
	t.Helper()
	var ref *Refusal
	if !errors.As(err, &ref) || !ref.Has(code, args...) || len(as) > 0 {
		t.Errorf("%v %v, want a refusal %s of %q", as, err, code, args)
	}
}

// show writes actions one a line: the command, or what is done to a file.
func show(as []Action) string {
	var b strings.Builder
	for _, a := range as {
		switch {
		case a.File == nil:
			b.WriteString(strings.Join(a.Cmd, " "))
			if len(a.Stdin) > 0 && !a.Secret {
				fmt.Fprintf(&b, " <<< %q", a.Stdin)
			}
		case len(a.Cmd) > 0:
			b.WriteString(strings.Join(a.Cmd, " ") + " && remove " + a.File.Path)
		case a.File.Remove:
			b.WriteString("remove " + a.File.Path)
		case a.File.Mkdir:
			fmt.Fprintf(&b, "mkdir %s %04o", a.File.Path, a.File.Mode)
		case a.File.Symlink != "":
			b.WriteString("link " + a.File.Path + " " + a.File.Symlink)
		default:
			fmt.Fprintf(&b, "write %s %04o", a.File.Path, a.File.Mode)
		}
		if len(a.Destroys) > 0 {
			b.WriteString(" DESTROYS " + strings.Join(a.Destroys, " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func wantShow(t *testing.T, as []Action, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(show(as))); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
}
