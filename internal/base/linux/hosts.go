package linux

import (
	"slices"
	"strings"
)

// HostsFile gives addresses their names.
//
// Source: hosts(5)
const HostsFile = "/etc/hosts"

// HostNames returns the names of an address in the text of HostsFile: those of the first
// line that has the address, which decides what the address is called.
func HostNames(text, address string) []string {
	for line := range strings.Lines(text) {
		if f := hostFields(line); len(f) > 0 && f[0] == address {
			return f[1:]
		}
	}
	return nil
}

// SetHostNames returns the text of HostsFile with one line for the address, which has these
// names. A line that has them already stays, with its comment; else the line is the last
// one, with note as its comment. All other lines stay as they are.
func SetHostNames(text, address string, names []string, note string) string {
	want := append([]string{address}, names...)
	var out []string
	found := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		f := hostFields(line)
		if len(f) == 0 || f[0] != address {
			out = append(out, line)
		} else if !found && slices.Equal(f, want) {
			found = true
			out = append(out, line)
		}
	}
	if !found {
		out = append(out, strings.Join(want, " ")+" # "+note)
	}
	return strings.Join(out, "\n") + "\n"
}

func hostFields(line string) []string {
	text, _, _ := strings.Cut(line, "#")
	return strings.Fields(text)
}
