// Package testbed describes the system of a run: hardware, mounts and settings
// of the design, and software on the hosts. Drills and benchmarks store the
// description with their results. The package also keeps the sessions of a run,
// with the clocks of their hosts. It changes nothing and judges nothing.
package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// Mounts returns the mounts of a host.
func Mounts(ctx context.Context, h *host.Session) ([]linux.Mount, error) {
	s, err := h.Read(ctx, "/proc/self/mounts")
	return linux.ParseMounts(s), err
}

// Clients names the clients that mount a brick, in the order of its mounts.
func Clients(d *design.Design) []string {
	return lists.Distinct(lists.Map(d.Mounts, func(m design.ClientMount) string { return m.Client }))
}

// Describe returns the hardware, mounts, settings and design of a brick for a
// run's record. The caller adds software, method and caveats.
func Describe(d *design.Design) report.Config {
	var c report.Config
	row := func(name, format string, args ...any) {
		c.Hardware = append(c.Hardware, report.Row{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	for _, s := range d.Spec.Servers {
		parts := []string{}
		if s.CPU != nil {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d x %d cores %s", s.CPU.Sockets, s.CPU.Cores, s.CPU.Model)))
		}
		if s.Memory > 0 {
			parts = append(parts, report.Bytes(int64(s.Memory))+" memory")
		}
		parts = append(parts, "public "+s.Public)
		if s.Private != "" {
			parts = append(parts, "private "+s.Private)
		}
		if s.BMC != nil {
			parts = append(parts, "BMC "+s.BMC.Address)
		}
		for _, o := range s.Outlets {
			parts = append(parts, fmt.Sprintf("PDU %s outlet %d", o.PDU, o.Outlet))
		}
		row("server "+s.Name, "%s", strings.Join(parts, ", "))
	}
	for _, x := range d.Spec.Clients {
		row("client "+x.Name, "public %s", x.Public)
	}
	for _, x := range d.Spec.Enclosures {
		n, bytes := 0, int64(0)
		var kinds []string
		for _, k := range d.Disks {
			if k.Enclosure == x.Name {
				n++
				bytes += int64(k.Size)
				if !slices.Contains(kinds, k.Type) {
					kinds = append(kinds, k.Type)
				}
			}
		}
		row("enclosure "+x.Name, "%d %s disks, %s together", n, strings.Join(kinds, " "), report.Bytes(bytes))
	}
	for _, g := range d.Groups {
		row("array "+g.Name, "RAID %d, %d data and %d parity disks, %d spares, chunk %s", g.Level, g.Data, g.Parity, len(g.Spares), report.Bytes(int64(g.Chunk)))
	}
	for _, s := range d.Services() {
		for _, v := range s.Volumes() {
			row("volume "+v, "%s", s.Content())
		}
	}
	if s := d.Cached(); s != nil {
		k := s.Storage.Cache
		row("cache", "%s on %s: %s for reads, %s for dirty data; streams longer than %s pass by", k.Mode, report.Plural(len(k.SSDs), "SSD"), report.Bytes(int64(k.Clean)), report.Bytes(int64(k.Dirty)), report.Bytes(int64(k.Bypass)))
	}
	row("usable", "%s", report.Bytes(int64(d.Capacity.Usable)))
	for _, f := range d.Fencing() {
		ids := lists.Map(f.Devices, func(x design.FenceDevice) string { return x.ID + " (" + x.Agent + ")" })
		row(fmt.Sprintf("fencing %s, level %d", f.Node, f.Level), "%s", strings.Join(ids, " and "))
	}
	for _, m := range d.Mounts {
		c.Mounts = append(c.Mounts, report.Row{Name: m.Client + " " + m.Path, Value: fmt.Sprintf("%s, %s, %s", m.Source, kind.For(m).Name(m), strings.Join(m.Options, ","))})
	}
	for _, s := range d.Settings {
		c.Settings = append(c.Settings, report.Setting(s))
	}
	// Marshalling cannot fail, since all types are plain.
	c.Design, _ = json.Marshal(struct {
		Name    string
		Flavour string
		SHA256  string
		Groups  []design.Group
		Pairs   []design.Pair
	}{d.Name, string(d.Flavour), d.SHA256, d.Groups, d.Pairs})
	return c
}

// Versions returns the system and the kernel of each host, in the order of
// names, and the package versions of the first host, which must be a server.
func Versions(ctx context.Context, names []string, hosts host.ByName) []report.Row {
	var rows []report.Row
	for i, name := range names {
		h := hosts(name)
		if h == nil {
			continue
		}
		hello, err := h.Hello(ctx)
		if err == nil {
			rows = append(rows, report.Row{Name: name, Value: hello.OSRelease.Name + ", kernel " + hello.Kernel})
		}
		if i > 0 {
			continue
		}
		d := distro.Nearest(hello.OSRelease)
		if out, err := h.Query(ctx, slices.Concat(d.Manager.Versions, d.Packages.Report)...); err == nil {
			for line := range strings.Lines(out.Stdout) {
				if p, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && v != "" {
					rows = append(rows, report.Row{Name: p, Value: v})
				}
			}
		}
	}
	return rows
}
