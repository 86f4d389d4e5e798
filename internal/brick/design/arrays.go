package design

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// mgtSize is room for the configuration of a Lustre file system, which is
// some megabytes. Source: Lustre Operations Manual, 5.1.
const mgtSize = 10 * spec.GiB

// mgtOf is the size of the MGT on storage for metadata of a size: a tenth at most.
func mgtOf(all spec.Bytes) spec.Bytes { return min(mgtSize, all/10/extentSize*extentSize) }

// arrays makes the LUNs of each array: one for each group, or one over all
// spans of a RAID 60. That of an MDS is cut in two: MGT and MDT.
func (d builder) arrays() {
	s := d.Spec
	ost := 0
	for i := range s.Arrays {
		a := &s.Arrays[i]
		m, _ := spec.ModelOf(a.Model)
		out := Array{Name: a.Name, Model: a.Model, Family: m.Family, Management: a.Management, Controller: a.Controller}
		for _, e := range s.Enclosures {
			if e.Array == a.Name {
				out.Enclosures = append(out.Enclosures, e.Name)
				if out.Set == "" {
					out.Set = e.Set()
				}
			}
		}
		out.Spares = lists.Only(d.Disks, func(k Disk) bool { return k.Array == a.Name && k.Spare })
		for _, set := range s.Sets() {
			if !slices.ContainsFunc(s.ArraysOf(set.Name), func(x *spec.Array) bool { return x.Name == a.Name }) {
				continue
			}
			for _, v := range set.Servers {
				if !slices.Contains(out.Servers, v) && (a.Server == "" || v == a.Server) {
					out.Servers = append(out.Servers, v)
				}
			}
			out.Unmirrored = out.Unmirrored || !set.Storage.Mirrored()
			d.lunsOn(&out, set, &ost)
		}
		for n := range out.LUNs {
			l := &out.LUNs[n]
			if n < len(a.WWNs) {
				l.WWN = a.WWNs[n]
			}
			l.Device = "/dev/mapper/" + l.Name
			if m.Family == "perc" { // one path, no multipath
				l.Device = "/dev/disk/by-id/wwn-0x" + l.WWN
				if l.WWN == "" {
					l.Device += "<wwn-of-" + l.Name + ">"
				}
			}
		}
		d.Arrays = append(d.Arrays, out)
	}
}

func (d builder) lunsOn(a *Array, set spec.Set, ost *int) {
	s := d.Spec
	r := set.Storage.RAID
	m, _ := spec.ModelOf(a.Model)
	groups := lists.Only(d.GroupsOf(set.Name), func(g Group) bool { return g.Array == a.Name })
	per := 1
	if r.Level == 60 {
		per = len(groups)
	}
	role := ""
	if s.Flavour == spec.Lustre {
		for _, m := range s.Lustre.Modules {
			if m.Name == set.Name {
				role = m.Role
			}
		}
	}
	total := len(groups) / per
	for i := 0; i < len(groups); i += per {
		g := groups[i]
		n := i / per
		l := LUN{
			Array: a.Name, Number: len(a.LUNs), Set: set.Name, Level: r.Level, Chunk: g.Chunk,
			FullStripe: spec.Bytes(g.Data) * g.Chunk, Controller: n % 2, Rest: true, Growth: g.Growth,
		}
		for _, x := range groups[i : i+per] {
			l.Groups = append(l.Groups, x.Name)
			l.Size += spec.Bytes(x.Data) * m.OfDisk(x.Members[0].Size)
		}
		switch role {
		case "mds":
			// The MGS lives on the server without the MDT: it outlives a crash of the
			// other, and tells clients and targets at once where the MDT is
			// (imperative recovery).
			mgt := l
			mgt.Name, mgt.Use, mgt.Size, mgt.Rest, mgt.Server = s.Lustre.FSName+"-MGT", "mgs", mgtOf(l.Size), false, set.Servers[1]
			if n == 0 {
				a.LUNs = append(a.LUNs, mgt)
				l.Size -= mgt.Size
			}
			l.Number = len(a.LUNs)
			l.Name, l.Use, l.Server = fmt.Sprintf("%s-MDT%04x", s.Lustre.FSName, n), "mdt", set.Servers[0]
		case "oss":
			l.Name, l.Use = fmt.Sprintf("%s-OST%04x", s.Lustre.FSName, *ost), "ost"
			l.Server = set.Servers[halfOf(n, total)]
			*ost++
		default:
			l.Name, l.Use = d.lunName(a, g.Growth), "pv"
			if set.Storage.Volume == "device" {
				l.Use = "xfs"
			}
			l.Server = d.preferred(set.Name)
		}
		switch a.Family {
		case "perc":
			l.Controller = 0 // there is one, and it counts in whole GiB of each disk
		case "me4", "me5":
			l.Size = l.Size / spec.GiB * spec.GiB // its volumes are made in whole GiB
		default:
			l.Size = l.Size / l.FullStripe * l.FullStripe
		}
		a.LUNs = append(a.LUNs, l)
	}
}

// halfOf says which of two servers has the i-th of n: the first half is the
// first one's, so that either has LUNs of both controllers.
func halfOf(i, n int) int {
	if i < (n+1)/2 {
		return 0
	}
	return 1
}

// lunName names an array's next LUN by its number among those of its growth, on all
// arrays: another array that grows renames nothing.
func (d builder) lunName(next *Array, growth int) string {
	n := 0
	for _, a := range append(slices.Clone(d.Arrays), *next) {
		for _, l := range a.LUNs {
			if l.Growth == growth {
				n++
			}
		}
	}
	if growth > 0 {
		return fmt.Sprintf("%s-g%d-lun%d", d.Spec.Name, growth, n)
	}
	return fmt.Sprintf("%s-lun%d", d.Spec.Name, n)
}

func (d builder) preferred(service string) string {
	if v := find(all(d.Spec.Services), func(v *spec.Service) bool { return v.Name == service }); v != nil {
		return v.Server
	}
	return ""
}

// lunsOf lists the LUNs of a service or module, in order; those of its growths last.
func (d *Design) lunsOf(set string) []LUN {
	out := lists.Only(d.LUNs(), func(l LUN) bool { return l.Set == set })
	slices.SortStableFunc(out, func(a, b LUN) int { return a.Growth - b.Growth })
	return out
}

func (d *Design) LUNs() []LUN {
	return lists.Flat(d.Arrays, func(a Array) []LUN { return a.LUNs })
}

// PathsTo is the number of paths a server has to a LUN: each HBA, or else
// two, is cabled to each of the array's two controllers. One for a controller
// in the server.
func (d *Design) PathsTo(a *Array, server string) int {
	if a.Family == "perc" {
		return 1
	}
	hbas := 0
	for _, v := range d.Spec.Servers {
		if v.Name != server {
			continue
		}
		for _, c := range v.PCI {
			if c.Kind == "sas-hba" {
				hbas++
			}
		}
	}
	if hbas == 0 {
		hbas = 2
	}
	return hbas * 2
}

// As package cache has them, which a test of package plan asserts.
const (
	cacheHeader      = "cacheheader"
	cacheGenerations = 8
)

// cache sizes the pool of SSDs.
func (d builder) cache() {
	k := d.Spec.Cache
	if k == nil || len(d.Services()) == 0 {
		return
	}
	v := &d.Services()[0].Storage
	c := &Cache{Mode: k.Mode, Bypass: k.Bypass, Header: cacheHeader, Device: "/dev/mapper/" + v.VG + ".cached"}
	least := spec.Bytes(0)
	for _, l := range k.SSDs {
		serials, err := l.Serials()
		if err != nil {
			continue // Parse has refused it
		}
		for _, serial := range serials {
			c.SSDs = append(c.SSDs, Disk{Serial: serial, WWN: l.WWN, Size: l.Size, Type: l.Type, Bay: len(c.SSDs) + 1, Server: l.Server})
			if least == 0 || l.Size < least {
				least = l.Size
			}
		}
	}
	// Of SSDs inside servers, what one server has: that with the least, which
	// has any.
	for _, v := range d.Spec.Servers {
		room := spec.Bytes(0)
		for _, x := range c.SSDs {
			if x.Server == "" || x.Server == v.Name {
				room += x.Size
			}
		}
		if c.Clean == 0 || room > 0 && room < c.Clean {
			c.Clean = room
		}
	}
	if c.Mode == "write-back" {
		// A quarter of the smallest: bcache takes dirty data until seven tenths
		// of it are full, and starts to write at a tenth.
		c.Mirror = least / 4 / spec.MiB * spec.MiB
		c.Clean -= c.Mirror * spec.Bytes(len(c.SSDs))
		c.Dirty = c.Mirror * spec.Bytes(len(c.SSDs)) / 2
		c.Survives = 1
		c.Placement = "what is not on the disks yet is on two SSDs, what is read on one"
	} else {
		c.Survives = len(c.SSDs)
		c.Placement = "every byte is on the disks too: any SSD may die"
	}
	for i := range cacheGenerations {
		n := fmt.Sprint(i)
		c.DirtyUUIDs = append(c.DirtyUUIDs, mdUUID(stableUUID(d.Spec, "cache-dirty", n)))
		c.CleanUUIDs = append(c.CleanUUIDs, mdUUID(stableUUID(d.Spec, "cache-clean", n)))
	}
	v.Cache = c
}
