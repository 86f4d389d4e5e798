package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/backup"
)

// A rehearsal runs nothing that a backup names, and reads no file outside of it, before a person
// vouches for the backup.
func TestRehearsalOfAnUnknownBackup(t *testing.T) {
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(string(text), "  user: root\n", "  user: root\n  known_hosts: known\n", 1)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("of this machine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"a command":      {"password_command: [pass, show, \"x-{}\"]\n" + plain, `run password_command ["pass" "show" "x-{}"]`},
		"a file outside": {strings.Replace(plain, "secrets/bmc-nfs2", outside, 1), "read " + outside},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("brick.yaml", c.text)
			write("known", "")
			// Port 1 of addresses of this machine refuses at once.
			write(".mortar/brick1/rack/inventory.json", `{"hosts": [{"name": "nfs1", "address": "127.77.3.11", "port": 1}, {"name": "nfs2", "address": "127.77.3.12", "port": 1}, {"name": "c1", "address": "127.77.3.51", "port": 1}]}`)
			if name != "a command" {
				for _, s := range []string{"bmc-nfs1", "bmc-nfs2", "pdu-a-auth", "pdu-a-privacy", "pdu-b-auth", "pdu-b-privacy"} {
					write("secrets/"+s, "secret of "+s)
				}
			}
			s, err := spec.Load(filepath.Join(dir, "brick.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "b.tar.gz")
			if err := backup.Local(s, "v1", time.Unix(1000, 0)).Save(file); err != nil {
				t.Fatal(err)
			}
			_, code, err := runCmd(t, "", "restore", file, "--rehearse")
			if code != exitBadInput || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--vouch") {
				t.Errorf("%d, %v", code, err)
			}
			// With it the hosts are asked; none answers here.
			if _, _, err = runCmd(t, "", "restore", file, "--rehearse", "--vouch"); err == nil || strings.Contains(err.Error(), "--vouch") {
				t.Error(err)
			}
		})
	}
}
