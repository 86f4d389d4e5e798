package nodeimage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPackageFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("NOTES", "no package")
	if _, _, err := PackageFiles(dir); err == nil {
		t.Error("a directory without packages")
	}
	write("b.deb", "1")
	write("a.deb", "2")
	files, first, err := PackageFiles(dir)
	if err != nil || !slices.Equal(files, []string{filepath.Join(dir, "a.deb"), filepath.Join(dir, "b.deb")}) {
		t.Fatalf("%v, %v", files, err)
	}
	write("b.deb", "3")
	_, second, err := PackageFiles(dir)
	if err != nil || first == second {
		t.Errorf("other content, the same digest: %v", err)
	}
	a, b := Spec{Suite: "trixie"}, Spec{Suite: "trixie", LustreDigest: first}
	c := Spec{Suite: "trixie", LustreDigest: second}
	if a.Key() == b.Key() || b.Key() == c.Key() || a.diskKey() == b.diskKey() {
		t.Error("the key must follow the packages")
	}
	write("a,b.deb", "4")
	if _, _, err := PackageFiles(dir); err == nil {
		t.Error("a comma in a path")
	}
}

func TestLustreFits(t *testing.T) {
	const kernel = "6.12.107+deb13-cloud-amd64"
	for module, fits := range map[string]bool{
		"6.12.107+deb13-cloud-amd64/updates/kernel/fs/lustre/lustre.ko":    true,
		"6.12.107+deb13-cloud-amd64/updates/kernel/fs/lustre/lustre.ko.xz": true,
		"6.1.0-50-amd64/updates/kernel/fs/lustre/lustre.ko":                false,
		"6.12.107+deb13-cloud-amd64/kernel/fs/ext4/ext4.ko":                false,
	} {
		root := t.TempDir()
		p := filepath.Join(root, "lib/modules", module)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := lustreFits(root, kernel); (err == nil) != fits {
			t.Errorf("%s: %v", module, err)
		}
	}
}

// A kernel among Lustre's packages takes the place of the archive's.
func TestKernelBesideLustre(t *testing.T) {
	for _, rdma := range []bool{false, true} {
		s := Spec{Suite: "trixie", RDMA: rdma, Lustre: []string{"/p/lustre-server-utils_2_amd64.deb"}}
		kernels := func() int {
			return len(slices.DeleteFunc(s.Packages(), func(p string) bool { return !isKernelPackage(p) }))
		}
		if n := kernels(); n != 1 {
			t.Errorf("%d kernels of the archive, want 1", n)
		}
		s.Lustre = append(s.Lustre, "/p/linux-image-6.12.118+deb13-cloud-amd64_6.12.118-1_amd64.deb")
		if n := kernels(); n != 0 {
			t.Errorf("%d kernels of the archive beside the one in the directory, want 0", n)
		}
	}
}
