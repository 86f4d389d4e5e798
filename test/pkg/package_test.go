//go:build pkg

package pkg

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// only returns the one file below out/package that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, _ := filepath.Glob("../../out/package/" + pattern)
	if len(found) != 1 {
		t.Fatalf("out/package has %v for %s: run make package", found, pattern)
	}
	abs, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestLintian(t *testing.T) {
	t.Parallel()
	run(t, "lintian", "--allow-root", "--fail-on", "error,warning", "--info", only(t, "*.deb"))
}

// TestRPM reads the RPM's header and files. No machine of the test can install it.
func TestRPM(t *testing.T) {
	t.Parallel()
	files := strings.Split(run(t, "rpm", "-qp", "--list", only(t, "*.rpm")), "\n")
	for _, want := range []string{"/usr/bin/mortar", "/usr/share/man/man1/mortar-drill.1.gz", "/usr/share/bash-completion/completions/mortar"} {
		if !slices.Contains(files, want) {
			t.Errorf("the RPM lacks %s", want)
		}
	}
}

// TestLife installs the Debian package into a clean root, uses it, and purges it. The
// package needs no other: the root has the essential packages only, and a
// crash may lose it.
func TestLife(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	run(t, "mmdebstrap", "--quiet", "--variant=essential", `--aptopt=Acquire::Languages "none"`, "--dpkgopt=force-unsafe-io", "trixie", root)
	in := func(args ...string) string { return run(t, "chroot", append([]string{root}, args...)...) }
	before := strings.Split(in("find", "/usr", "/etc"), "\n")
	run(t, "cp", only(t, "*.deb"), filepath.Join(root, "mortar.deb"))
	in("dpkg", "--install", "/mortar.deb")

	if v := in("mortar", "version"); !strings.HasPrefix(v, "mortar ") {
		t.Errorf("mortar version: %q", v)
	}
	in("sh", "-c", "mortar init nss7.4-ha > /brick.yaml && mortar check /brick.yaml && mortar array script /brick.yaml")
	for _, example := range strings.Fields(in("sh", "-c", "ls /usr/share/doc/mortar/examples/*.yaml")) {
		in("mortar", "check", example)
	}
	in("bash", "-ec", ". /usr/share/bash-completion/completions/mortar; complete -p mortar")
	if done := in("mortar", "__complete", "dri"); !strings.HasPrefix(done, "drill\t") {
		t.Errorf("\"mortar dri\" is completed to %q", done)
	}
	// Each linked module is in the bill of materials and has its licence.
	sbom := in("cat", "/usr/share/doc/mortar/sbom.cdx.json")
	for line := range strings.Lines(run(t, "go", "version", "-m", filepath.Join(root, "usr/bin/mortar"))) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "dep" {
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(root, "usr/share/doc/mortar/licenses", f[1], "*")); len(found) == 0 || !strings.Contains(sbom, `"`+f[1]+`"`) {
			t.Errorf("%s: no licence or not in the bill of materials", f[1])
		}
	}
	// Each command of the help has a manual page.
	for _, line := range strings.Split(in("mortar", "help"), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(line, "  ") || f[0] == "help" || f[0] == "mortar" || strings.HasPrefix(f[0], "-") {
			continue
		}
		page := filepath.Join(root, "/usr/share/man/man1/mortar-"+f[0]+".1.gz")
		if _, err := os.Stat(page); err != nil {
			t.Errorf("no manual page of %q: %v", f[0], err)
		}
	}

	in("dpkg", "--purge", "mortar")
	for _, f := range strings.Split(in("find", "/usr", "/etc"), "\n") {
		if !slices.Contains(before, f) {
			t.Errorf("the purge left %s", f)
		}
	}
}
