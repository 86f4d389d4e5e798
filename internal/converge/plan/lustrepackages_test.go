package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// lustreSpec is lustre-small in a directory of its own, with packages from somewhere.
func lustreSpec(t *testing.T, packages string) *spec.Spec {
	t.Helper()
	src, err := os.ReadFile("../../../examples/lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(src), "  lnet: tcp\n", "  lnet: tcp\n  packages: "+packages+"\n", 1)
	s, err := spec.Parse(filepath.Join(t.TempDir(), "brick.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLustreSource(t *testing.T) {
	s := lustreSpec(t, "{directory: lp}")
	dir := filepath.Join(filepath.Dir(s.File), "lp")
	refused := func(want string) {
		t.Helper()
		if _, err := LustreSourceOf(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "brick.yaml:") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused("lp holds no modules of Lustre")
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("lustre-server-utils_2.17.57-1_amd64.deb")
	refused("lp holds no modules of Lustre")
	write("lustre-server-modules-6.12.95+deb13-amd64_2.17.57-1_amd64.deb")
	write("lustre-server-modules-6.12.107+deb13-amd64_2.17.57-1_amd64.deb")
	write("NOTES")
	l, err := LustreSourceOf(s)
	if err != nil || len(l.Files) != 3 || l.Files[2].Version != "2.17.57-1" || l.Files[2].Size != 7 || len(l.Files[2].SHA256) != 64 {
		t.Fatalf("%+v %v", l, err)
	}
	var b strings.Builder
	l.Show(&b)
	if !strings.Contains(b.String(), "in lp, for kernel 6.12.107+deb13-amd64, 6.12.95+deb13-amd64\n") {
		t.Error(b.String())
	}
	write("lustre.deb")
	refused("lustre.deb is not named package_version_architecture.deb")

	s = lustreSpec(t, "{repository: https://lustre.example.org/debian ./, key: lustre.asc}")
	refused("lustre.asc: no such file")
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.File), "lustre.asc"), []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := LustreSourceOf(s); err != nil || l.Repository != "https://lustre.example.org/debian ./" || string(l.Key) != "key" {
		t.Errorf("%+v %v", l, err)
	}
	if l, err := LustreSourceOf(testDesign(t, "lustre-small").Spec); l != nil || err != nil {
		t.Errorf("without: %+v %v", l, err)
	}
}
