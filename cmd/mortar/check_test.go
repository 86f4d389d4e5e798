package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// runCmd runs a command, or with "" what args say, and returns its output and exit code.
func runCmd(t *testing.T, command string, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetErr(&out)
	err := execute(t.Context(), root, append(strings.Fields(command), args...))
	code := 0
	var ee *cli.Exit
	if errors.As(err, &ee) {
		code = ee.Code
	} else if err != nil {
		code = exitFailed
	}
	return out.String(), code, err
}

// check accepts what init prints.
func TestInitThenCheck(t *testing.T) {
	for _, flavour := range initFlavours {
		text, code, err := runCmd(t, "init", flavour)
		if err != nil || code != 0 {
			t.Fatal(flavour, err, code)
		}
		file := filepath.Join(t.TempDir(), "brick.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, code, err := runCmd(t, "check", file)
		if err != nil || code != 0 || out == "" || strings.Contains(out, "\x1b") {
			t.Errorf("%s: %v, %d\n%s", flavour, err, code, out)
		}
		out, _, err = runCmd(t, "check", "--json", file)
		var d design.Design
		if err != nil || json.Unmarshal([]byte(out), &d) != nil || d.Flavour == "" || len(d.Groups) != len(d.Services()) {
			t.Errorf("%s --json: %v\n%.300s", flavour, err, out)
		}
	}
	for _, args := range [][]string{nil, {"lustre"}, {"nfs", "nfs"}} {
		if out, code, err := runCmd(t, "init", args...); code != exitBadInput || err == nil || out != "" {
			t.Errorf("init %v: %d, %v, %q", args, code, err, out)
		}
	}
}

// Two bricks of one name have different md UUIDs, because their IDs differ.
func TestInitGivesEachBrickAnID(t *testing.T) {
	uuidOf := func(text string) string {
		file := filepath.Join(t.TempDir(), "brick.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, _, err := runCmd(t, "check", "--json", file)
		var d design.Design
		if err != nil || json.Unmarshal([]byte(out), &d) != nil {
			t.Fatalf("%v\n%.300s", err, out)
		}
		return d.Groups[0].UUID
	}
	one, _, _ := runCmd(t, "init", "nfs-ha")
	two, _, _ := runCmd(t, "init", "nfs-ha")
	if one == two || uuidOf(one) == uuidOf(two) {
		t.Error("two bricks have the same identity")
	}
	if again := uuidOf(one); again != uuidOf(one) {
		t.Error("the UUID of an array changes")
	}
	without := regexp.MustCompile(`(?m)^id: .*\n`)
	if uuidOf(without.ReplaceAllString(one, "")) != uuidOf(without.ReplaceAllString(two, "")) {
		t.Error("without an ID the name alone must decide, as for bricks of earlier builds")
	}
}

func TestCheckRefuses(t *testing.T) {
	text, _, _ := runCmd(t, "init", "nfs-ha")
	file := filepath.Join(t.TempDir(), "brick.yaml")
	for _, c := range []struct{ old, new, want string }{
		{"servers:", "servrs:", `unknown key "servrs"; did you mean "servers"?`},
		{"\nid: \"", "\nid: \"no.", "cannot be the ID of a brick"},
		{"rw, sync", "rw, async", "loses acknowledged writes"},
		{"MA[01-03]", "/dev/sda", "is a device name"},
		{"address: 10.77.1.100", "address: 10.78.1.100", "outside the public network"},
	} {
		if err := os.WriteFile(file, []byte(strings.Replace(text, c.old, c.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		out, code, err := runCmd(t, "check", file)
		if code != exitBadInput || out != "" || err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file+":") {
			t.Errorf("%s: %d, %v\n%s", c.new, code, err, out)
		}
	}
	if _, code, err := runCmd(t, "check", filepath.Join(t.TempDir(), "none.yaml")); code != exitBadInput {
		t.Errorf("%v, %d", err, code)
	}
}

// --svg works with --json, unless both write to stdout.
func TestCheckSVGAndJSON(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "brick.svg")
	spec := "../../examples/nfs-ha.yaml"
	out, code, err := runCmd(t, "check", spec, "--svg", svg, "--json")
	var d design.Design
	if err != nil || code != 0 || json.Unmarshal([]byte(out), &d) != nil || d.Flavour == "" {
		t.Errorf("%d, %v, %.100q", code, err, out)
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.Contains(string(b), "<svg") {
		t.Errorf("%v, %.40q", err, b)
	}
	if out, code, err := runCmd(t, "check", spec, "--svg", svg); err != nil || code != 0 || out != "" {
		t.Errorf("--svg alone: %d, %v, %.100q", code, err, out)
	}
	if _, code, err := runCmd(t, "check", spec, "--svg", "/proc/none/x.svg"); code != exitBadInput {
		t.Errorf("--svg without its directory: %d, %v", code, err)
	}
	if out, code, err := runCmd(t, "check", spec, "--svg", "-", "--json"); err == nil || code != exitBadInput || out != "" {
		t.Errorf("--svg - --json: %d, %v, %.100q", code, err, out)
	}
}
