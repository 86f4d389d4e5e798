package design

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// namespace makes Mortar's name-based UUIDs its own. It never changes: array,
// file system and export identities follow from it.
var namespace = uuid.MustParse("6d6f7274-6172-5b72-8963-6b6861727069")

// stableUUID is the UUIDv5 of something in a brick, by its kind and name. The
// brick's random ID keeps two bricks of one name apart: a disk of one would
// pass for the other's own. Bricks built before there were IDs have none.
func stableUUID(s *spec.Spec, kind, name string) uuid.UUID {
	brick := s.Name
	if s.ID != "" {
		brick += "/" + s.ID
	}
	return uuid.NewSHA1(namespace, []byte(brick+"\x00"+kind+"\x00"+name))
}

// mdUUID prints a UUID as mdadm does.
func mdUUID(u uuid.UUID) string {
	h := hex.EncodeToString(u[:])
	return h[0:8] + ":" + h[8:16] + ":" + h[16:24] + ":" + h[24:32]
}

// New derives the design of a spec that is to be built: it refuses what
// this version can design but not build.
func New(s *spec.Spec) (*Design, error) {
	d, err := Derive(s)
	if err != nil {
		return nil, err
	}
	return d, Buildable(d)
}

// Derive makes the design of any spec that was parsed (defaults filled, rules
// checked), also of one that cannot be built yet: for looking at, for an
// offline plan, for a forecast.
func Derive(s *spec.Spec) (*Design, error) {
	switch {
	case s.Profile != spec.Stock:
		return derive(s)
	case s.Flavour == spec.Lustre:
		return nil, errorAt(s, "profile", "leave profile and --profile out", "Lustre has no profile stock: no distribution has a Lustre brick to compare with")
	}
	tuned, err := derive(s)
	if err != nil {
		return nil, err
	}
	d, err := derive(untuned(s))
	if err != nil {
		return nil, err
	}
	builder{d}.stock(tuned.Settings)
	return d, nil
}

type builder struct{ *Design }

func derive(s *spec.Spec) (*Design, error) {
	d := builder{&Design{Name: s.Name, Flavour: s.Flavour, SHA256: fmt.Sprintf("%x", sha256.Sum256(s.Source)), Spec: s}}
	if err := d.layOut(); err != nil {
		return nil, err
	}
	if s.Flavour == spec.Lustre {
		if err := d.lustre(); err != nil {
			return nil, err
		}
	} else {
		d.pair()
	}
	if err := d.room(); err != nil {
		return nil, err
	}
	d.cache()
	if d.Lustre != nil {
		d.Mounts, d.Settings = d.Lustre.mounts(s.Clients), d.settings("lustre")
	} else {
		d.Mounts, d.Settings = clientMounts(s, d.Services()), d.settings("nfs")
	}
	d.capacity()
	d.advise()
	d.translate()
	d.warn()
	return d.Design, nil
}

func errorAt(s *spec.Spec, at, mend, format string, args ...any) error {
	line, col := s.Pos(at)
	return spec.Errors{{File: s.File, Line: line, Col: col, Msg: fmt.Sprintf(format, args...), Mend: mend}}
}

// Buildable says in so many words what of a design this version cannot build.
func Buildable(d *Design) error {
	s := d.Spec
	const instead = "look at it with mortar check, mortar plan --offline and mortar forecast"
	no := func(at, format string, args ...any) error {
		return errorAt(s, at, instead, format+" can be designed but not built by this version", args...)
	}
	switch {
	case s.Cache != nil && len(s.Services) > 1:
		return no("cache", "a cache for %d services", len(s.Services))
	case len(s.Services) > 1 && s.NFS.RDMA():
		return no("nfs.transport", "transport rdma with two services (each has its nfsd in a network namespace of its own; Soft RoCE's packets arrive in the server's only, and no RDMA hardware was at hand to try)")
	case s.Profile == spec.Stock && s.NFS.RDMA():
		return no("nfs.transport", "transport rdma with profile stock (it is to measure what the distribution gives)")
	case s.Profile == spec.Stock && s.Cache != nil:
		return no("cache", "a cache with profile stock (the standard resource agents know none)")
	case s.Profile == spec.Stock && s.Flavour != spec.NFSHA:
		return no("profile", "profile stock of flavour %s", s.Flavour)
	}
	for _, v := range d.Services() {
		if what := tooLarge(d, v); what != "" {
			return no("storage.raid", "%s", what)
		}
	}
	return nil
}

// Value gives the value of a setting, "" if the design has none such.
func (d *Design) Value(kind, name string) string {
	if s := find(all(d.Settings), func(s *Setting) bool { return s.Kind == kind && s.Name == name }); s != nil {
		return s.Value
	}
	return ""
}

// SettingsOf lists the settings of a kind.
func (d *Design) SettingsOf(kind string) []Setting {
	return lists.Only(d.Settings, func(s Setting) bool { return s.Kind == kind })
}

// GroupsOf lists the groups of a service, or of a module of Lustre, in order.
func (d *Design) GroupsOf(set string) []Group {
	return lists.Only(d.Groups, func(g Group) bool { return g.Set() == set })
}

// pair derives the pair of an NFS brick: all of its servers and services.
func (d builder) pair() {
	s := d.Spec
	p := Pair{Name: s.Name}
	for _, v := range s.Servers {
		p.Servers = append(p.Servers, v.Name)
	}
	if s.HA != nil {
		p.HA = d.cluster(s.Servers)
	}
	for i := range s.Services {
		p.Services = append(p.Services, d.nfsService(&s.Services[i]))
	}
	d.Pairs = []Pair{p}
}

func (d builder) nfsService(v *spec.Service) Service {
	s := d.Spec
	groups := d.GroupsOf(v.Name)
	sv := Service{Name: v.Name, Preferred: v.Server, Storage: d.storage(v, groups), NFS: d.fileSystem(v, groups)}
	sv.Address = v.Address
	sv.Prefix = prefixLen(s.Networks.Public.CIDR)
	sv.StateDir = sv.MountPoint + "/.mortar/nfs"
	sv.Scope = s.Name + "-" + v.Name
	if len(s.Services) > 1 {
		sv.Namespace = "mortar-" + v.Name
	}
	for _, e := range v.Exports {
		dir := sv.MountPoint + e.Path
		sv.Exports = append(sv.Exports, Export{
			Dir: dir, Path: e.Path, Clients: e.Clients,
			// By directory: one directory exported to two networks is one file system to both.
			FSID:    stableUUID(s, "export", v.Name+e.Path).String(),
			Options: exportOptions(e.Options),
		})
	}
	return sv
}

// exportOptions makes explicit what exportfs would otherwise warn about or
// choose by itself.
func exportOptions(given []string) []string {
	out := slices.Clone(given)
	need := func(def string, others ...string) {
		for _, o := range append(others, def) {
			if slices.Contains(out, o) {
				return
			}
		}
		out = append(out, def)
	}
	need("ro", "rw") // exports(5): the default
	need("sync", "async")
	need("no_subtree_check", "subtree_check")
	need("root_squash", "no_root_squash", "all_squash")
	return out
}

// KeepClients returns the design without the clients for which keep is false. What follows from
// the number of clients stays.
func KeepClients(d *Design, keep func(spec.Client) bool) *Design {
	out := *d
	out.Spec = d.Spec.KeepClients(keep)
	names := out.Spec.ClientNames()
	out.Mounts = lists.Only(d.Mounts, func(m ClientMount) bool { return slices.Contains(names, m.Client) })
	return &out
}

// HostMTU is the MTU of the interface that has a host's address on a network.
type HostMTU struct {
	Network string // public, private or management
	Address string
	MTU     int
}

// PublicOf is the address of a server or a client on the public network.
func (d *Design) PublicOf(host string) string {
	for _, v := range d.Spec.Servers {
		if v.Name == host {
			return v.Public
		}
	}
	for _, c := range d.Spec.Clients {
		if c.Name == host {
			return c.Public
		}
	}
	return ""
}

// MTUs are those that a host's interfaces must have: of the networks whose mtu
// the spec gives. The default describes no network that anybody has looked at.
func (d *Design) MTUs(host string) []HostMTU {
	var out []HostMTU
	d.eachLink(host, func(network string, n *spec.Network, address string) {
		if d.Spec.Given("networks." + network + ".mtu") {
			out = append(out, HostMTU{network, address, n.MTU})
		}
	})
	return out
}

// HostSpeed is the speed that a server's link has by the spec.
type HostSpeed struct {
	Network, Address string
	Mbits            float64
}

// Speeds returns the link speeds of a server: of the networks whose speed the spec
// gives. Clients may have slower links.
func (d *Design) Speeds(server string) []HostSpeed {
	if !slices.Contains(d.Servers(), server) {
		return nil
	}
	var out []HostSpeed
	d.eachLink(server, func(network string, n *spec.Network, address string) {
		if m := n.Mbits(); m > 0 {
			out = append(out, HostSpeed{network, address, m})
		}
	})
	return out
}

func (d *Design) eachLink(host string, f func(network string, n *spec.Network, address string)) {
	s := d.Spec
	add := func(network string, n *spec.Network, address string) {
		a, err := netip.ParseAddr(address)
		if n == nil || err != nil {
			return
		}
		if p, err := netip.ParsePrefix(n.CIDR); err == nil && p.Contains(a) {
			f(network, n, address)
		}
	}
	for _, v := range s.Servers {
		if v.Name == host {
			add("public", &s.Networks.Public, v.Public)
			add("private", s.Networks.Private, v.Private)
			add("management", s.Networks.Management, v.Address)
		}
	}
	for _, c := range s.Clients {
		if c.Name == host {
			add("public", &s.Networks.Public, c.Public)
			add("management", s.Networks.Management, c.Address)
		}
	}
}

func prefixLen(cidr string) int {
	_, bits, _ := strings.Cut(cidr, "/")
	n := 0
	fmt.Sscanf(bits, "%d", &n) // a parsed spec has a number here
	return n
}

func clientMounts(s *spec.Spec, services []*Service) []ClientMount {
	var out []ClientMount
	for _, c := range s.Clients {
		mounts := c.Mounts
		if len(mounts) == 0 {
			mounts = defaultMounts(s)
		}
		for _, m := range mounts {
			for _, sv := range services {
				if sv.Name != m.Service {
					continue
				}
				for _, e := range sv.Exports {
					if e.Path == m.Export {
						out = append(out, ClientMount{
							Client: c.Name, Service: sv.Name, Source: sv.Address + ":" + e.Dir,
							Path: m.Path, Version: m.Version,
							Options: nfsMountOptions(s, m),
						})
						break // the same directory exported to several networks is mounted once
					}
				}
			}
		}
	}
	return out
}

// defaultMounts is every service's first export, by NFSv4 and by NFSv3 as far
// as they are served.
func defaultMounts(s *spec.Spec) []spec.Mount {
	v4 := ""
	for _, v := range s.NFS.Versions {
		if v == "4.1" || v4 == "" && v == "4.2" {
			v4 = v
		}
	}
	var out []spec.Mount
	for _, sv := range s.Services {
		m := spec.Mount{Service: sv.Name, Export: sv.Exports[0].Path, Path: "/mnt/" + sv.Name}
		if v4 != "" {
			m.Version = v4
			out = append(out, m)
			m.Path += "-v3"
		}
		if slices.Contains(s.NFS.Versions, "3") {
			m.Version = "3"
			out = append(out, m)
		}
	}
	return out
}
