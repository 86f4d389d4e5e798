package design

import (
	"io/fs"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/spec"
)

func example(t *testing.T, name string) *Design {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return build(t, src)
}

func build(t *testing.T, src []byte) *Design {
	t.Helper()
	s, err := spec.Parse("brick.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestExampleSurvivesEnclosure(t *testing.T) {
	d := example(t, "nfs-ha")
	if len(d.Groups) != 1 || len(d.Groups[0].Members) != 4 || len(d.Groups[0].Spares) != 2 {
		t.Fatalf("groups: %+v", d.Groups)
	}
	if n, e := worstEnclosure(d.Groups[0]); n != 2 {
		t.Errorf("%d members in enclosure %s", n, e)
	}
	if len(d.Warnings) > 0 {
		t.Errorf("warnings: %+v", d.Warnings)
	}
}
