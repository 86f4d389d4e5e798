package quick

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for _, n := range []int{0, 1, 511, 512, 513, 70000} {
		want := strings.Repeat("x", n)
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := ReadFile(file, 0); err != nil || string(b) != want {
			t.Errorf("%d bytes: read %d, %v", n, len(b), err)
		}
		if b, err := ReadFile(file, 512); (err != nil) != (n > 512) {
			t.Errorf("%d bytes of at most 512: read %d, %v", n, len(b), err)
		}
	}
	if b, err := ReadFile("/proc/self/status", 0); err != nil || !strings.HasPrefix(string(b), "Name:") {
		t.Errorf("a file of /proc: %q, %v", b, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, fifo} {
		if _, err := ReadFile(p, 0); err == nil {
			t.Errorf("%s is read", p)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "no"), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"l": "a", "a/m": "../l/b", "dead": "nowhere", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"l/b", "l/m", "a", "dead", "loop", "no", "../" + filepath.Base(dir) + "/l"} {
		p = dir + "/" + p
		want, wantErr := filepath.EvalSymlinks(p)
		got, err := Resolve(p)
		if got != want || (err != nil) != (wantErr != nil) || errors.Is(err, fs.ErrNotExist) != errors.Is(wantErr, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v; want %q, %v", p, got, err, want, wantErr)
		}
	}
}

func TestGlob(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"b/sda/device/vendor", "b/sdb/device/vendor", "b/sdc/size", "b/dm-0/dm/name", "b/sd[x"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "b/dead")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"b/sd*/device/vendor", "b/sd*/size", "b/*", "b/d*", "*/sd?/*/v*", "b/sda", "no", "b/no/*", "b/sd[ab]", `b/sd\[x`, "b/sda/device/vendor/x", "b/./sda/", "b/[", "no/["} {
		p = dir + "/" + p
		want, wantErr := filepath.Glob(filepath.Clean(p))
		got, err := Glob(p)
		slices.Sort(want)
		if !slices.Equal(got, want) || (err != nil) != (wantErr != nil) {
			t.Errorf("%s: %q, %v; want %q, %v", p, got, err, want, wantErr)
		}
	}
}
