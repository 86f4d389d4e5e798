package plan

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	s := &spec.Spec{Name: "b1", File: filepath.Join(dir, "brick.yaml")}
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("good", "hunter2\n", 0o600)
	write("open", "hunter2\n", 0o644)
	write("empty", "", 0o600)
	read := Secrets(s, false)
	if b, err := read("good"); err != nil || string(b) != "hunter2\n" {
		t.Errorf("%q %v", b, err)
	}
	for name, want := range map[string]string{"open": "chmod 600", "empty": "is empty", "missing": "missing"} {
		if _, err := read(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}

	s2 := &spec.Spec{Name: "b2", File: s.File}
	var last []byte
	var err error
	for _, c := range []struct {
		keep bool
		same bool // as that of the plan before
	}{{false, false}, {true, false}, {false, true}, {true, true}} {
		before := last
		if last, err = DigestKey(s2, c.keep); err != nil || len(last) != digestKeySize || bytes.Equal(before, last) != c.same {
			t.Errorf("%+v: %x after %x, %v", c, last, before, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(StateDir(s2), "secrets", digestKeyFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}

	var once []byte
	once, err = read(CorosyncKey)
	if err != nil || len(once) != corosyncKeySize {
		t.Fatalf("%d bytes, %v", len(once), err)
	}
	if again, _ := read(CorosyncKey); !bytes.Equal(once, again) {
		t.Error("another key in the same plan")
	}
	if _, err := os.Stat(StateDir(s)); err == nil {
		t.Error("a plan alone wrote something")
	}
	kept, err := Secrets(s, true)(CorosyncKey)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Secrets(s, false)(CorosyncKey); err != nil || !bytes.Equal(kept, again) {
		t.Errorf("the key was not kept: %v", err)
	}
	p := filepath.Join(StateDir(s), "secrets", CorosyncKey)
	if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	if err := os.WriteFile(p, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Secrets(s, true)(CorosyncKey); err == nil {
		t.Error("a damaged key was taken")
	}
}

func TestLock(t *testing.T) {
	s := &spec.Spec{Name: "b1", File: filepath.Join(t.TempDir(), "brick.yaml")}
	release, err := Lock(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(s); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	release()
	release, err = Lock(s)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// A secret without a file comes from the password command, once for each plan. Neither
// its text nor a failure's shows another secret.
func TestPasswordCommand(t *testing.T) {
	dir := t.TempDir()
	s := &spec.Spec{Name: "b1", File: filepath.Join(dir, "brick.yaml"),
		PasswordCommand: []string{"sh", "-c", `echo "$1" >> ` + dir + `/asked; test "$1" != none && { test "$1" != empty && echo "secret of $1"; exit 0; }; echo "no such entry" >&2; exit 3`, "sh", "{}"}}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := Secrets(s, false)
	for name, want := range map[string]string{"file": "from the file\n", "a b/bmc": "secret of a b/bmc"} {
		for range 2 {
			if b, err := read(name); err != nil || string(b) != want {
				t.Errorf("%s: %q %v", name, b, err)
			}
		}
	}
	if asked, _ := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "a b/bmc\n" {
		t.Errorf("asked for %q", asked)
	}
	for name, want := range map[string]string{"none": "exit status 3: no such entry", "empty": "printed nothing"} {
		if _, err := read(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "secret "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.PasswordCommand = []string{filepath.Join(dir, "missing")}
	if _, err := Secrets(s, false)("bmc"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}
