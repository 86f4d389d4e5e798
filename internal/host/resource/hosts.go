package resource

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// HostsEntry is one line of /etc/hosts; the other lines stay as they are.
// Source: hosts(5).
type HostsEntry struct {
	Address string
	Names   []string // the first is what a look-up of the address answers
	Why     string   `json:",omitempty"`
}

// Kind is "hosts".
func (h *HostsEntry) Kind() string { return "hosts" }

// ID is the address.
func (h *HostsEntry) ID() string { return h.Address }

// Diff compares the line of the address.
func (h *HostsEntry) Diff(_ context.Context, sys Sys) ([]Action, error) {
	const path = "/etc/hosts"
	old, err := sys.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	want := append([]string{h.Address}, h.Names...)
	var out []string
	found := false
	for line := range strings.Lines(string(old)) {
		line = strings.TrimSuffix(line, "\n")
		text, _, _ := strings.Cut(line, "#")
		f := strings.Fields(text)
		if len(f) == 0 || f[0] != h.Address {
			out = append(out, line)
			continue
		}
		if !found && slices.Equal(f, want) {
			found = true
			out = append(out, line)
		}
		// Another line of this address is replaced: the first one found
		// would decide what the address is called.
	}
	if !found {
		out = append(out, strings.Join(want, " ")+" # written by mortar apply")
	}
	text := strings.Join(out, "\n") + "\n"
	if text == string(old) {
		return nil, nil
	}
	f := TextFile{Path: path, Content: []byte(text), Why: h.Why}
	return []Action{f.action()}, nil
}
