package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// changes are the commands that change a brick while it serves. Each shows its plan, asks, tells
// of its progress, and goes on where it was.
var changes = []string{"apply", "disk fail", "disk replace", "grow", "server replace", "upgrade"}

func TestChangesAgree(t *testing.T) {
	for _, name := range changes {
		c, rest, err := newRootCmd().Find(strings.Fields(name))
		if err != nil || len(rest) > 0 {
			t.Fatal(name, rest, err)
		}
		for _, flag := range []string{"yes", "dry-run", "json"} {
			if c.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", name, flag)
			}
		}
		for _, words := range []string{"run it again", "exit codes: 0 done, 1 ", "130"} {
			if !strings.Contains(strings.ToLower(c.Long), words) {
				t.Errorf("help of %s: no %q", name, words)
			}
		}
	}
	// Who can be asked to type yes can have the plan alone, and the other way round: one table,
	// docs/commands.md, has them all.
	seen := 0
	every(newRootCmd(), func(c *cobra.Command) {
		if c.Flags().Lookup("yes") == nil {
			return
		}
		seen++
		if !strings.Contains(commandsReference(), "| `"+c.CommandPath()+"` | "+strings.ReplaceAll(c.Short, "|", "\\|")+" | yes | yes | ") {
			t.Errorf("docs/commands.md: %s", c.CommandPath())
		}
	})
	if seen < len(changes) {
		t.Errorf("only %d commands ask", seen)
	}
}

// edited is a spec with some of its text replaced.
func edited(t *testing.T, replace ...string) (file string, text []byte) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // without known hosts no connection is made
	file = specFile(t, "nfs-ha", replace...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, text
}

func unchangedFile(t *testing.T, file string, text []byte) {
	t.Helper()
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%v, or the spec is another one:\n%s", err, got)
	}
}

var growth = []string{"--disks", "A=MA[04-05]", "--disks", "B=MB[04-05]"}

// What hosts refuse leaves the spec as it was.
func TestRefusedChange(t *testing.T) {
	file, text := edited(t)
	for _, args := range [][]string{append([]string{"grow", file, "--yes"}, growth...), {"disk", "fail", file, "MA01", "--yes"}, {"disk", "replace", file, "MA01", "--with", "ZX01", "--yes"}} {
		if code, _, stderr := mortar(t, args...); code != exitBadInput || !strings.Contains(strings.ToLower(stderr), "nothing was changed") {
			t.Errorf("%v: %d, %s", args, code, stderr)
		}
		unchangedFile(t, file, text)
	}
}

// A change that was killed after it was written into the spec is taken up by the same command:
// it is not written once more, and a refusal of the hosts does not take it out.
func TestTakenUp(t *testing.T) {
	for _, c := range []struct {
		edit []string
		args []string
		say  string
	}{
		{[]string{`{serial: "MA[01-03]", size: 2GB, type: nl-sas}`, "{serial: \"MA[01-03]\", size: 2GB, type: nl-sas}\n      - {serial: \"MA[04-05]\", size: 2GB, type: nl-sas, growth: 1}",
			`{serial: "MB[01-03]", size: 2GB, type: nl-sas}`, "{serial: \"MB[01-03]\", size: 2GB, type: nl-sas}\n      - {serial: \"MB[04-05]\", size: 2GB, type: nl-sas, growth: 1}"},
			append([]string{"grow", "SPEC"}, growth...), ": growth 1\n"},
		{[]string{"# wipe: [MA01]", `failed: ["MA01"]`}, []string{"disk", "fail", "SPEC", "MA01"}, "failed: [MA01]"},
		{[]string{`"MA[01-03]"`, `"ZX[01-03]"`}, []string{"disk", "replace", "SPEC", "MA01", "--with", "ZX01"}, "it was replaced before"},
	} {
		file, text := edited(t, c.edit...)
		for i, a := range c.args {
			if a == "SPEC" {
				c.args[i] = file
			}
		}
		for _, how := range []string{"--dry-run", "--yes"} {
			code, out, stderr := mortar(t, append(c.args, how)...)
			if code != exitBadInput || !strings.Contains(out, c.say) || !strings.Contains(stderr, "nfs1") {
				t.Errorf("%v %s: %d, %s\n%s", c.args, how, code, stderr, out)
			}
			unchangedFile(t, file, text)
		}
	}
}
