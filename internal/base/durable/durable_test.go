package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "conf")
	for _, f := range []File{{Content: []byte("old"), Mode: 0o600, UID: os.Getuid(), GID: os.Getgid()}, {Content: []byte("new"), Mode: 0o4755, UID: os.Getuid(), GID: os.Getgid()}} {
		if err := Write(p, f); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(p)
		if err != nil || string(b) != string(f.Content) {
			t.Errorf("%q, %v", b, err)
		}
		if fi, err := os.Stat(p); err != nil || uint32(fi.Mode().Perm()) != f.Mode&0o777 || (fi.Mode()&os.ModeSetuid != 0) != (f.Mode&0o4000 != 0) {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
	if err := Write(filepath.Join(dir, "none", "conf"), File{}); err == nil {
		t.Error("a directory that is not there")
	}
	// A directory in the way: it stays, and nothing is left beside it.
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(full, File{Mode: 0o644}); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Symlink("conf", filepath.Join(dir, "link")); err != nil {
		t.Error(err)
	}
	if err := Symlink("full", filepath.Join(dir, "link")); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "link")); to != "full" || err != nil {
		t.Errorf("%s, %v", to, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 3 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
