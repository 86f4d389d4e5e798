package main

import (
	"strings"
	"testing"
)

// A word that is no command of its group is refused, not answered with help.
func TestUnknownCommand(t *testing.T) {
	groups := 0
	for _, c := range newRootCmd().Commands() {
		if !c.HasSubCommands() {
			continue
		}
		groups++
		if out, code, err := runCmd(t, newRootCmd(), c.Name(), "qqqqqqqq"); code != exitBadInput || err == nil || out != "" || !strings.Contains(err.Error(), `unknown command "qqqqqqqq" for "mortar `+c.Name()+`"; use `) {
			t.Errorf("%s: %d, %v, %q", c.Name(), code, err, out)
		}
		if out, code, err := runCmd(t, newRootCmd(), c.Name()); code != 0 || err != nil || !strings.Contains(out, "Available Commands:") {
			t.Errorf("%s alone: %d, %v, %q", c.Name(), code, err, out)
		}
	}
	if groups < 2 {
		t.Errorf("%d groups of commands; array and rack at least", groups)
	}
	for _, c := range []struct{ args, want string }{
		{"array scrip", `did you mean "mortar array script"?`},
		{"rack dwon", `did you mean "mortar rack down"?`},
		{"rack foo", "use "},
		{"array foo", "use script, verify"},
		{"chekc", "unknown command"},
	} {
		if _, code, err := runCmd(t, newRootCmd(), strings.Fields(c.args)...); code != exitBadInput || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "_pdu") {
			t.Errorf("%s: %d, %v", c.args, code, err)
		}
	}
}
