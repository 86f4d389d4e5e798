package design

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Measures of the picture, in pixels. A rack unit is high enough for a line of
// text.
const (
	svgUnit   = 24  // height of a rack unit
	svgRack   = 470 // width of what is mounted in a rack
	svgLeft   = 90  // beside a rack: storage cables
	svgRight  = 110 // beside a rack: networks and power
	svgTop    = 128 // title and networks
	svgUnits  = 42
	svgLegend = 430
)

// pictureStyle has the looks of classes. Those of groups follow from their number.
//
//go:embed picture.css
var pictureStyle string

// SVG draws racks with servers and enclosures, the group of each disk, and
// cabling, so that one looks rather than reads.
func SVG(w io.Writer, d *Design) error {
	p := &picture{d: d}
	p.place()
	p.draw()
	style := pictureStyle
	for i := range d.Groups {
		// Neighbours in number are far apart in hue. The group's name is written as well.
		style += fmt.Sprintf(".g%d{fill:hsl(%d,62%%,%d%%)}\n", i, i*137%360, 72+8*(i/3%2))
	}
	_, err := io.WriteString(w, p.File(style, "racks of brick "+d.Name))
	return err
}

// box is a server or an enclosure.
type box struct {
	name, model string
	server      *spec.Server
	enclosure   *spec.Enclosure
	rack        int
	x, y, h     float64
}

func (b *box) mid() float64 { return b.y + b.h/2 }

type picture struct {
	chart.Canvas
	d                   *Design
	servers, enclosures []*box
	used                []float64 // units of each rack
	height              float64   // of a rack as it is drawn: the used units of the fullest, and some more
}

// unitsOf is the height of a model, in rack units; a server has no bays.
func unitsOf(model string, bays int) float64 {
	switch {
	case bays > 60, slices.Contains([]string{"ME4084", "ME5084", "ME484"}, model):
		return 5
	case bays > 24:
		return 4
	case bays > 0, slices.Contains([]string{"R710", "R720", "R740"}, model):
		return 2
	}
	return 1
}

// place fills racks from the top: servers of a pair over their enclosures, a
// new rack where there is no room for a pair and all its enclosures.
func (p *picture) place() {
	s := p.d.Spec
	y, deepest := 0.0, 0.0
	p.used = []float64{0}
	fit := func(h float64) {
		if y > 0 && y+h > svgUnits*svgUnit {
			p.used, y = append(p.used, 0), 0
		}
	}
	for _, m := range p.d.Pairs {
		var servers, enclosures []*box
		whole := 0.0
		for i := range s.Servers {
			if v := &s.Servers[i]; slices.Contains(m.Servers, v.Name) {
				servers = append(servers, &box{name: v.Name, model: v.Model, server: v, h: svgUnit * unitsOf(v.Model, 0)})
			}
		}
		for i := range s.Enclosures {
			if e := &s.Enclosures[i]; p.d.Lustre == nil || e.Set() == m.Name {
				enclosures = append(enclosures, &box{name: e.Name, model: e.Model, enclosure: e, h: svgUnit * unitsOf(e.Model, e.Bays)})
			}
		}
		all := slices.Concat(servers, enclosures)
		for _, b := range all {
			whole += b.h
		}
		fit(whole)
		for _, b := range all {
			fit(b.h)
			b.rack = len(p.used) - 1
			b.x, b.y = p.rackX(b.rack), svgTop+y
			y += b.h
			p.used[b.rack] += b.h / svgUnit
			deepest = max(deepest, y)
		}
		p.servers, p.enclosures = append(p.servers, servers...), append(p.enclosures, enclosures...)
		y += svgUnit // room between pairs
	}
	p.height = min(max(deepest+svgUnit, 16*svgUnit), svgUnits*svgUnit)
}

func (p *picture) rackX(rack int) float64 {
	return float64(20 + svgLeft + rack*(svgLeft+svgRack+svgRight+10))
}

// name writes a name, in small letters if it is long, and without its middle if it is longer
// than that: names of servers differ at their ends. The box shows the whole under the pointer.
func (p *picture) name(x, y float64, s string) {
	class, r := "name", []rune(s)
	if len(r) > 8 {
		class = "long"
	}
	if len(r) > 11 {
		s = string(r[:4]) + "…" + string(r[len(r)-5:])
	}
	p.Text(class, x, y, s)
}

// clip cuts a text that would run into what is beside it.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// cable draws a line from point to point, with a tooltip.
func (p *picture) cable(class, title string, points ...float64) {
	way := new(chart.Path)
	for i := 0; i < len(points); i += 2 {
		way.To(points[i], points[i+1])
	}
	p.Path(class, way, title)
}

func (p *picture) draw() {
	p.Text("title", 20, 30, p.d.Name)
	p.Text("note", 20, 50, p.subtitle())
	for r, used := range p.used {
		p.Rect("rack", p.rackX(r)-6, svgTop-6, svgRack+12, p.height+12, "")
		p.Text("note", p.rackX(r), svgTop+p.height+24, fmt.Sprintf("rack %d: %g of %d units", r+1, used, svgUnits))
	}
	p.networks()
	for _, b := range p.servers {
		p.server(b)
	}
	for _, b := range p.enclosures {
		p.shelf(b)
	}
	p.cables()
	p.chains()
	x := p.rackX(len(p.used)-1) + svgRack + svgRight + 30
	p.Width, p.Height = x+svgLegend, max(svgTop+p.height, p.legend(x))+44
}

func (p *picture) subtitle() string {
	c := p.d.Capacity
	what := "raw"
	if p.d.Lustre != nil {
		what = "OSTs raw"
	}
	return fmt.Sprintf("flavour %s, %s, %s, %s: %s %s, RAID %s = %s", p.d.Flavour,
		spec.Plural(len(p.d.Spec.Servers), "server"), spec.Plural(len(p.d.Spec.Enclosures), "enclosure"), spec.Plural(len(p.d.Disks), "disk"), what,
		c.Raw.Decimal(), c.RAID.Decimal(), c.RAID.Binary())
}

// bus is a network or power feed: a bar over the racks, and a line down the
// right of each with a tap at each server.
type bus struct {
	class, name string
	tap         func(v *spec.Server) string // what the server has on it
}

func (p *picture) buses() []bus {
	s := p.d.Spec
	out := []bus{{"public", "public " + s.Networks.Public.CIDR + " " + s.Networks.Public.Speed, func(v *spec.Server) string { return v.Public }}}
	if s.Networks.Private != nil {
		out = append(out, bus{"private", "private " + s.Networks.Private.CIDR, func(v *spec.Server) string { return v.Private }})
	}
	for i, u := range s.PDUs {
		out = append(out, bus{fmt.Sprintf("pdu%d", i%4), "PDU " + u.Name + ", feed " + u.Feed, func(v *spec.Server) string {
			for _, o := range v.Outlets {
				if o.PDU == u.Name {
					return strconv.Itoa(o.Outlet)
				}
			}
			return ""
		}})
	}
	return out
}

func (p *picture) networks() {
	right := p.rackX(len(p.used)-1) + svgRack + svgRight
	buses := p.buses()
	for lane, b := range buses {
		y := 66 + float64(lane)*13
		p.cable("bar "+b.class, b.name, 210, y, right, y)
		p.Text("small", 20, y+4, clip(b.name, 30))
		last := make([]float64, len(p.used)) // the lowest tap in each rack
		at := func(rack int) float64 { return p.rackX(rack) + svgRack + 24 + float64(lane)*18 }
		for _, v := range p.servers {
			label := b.tap(v.server)
			if label == "" {
				continue
			}
			x, ty := at(v.rack), v.y+4+(v.h-8)*float64(lane+1)/float64(len(buses)+1)
			p.cable("cable "+b.class, v.name+": "+b.name+" "+label, v.x+svgRack, ty, x, ty)
			p.Circle("dot "+b.class, x, ty, 2.6, "")
			if strings.HasPrefix(b.class, "pdu") {
				p.Text("tiny", x+4, ty+3, label)
			}
			last[v.rack] = max(last[v.rack], ty)
		}
		for r, low := range last {
			if low > 0 {
				p.cable("cable "+b.class, b.name, at(r), y, at(r), low)
			}
		}
		p.Add("\n")
	}
}

// cableClass tells the cables of a server from those of its neighbours.
func cableClass(server int) string { return fmt.Sprintf("c%d", server%8) }

// cables draws storage cables: two of each server, to the controllers of its array, or to
// the I/O modules of each enclosure of a JBOD.
func (p *picture) cables() {
	d := p.d
	arrayOf := map[string]*Array{}
	for i := range d.Arrays {
		for _, e := range d.Arrays[i].Enclosures {
			arrayOf[e] = &d.Arrays[i]
		}
	}
	for n, v := range p.servers {
		class, lane := cableClass(n), float64(n%5)
		inside := slices.ContainsFunc(d.Arrays, func(a Array) bool { return a.Family == "perc" && slices.Contains(a.Servers, v.name) })
		for path := range 2 { // each over an HBA of its own, to a controller or I/O module of its own
			if path == 1 && inside {
				break
			}
			beside := 14 + lane*13 + float64(path)*6 // the rack
			x, from := v.x-beside, v.mid()-4+float64(path)*8
			bottom, top := from, from
			for _, e := range p.enclosures {
				a, title := arrayOf[e.name], fmt.Sprintf("%s to I/O module %d of enclosure %s", v.name, path+1, e.name)
				switch {
				case !p.reaches(v.name, e.enclosure) || a != nil && a.Enclosures[0] != e.name:
					continue
				case a == nil:
				case inside:
					title = v.name + " to enclosure " + e.name
				default:
					title = fmt.Sprintf("%s to controller %c of %s; %d paths in all", v.name, 'A'+path, a.Name, d.PathsTo(a, v.name))
				}
				y := e.y + 5 + lane*4
				if path == 1 {
					y = e.y + e.h - 5 - lane*4
				}
				ex := e.x - beside
				if e.rack != v.rack {
					over := svgTop - 14 - lane*6 - float64(path)*3
					p.cable("cable "+class, title, x, from, x, over, ex, over, ex, y, e.x, y)
				} else {
					bottom, top = max(bottom, y), min(top, y)
					p.cable("cable "+class, title, ex, y, e.x, y)
				}
				p.Circle("dot "+class, e.x, y, 2.6, "")
			}
			p.cable("cable "+class, "storage cables of "+v.name, v.x, from, x, from, x, top, x, bottom)
		}
		p.Add("\n")
	}
}

// chains draws the chain of each array's enclosures.
func (p *picture) chains() {
	for _, a := range p.d.Arrays {
		var last *box
		for _, name := range a.Enclosures {
			b := p.enclosures[slices.IndexFunc(p.enclosures, func(b *box) bool { return b.name == name })]
			if last != nil && last.rack == b.rack {
				x := b.x + svgRack
				p.cable("cable chain", "SAS chain of array "+a.Name, x, last.mid()+4, x+10, last.mid()+4, x+10, b.mid()-4, x, b.mid()-4)
			}
			last = b
		}
	}
}

func (p *picture) reaches(server string, e *spec.Enclosure) bool {
	for i := range p.d.Arrays {
		if a := &p.d.Arrays[i]; a.Name == e.Array {
			return slices.Contains(a.Servers, server)
		}
	}
	for _, set := range p.d.Spec.Sets() {
		if set.Name == e.Set() {
			return slices.Contains(set.Servers, server)
		}
	}
	return false
}

func (p *picture) server(b *box) {
	p.Rect("server", b.x, b.y+1, svgRack, b.h-2, b.name)
	p.name(b.x+8, b.mid()+4, b.name)
	notes := p.role(b.name)
	if b.model != "" {
		notes = slices.Insert(notes, 0, b.model)
	}
	p.Text("small", b.x+90, b.mid()+4, clip(strings.Join(notes, ", "), 42))
	if b.server.BMC != nil {
		p.Text("tiny", b.x+svgRack-120, b.mid()+4, "BMC "+b.server.BMC.Address)
	}
	p.Add("\n")
}

func (p *picture) role(server string) []string {
	var out []string
	for _, s := range p.d.Services() {
		if s.NFS != nil && s.Preferred == server {
			out = append(out, "active for "+s.Name+" ("+s.Address+")")
		}
	}
	var names []string
	for _, t := range p.d.Targets() {
		if t.Server == server {
			names = append(names, strings.TrimPrefix(t.Name, p.d.Lustre.FSName+"-"))
		}
	}
	if n := len(names); n > 3 {
		names = []string{names[0], "…", names[n-1]}
	}
	if len(names) > 0 {
		out = append(out, strings.Join(names, " "))
	}
	if len(out) == 0 && len(p.d.Spec.Servers) > 1 {
		out = append(out, "passive")
	}
	return out
}

func (p *picture) shelf(b *box) {
	e := b.enclosure
	p.Rect("enclosure", b.x, b.y+1, svgRack, b.h-2, b.name)
	p.name(b.x+6, b.y+15, e.Name)
	p.Text("tiny", b.x+6, b.y+28, e.Model)
	for _, a := range p.d.Arrays {
		if a.Enclosures[0] == e.Name && a.Family != "perc" {
			p.Text("tiny", b.x+6, b.y+40, clip("array "+a.Name, 15))
		}
	}
	const left = 84
	rows := 1
	switch {
	case e.Bays > 60:
		rows = 6
	case e.Bays > 24:
		rows = 4
	}
	cols := (e.Bays + rows - 1) / rows
	w, h := math.Floor(min((svgRack-left-4)/float64(cols), 56)), math.Floor((b.h-6)/float64(rows))
	bays := make([]*Disk, e.Bays)
	for i := range p.d.Disks {
		if k := &p.d.Disks[i]; k.Enclosure == e.Name {
			bays[k.Bay-1] = k
		}
	}
	for i, k := range bays {
		x, y := b.x+left+float64(i%cols)*w, b.y+3+float64(i/cols)*h
		if k == nil {
			p.Rect("empty", x, y, w-1, h-1, "")
			continue
		}
		class, short := "disk", "sp"
		if !k.Spare {
			class, short = p.group(k.Group)
		}
		p.Rect(class, x, y, w-1, h-1, fmt.Sprintf("enclosure %s bay %d: %s, %s %s, %s", e.Name, k.Bay, k.Serial, k.Size, k.Type, short))
		if w >= 14 {
			p.Text("bay", x+w/2, y+h/2+3, short)
		}
	}
	p.Add("\n")
}

// group is how disks of a group are drawn, and its name without the brick's.
func (p *picture) group(name string) (class, short string) {
	i := slices.IndexFunc(p.d.Groups, func(g Group) bool { return g.Name == name })
	return fmt.Sprintf("disk g%d", i), strings.TrimPrefix(name, p.d.Name+"-")
}

func (p *picture) legend(x float64) (low float64) {
	d, y := p.d, float64(svgTop-10)
	// row writes a text, behind what it explains: disks, with a word in them, or a cable.
	row := func(class, word, text string) {
		switch kind, _, _ := strings.Cut(class, " "); kind {
		case "disk":
			p.Rect(class, x, y-10, 26, 13, "")
			p.Text("bay", x+13, y, word)
			p.Text("small", x+32, y, text)
		case "bar":
			p.Line(class, x, y-4, x+26, y-4)
			p.Text("small", x+32, y, text)
		case "name":
			y += 10
			fallthrough
		default:
			p.Text(class, x, y, text)
		}
		y += 16
	}
	use := map[string]string{} // of a group
	for _, t := range d.Targets() {
		use[t.Group] = " → " + t.Name
	}
	for _, l := range d.LUNs() {
		for _, g := range l.Groups {
			use[g] = " → " + l.Name
		}
	}
	row("name", "", "RAID groups")
	for _, g := range d.Groups {
		safe := "any enclosure may die"
		if n, e := worstEnclosure(g); !SurvivesEnclosure(g) {
			safe = "up to " + spec.Plural(n, "disk") + " in " + e
		} else if g.Array != "" {
			safe = "data survive any enclosure"
		}
		class, short := p.group(g.Name)
		row(class, short, fmt.Sprintf("RAID %d %d+%d, %s%s", g.Level, g.Data, g.Parity, safe, use[g.Name]))
	}
	if spares := lists.Only(d.Disks, func(k Disk) bool { return k.Spare }); len(spares) > 0 {
		row("disk", "sp", spec.Plural(len(spares), "hot spare"))
	}
	for _, v := range d.Services() {
		if v.NFS != nil {
			row("name", "", "Volume of "+v.Name)
			row("small", "", fmt.Sprintf("stripe unit %s, width %d: %s", v.SU, v.SW, spec.Bytes(v.SW)*v.SU))
			row("small", "", "xfs on "+v.MountPoint)
		}
	}
	if l := d.Lustre; l != nil {
		row("name", "", "Lustre "+l.FSName)
		row("small", "", "LNET "+l.LNET)
		row("small", "", "clients mount "+l.Source)
	}
	row("name", "", "Cables")
	for n, v := range p.servers {
		row("bar "+cableClass(n), "", "storage of "+v.name)
	}
	for _, b := range p.buses() {
		row("bar "+b.class, "", b.name)
	}
	if len(d.Warnings) > 0 {
		row("name", "", spec.Plural(len(d.Warnings), "warning"))
	}
	for _, w := range d.Warnings {
		row("small", "", fmt.Sprintf("line %d: %s", w.Line, w.Rule))
	}
	return y
}
