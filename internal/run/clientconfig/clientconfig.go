// Package clientconfig writes what a node needs that Mortar does not log in to, as a file tree
// for the tool that configures it: what an apply would write on a client, and a README with the
// rest.
//
// The package knows no setting: package plan plans for one client more, and this package takes
// the files of that plan.
package clientconfig

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Formats are those of Tree.
var Formats = []string{"dir", "warewulf", "ansible"}

// node is what a client of no name is called in a plan.
const node = "any-client"

// config is what a client needs.
type config struct {
	Brick                  string
	Files                  map[string]string // by path on the client
	Mounts                 []design.MountLine
	Hosts, Packages, Units []string
}

// configOf returns what a client of the spec needs. With "" it is the first one, whose mounts any other
// node may have too; a spec without clients has the mounts of any.
func configOf(ctx context.Context, d *design.Design, client string) (*config, error) {
	if client == "" && len(d.Spec.Clients) > 0 {
		client = d.Spec.Clients[0].Name
	}
	if client == "" {
		s := d.Spec.KeepClients(func(spec.Client) bool { return false })
		s.Clients = []spec.Client{{Name: node}}
		var err error
		if d, err = design.Derive(s); err != nil {
			return nil, err
		}
	}
	name := cmp.Or(client, node)
	mounts, err := d.MountLines(name)
	if err != nil {
		return nil, err
	}
	p, err := plan.Offline(ctx, design.KeepClients(d, func(c spec.Client) bool { return c.Name == name }))
	if err != nil {
		return nil, err
	}
	c := &config{Brick: d.Name, Mounts: mounts, Files: map[string]string{}}
	for _, s := range p.Steps {
		if s.Host != name {
			continue
		}
		switch r := s.Resource.(type) {
		case *resource.HostsEntry:
			c.Hosts = append(c.Hosts, r.Address+" "+strings.Join(r.Names, " "))
			continue
		case *resource.Packages:
			bench := distro.Default().Packages.Bench // it makes no load
			c.Packages = append(c.Packages, slices.DeleteFunc(slices.Clone(r.Names), func(n string) bool { return slices.Contains(bench, n) })...)
			continue
		case *resource.Units:
			for _, u := range r.List {
				if u.Enabled {
					c.Units = append(c.Units, u.Name)
				}
			}
			continue
		}
		for _, a := range s.Actions {
			if f := a.File; f != nil && f.Content != nil && f.Path != "/etc/fstab" && strings.HasPrefix(f.Path, "/etc/") {
				c.Files[f.Path] = string(f.Content)
			}
		}
	}
	return c, nil
}

//go:embed texts.tmpl
var texts string

// Tree returns a tree for a client of the spec, or for a node that is not in it if client is "": the content of
// each file by its path in the tree. An error is about the format, the client or the spec.
func Tree(ctx context.Context, d *design.Design, client, format string) (map[string]string, error) {
	if !slices.Contains(Formats, format) {
		return nil, fmt.Errorf("--format %q: give text, fstab, %s", format, strings.Join(Formats, ", "))
	}
	c, err := configOf(ctx, d, client)
	if err != nil {
		return nil, err
	}
	t := template.Must(template.New("").Funcs(template.FuncMap{"dir": path.Dir, "join": strings.Join}).Parse(texts))
	out, root := map[string]string{}, map[string]string{"dir": "root", "warewulf": "rootfs", "ansible": "files"}[format]
	for p, content := range c.Files {
		out[path.Join(root, p)] = content
	}
	for _, x := range t.Templates() {
		if of, name, ok := strings.Cut(x.Name(), " "); ok && of == format {
			var b bytes.Buffer
			if err := x.Execute(&b, c); err != nil {
				return nil, err
			}
			out[name] = strings.TrimLeft(b.String(), "\n")
		}
	}
	return out, nil
}

// Paths are those of the files, in order.
func (c *config) Paths() []string { return slices.Sorted(maps.Keys(c.Files)) }

// readme is written last: a tree without it is not whole.
const readme = "README"

// Write writes a tree into a directory that is not there yet, or empty.
func Write(dir string, tree map[string]string) error {
	if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
		return fmt.Errorf("%s is not empty; name a new directory", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(tree)), func(p string) bool { return p == readme })
	for _, p := range append(paths, readme) {
		file := filepath.Join(dir, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(tree[p]), 0o644); err != nil {
			return err
		}
	}
	return nil
}
