package resource

import "github.com/mortarhpc/mortar/internal/base/linux"

// HostsEntry is one line of /etc/hosts; the other lines stay as they are.
// Source: hosts(5).
type HostsEntry struct {
	Address string
	Names   []string // the first is what a look-up of the address answers
	Why     string   `json:",omitempty"`
}

func (h *HostsEntry) Identity() (kind, id string) { return "hosts", h.Address }

// Diff compares the line of the address.
func (h *HostsEntry) Diff(sys Look) ([]Action, error) {
	old, _ := sys.File(linux.HostsFile)
	text := linux.SetHostNames(old, h.Address, h.Names, "written by mortar apply")
	if text == old {
		return nil, nil
	}
	return sys.Want(&TextFile{Path: linux.HostsFile, Content: []byte(text), Why: h.Why}), nil
}
