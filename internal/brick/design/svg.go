package design

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"sync"
	"text/template"

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

// SVG draws racks with servers and enclosures, the group of each disk, and
// cabling, so that one looks rather than reads.
func SVG(w io.Writer, d *Design) error {
	p := &picture{d: d}
	p.place()
	p.draw()
	return p.write(w)
}

type box struct {
	kind       string // server or enclosure
	name, note string
	server     *spec.Server
	enclosure  *spec.Enclosure
	rack       int
	x, y, h    int
}

func (b *box) mid() int { return b.y + b.h/2 }

type picture struct {
	d     *Design
	boxes []*box
	racks int
	units int // of the fullest rack, used
	low   int // where the legend ends
	b     strings.Builder
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// unitsOf is the height of a model, in rack units.
func unitsOf(model string, bays int) int {
	switch model {
	case "R620", "1U server":
		return 1
	case "R710", "R720", "R740":
		return 2
	case "ME4084", "ME5084", "ME484":
		return 5
	}
	switch {
	case bays == 0:
		return 1
	case bays > 60:
		return 5
	case bays > 24:
		return 4
	}
	return 2
}

// place fills racks from the top: servers of a pair over their enclosures, a
// new rack where there is no room for a pair and all its enclosures.
func (p *picture) place() {
	s := p.d.Spec
	y, rack := 0, 0
	for _, m := range p.d.Pairs {
		var boxes []*box
		for _, name := range m.Servers {
			v := &s.Servers[slices.IndexFunc(s.Servers, func(v spec.Server) bool { return v.Name == name })]
			boxes = append(boxes, &box{kind: "server", name: v.Name, note: v.Model, server: v, h: svgUnit * unitsOf(v.Model, 0)})
		}
		for i := range s.Enclosures {
			if e := &s.Enclosures[i]; p.d.Lustre == nil || e.Set() == m.Name {
				boxes = append(boxes, &box{kind: "enclosure", name: e.Name, note: e.Model, enclosure: e, h: svgUnit * unitsOf(e.Model, e.Bays)})
			}
		}
		h := 0
		for _, b := range boxes {
			h += b.h
		}
		if y > 0 && y+h > svgUnits*svgUnit {
			rack, y = rack+1, 0
		}
		for _, b := range boxes {
			if y+b.h > svgUnits*svgUnit {
				rack, y = rack+1, 0
			}
			b.rack, b.x, b.y = rack, p.rackX(rack), svgTop+y
			y += b.h
			p.boxes = append(p.boxes, b)
		}
		y += svgUnit // room between pairs
	}
	p.racks = rack + 1
	for _, b := range p.boxes {
		p.units = max(p.units, (b.y-svgTop+b.h)/svgUnit)
	}
}

// height of a rack as it is drawn: the used units, and some more.
func (p *picture) height() int { return min(max(p.units+1, 16), svgUnits) * svgUnit }

func (p *picture) rackX(rack int) int {
	return 20 + svgLeft + rack*(svgLeft+svgRack+svgRight+10)
}

// groupColour is a light colour for a group; neighbours in number are far
// apart in hue. The group's name is written as well.
func groupColour(n int) string {
	return fmt.Sprintf("hsl(%d,%d%%,%d%%)", n*137%360, 62, 72+8*(n/3%2))
}

func (p *picture) rect(x, y, w, h int, fill, stroke, more string) {
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="%s"%s/>`+"\n", x, y, w, h, fill, stroke, more)
}

func (p *picture) text(x, y int, class, s string) {
	p.printf(`<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, y, class, html.EscapeString(s))
}

// name writes a name into a width, in small letters if it is long, and without
// its middle if it is longer than that; the whole is shown under the pointer.
func (p *picture) name(x, y, width int, s string) {
	if len(s)*9 <= width { // a bold letter of 13 pixels is about 9 wide
		p.text(x, y, "name", s)
		return
	}
	p.printf(`<g><title>%s</title>`, html.EscapeString(s))
	if r, most := []rune(s), width/7; len(r) > most { // names of servers differ at their ends
		s = string(r[:most/2-1]) + "…" + string(r[len(r)-most/2:])
	}
	p.text(x, y, "long", s)
	p.printf("</g>\n")
}

// clip cuts a text that would run into what is beside it.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func (p *picture) line(colour, title string, width float64, points ...int) {
	var at []string
	for i := 0; i+1 < len(points); i += 2 {
		at = append(at, fmt.Sprintf("%d,%d", points[i], points[i+1]))
	}
	p.printf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"><title>%s</title></polyline>`+"\n", strings.Join(at, " "), colour, width, html.EscapeString(title))
}

func (p *picture) draw() {
	d := p.d
	p.text(20, 30, "title", d.Name)
	p.text(20, 50, "note", p.subtitle())
	for r := range p.racks {
		p.rect(p.rackX(r)-6, svgTop-6, svgRack+12, p.height()+12, "#f4f4f2", "#555", ` stroke-width="2" rx="3"`)
		used := 0
		for _, b := range p.boxes {
			if b.rack == r {
				used += b.h / svgUnit
			}
		}
		p.text(p.rackX(r), svgTop+p.height()+24, "note", fmt.Sprintf("rack %d: %d of %d units", r+1, used, svgUnits))
	}
	p.networks()
	for _, b := range p.boxes {
		if b.kind == "server" {
			p.server(b)
		} else {
			p.enclosure(b)
		}
	}
	p.cables()
	p.legend()
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
	name, colour string
	lane         int
	tap          func(v *spec.Server) (string, bool)
}

func (p *picture) buses() []bus {
	s := p.d.Spec
	out := []bus{{"public " + s.Networks.Public.CIDR + " " + s.Networks.Public.Speed, "#1f6fb4", 0, func(v *spec.Server) (string, bool) { return "public " + v.Public, true }}}
	if s.Networks.Private != nil {
		out = append(out, bus{"private " + s.Networks.Private.CIDR, "#2a8f4e", 1, func(v *spec.Server) (string, bool) { return "private " + v.Private, v.Private != "" }})
	}
	for i, u := range s.PDUs {
		out = append(out, bus{"PDU " + u.Name + ", feed " + u.Feed, []string{"#c0392b", "#b9770e", "#7d3c98", "#616a6b"}[i%4], 2 + i, func(v *spec.Server) (string, bool) {
			for _, o := range v.Outlets {
				if o.PDU == u.Name {
					return fmt.Sprintf("%d", o.Outlet), true
				}
			}
			return "", false
		}})
	}
	return out
}

func (p *picture) networks() {
	right := p.rackX(p.racks-1) + svgRack + svgRight
	for _, b := range p.buses() {
		y := 66 + b.lane*13
		p.line(b.colour, b.name, 3, 210, y, right, y)
		p.text(20, y+4, "small", clip(b.name, 30))
		for r := range p.racks {
			x := p.rackX(r) + svgRack + 24 + b.lane*18
			last := 0
			for _, v := range p.boxes {
				if v.rack != r || v.kind != "server" {
					continue
				}
				label, has := b.tap(v.server)
				if !has {
					continue
				}
				ty := v.y + 4 + (v.h-8)*(b.lane+1)/(len(p.buses())+1)
				p.line(b.colour, v.name+": "+b.name+" "+label, 1.6, p.rackX(r)+svgRack, ty, x, ty)
				p.printf(`<circle cx="%d" cy="%d" r="2.6" fill="%s"/>`+"\n", x, ty, b.colour)
				if strings.HasPrefix(b.name, "PDU") {
					p.text(x+4, ty+3, "tiny", label)
				}
				last = max(last, ty)
			}
			if last > 0 {
				p.line(b.colour, b.name, 2, x, y, x, last)
			}
		}
	}
}

// cableColours tell the servers' storage cables apart.
var cableColours = []string{"#34495e", "#d35400", "#16a085", "#8e44ad", "#7f8c8d", "#c2185b", "#2e86c1", "#6e2c00"}

// cables draws storage cables: two of each server, to the controllers of its array, or to
// the I/O modules of each enclosure of a JBOD; and the chain of an array's enclosures.
func (p *picture) cables() {
	d := p.d
	arrayOf := map[string]*Array{}
	for i := range d.Arrays {
		for _, e := range d.Arrays[i].Enclosures {
			arrayOf[e] = &d.Arrays[i]
		}
	}
	n := 0
	for _, v := range p.boxes {
		if v.kind != "server" {
			continue
		}
		colour, lane := cableColours[n%len(cableColours)], n%5
		n++
		inside := slices.ContainsFunc(d.Arrays, func(a Array) bool { return a.Family == "perc" && slices.Contains(a.Servers, v.name) })
		for path := range 2 { // each over an HBA of its own, to a controller or I/O module of its own
			if path == 1 && inside {
				break
			}
			at := func(rack int) int { return p.rackX(rack) - 14 - lane*13 - path*6 }
			x, from := at(v.rack), v.mid()-4+path*8
			bottom, top := from, from
			for _, e := range p.boxes {
				if e.kind != "enclosure" || !p.reaches(v.name, e.enclosure) {
					continue
				}
				a, title := arrayOf[e.name], fmt.Sprintf("%s to I/O module %d of enclosure %s", v.name, path+1, e.name)
				switch {
				case a == nil:
				case a.Enclosures[0] != e.name:
					continue
				case inside:
					title = v.name + " to enclosure " + e.name
				default:
					title = fmt.Sprintf("%s to controller %c of %s; %d paths in all", v.name, 'A'+path, a.Name, d.PathsTo(a, v.name))
				}
				y := e.y + 5 + lane*4
				if path == 1 {
					y = e.y + e.h - 5 - lane*4
				}
				ex := at(e.rack)
				if e.rack != v.rack {
					over := svgTop - 14 - lane*6 - path*3
					p.line(colour, title, 1.6, x, from, x, over, ex, over, ex, y)
				} else {
					bottom, top = max(bottom, y), min(top, y)
				}
				p.line(colour, title, 1.6, ex, y, p.rackX(e.rack), y)
				p.printf(`<circle cx="%d" cy="%d" r="2.6" fill="%s"/>`+"\n", p.rackX(e.rack), y, colour)
			}
			p.line(colour, "storage cables of "+v.name, 1.6, p.rackX(v.rack), from, x, from)
			p.line(colour, "storage cables of "+v.name, 1.6, x, top, x, bottom)
		}
	}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		var last *box
		for _, name := range a.Enclosures {
			k := slices.IndexFunc(p.boxes, func(b *box) bool { return b.kind == "enclosure" && b.name == name })
			b := p.boxes[k]
			if last != nil && last.rack == b.rack {
				x := p.rackX(b.rack) + svgRack
				p.line("#333", "SAS chain of array "+a.Name, 1.6, x, last.mid()+4, x+10, last.mid()+4, x+10, b.mid()-4, x, b.mid()-4)
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
	p.rect(b.x, b.y+1, svgRack, b.h-2, "#dfe6ee", "#2c3e50", "")
	p.name(b.x+8, b.mid()+4, 78, b.name)
	note := []string{}
	if b.note != "" {
		note = append(note, b.note)
	}
	note = append(note, p.role(b.name)...)
	p.text(b.x+90, b.mid()+4, "small", clip(strings.Join(note, ", "), 42))
	if b.server.BMC != nil {
		p.text(b.x+svgRack-120, b.mid()+4, "tiny", "BMC "+b.server.BMC.Address)
	}
}

func (p *picture) role(server string) []string {
	var out []string
	for _, s := range p.d.Services() {
		if s.NFS != nil && s.Preferred == server {
			out = append(out, "active for "+s.Name+" ("+s.Address+")")
		}
	}
	if p.d.Lustre != nil {
		var names []string
		for _, t := range p.d.Targets() {
			if t.Server == server {
				names = append(names, strings.TrimPrefix(t.Name, p.d.Lustre.FSName+"-"))
			}
		}
		if n := len(names); n > 3 {
			names = append(names[:1], "… "+names[n-1])
		}
		if len(names) > 0 {
			out = append(out, strings.Join(names, " "))
		}
	}
	if len(out) == 0 && len(p.d.Spec.Servers) > 1 {
		out = append(out, "passive")
	}
	return out
}

func (p *picture) enclosure(b *box) {
	e := b.enclosure
	p.rect(b.x, b.y+1, svgRack, b.h-2, "#fff", "#333", "")
	p.name(b.x+6, b.y+15, 74, e.Name)
	p.text(b.x+6, b.y+28, "tiny", e.Model)
	if e.Array != "" {
		for i := range p.d.Arrays {
			if a := &p.d.Arrays[i]; a.Enclosures[0] == e.Name && a.Family != "perc" {
				p.text(b.x+6, b.y+40, "tiny", clip("array "+a.Name, 15))
			}
		}
	}
	const left = 84
	width := svgRack - left - 4
	rows := 1
	switch {
	case e.Bays > 60:
		rows = 6
	case e.Bays > 24:
		rows = 4
	}
	cols := (e.Bays + rows - 1) / rows
	cw, ch := min(width/cols, 56), (b.h-6)/rows
	bays := map[int]*Disk{}
	for i := range p.d.Disks {
		if k := &p.d.Disks[i]; k.Enclosure == e.Name {
			bays[k.Bay] = k
		}
	}
	for i := range e.Bays {
		x, y := b.x+left+i%cols*cw, b.y+3+i/cols*ch
		k := bays[i+1]
		if k == nil {
			p.rect(x, y, cw-1, ch-1, "#fff", "#bbb", ` stroke-dasharray="2 2"`)
			continue
		}
		fill, text := "#e0e0e0", "sp"
		if !k.Spare {
			n := 0
			text = strings.TrimPrefix(k.Group, p.d.Name+"-")
			fmt.Sscanf(text, "r%d", &n)
			fill = groupColour(n)
		}
		p.printf(`<g><title>%s</title>`, html.EscapeString(fmt.Sprintf("enclosure %s bay %d: %s, %s %s, %s", e.Name, k.Bay, k.Serial, k.Size, k.Type, text)))
		p.rect(x, y, cw-1, ch-1, fill, "#888", "")
		if cw >= 14 {
			p.printf(`<text x="%d" y="%d" class="bay">%s</text>`, x+cw/2, y+ch/2+3, text)
		}
		p.printf("</g>\n")
	}
}

func (p *picture) legend() {
	x, y := p.rackX(p.racks-1)+svgRack+svgRight+30, svgTop
	row := func(class, s string) {
		p.text(x, y, class, s)
		y += 16
	}
	key := func(fill, short, s string) { // of disks
		p.rect(x, y-10, 26, 13, fill, "#888", "")
		p.printf(`<text x="%d" y="%d" class="bay">%s</text>`, x+13, y, short)
		p.text(x+32, y, "small", s)
		y += 16
	}
	cable := func(colour, s string) {
		p.line(colour, "", 3, x, y-4, x+26, y-4)
		p.text(x+32, y, "small", s)
		y += 16
	}
	row("name", "RAID groups")
	for i, g := range p.d.Groups {
		n, e := worstEnclosure(g)
		use := ""
		for _, l := range p.d.LUNs() {
			if slices.Contains(l.Groups, g.Name) {
				use = " → " + l.Name
			}
		}
		if p.d.Lustre != nil && use == "" {
			for _, t := range p.d.Targets() {
				if t.Group == g.Name {
					use = " → " + t.Name
				}
			}
		}
		safe := "any enclosure may die"
		if g.Array != "" {
			safe = "data survive any enclosure"
		}
		if !SurvivesEnclosure(g) {
			safe = "up to " + spec.Plural(n, "disk") + " in " + e
		}
		key(groupColour(i), strings.TrimPrefix(g.Name, p.d.Name+"-"), fmt.Sprintf("RAID %d %d+%d, %s%s", g.Level, g.Data, g.Parity, safe, use))
	}
	spares := 0
	for _, k := range p.d.Disks {
		if k.Spare {
			spares++
		}
	}
	if spares > 0 {
		key("#e0e0e0", "sp", spec.Plural(spares, "hot spare"))
	}
	y += 10
	for i, v := range p.d.Services() {
		if v.NFS == nil {
			break
		}
		if i > 0 {
			y += 6
		}
		row("name", "Volume of "+v.Name)
		row("small", fmt.Sprintf("stripe unit %s, width %d: %s", v.SU, v.SW, spec.Bytes(v.SW)*v.SU))
		row("small", "xfs on "+v.MountPoint)
	}
	if l := p.d.Lustre; l != nil {
		row("name", "Lustre "+l.FSName)
		row("small", "LNET "+l.LNET)
		row("small", "clients mount "+l.Source)
	}
	y += 10
	row("name", "Cables")
	n := 0
	for _, v := range p.boxes {
		if v.kind == "server" {
			cable(cableColours[n%len(cableColours)], "storage of "+v.name)
			n++
		}
	}
	for _, b := range p.buses() {
		cable(b.colour, b.name)
	}
	if len(p.d.Warnings) > 0 {
		y += 10
		row("name", spec.Plural(len(p.d.Warnings), "warning"))
		for _, w := range p.d.Warnings {
			row("small", fmt.Sprintf("line %d: %s", w.Line, w.Rule))
		}
	}
	p.low = y
}

//go:embed picture.tmpl
var pictureText string

var pictureTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("picture").Parse(pictureText)) })

func (p *picture) write(w io.Writer) error {
	return pictureTemplate().Execute(w, map[string]any{
		"W": p.rackX(p.racks-1) + svgRack + svgRight + 30 + svgLegend, "H": svgTop + max(p.height(), p.low-svgTop) + 44,
		"Label": html.EscapeString("racks of brick " + p.d.Name), "Body": p.b.String(),
	})
}
