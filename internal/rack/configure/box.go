package configure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// box is an array, or a RAID card with its enclosures, as its tools see it: the disks in
// their slots, and what has been configured.
type box struct {
	name       string
	model      spec.ArrayModel
	controller int               // number of a RAID card in its server
	shelves    []shelf           // in the order of the chain
	bays       []int             // of each shelf
	servers    []string          // that are cabled to the array
	ports      map[string]string // server by SAS address of an HBA port
	wwns       []string          // by number of the LUN

	system     string // the array's own name
	groups     []*group
	volumes    []*volume
	initiators map[string]string   // nickname -> SAS address
	hosts      map[string][]string // name -> SAS addresses
	hostGroups map[string][]string // name -> hosts
	out        strings.Builder
}

// shelf is an enclosure: its disks by slot, nil where none is.
type shelf []*disk

type disk struct {
	serial string
	size   spec.Bytes
	use    string // what the disk is in, in words; empty: nothing
	spare  bool
}

type group struct {
	name       string
	level      int
	chunk      spec.Bytes
	disks      []*disk
	span       int // disks of a span of RAID 60
	controller int
	size, used spec.Bytes
}

type volume struct {
	name       string
	group      *group
	size       spec.Bytes
	controller int
	number     int      // of the LUN; -1: mapped to no host
	servers    []string // that see it
	unmirrored bool     // its write cache
	cache      string   // policy of a RAID card, as perccli shows it
}

// place is a disk's place: the number of its enclosure in the chain, and of its slot,
// both from 0.
type place struct{ shelf, slot int }

// Array executes the scripts of an array of a spec, in order, on an array that has nothing
// on it. It returns what the array then has, and what the tool printed for the last script.
// With an error, which has the array's words, the array has nothing of the last script.
func Array(ctx context.Context, s *spec.Spec, cabled hw.Storage, scripts ...string) (hw.Storage, string, error) {
	b, err := newBox(s, cabled)
	if err != nil {
		return cabled, "", err
	}
	run := map[string]func(context.Context, string) error{"md3": b.smcli, "eseries": b.smcli, "me4": b.me4, "me5": b.me4, "perc": b.shell}[b.model.Family]
	if run == nil {
		return cabled, "", fmt.Errorf("array %s: the rack knows no array of family %q", b.name, b.model.Family)
	}
	for _, text := range scripts {
		b.out.Reset()
		if err := run(ctx, text); err != nil {
			return cabled, b.out.String(), fmt.Errorf("array %s (%s) refuses its script: %w", b.name, b.model.Name, err)
		}
	}
	now := b.storage(cabled)
	now.Scripts = scripts
	return now, b.out.String(), nil
}

func newBox(s *spec.Spec, cabled hw.Storage) (*box, error) {
	i := slices.IndexFunc(s.Arrays, func(a spec.Array) bool { return a.Name == cabled.Name })
	if i < 0 {
		return nil, fmt.Errorf("the brick has no array %q", cabled.Name)
	}
	a := &s.Arrays[i]
	b := &box{name: a.Name, controller: a.Controller, servers: cabled.Servers, wwns: a.WWNs, ports: map[string]string{},
		initiators: map[string]string{}, hosts: map[string][]string{}, hostGroups: map[string][]string{}}
	b.model, _ = spec.ModelOf(a.Model)
	for i := range s.Servers {
		for _, p := range s.Servers[i].SASPorts {
			b.ports[p] = s.Servers[i].Name
		}
	}
	for _, e := range s.Enclosures {
		if e.Array != a.Name {
			continue
		}
		var one shelf
		for _, l := range e.Disks {
			serials, err := l.Serials()
			if err != nil {
				return nil, err
			}
			for _, serial := range serials {
				one = append(one, &disk{serial: serial, size: l.Size})
			}
		}
		b.shelves, b.bays = append(b.shelves, one), append(b.bays, e.Bays)
	}
	return b, nil
}

func (b *box) print(format string, args ...any) { fmt.Fprintf(&b.out, format+"\n", args...) }

// take finds disks that are in nothing yet, each once.
func (b *box) take(places []place) ([]*disk, error) {
	var out []*disk
	for _, p := range places {
		if p.shelf < 0 || p.shelf >= len(b.shelves) || p.slot < 0 || p.slot >= len(b.shelves[p.shelf]) {
			return nil, fmt.Errorf("there is no disk in slot %d of enclosure %d", p.slot, p.shelf)
		}
		d := b.shelves[p.shelf][p.slot]
		switch {
		case d.use != "":
			return nil, fmt.Errorf("the disk in slot %d of enclosure %d is in use: %s", p.slot, p.shelf, d.use)
		case slices.Contains(out, d):
			return nil, fmt.Errorf("the disk in slot %d of enclosure %d is listed twice", p.slot, p.shelf)
		}
		out = append(out, d)
	}
	return out, nil
}

// addGroup makes a group of disks that take has found. least and most are the numbers of
// disks that the level allows.
func (b *box) addGroup(g group) (*group, error) {
	least, most := 4, b.model.Widest
	me := b.model.Tools[0] == "me4" || b.model.Tools[0] == "me5"
	if g.level == 10 && !me {
		most = 0 // as many as there are
	}
	if b.rounds() && g.level == 6 {
		least = 5
	}
	n := len(g.disks)
	switch {
	case b.groupNamed(g.name) != nil:
		return nil, fmt.Errorf("the name %q is in use", g.name)
	case !slices.Contains(b.model.Levels, g.level):
		return nil, fmt.Errorf("RAID level %d is none that %s has in the rack", g.level, spec.Article(b.model.Name))
	case g.chunk != 0 && !slices.Contains(b.model.Chunks, g.chunk):
		return nil, fmt.Errorf("%s is no chunk (segment, strip) size of %s", g.chunk, spec.Article(b.model.Name))
	case g.level == 10 && n%2 != 0:
		return nil, fmt.Errorf("RAID 10 needs an even number of disks, not %d", n)
	case g.level != 60 && (n < least || most > 0 && n > most):
		return nil, fmt.Errorf("RAID %d of %d disks: it has %d to %d", g.level, n, least, most)
	}
	data := n - 2
	switch g.level {
	case 10:
		data = n / 2
	case 60:
		data = n - 2*(n/g.span)
	}
	smallest := g.disks[0].size
	for _, d := range g.disks {
		smallest = min(smallest, d.size)
		d.use = "group " + g.name
	}
	g.size = spec.Bytes(data) * b.model.OfDisk(smallest)
	b.groups = append(b.groups, &g)
	return &g, nil
}

// rounds reports whether the array makes its volumes of whole stripes.
func (b *box) rounds() bool { return b.model.Family == "md3" || b.model.Family == "eseries" }

// stripe is the data of a full stripe of a group, or of one of its spans.
func (g *group) stripe() spec.Bytes {
	n := len(g.disks)
	switch g.level {
	case 10:
		n /= 2
	case 60:
		n = g.span - 2
	default:
		n -= 2
	}
	return spec.Bytes(n) * g.chunk
}

// addVolume makes a volume on a group; size 0: of all that the group has left.
func (b *box) addVolume(g *group, name string, size spec.Bytes, controller int) error {
	left := g.size - g.used
	if !slices.Contains(b.model.Chunks, g.chunk) {
		return fmt.Errorf("%s is no chunk (segment) size of %s", g.chunk, spec.Article(b.model.Name))
	}
	if b.rounds() {
		left = left / g.stripe() * g.stripe()
	}
	if size == 0 {
		size = left
	}
	switch {
	case b.volume(name) != nil:
		return fmt.Errorf("the name %q is in use", name)
	case size > left || size <= 0:
		return fmt.Errorf("volume %s of %s (%d bytes) does not fit: group %s has %s (%d bytes) left", name, size.Binary(), size, g.name, left.Binary(), left)
	}
	g.used += size
	b.volumes = append(b.volumes, &volume{name: name, group: g, size: size, controller: controller, number: -1})
	return nil
}

func (b *box) volume(name string) *volume {
	v, _ := lists.First(b.volumes, func(v *volume) bool { return v.name == name })
	return v
}

func (b *box) groupNamed(name string) *group {
	g, _ := lists.First(b.groups, func(g *group) bool { return g.name == name })
	return g
}

func (b *box) addSpares(places []place) error {
	disks, err := b.take(places)
	for _, d := range disks {
		d.use, d.spare = "a spare", true
	}
	return err
}

// addHost makes a host of SAS addresses, none of which another host has.
func (b *box) addHost(name string, ports []string) error {
	if b.hosts[name] != nil || b.hostGroups[name] != nil {
		return fmt.Errorf("the name %q is in use", name)
	}
	b.hosts[name] = []string{}
	for _, p := range ports {
		if err := b.addPort(name, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) addPort(host, port string) error {
	for other, have := range b.hosts {
		if slices.Contains(have, port) {
			return fmt.Errorf("the port %s is one of host %s", port, other)
		}
	}
	b.hosts[host] = append(b.hosts[host], port)
	return nil
}

func (b *box) export(v *volume, number int, hosts []string) error {
	var servers []string
	for _, s := range b.servers { // in one order
		for _, h := range hosts {
			if slices.ContainsFunc(b.hosts[h], func(p string) bool { return b.ports[p] == s }) && !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
	}
	for _, o := range b.volumes {
		if o != v && o.number == number && slices.ContainsFunc(o.servers, func(s string) bool { return slices.Contains(servers, s) }) {
			return fmt.Errorf("LUN %d of these hosts is volume %s", number, o.name)
		}
	}
	if v.number >= 0 && v.number != number {
		return errors.New("in the rack a volume has one LUN number")
	}
	v.number = number
	for _, s := range servers {
		if !slices.Contains(v.servers, s) {
			v.servers = append(v.servers, s)
		}
	}
	return nil
}

func (b *box) storage(cabled hw.Storage) hw.Storage {
	out := hw.Storage{Name: cabled.Name, Family: b.model.Family, Servers: cabled.Servers, Paths: cabled.Paths}
	for _, s := range b.shelves {
		for _, d := range s {
			if d.spare {
				out.Spares = append(out.Spares, d.serial)
			}
		}
	}
	for _, g := range b.groups {
		k := hw.StorageGroup{Name: g.name, Level: g.level, Chunk: int64(g.chunk), Bytes: int64(g.size)}
		for _, d := range g.disks {
			k.Serials = append(k.Serials, d.serial)
		}
		out.Groups = append(out.Groups, k)
	}
	if b.model.Family == "perc" {
		out.Card = b.card()
	}
	used := map[*group]spec.Bytes{}
	for _, v := range b.volumes {
		l := hw.StorageLUN{Name: v.name, Group: v.group.name, Number: v.number, Controller: v.controller, Bytes: int64(v.size),
			Offset: int64(used[v.group]), Chunk: int64(v.group.chunk), FullStripe: int64(v.group.stripe()), Unmirrored: v.unmirrored, Servers: v.servers}
		used[v.group] += v.size
		if v.number >= 0 && v.number < len(b.wwns) {
			l.WWN = b.wwns[v.number]
		}
		if len(v.servers) == len(b.servers) {
			l.Servers = nil
		}
		if len(v.servers) > 0 {
			out.LUNs = append(out.LUNs, l)
		}
	}
	return out
}
