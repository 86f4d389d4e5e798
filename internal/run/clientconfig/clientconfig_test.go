package clientconfig

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func exampleOf(t *testing.T, name string) *design.Design {
	t.Helper()
	b, err := examples.FS.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Each format has the files that an apply would write on a client, and no other content of them.
func TestTrees(t *testing.T) {
	for name, must := range map[string][]string{
		"nfs-ha":       {"/etc/modprobe.d/mortar.conf", "/etc/sysctl.d/90-mortar.conf", "/etc/nfs.conf.d/mortar-readahead.conf", "/etc/modules-load.d/mortar.conf"},
		"nvme-ha":      {"/etc/modprobe.d/mortar.conf", "/etc/sysctl.d/90-mortar.conf"},
		"lustre-small": {"/etc/modprobe.d/mortar.conf"},
	} {
		d := exampleOf(t, name)
		for format, root := range map[string]string{"dir": "root", "warewulf": "rootfs", "ansible": "files"} {
			tree, err := Tree(t.Context(), d, "", format)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, format, err)
			}
			for _, p := range must {
				if !strings.HasPrefix(tree[root+p], "# Written by mortar apply") {
					t.Errorf("%s, %s: %s is %q, of %v", name, format, p, tree[root+p], slices.Sorted(maps.Keys(tree)))
				}
			}
			lines := tree[map[string]string{"dir": "fstab", "warewulf": "rootfs/etc/fstab.ww", "ansible": "tasks/main.yml"}[format]]
			docs, err := d.MountLines(d.Spec.Clients[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range docs {
				if !strings.Contains(lines, m.Fstab+"\n") {
					t.Errorf("%s, %s: no line %q in\n%s", name, format, m.Fstab, lines)
				}
			}
			if tree["README"] == "" || strings.Contains(tree["README"], "fio") || strings.Contains(tree["README"], "Install .") {
				t.Errorf("%s, %s: README\n%s", name, format, tree["README"])
			}
			if format == "ansible" {
				var tasks []map[string]any
				for _, p := range must { // the module copy makes none
					if !strings.Contains(lines, "path: "+filepath.Dir(p)+"\n    state: directory\n") {
						t.Errorf("%s: the role does not make the directory of %s\n%s", name, p, lines)
					}
				}
				for _, m := range docs {
					if !strings.Contains(lines, "creates: "+m.Path+"\n") {
						t.Errorf("%s: the role makes %s only if another one is missing\n%s", name, m.Path, lines)
					}
				}
				if err := yaml.Unmarshal([]byte(lines), &tasks); err != nil || len(tasks) < 5 {
					t.Errorf("%s: %d tasks: %v\n%s", name, len(tasks), err, lines)
				}
			}
		}
	}
}

// A tree is for one client of the spec or for any; a directory with something in it stays.
func TestWrite(t *testing.T) {
	d := exampleOf(t, "nfs-ha")
	tree, err := Tree(t.Context(), d, "c1", "dir")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := Write(dir, tree); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "hosts")); err != nil || string(b) != "10.77.1.100 10.77.1.100 brick1-home\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := Write(dir, tree); err == nil {
		t.Errorf("written twice: %v", err)
	}
	// A write that ends half-way leaves no README.
	half := filepath.Join(t.TempDir(), "half")
	if err := Write(half, map[string]string{"README": "", "a": "", "a/b": ""}); err == nil {
		t.Error("a file was made a directory")
	}
	if names, err := filepath.Glob(half + "/*"); err != nil || len(names) != 1 {
		t.Errorf("half a tree has %v, %v", names, err)
	}
	for _, ask := range [][2]string{{"c9", "dir"}, {"", "tar"}} {
		if _, err := Tree(t.Context(), d, ask[0], ask[1]); err == nil {
			t.Errorf("%v makes a tree", ask)
		}
	}
}
