package resource

import (
	"context"
	"errors"
	"io/fs"

	"github.com/mortarhpc/mortar/internal/base/linux"
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
	old, err := sys.ReadFile(linux.HostsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text := linux.SetHostNames(string(old), h.Address, h.Names, "written by mortar apply")
	if text == string(old) {
		return nil, nil
	}
	f := TextFile{Path: linux.HostsFile, Content: []byte(text), Why: h.Why}
	return []Action{f.action()}, nil
}
