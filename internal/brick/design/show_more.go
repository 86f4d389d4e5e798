package design

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// arrays lists what RAID arrays are to make.
func (v *view) arrays() {
	if len(v.d.Arrays) == 0 {
		return
	}
	v.heading("ARRAYS", "mortar array script writes their configuration, mortar array verify compares LUNs")
	for i := range v.d.Arrays {
		a := &v.d.Arrays[i]
		paths := ""
		if n := v.d.PathsTo(a, a.Servers[0]); n > 1 {
			paths = fmt.Sprintf(", %d paths from each of %s", n, strings.Join(a.Servers, " and "))
		} else {
			paths = fmt.Sprintf(", controller %d in %s", a.Controller, a.Servers[0])
		}
		spares := ""
		if len(a.Spares) > 0 {
			spares = ", " + plural(len(a.Spares), "global spare")
		}
		v.printf("  %s, %s: %s%s%s\n", a.Name, a.Model, plural(len(a.Enclosures), "enclosure"), paths, spares)
		for _, l := range a.LUNs {
			owner := ""
			if a.Family != "perc" {
				owner = fmt.Sprintf(", controller %d", l.Controller)
			}
			wwn := ""
			if l.WWN != "" {
				wwn = ", WWN " + l.WWN
			}
			v.printf("    LUN %-3d %-16s %10s  RAID %d of %s, %s%s%s\n", l.Number, l.Name, l.Size.Binary(), l.Level, strings.Join(v.shortNames(l.Groups), "+"), "for "+l.Server, owner, v.paint(dim, wwn))
		}
	}
}

func (v *view) lunNames(set string) []string {
	var out []string
	for _, l := range v.d.lunsOf(set) {
		out = append(out, l.Name)
	}
	if n := len(out); n > 4 {
		out = []string{out[0], "…", out[n-1]}
	}
	return out
}

func (v *view) cache() {
	s := v.d.Cached()
	if s == nil {
		return
	}
	c := s.Storage.Cache
	v.heading("CACHE", c.Placement)
	v.printf("  %s of %s, %s; streams longer than %s go past it\n", plural(len(c.SSDs), "SSD"), c.SSDs[0].Size, c.Mode, c.Bypass)
	if c.Dirty > 0 {
		v.printf("  room for %s of writes that are not on the disks yet, each on two SSDs; one SSD may die\n", c.Dirty.Decimal())
	}
	where := ""
	if slices.ContainsFunc(c.SSDs, func(x Disk) bool { return x.Server != "" }) {
		where = ", in each server that has SSDs"
	}
	v.printf("  room for %s of what was read, which is on the disks too%s\n", c.Clean.Decimal(), where)
	v.printf("  %s: bcache over md arrays of the SSDs over %s/%s\n", c.Device, s.Storage.VG, s.Storage.LV)
	v.printf("  drilled on virtual racks, never on real SSDs: pull one under load before this carries data (docs/cache.md)\n")
}

func (v *view) lustreSizes(row func(string, spec.Bytes, string)) {
	for _, c := range v.d.Capacity.Sets {
		v.printf("  module %s\n", c.Name)
		i := slices.IndexFunc(v.d.Pairs, func(p Pair) bool { return p.Name == c.Name })
		m := &v.d.Pairs[i]
		row("  raw", c.Raw, "all disks")
		row("  RAID", c.RAID, "without parity, mirrors and spares")
		if c.LUNs > 0 {
			row("  LUNs", c.LUNs, "what servers see")
		}
		if m.Role == "oss" {
			row("  usable", c.Usable, "estimate: less journal and inodes of ldiskfs")
			continue
		}
		for _, t := range m.Targets() {
			if t.Kind == "mdt" {
				v.printf("    room for %d million files (an inode for each %d bytes)\n", t.Inodes/1_000_000, t.BytesPerNode)
			}
		}
	}
	c := v.d.Capacity
	v.printf("  all OSTs: raw %s, RAID %s = %s, usable %s = %s\n", c.Raw.Decimal(), c.RAID.Decimal(), c.RAID.Binary(), c.Usable.Decimal(), c.Usable.Binary())
}

// lustre shows targets, network and striping.
func (v *view) lustre() {
	l := v.d.Lustre
	if l == nil {
		return
	}
	v.heading("LUSTRE", fmt.Sprintf("file system %s, LNET %s", l.FSName, l.LNET))
	v.printf("  targets, in order of the first mount\n")
	for _, t := range v.d.Targets() {
		more := ""
		if t.Kind != "mgs" {
			more = fmt.Sprintf(", stride %d, stripe-width %d", t.Stride, t.StripeWidth)
		}
		v.printf("    %-16s %10s  on %s as a rule, or %s%s\n", t.Name, t.Size.Binary(), t.Server, other(v.d, t), more)
		if v.o.Explain {
			v.printf("      ")
			v.wrapped("mkfs.lustre "+quoted(t.MkfsArgs), 8, dim)
			v.printf("      %s\n", v.paint(dim, "mount -t lustre "+t.Device+" "+t.MountPoint))
		}
	}
	count := fmt.Sprintf("%d OST", l.StripeCount)
	switch {
	case l.StripeCount < 0:
		count = "all OSTs"
	case l.StripeCount > 1:
		count += "s"
	}
	v.printf("  striping: each new file over %s, %s on one before the next one's turn\n", count, l.StripeSize)
	for _, p := range l.Pools {
		v.printf("  pool %s: OSTs %s\n", p.Name, strings.Join(p.OSTs, ", "))
	}
	v.printf("  settings for good: ")
	v.wrapped(strings.Join(l.Params, ", "), 4, "")
	v.printf("  clients mount %s on %s\n", l.Source, l.Mount)
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if strings.Contains(a, " ") {
			a = "'" + a + "'"
		}
		out[i] = a
	}
	return strings.Join(out, " ")
}

// other is the server that takes a target over.
func other(d *Design, t Target) string {
	return d.PairWith(t.Server).Other(t.Server)
}

// placement says which server has which resources as a rule.
func (v *view) placement(m *Pair) string {
	by := map[string][]string{}
	for _, t := range m.Targets() {
		by[t.Server] = append(by[t.Server], strings.TrimPrefix(t.Name, v.d.Lustre.FSName+"-"))
	}
	var out []string
	for _, s := range m.Servers {
		what := strings.Join(by[s], " ")
		if what == "" {
			what = "none, it waits"
		}
		out = append(out, what+" on "+s)
	}
	return strings.Join(out, "; ")
}

// advice is for hands: cards and cables.
func (v *view) advice() {
	if len(v.d.Advice) == 0 {
		return
	}
	v.heading("CARDS AND CABLES", "")
	// Servers with the same cards and cables share a line.
	said := func(server string) string {
		var all []string
		for _, a := range v.d.Advice {
			if a.Server == server {
				text := a.Text
				if v.o.Explain {
					text += " [" + a.Source + "]"
				}
				all = append(all, text)
			}
		}
		return strings.Join(all, "\n")
	}
	var order []string
	who := map[string][]string{}
	for _, x := range v.d.Spec.Servers {
		t := said(x.Name)
		if len(who[t]) == 0 {
			order = append(order, t)
		}
		who[t] = append(who[t], x.Name)
	}
	for _, t := range order {
		if t == "" {
			continue
		}
		v.printf("  %s\n", strings.Join(who[t], ", "))
		for line := range strings.Lines(t) {
			v.printf("    ")
			v.wrapped(line, 6, "")
		}
	}
	for line := range strings.Lines(said("")) {
		v.printf("  ")
		v.wrapped(line, 4, "")
	}
}

// translations say what became of values of the past: with --explain, those
// of the papers too.
func (v *view) translations() {
	if len(v.d.Translations) == 0 || !v.o.Explain {
		return
	}
	v.heading("VALUES OF THE PAST", "what the source papers typed, and what does its work now")
	for _, t := range v.d.Translations {
		at := ""
		if t.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d: ", v.d.Spec.File, t.Line, t.Col)
		}
		now := t.New
		if now == "" {
			now = "(left out)"
		}
		v.printf("  %s%s\n    → %s\n      ", at, t.Old, now)
		v.wrapped(t.Why+" ["+t.Source+"]", 6, dim)
	}
}
