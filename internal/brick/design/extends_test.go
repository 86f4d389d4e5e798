package design

import (
	"os"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// A Lustre file system grows by pairs of servers behind those it has, and by nothing else.
func TestLustreExtends(t *testing.T) {
	small, err := examples.FS.ReadFile("lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	grown, err := os.ReadFile("../../../test/rack/testdata/lustre-grown.yaml")
	if err != nil {
		t.Fatal(err)
	}
	was := designOf(t, string(small))
	pairs, err := designOf(t, string(grown)).Extends(was)
	if err != nil || len(pairs) != 1 || pairs[0].Name != "oss2" || pairs[0].Services[0].Targets[0].Name != "small-OST0002" {
		t.Fatalf("%v %+v", err, pairs)
	}
	if pairs, err := was.Extends(was); err != nil || len(pairs) != 0 {
		t.Errorf("the same spec: %v %v", err, pairs)
	}
	for _, c := range []struct{ old, text, want string }{
		{"name: small\n", "name: small\nid: abcdefgh\n", "small: id would"},
		{"memory: 128GiB", "memory: 64GiB", "server mds01 "},
		{"fsname: small", "fsname: big", "lustre.fsname "},
		{"chunk: 512KiB", "chunk: 256KiB", "of module oss "},
		{"name: oss\n", "name: oss0\n", "of module oss "},
		{"failback: manual", "failback: auto", "module mds "},
	} {
		if !strings.Contains(string(grown), c.old) {
			t.Fatalf("the test's spec has no %q", c.old)
		}
		text := strings.Replace(string(grown), c.old, c.text, 1)
		if c.old == "name: oss\n" {
			text = strings.ReplaceAll(text, "module: oss,", "module: oss0,")
		}
		if _, err := designOf(t, text).Extends(was); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	nfs, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := designOf(t, string(nfs))
	if _, err := d.Extends(d); err == nil {
		t.Errorf("NFS: %v", err)
	}
}

func designOf(t *testing.T, text string) *Design {
	t.Helper()
	s, err := spec.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
