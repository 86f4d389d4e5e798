package spec

import (
	"io/fs"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

func TestExamples(t *testing.T) {
	names, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil || len(names) < 2 {
		t.Fatal("no examples", err)
	}
	for _, name := range names {
		src, err := fs.ReadFile(examples.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(name, src); err != nil {
			t.Errorf("%s:\n%v", name, err)
		}
	}
}
