// Package example gives tests the designs of the examples. It may hold nothing that is not
// the same for every test.
package example

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Design derives the design of an example, such as nfs-ha.yaml. replace are pairs of old and new
// text in it.
func Design(t testing.TB, file string, replace ...string) *design.Design {
	t.Helper()
	text, err := examples.FS.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(file, []byte(strings.NewReplacer(replace...).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
