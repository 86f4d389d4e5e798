package design

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// fstabOptions are those only fstab needs, by type of file system. Lustre
// does not mount with nofail, which mount(8) hands on to it.
var fstabOptions = map[string][]string{
	"nfs":    {"_netdev", "bg"},
	"lustre": {"_netdev", "x-systemd.wanted-by=remote-fs.target", "x-systemd.mount-timeout=infinity", "retry=30"},
}

// FstabOptions are the options of m's line in /etc/fstab. A client that boots
// while the brick is away mounts it once it is back. What the spec says of an
// option holds.
func (d *Design) FstabOptions(m ClientMount) []string {
	all := slices.Clone(m.Options)
	for _, o := range fstabOptions[d.clientType()] {
		name, _, _ := strings.Cut(o, "=")
		if !slices.ContainsFunc(all, func(set string) bool { return set == name || strings.HasPrefix(set, name+"=") }) {
			all = append(all, o)
		}
	}
	return all
}

// clientType is the type of file system that clients mount.
func (d *Design) clientType() string {
	if d.Lustre != nil {
		return "lustre"
	}
	return "nfs"
}

// MountLine is how a client mounts a service, in words that can be typed.
type MountLine struct {
	Client  string        `json:"client,omitempty"` // "" if it is for any client
	Service string        `json:"service"`
	Source  string        `json:"source"`
	Path    string        `json:"path"`
	Version string        `json:"version"`
	Options []MountOption `json:"options"`
	Command []string      `json:"command"`
	Fstab   string        `json:"fstab"`
}

// MountOption is one option with the reason for it.
type MountOption struct {
	Option string `json:"option"`
	Reason string `json:"reason"`
	Source string `json:"source"`
	// FstabOnly: mount(8) on a command line has no use for it.
	FstabOnly bool `json:"-"`
}

// MountLines gives the mounts of all clients in the spec, or of client unless it is
// "". A spec without clients gives the mounts that any client would use.
func (d *Design) MountLines(client string) ([]MountLine, error) {
	names := d.Spec.ClientNames()
	if client != "" && !slices.Contains(names, client) {
		if len(names) == 0 {
			return nil, fmt.Errorf("%s: no clients are listed: leave --client out, or list it under clients", d.Spec.File)
		}
		return nil, fmt.Errorf("%s: no client %s; choose one of %s", d.Spec.File, client, strings.Join(spec.Ranges(names), ", "))
	}
	mounts := d.Mounts
	if len(names) == 0 {
		// A client without options of its own.
		s := *d.Spec
		s.Clients = []spec.Client{{}}
		derived, err := Derive(&s)
		if err != nil {
			return nil, err
		}
		mounts = derived.Mounts
	}
	lines := []MountLine{}
	for _, m := range mounts {
		if client != "" && m.Client != client {
			continue
		}
		lines = append(lines, d.mountLine(m))
	}
	return lines, nil
}

func (d *Design) mountLine(m ClientMount) MountLine {
	doc := MountLine{Client: m.Client, Service: m.Service, Source: m.Source, Path: m.Path, Version: m.Version, Options: []MountOption{}}
	all, kind := d.FstabOptions(m), d.clientType()
	for _, o := range all {
		r := d.mountReason(o)
		doc.Options = append(doc.Options, MountOption{o, r.Reason, r.Source, slices.Contains(fstabOptions[kind], o)})
	}
	doc.Command = []string{"mount", "-t", kind, "-o", strings.Join(m.Options, ","), m.Source, m.Path}
	doc.Fstab = strings.Join([]string{fstabEscape(m.Source), fstabEscape(m.Path), kind, strings.Join(all, ","), "0", "0"}, " ")
	return doc
}

func (d *Design) mountReason(option string) Setting {
	name, _, _ := strings.Cut(option, "=")
	for _, s := range d.SettingsOf("nfs") {
		if slices.Contains(strings.Split(s.Name, ","), name) {
			return s
		}
	}
	reasons := d.rows("mounts")
	for _, key := range []string{option, name} {
		for _, f := range reasons {
			if f[0] == key {
				return Setting{Reason: f[1], Source: f[2]}
			}
		}
	}
	return Setting{Reason: "set in the spec", Source: d.Spec.File}
}

// fstabEscape writes a field as fstab(5) wants it.
func fstabEscape(s string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`, "#", `\043`).Replace(s)
}
