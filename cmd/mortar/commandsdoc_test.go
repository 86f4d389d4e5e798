package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

// every visits each command that users type, in order.
func every(root *cobra.Command, visit func(*cobra.Command)) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Runnable() {
			visit(c)
		}
		every(c, visit)
	}
}

// A flag has the same name and meaning in every command.
func TestCommandsAgree(t *testing.T) {
	words := map[string]string{
		"yes":     "do not ask",
		"dry-run": "",
	}
	every(newRootCmd(), func(c *cobra.Command) {
		f := c.Flags()
		if f.Lookup("yes") != nil && f.Lookup("json") == nil {
			t.Errorf("%s has --yes and no --json", c.CommandPath())
		}
		if f.Lookup("yes") != nil && f.Lookup("dry-run") == nil {
			t.Errorf("%s has --yes and no --dry-run", c.CommandPath())
		}
		if f.Lookup("dry-run") != nil && f.Lookup("json") == nil {
			t.Errorf("%s has --dry-run and no --json", c.CommandPath())
		}
		for name, want := range words {
			if x := f.Lookup(name); x != nil && want != "" && x.Usage != want {
				t.Errorf("%s: --%s: %q, want %q", c.CommandPath(), name, x.Usage, want)
			}
		}
		if x := f.Lookup("json"); x != nil && !strings.Contains(x.Usage, "print") {
			t.Errorf("%s: --json: %q", c.CommandPath(), x.Usage)
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
	})
}

// Each section of help.txt is of a command, or stands in the text of one.
func TestHelpIsUsed(t *testing.T) {
	root := newRootCmd()
	for _, section := range strings.Split("\n"+helpText, "\n# ")[1:] {
		head, _, _ := strings.Cut(section, "\n")
		path, _, _ := strings.Cut(head, ": ")
		if c, _, err := root.Find(strings.Fields(path)[1:]); !strings.HasPrefix(head, "@") && (err != nil || c.CommandPath() != path) {
			t.Errorf("no command is %q: %v", path, err)
		}
		if strings.HasPrefix(head, "@") && !strings.Contains(helpText, "\n\n"+head+"\n") {
			t.Errorf("no command has the text %s", head)
		}
	}
	every(root, func(c *cobra.Command) {
		if c.Short == "" || strings.Contains(c.Long, "@") && !strings.Contains(c.Long, "USER@") {
			t.Errorf("%s: short %q, long %q", c.CommandPath(), c.Short, c.Long)
		}
	})
}

// docs/commands.md is generated: `go test ./cmd/mortar -update`.
func TestCommandsReference(t *testing.T) {
	const file = repository + "/docs/commands.md"
	want := commandsReference()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != want {
		t.Errorf("docs/commands.md is not what the commands say (%v): go test ./cmd/mortar -run TestCommandsReference -update", err)
	}
}

func commandsReference() string {
	var b strings.Builder
	b.WriteString(`# Commands

<!-- Made of the commands in cmd/mortar by ` + "`go test ./cmd/mortar -update`" + `; do not edit. -->

` + "`mortar help COMMAND`" + ` says what a command does, what it refuses, and its exit codes. A command with ` + "`--yes`" + ` asks before it changes anything, unless you give that; with
` + "`--dry-run`" + ` it only shows what it would do. ` + "`--json`" + ` prints what a program can read ([JSON](json.md)).

| command | does | ` + "`--yes`" + ` | ` + "`--dry-run`" + ` | ` + "`--json`" + ` |
|---|---|---|---|---|
`)
	mark := func(c *cobra.Command, flag string) string {
		if c.Flags().Lookup(flag) != nil {
			return "yes"
		}
		return ""
	}
	root := newRootCmd()
	every(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.CommandPath(), strings.ReplaceAll(c.Short, "|", "\\|"), mark(c, "yes"), mark(c, "dry-run"), mark(c, "json"))
	})
	b.WriteString("\n## Flags\n\nBesides `--help`, and those of the table.\n")
	every(root, func(c *cobra.Command) {
		var flags []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || strings.Contains(" help yes dry-run json ", " "+f.Name+" ") {
				return
			}
			name := "--" + f.Name
			if kind, _ := pflag.UnquoteUsage(f); kind != "" {
				name += " " + strings.ToUpper(kind)
			}
			text := fmt.Sprintf("| `%s` | %s", name, strings.ReplaceAll(f.Usage, "|", "\\|"))
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
				text += fmt.Sprintf(" (default `%s`)", f.DefValue)
			}
			flags = append(flags, text+" |\n")
		})
		if len(flags) == 0 {
			return
		}
		_, arguments, _ := strings.Cut(c.Use, " ")
		fmt.Fprintf(&b, "\n### %s %s\n\n| flag | means |\n|---|---|\n%s", c.CommandPath(), arguments, strings.Join(flags, ""))
	})
	return b.String()
}
