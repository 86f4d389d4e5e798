package plan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A spec is applied if it was made from the one that the brick has.
func TestDescends(t *testing.T) {
	applied := func(generation int, text string) *claim.Applied {
		return &claim.Applied{Generation: generation, Source: []byte(text), By: "alice@adm1 (mortar grow)"}
	}
	for _, x := range []struct {
		name    string
		applied *claim.Applied
		known   string // of this machine
		onto    int
		refused bool
	}{
		{name: "first apply"},
		{name: "the same text, another machine", applied: applied(3, "new\n")},
		{name: "edited here since", applied: applied(3, "old\n"), known: `{"generation":3,"source":"b2xkCg=="}`},
		{name: "the servers were restored", applied: applied(2, "older\n"), known: `{"generation":3,"source":"b2xkCg=="}`},
		{name: "another machine", applied: applied(3, "old\n"), refused: true},
		{name: "an older file", applied: applied(4, "grown\n"), known: `{"generation":3,"source":"b2xkCg=="}`, refused: true},
		{name: "two at once", applied: applied(4, "grown\n"), known: `{"generation":4,"source":"b2xkCg=="}`, refused: true},
		{name: "accepted", applied: applied(4, "grown\n"), onto: 4},
		{name: "another one was accepted", applied: applied(4, "grown\n"), onto: 3, refused: true},
	} {
		s := &spec.Spec{File: filepath.Join(t.TempDir(), "brick.yaml"), Name: "b1", Source: []byte("new\n")}
		if x.known != "" {
			if err := os.MkdirAll(StateDir(s), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(knownFile(s), []byte(x.known), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := descends(s, x.applied, x.onto)
		if r := (*resource.Refusal)(nil); errors.As(err, &r) != x.refused || x.refused && !r.Has("spec-not-descended", "by", "alice@adm1 (mortar grow)") || err != nil && !x.refused {
			t.Errorf("%s: %v", x.name, err)
		}
		if x.refused && (!strings.Contains(err.Error(), "\n-"+string(x.applied.Source)) || !strings.Contains(err.Error(), "\n+new")) {
			t.Errorf("%s: the difference is missing:\n%v", x.name, err)
		}
	}
}

// The lock's content identifies the commands of a directory.
func TestLockNamesItsDirectory(t *testing.T) {
	a := &spec.Spec{File: filepath.Join(t.TempDir(), "brick.yaml"), Name: "b1"}
	read := func() string {
		release, err := Lock(a)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if _, err := Lock(a); !errors.Is(err, ErrLocked) {
			t.Error(err)
		}
		b, err := os.ReadFile(filepath.Join(StateDir(a), "lock"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if first, second := read(), read(); first != second || len(first) < 20 {
		t.Errorf("%q %q", first, second)
	}
}

func TestPerson(t *testing.T) {
	for by, want := range map[string]string{"alice@adm1 (mortar apply)": "alice@adm1", "bob@x": "bob@x"} {
		if got := person(by); got != want {
			t.Errorf("%q: %q", by, got)
		}
	}
}
