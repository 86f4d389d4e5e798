package rack

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

func identityFile(dir string) string { return filepath.Join(dir, "ssh", "id_ed25519") }

func knownHostsFile(dir string) string { return filepath.Join(dir, "ssh", "known_hosts") }

func hostKeyFile(dir, n string) string { return filepath.Join(dir, "nodes", n, "ssh_host_ed25519_key") }

func inventoryFile(dir string) string { return filepath.Join(dir, "inventory.json") }

// loadPart reads a file of a rack.
func loadPart[T any](dir, name string) (*T, error) {
	v := new(T)
	err := tool.LoadJSON(filepath.Join(dir, name), v)
	if errors.Is(err, fs.ErrNotExist) {
		err = tool.Refuse("there is no rack in %s: start one with mortar rack up", dir)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}
