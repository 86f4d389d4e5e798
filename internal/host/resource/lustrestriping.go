package resource

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// LustreStriping is how files of a directory are striped that say nothing
// else, on a client.
type LustreStriping struct {
	Path  string
	Count int    // OSTs; -1: all
	Size  int64  // bytes on one OST before the next one's turn
	Pool  string `json:",omitempty"`
}

func (l *LustreStriping) Identity() (kind, id string) { return "lustre-striping", l.Path }

// Diff asks lfs, where the file system is mounted.
func (l *LustreStriping) Diff(sys Look) ([]Action, error) {
	argv := []string{"lfs", "setstripe", "--stripe-count", strconv.Itoa(l.Count), "--stripe-size", strconv.FormatInt(l.Size, 10)}
	if l.Pool != "" {
		argv = append(argv, "--pool", l.Pool)
	}
	set := []Action{{
		Title: "set the default striping of " + l.Path, Why: "files below it are striped like this if nothing else is said",
		Cmd: append(argv, l.Path),
	}}
	if m, ok := linux.MountAt(sys.Mounts(), l.Path); !ok || m.Type != "lustre" {
		return set, nil // it is mounted first
	}
	ask := []string{"lfs", "getstripe", "--directory", "--yaml", l.Path}
	out, installed := sys.Command(ask...)
	if !installed {
		return set, nil
	}
	sys.Succeeded(out, ask...)
	got, err := parseStriping(out.Stdout)
	if err != nil {
		return nil, err
	}
	switch {
	case got.Count == l.Count && got.Size == l.Size && got.Pool == l.Pool:
		return nil, nil
	case l.Pool == "" && got.Pool != "":
		// lfs setstripe without a pool, or with pool "none", leaves the pool.
		return append([]Action{{
			Title: "delete the default striping of " + l.Path, Why: "it names pool " + got.Pool,
			Cmd: []string{"lfs", "setstripe", "--delete", l.Path},
		}}, set...), nil
	}
	return set, nil
}

// striping is what lfs getstripe says of a directory.
type striping struct {
	Count int    `yaml:"stripe_count"`
	Size  int64  `yaml:"stripe_size"`
	Pool  string `yaml:"pool"`
}

// parseStriping reads `lfs getstripe --directory --yaml`.
func parseStriping(s string) (striping, error) {
	var got striping
	if err := yaml.Unmarshal([]byte(s), &got); err != nil {
		return got, fmt.Errorf("lfs getstripe: %w", err)
	}
	return got, nil
}
