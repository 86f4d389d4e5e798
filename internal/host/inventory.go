package host

import (
	"cmp"
	"crypto/sha256"
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

// LockFile is where commands of this machine keep each other from changing a brick at once:
// .mortar/<brick>/lock beside the spec. Its content belongs to that directory alone.
func LockFile(s *spec.Spec) string {
	return filepath.Join(filepath.Dir(s.File), ".mortar", s.Name, "lock")
}

// Holder identifies the commands that a LockFile keeps apart; "" before the first of them.
func Holder(lockFile string) (string, error) {
	own, err := os.ReadFile(lockFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(own) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// With the machine: its directory may be copied to another one.
	machine, err := os.ReadFile("/etc/machine-id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(append(own, machine...)))[:16], nil
}

// InventoryFile is where the inventory of a spec is looked for:
// .mortar/<brick>/rack/inventory.json beside the spec.
func InventoryFile(s *spec.Spec) string {
	return filepath.Join(filepath.Dir(s.File), ".mortar", s.Name, "rack", "inventory.json")
}

// inventory is what the program reads of an inventory file.
type inventory struct {
	Hosts []InventoryEntry `json:"hosts"`
	// Scale: disks have 1/Scale of their size in the spec; 0 is 1.
	Scale int64 `json:"scale"`
	// WWNs of each array's LUNs by the array's name, in order of LUN number.
	WWNs map[string][]string `json:"wwns"`
	// Certificates are the fingerprints of those of each array's controllers.
	Certificates map[string][]string `json:"certificates"`
}

// readInventory gives nil if the spec has no inventory file.
func readInventory(s *spec.Spec) (*inventory, error) {
	inv, err := readInventoryFile(InventoryFile(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return inv, err
}

func readInventoryFile(file string) (*inventory, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	var out inventory
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("inventory %s: %w; `mortar rack up` writes it: take the rack down and up again", file, err)
	}
	return &out, nil
}

// Hardware puts into a spec what its inventory file knows of the hardware: the
// scale of a virtual rack, and the WWNs of LUNs and the certificates of arrays where
// the spec has none.
func Hardware(s *spec.Spec) error {
	inv, err := readInventory(s)
	if err != nil || inv == nil {
		return err
	}
	for i := range s.Arrays {
		a := &s.Arrays[i]
		if a.WWNs == nil {
			a.WWNs = inv.WWNs[a.Name]
		}
		if a.Certificates == nil {
			a.Certificates = inv.Certificates[a.Name]
		}
	}
	return s.Scale(max(inv.Scale, 1))
}

// Inventory gives the servers and clients of a spec by name, overlaid by the
// inventory file if there is one.
func Inventory(s *spec.Spec) (map[string]Target, error) {
	base := Target{LockFile: LockFile(s), Identity: beside(s.File, s.SSH.Identity)}
	// Where the spec says nothing, ssh's configuration may.
	if s.Given("ssh.user") {
		base.User = s.SSH.User
	}
	if s.Given("ssh.port") {
		base.Port = s.SSH.Port
	}
	if s.Given("ssh.known_hosts") {
		base.KnownHosts = beside(s.File, s.SSH.KnownHosts)
	}
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
	inv, err := readInventory(s)
	if err != nil {
		return nil, err
	}
	if inv == nil {
		return all, nil
	}
	for _, e := range inv.Hosts {
		if t, ok := all[e.Name]; ok { // else of an earlier state of the spec
			all[e.Name] = e.over(t, InventoryFile(s))
		}
	}
	return all, nil
}

// ReadTargets reads an inventory file without a spec.
func ReadTargets(file string) (map[string]Target, error) {
	inv, err := readInventoryFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]Target{}
	for _, e := range inv.Hosts {
		all[e.Name] = e.over(Target{Name: e.Name, Address: e.Name}, file)
	}
	return all, nil
}

// over is a target as an entry of an inventory file has it.
func (e InventoryEntry) over(t Target, file string) Target {
	t.Address, t.Port, t.User = cmp.Or(e.Address, t.Address), cmp.Or(e.Port, t.Port), cmp.Or(e.User, t.User)
	t.Identity, t.HostKey, t.NetNS = cmp.Or(beside(file, e.IdentityFile), t.Identity), cmp.Or(e.HostKey, t.HostKey), cmp.Or(e.NetNS, t.NetNS)
	return t
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
