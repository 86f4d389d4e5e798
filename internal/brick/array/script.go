// Package array writes the configuration scripts of RAID arrays and
// controllers from a design, and compares the LUNs that hosts see with it.
// It runs no command and reaches no host: what was seen is handed to it.
package array

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Tools are the tools a script can be for; the first is the default.
func Tools(a *design.Array) []string {
	m, _ := spec.ModelOf(a.Model) // Parse has refused others
	return m.Tools
}

// Script is the configuration of one array, for one of its tools ("": the
// default). With growth it has only what that growth of the brick adds to an array
// that is in use; 0: everything, for an array that has nothing on it.
func Script(d *design.Design, name, tool string, growth int) (string, error) {
	i := slices.IndexFunc(d.Arrays, func(a design.Array) bool { return a.Name == name })
	if i < 0 {
		names := lists.Map(d.Arrays, func(a design.Array) string { return a.Name })
		if len(names) == 0 {
			return "", errors.New("this brick has no array: its disks are JBODs (storage.kind)")
		}
		return "", fmt.Errorf("there is no array %q; the arrays are: %s", name, strings.Join(names, ", "))
	}
	a := &d.Arrays[i]
	tools := Tools(a)
	if tool == "" {
		tool = tools[0]
	}
	if !slices.Contains(tools, tool) {
		return "", fmt.Errorf("array %s (%s) is configured with %s, not with %s", a.Name, a.Model, strings.Join(tools, " or "), tool)
	}
	w := &script{Array: a, Brick: d.Name, Growth: growth, Hosts: label(strings.Join(a.Servers, "_")), Tool: tool, d: d}
	if growth > 0 {
		w.Array = added(a, growth)
		if len(w.LUNs) == 0 {
			return "", fmt.Errorf("growth %d adds nothing to array %s", growth, name)
		}
	} else if a.Family != "perc" {
		for _, server := range a.Servers {
			if err := w.known(server); err != nil {
				return "", err
			}
		}
	}
	var b strings.Builder
	file, shared := map[string]string{"me5": "me4", "perccli2": "perccli"}[tool]
	if !shared {
		file = tool
	}
	err := scripts().ExecuteTemplate(&b, file+".tmpl", w)
	return b.String(), err
}

//go:embed scripts
var files embed.FS

var scripts = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"label":    label,
		"one":      func(k design.Disk) []design.Disk { return []design.Disk{k} },
		"percName": percName,
		"kib":      func(b spec.Bytes) int64 { return int64(b / spec.KiB) },
		"gib":      func(b spec.Bytes) int64 { return int64(b / spec.GiB) },
	}).ParseFS(files, "scripts/*.tmpl"))
})

func added(a *design.Array, growth int) *design.Array {
	out := *a
	out.LUNs = slices.DeleteFunc(slices.Clone(a.LUNs), func(l design.LUN) bool { return l.Growth != growth })
	out.Spares = slices.DeleteFunc(slices.Clone(a.Spares), func(k design.Disk) bool { return k.Growth != growth })
	return &out
}

// script is what a template is executed on: the array, and what is asked of it.
type script struct {
	*design.Array
	Brick  string
	Growth int    // 0: all of the array
	Hosts  string // name of both servers together
	Tool   string
	d      *design.Design
}

func (w *script) State() string {
	if w.Growth > 0 {
		return fmt.Sprintf("Growth %d, for an array that is in use: it adds groups and LUNs, and changes none that exist.", w.Growth)
	}
	return "For an array that has nothing on it: groups that exist are not removed."
}

// NotRun says what of the script stands on public text alone.
func (w *script) NotRun() []string {
	m, _ := spec.ModelOf(w.Model)
	return m.NotRun
}

// Drives joins the disks of an E-Series by blanks. The tray with the controllers has number
// 99, the others count from 0; a tray of 60 disks has drawers of 12, which count from 1.
func (w *script) Drives(disks []design.Disk) string {
	var out []string
	for _, k := range disks {
		tray := slices.Index(w.Enclosures, k.Enclosure) - 1
		if tray < 0 {
			tray = 99
		}
		i := slices.IndexFunc(w.d.Spec.Enclosures, func(e spec.Enclosure) bool { return e.Name == k.Enclosure })
		if slot := k.Bay - 1; w.d.Spec.Enclosures[i].Bays == spec.DrawerTray {
			out = append(out, fmt.Sprintf("%d,%d,%d", tray, 1+slot/spec.DrawerSlots, slot%spec.DrawerSlots))
		} else {
			out = append(out, fmt.Sprintf("%d,%d", tray, slot))
		}
	}
	return strings.Join(out, " ")
}

// Disk is a disk by the place of its enclosure in the array's chain, and its slot; both
// from 0.
func (w *script) Disk(k design.Disk, format string) string {
	return fmt.Sprintf(format, slices.Index(w.Enclosures, k.Enclosure), k.Bay-1)
}

// Disks joins disks by separators in turn.
func (w *script) Disks(disks []design.Disk, format string, sep ...string) string {
	var b strings.Builder
	for i, k := range disks {
		if i > 0 {
			b.WriteString(sep[(i-1)%len(sep)])
		}
		b.WriteString(w.Disk(k, format))
	}
	return b.String()
}

// Group is the first RAID group of a LUN.
func (w *script) Group(l design.LUN) design.Group {
	i := slices.IndexFunc(w.d.Groups, func(g design.Group) bool { return g.Name == l.Groups[0] })
	return w.d.Groups[i]
}

// Begins tells whether a LUN is the first on its group, and so makes it.
func (w *script) Begins(l design.LUN) bool {
	i := slices.IndexFunc(w.LUNs, func(x design.LUN) bool { return x.Groups[0] == l.Groups[0] })
	return w.LUNs[i].Name == l.Name
}

// Members lists the disks of a LUN, span by span, in RAID order.
func (w *script) Members(l design.LUN) []design.Disk {
	var out []design.Disk
	for _, name := range l.Groups {
		for _, g := range w.d.Groups {
			if g.Name == name {
				out = append(out, g.Members...)
			}
		}
	}
	return out
}

// Span is how many disks a PERC takes for a span, or a mirror.
func (w *script) Span(l design.LUN) int {
	if l.Level == 10 {
		return 2
	}
	g := w.Group(l)
	return g.Data + g.Parity
}

// Ports are the SAS addresses of a server.
func (w *script) Ports(server string) []string {
	i := slices.IndexFunc(w.d.Spec.Servers, func(v spec.Server) bool { return v.Name == server })
	return w.d.Spec.Servers[i].SASPorts
}

// known refuses a server without SAS addresses, by which an array knows it.
func (w *script) known(server string) error {
	if len(w.Ports(server)) > 0 {
		return nil
	}
	s := w.d.Spec
	i := slices.IndexFunc(s.Servers, func(v spec.Server) bool { return v.Name == server })
	line, col := s.Pos(fmt.Sprintf("servers[%d]", i))
	return spec.Errors{{File: s.File, Line: line, Col: col,
		Msg:  fmt.Sprintf("array %s knows servers by the SAS addresses of their HBA ports, and %s has none", w.Name, server),
		Mend: "add sas_ports: [\"…\"], as /sys/class/sas_phy/*/sas_address on that server has them"}}
}

// CacheBlock is the size of a block of an MD3's cache, KiB.
func (w *script) CacheBlock() int {
	if len(w.LUNs) > 0 && w.LUNs[0].Chunk < 128*spec.KiB {
		return 4
	}
	return 32
}

// Program is the name of perccli's binary.
func (w *script) Program() string {
	if w.Tool == "perccli" {
		return "perccli64"
	}
	return w.Tool
}

// Chip is how a PERC's own tools name its model.
func (w *script) Chip() string { _, model, _ := strings.Cut(w.Model, "-"); return model }

// LastEnclosure is the number of the last one in the chain.
func (w *script) LastEnclosure() int { return len(w.Enclosures) - 1 }

// Addresses are those of the array's management.
func (w *script) Addresses() string { return cmp.Or(strings.Join(w.Management, " "), "ADDRESS") }

func (w *script) Address() string { a, _, _ := strings.Cut(w.Addresses(), " "); return a }

// label makes a name that arrays take: letters, digits, - and _, at most 30.
func label(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '.' || r > 126 {
			return '_'
		}
		return r
	}, name)
	return clean[:min(len(clean), 30)]
}

// percName is a virtual disk's name as a PERC takes it: at most 15 characters,
// of which the last tell the disks apart.
func percName(l design.LUN) string {
	return strings.TrimLeft(l.Name[max(0, len(l.Name)-15):], "-_")
}
