package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// InventoryEntry is one host of an inventory file ({"hosts": [...]}), which
// says how to reach the hosts of a spec where that differs from what the spec
// says. A virtual rack writes one; so may anybody.
type InventoryEntry struct {
	Name         string `json:"name"`
	Address      string `json:"address"`
	Port         int    `json:"port"`
	User         string `json:"user"`
	IdentityFile string `json:"identity_file"` // relative to the inventory file
	HostKey      string `json:"host_key"`
	NetNS        string `json:"netns"`
}

// InventoryFile is where the inventory of a spec is looked for:
// .mortar/<brick>/rack/inventory.json beside the spec.
func InventoryFile(s *spec.Spec) string {
	return filepath.Join(filepath.Dir(s.File), ".mortar", s.Name, "rack", "inventory.json")
}

// Scale is by how much the rack of a spec, if there is one, is smaller than the
// spec: 1000 means 1/1000, 1 as large.
func Scale(s *spec.Spec) (int64, error) {
	b, err := os.ReadFile(InventoryFile(s))
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("inventory: %w", err)
	}
	var doc struct {
		Scale int64 `json:"scale"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return 0, fmt.Errorf("inventory %s: %w; it is written by `mortar rack up`: take the rack down and up again", InventoryFile(s), err)
	}
	return max(doc.Scale, 1), nil
}

// Inventory gives the servers and clients of a spec by name, overlaid by the
// inventory file if there is one.
func Inventory(s *spec.Spec) (map[string]Target, error) {
	base := Target{Port: s.SSH.Port, User: s.SSH.User, Identity: beside(s.File, s.SSH.Identity), KnownHosts: beside(s.File, s.SSH.KnownHosts)}
	all := map[string]Target{}
	add := func(name, address, key string) {
		t := base
		t.Name, t.Address, t.HostKey = name, address, key
		all[name] = t
	}
	for _, h := range s.Servers {
		add(h.Name, h.Address, h.HostKey)
	}
	for _, h := range s.Clients {
		add(h.Name, h.Address, h.HostKey)
	}
	file := InventoryFile(s)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	var doc struct {
		Hosts []InventoryEntry `json:"hosts"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("inventory %s: %w; it is written by `mortar rack up`: take the rack down and up again", file, err)
	}
	for _, e := range doc.Hosts {
		t, ok := all[e.Name]
		if !ok {
			continue // of an earlier state of the spec
		}
		overlay(&t.Address, e.Address)
		overlay(&t.User, e.User)
		overlay(&t.Identity, beside(file, e.IdentityFile))
		overlay(&t.HostKey, e.HostKey)
		overlay(&t.NetNS, e.NetNS)
		if e.Port != 0 {
			t.Port = e.Port
		}
		all[e.Name] = t
	}
	return all, nil
}

func overlay(to *string, from string) {
	if from != "" {
		*to = from
	}
}

// beside resolves a path that is relative to the file it is written in.
func beside(file, p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	if strings.HasPrefix(p, "~/") {
		return expandHome(p)
	}
	return filepath.Join(filepath.Dir(file), p)
}
