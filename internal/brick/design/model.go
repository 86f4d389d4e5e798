package design

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Services lists every service of every pair, in order.
func (d *Design) Services() []*Service {
	var out []*Service
	for i := range d.Pairs {
		out = append(out, all(d.Pairs[i].Services)...)
	}
	return out
}

// Service gives the service of a name, nil if there is none.
func (d *Design) Service(name string) *Service {
	return find(d.Services(), func(s *Service) bool { return s.Name == name })
}

// find gives the first that is like this, nil if none is.
func find[T any](list []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// all points to every one of a list.
func all[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// PairWith gives the pair that a server belongs to, nil for another host.
func (d *Design) PairWith(server string) *Pair {
	return find(all(d.Pairs), func(p *Pair) bool { return slices.Contains(p.Servers, server) })
}

// PairOf gives the pair that has a service, nil if none has.
func (d *Design) PairOf(service string) *Pair {
	return find(all(d.Pairs), func(p *Pair) bool {
		return slices.ContainsFunc(p.Services, func(s Service) bool { return s.Name == service })
	})
}

// Clustered tells whether servers of the brick take over each other's
// services. Then all do.
func (d *Design) Clustered() bool {
	return slices.ContainsFunc(d.Pairs, func(p Pair) bool { return p.HA != nil })
}

// Servers names all servers of the brick.
func (d *Design) Servers() []string {
	return lists.Flat(d.Pairs, func(p Pair) []string { return p.Servers })
}

// Levels are those by which a server is fenced; none for one that has no partner
// to take over.
func (d *Design) Levels(server string) []*FenceLevel {
	if p := d.PairWith(server); p != nil && p.HA != nil {
		return p.HA.Levels(server)
	}
	return nil
}

// Fencing lists the levels of all servers.
func (d *Design) Fencing() []*FenceLevel {
	var out []*FenceLevel
	for i := range d.Pairs {
		if ha := d.Pairs[i].HA; ha != nil {
			out = append(out, all(ha.Fencing)...)
		}
	}
	return out
}

// Cached gives the service that has a cache, nil if none has.
func (d *Design) Cached() *Service {
	return find(d.Services(), func(s *Service) bool { return s.Storage.Cache != nil })
}

// Targets lists those of Lustre in the order in which they are mounted for the
// first time: MGS, MDTs, OSTs.
func (d *Design) Targets() []Target {
	var out []Target
	for _, role := range []string{"mds", "oss"} {
		for i := range d.Pairs {
			if d.Pairs[i].Role == role {
				out = append(out, d.Pairs[i].Targets()...)
			}
		}
	}
	return out
}

// Targets lists those of a pair, in the order of mounting.
func (p *Pair) Targets() []Target {
	return lists.Flat(p.Services, func(s Service) []Target { return s.Targets })
}

// First gives the first service that clients wait for, nil if there is none: an MGS
// alone may fail, and files are read and written meanwhile.
func (p *Pair) First() *Service {
	return find(all(p.Services), func(s *Service) bool { return len(s.Targets) != 1 || s.Targets[0].Kind != "mgs" })
}

// Other gives the server that is not the named one, "" if there is none.
func (p *Pair) Other(server string) string {
	for _, s := range p.Servers {
		if s != server {
			return s
		}
	}
	return ""
}

// Mounted is the device that a file system or target is made on.
func (s *Storage) Mounted() string {
	if s.Cache != nil {
		return s.Cache.Device
	}
	return s.Backing()
}

// Backing is the device below the cache, or the same without one.
func (s *Storage) Backing() string {
	if s.Device != "" {
		return s.Device
	}
	return "/dev/" + s.VG + "/" + s.LV
}

// GroupsIn gives the RAID groups of a service's storage, in order.
func (d *Design) GroupsIn(s *Storage) []Group {
	at := make(map[string]int, len(d.Groups))
	for i, g := range d.Groups {
		at[g.Name] = i
	}
	out := make([]Group, 0, len(s.Groups))
	for _, n := range s.Groups {
		if i, ok := at[n]; ok {
			out = append(out, d.Groups[i])
		}
	}
	return out
}

// LUNsIn gives the LUNs that a service's storage stands on, in order; none on
// md arrays.
func (d *Design) LUNsIn(s *Storage) []LUN {
	return lists.Flat(s.LUNs, func(dev string) []LUN { return lists.Only(d.LUNs(), func(l LUN) bool { return l.Device == dev }) })
}

// Reached is what servers have paths to: a disk of a JBOD, by its serial number,
// or a LUN of an array, by its name.
type Reached struct {
	Name string
	WWN  string // "": not known
}

// ReachedBy lists what a server has paths to.
func (d *Design) ReachedBy(server string) []Reached {
	var out []Reached
	p := d.PairWith(server)
	if p == nil {
		return nil
	}
	for i := range p.Services {
		for _, l := range d.LUNsIn(&p.Services[i].Storage) {
			out = append(out, Reached{l.Name, l.WWN})
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, k := range d.DisksOf(p) {
		out = append(out, Reached{k.Serial, k.WWN})
	}
	return out
}

// Floating is the address that moves with a service, "" for a kind that has
// none.
func (s *Service) Floating() string {
	if s.NFS == nil {
		return ""
	}
	return s.Address
}

// MountPoints are where a service is mounted on the server that runs it.
func (s *Service) MountPoints() []string {
	if s.NFS != nil {
		return []string{s.MountPoint}
	}
	return lists.Map(s.Targets, func(t Target) string { return t.MountPoint })
}

// Volumes are a service's logical volumes, VG/LV, that of a cache's header left
// out; none if it stands on a LUN itself.
func (s *Service) Volumes() []string {
	st := &s.Storage
	switch {
	case st.VG == "":
		return nil
	case s.NFS != nil:
		return []string{st.VG + "/" + st.LV}
	}
	return lists.Map(s.Targets, func(t Target) string { return st.VG + "/" + t.Volume })
}

// MDGroups are the md arrays that a service stands on, in order; none on LUNs,
// where the array makes the groups.
func (d *Design) MDGroups(s *Service) []Group {
	return lists.Only(d.GroupsIn(&s.Storage), func(g Group) bool { return g.Array == "" })
}

// DisksOf are the disks that the servers of a pair are cabled to.
func (d *Design) DisksOf(p *Pair) []Disk {
	return slices.DeleteFunc(slices.Clone(d.Disks), func(k Disk) bool { return k.Array != "" || k.Module != "" && k.Module != p.Name })
}

// ArraysOf are the md arrays that the servers of a pair make of these disks.
func (d *Design) ArraysOf(p *Pair) []Group {
	return slices.DeleteFunc(slices.Clone(d.Groups), func(g Group) bool { return g.Array != "" || g.Module != "" && g.Module != p.Name })
}

// On gives the service that stands on a RAID group, nil if none does.
func (d *Design) On(group string) *Service {
	return find(d.Services(), func(s *Service) bool { return slices.Contains(s.Storage.Groups, group) })
}

// Peers are the other md arrays of the service that a group's array is of: they share
// their spares.
func (d *Design) Peers(g *Group) []Group {
	s := d.On(g.Name)
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(d.GroupsIn(&s.Storage), func(x Group) bool { return x.Name == g.Name || x.Array != "" })
}

// FileSystem is the UUID of the file system that a service has on its volume,
// "" for a kind that has none of its own making.
func (s *Service) FileSystem() string {
	if s.NFS == nil {
		return ""
	}
	return s.FSUUID
}

func (s *Service) Content() string {
	if s.NFS == nil {
		return fmt.Sprintf("ldiskfs of Lustre on %s", strings.Join(s.MountPoints(), " and "))
	}
	return fmt.Sprintf("XFS on %s, stripe unit %s, width %d", s.MountPoint, s.SU, s.SW)
}
