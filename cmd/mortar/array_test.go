package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/host/sshtest"
)

// exampleFile writes an example to its own directory.
func exampleFile(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Commands that only show need no host and write nothing.
func TestShownWithoutHosts(t *testing.T) {
	for _, name := range []string{"lustre-brick", "lustre-rack"} {
		file := exampleFile(t, name)
		if code, _, stderr := mortar(t, "check", file, "--profile", "stock"); code != exitBadInput {
			t.Errorf("check --profile stock %s: %d %s", name, code, stderr)
		}
		if code, out, stderr := mortar(t, "bench", file, "--suite", "paper", "--dry-run"); code != 0 || out == "" {
			t.Errorf("bench --dry-run %s: %d %s%s", name, code, out, stderr)
		}
		if code, out, stderr := mortar(t, "check", file); code != 0 || out == "" {
			t.Errorf("check %s: %d %s", name, code, stderr)
		}
		if code, out, stderr := mortar(t, "plan", "--offline", file); code != 0 || out == "" {
			t.Errorf("plan --offline %s: %d %s", name, code, stderr)
		}
		if code, out, stderr := mortar(t, "client-config", file); code != 0 || out == "" {
			t.Errorf("client-config %s: %d %s%s", name, code, out, stderr)
		}
		var doc struct{ Pending int }
		if code, out, stderr := mortar(t, "plan", "--offline", "--json", file); code != 0 || json.Unmarshal([]byte(out), &doc) != nil || doc.Pending == 0 {
			t.Errorf("plan --offline --json %s: %d %s", name, code, stderr)
		}
		svg := filepath.Join(t.TempDir(), "x.svg")
		if code, _, stderr := mortar(t, "check", file, "--svg", svg); code != 0 {
			t.Errorf("check --svg: %d %s", code, stderr)
		} else if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), "<svg ") {
			t.Errorf("%v %.100s", err, b)
		}
		entries, err := os.ReadDir(filepath.Dir(file))
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: something was written: %v", name, entries)
		}
	}
}

func TestArrayScriptCmd(t *testing.T) {
	rack := exampleFile(t, "lustre-rack")
	dir := filepath.Join(t.TempDir(), "scripts")
	code, out, stderr := mortar(t, "array", "script", rack, "--dir", dir)
	if code != 0 || strings.Count(out, "\n") != 4 {
		t.Fatalf("%d %s%s", code, out, stderr)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "md3200-2.smcli")); err != nil || !strings.Contains(string(b), "oss03_oss04") {
		t.Errorf("%v %s", err, b)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{rack, "--dir", dir}, "is there already"},
		{[]string{rack}, "which array?"},
		{[]string{rack, "md3200-9"}, "the arrays are: md3220, md3200-1"},
		{[]string{exampleFile(t, "nfs-ha")}, "its disks are JBODs"},
		{[]string{exampleFile(t, "nss5.5"), "perc1", "--tool", "SMcli"}, "perccli or omconfig"},
	} {
		if code, _, stderr := mortar(t, append([]string{"array", "script"}, c.args...)...); code != exitBadInput || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d %s", c.args, code, stderr)
		}
	}
}

// Through SSH and a real agent: array verify reports that this machine has none of the LUNs. A
// server that cannot be reached is a different error.
func TestArrayVerifyCmd(t *testing.T) {
	s := sshtest.Start(t)
	x := newSite(t, s, func(string) string {
		b, err := fs.ReadFile(examples.FS, "nss5.5.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer("name: nss5\n", "name: brick1\n", "name: nss1\n", "name: nfs1\n").Replace(string(b))
	})
	code, out, stderr := mortar(t, "array", "verify", x.spec, "--json")
	var r array.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFailed {
		t.Fatalf("%d %v %s %s", code, err, out, stderr)
	}
	if r.Expected != 2 || len(r.Matches) != 0 || len(r.Findings) < 2 || r.Findings[0].Host != "nfs1" {
		t.Errorf("%+v", r)
	}
	code, out, _ = mortar(t, "array", "verify", x.spec)
	if code != exitFailed {
		t.Errorf("%d %s", code, out)
	}
	other, _ := sshtest.NewKey(t)
	x.hosts[0]["host_key"] = sshtest.Authorized(other.PublicKey())
	x.inventory(t)
	if code, _, stderr := mortar(t, "array", "verify", x.spec); code != exitBadInput {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := mortar(t, "array", "verify", exampleFile(t, "nfs-ha")); code != exitBadInput {
		t.Errorf("%d %s", code, stderr)
	}
}
