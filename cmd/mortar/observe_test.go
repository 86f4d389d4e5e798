package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// specFile writes the commented spec of a flavour, edited, to a new directory. It has no ID,
// because the recorded facts have the UUIDs of a brick without one.
func specFile(t *testing.T, flavour string, replace ...string) string {
	t.Helper()
	text, err := fs.ReadFile(examples.FS, flavour+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "brick.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestMountOptions(t *testing.T) {
	file := specFile(t, "nfs-ha")
	out, code, err := runCmd(t, "client-config", file, "--json")
	if err != nil || code != 0 {
		t.Fatal(err, code)
	}
	var docs []design.MountLine
	if err := json.Unmarshal([]byte(out), &docs); err != nil {
		t.Fatal(err)
	}
	if len(docs) != 2 || docs[0].Client != "c1" || docs[0].Version != "4.1" || docs[1].Version != "3" {
		t.Fatalf("%+v", docs)
	}
	for _, d := range docs {
		hard := false
		for _, o := range d.Options {
			hard = hard || o.Option == "hard"
			if o.Reason == "" || o.Source == "" || o.Reason == "set in the spec" {
				t.Errorf("%s of %s has no reason", o.Option, d.Path)
			}
		}
		if !hard {
			t.Errorf("%s is not mounted hard", d.Path)
		}
		if f := strings.Fields(d.Fstab); len(f) != 6 || f[0] != d.Source || f[1] != d.Path || f[2] != "nfs" || !strings.Contains(f[3], "_netdev") {
			t.Errorf("fstab line %q", d.Fstab)
		}
		if cmd := strings.Join(d.Command, " "); strings.Contains(cmd, "_netdev") || !strings.HasSuffix(cmd, d.Source+" "+d.Path) {
			t.Errorf("command %q", cmd)
		}
	}

	text, _, err := runCmd(t, "client-config", file, "--format", "fstab", "--client", "c1")
	if err != nil {
		t.Fatal(err)
	}
	// The output is appended to fstab, so every line must be an entry or a comment.
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && len(strings.Fields(line)) != 6 {
			t.Errorf("%q belongs in no fstab", line)
		}
	}

	if _, code, err := runCmd(t, "client-config", file, "--client", "c9"); code != exitBadInput || err == nil {
		t.Errorf("%d, %v", code, err)
	}

	// The spec sets options of its own and lists no clients.
	file = specFile(t, "nfs-ha", "    memory: 768MiB\n", "    memory: 768MiB\n    mounts:\n      - {service: home, path: /homes, options: [actimeo=30]}\n")
	text, code, err = runCmd(t, "client-config", file)
	if err != nil || code != 0 || !strings.Contains(text, " /homes\n") || !strings.Contains(text, "actimeo=30") {
		t.Errorf("%v, %d\n%s", err, code, text)
	}
	whole := specFile(t, "nfs-ha")
	src, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(src), "\nclients:")
	_, after, ok2 := strings.Cut(rest, "\nrack:")
	if !ok || !ok2 {
		t.Fatal("the template has no clients to leave out")
	}
	if err := os.WriteFile(whole, []byte(before+"\nrack:"+after), 0o644); err != nil {
		t.Fatal(err)
	}
	text, code, err = runCmd(t, "client-config", whole)
	if err != nil || code != 0 || !strings.Contains(text, "# any client\n") || strings.Count(text, "mount -t nfs") != 2 {
		t.Errorf("%v, %d\n%s", err, code, text)
	}
}

// An impossible request is refused before a host is asked.
func TestMoveRefused(t *testing.T) {
	one := specFile(t, "nfs")
	pair := specFile(t, "nfs-ha")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"failover", one}, "brick brick1 has one server"},
		{[]string{"failback", one}, "brick brick1 has one server"},
		{[]string{"standby", one, "nfs1"}, "brick brick1 has one server"},
		{[]string{"unstandby", one, "nfs1"}, "brick brick1 has one server"},
		{[]string{"failover", pair, "--wait", "0s"}, "--wait and --timeout must be above 0"},
		{[]string{"failover", pair + "x"}, "no such file"},
		{[]string{"standby", pair}, "standby wants SPEC NODE"},
		{[]string{"status", pair, "--interval", "-1s"}, "must be above 0"},
		{[]string{"status", pair, "--facts", pair}, "not written by --save-facts"},
		{[]string{"status", pair, "--facts", pair, "--watch"}, "leave --watch"},
	} {
		out, code, err := runCmd(t, "", tt.args...)
		if code != exitBadInput || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: code %d, error %v, output %q; want %q", tt.args, code, err, out, tt.want)
		}
	}
}

// The exit code follows the recorded facts of a real brick.
func TestStatusFacts(t *testing.T) {
	file := specFile(t, "nfs-ha")
	for _, tt := range []struct {
		facts string
		code  int
		want  string
	}{
		{"applied", 0, "service home (10.77.1.100) on nfs1 since 22:09\n"},
		{"module-out", exitFailed, "nfs1 lost path 2 of 2 to enclosure B\n"},
		{"fenced", exitFailed, "nfs1 is out of the cluster"},
	} {
		facts := filepath.Join("..", "..", "internal", "run", "observe", "testdata", "rack", tt.facts+".json")
		out, code, err := runCmd(t, "status", file, "--facts", facts)
		if code != tt.code || !strings.Contains(out, tt.want) || strings.Contains(out, "\x1b") {
			t.Errorf("%s: code %d, want %d (%v); no %q in\n%s", tt.facts, code, tt.code, err, tt.want, out)
		}
		out, code, _ = runCmd(t, "status", file, "--facts", facts, "--json")
		var s struct {
			Level string `json:"level"`
			Parts []struct {
				Name string `json:"name"`
			} `json:"parts"`
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != tt.code || len(s.Parts) != 10 || (s.Level == "fault") != (code == exitFailed) {
			t.Errorf("%s --json: code %d, %v, %+v", tt.facts, code, err, s)
		}
	}
}
