package tool

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOfRack(t *testing.T) {
	for _, tc := range []struct {
		p    process
		want bool
	}{
		{process{exe: "/usr/bin/qemu-system-x86_64", args: []string{"qemu-system-x86_64", "-pidfile", "/a/rack/run/s1.pid"}}, true},
		{process{exe: "/usr/bin/qemu-system-x86_64", args: []string{"qemu-system-x86_64", "-pidfile", "/a/rack2/run/s1.pid"}}, false},
		{process{exe: "/usr/bin/vim", args: []string{"vim", "/a/rack/config.json"}}, false},
		{process{exe: "/a/rack/run/mortar", args: []string{"./mortar", "rack", "_pdu", "..", "pdu1"}}, true},
		{process{exe: "/usr/bin/mortar", args: []string{"mortar", "rack", "down", "--dir", "/a/rack/"}}, false},
		{process{exe: "/usr/sbin/snmpd", args: []string{"snmpd", "-c", "/a/rack/run/pdu-pdu1.conf"}}, true},
	} {
		if got := tc.p.ofRack("/a/rack"); got != tc.want {
			t.Errorf("%v: %v", tc.p.args, got)
		}
	}
	if readProcess(os.Getpid()) == nil {
		t.Error("we are a process")
	}
	if readProcess(1<<22+1) != nil {
		t.Error("a process number beyond the kernel's maximum")
	}
}

func TestSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets", "bmc")
	a, err := EnsureSecret(file)
	if err != nil || len(a) != 16 {
		t.Fatalf("%q, %v", a, err)
	}
	if b, err := EnsureSecret(file); err != nil || a != b {
		t.Errorf("the second time: %q, %v", b, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, bad := range []string{"", "seventeen-letters", "two words", `quo"te`, "hash#"} {
		if err := os.WriteFile(file, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureSecret(file); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := os.WriteFile(file, []byte("fine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureSecret(file); err == nil {
		t.Error("a secret that everybody may read is accepted")
	}
}

// Different paths of a directory mean the same rack.
func TestAbsDir(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(tmp, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(tmp, "link")); err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{"", "not/yet"} {
		got, err := AbsDir(filepath.Join(tmp, "link", rest))
		if want := filepath.Join(tmp, "real", rest); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
