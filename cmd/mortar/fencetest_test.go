package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// fence-test refuses an invalid request before it connects to a host.
func TestFenceTestRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nfs.yaml", "nfs-ha.yaml"} {
		b, err := examples.FS.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	one, pair := filepath.Join(dir, "nfs.yaml"), filepath.Join(dir, "nfs-ha.yaml")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{one}, "has one server and no fencing"},
		{[]string{pair, "--node", "nfs3"}, "nfs3 is not a server of this brick; choose one of nfs1, nfs2"},
		{[]string{pair, "--level", "3"}, "there is no level 3"},
		{[]string{pair}, "this is real hardware and no terminal is here to ask at: give --confirm nfs1,nfs2"},
		{[]string{pair, "--node", "nfs2", "--json"}, "give --confirm nfs2; nothing was changed"},
		{[]string{pair, "--node", "nfs2", "--confirm", "nfs1"}, `"nfs1" is not "nfs2"; nothing was changed`},
		{[]string{pair, "--profile", "fast"}, `--profile "fast": give tuned or stock`},
	} {
		code, _, msg := mortar(t, append([]string{"fence-test"}, tt.args...)...)
		if code != exitBadInput || !strings.Contains(msg, tt.want) {
			t.Errorf("%v: exit code %d, %s", tt.args, code, msg)
		}
	}
}

func TestProfileFlag(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "brick.yaml")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, msg := mortar(t, "plan", "--offline", "--profile", "stock", file)
	if code != 0 || !strings.Contains(out, "mdadm.conf") || strings.Contains(out, "/usr/lib/ocf/resource.d/mortar/service") {
		t.Errorf("plan: exit code %d, %s", code, msg)
	}
	if code, out, _ = mortar(t, "check", "--profile", "stock", file); code != 0 || !strings.Contains(out, "Profile stock: ") || !strings.Contains(out, "ha.token_ms is not used") {
		t.Errorf("check: exit code %d, %s", code, out)
	}
	if code, out, _ = mortar(t, "check", "--profile", "tuned", file); code != 0 || strings.Contains(out, "Profile stock") {
		t.Errorf("check: exit code %d, %s", code, out)
	}
}
