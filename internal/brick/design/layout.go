package design

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// layOut gives every disk its place: spares and groups, spread over the
// enclosures so that each holds as few disks of a group as the hardware
// allows.
//
// Spares come from the fullest enclosures, last bays first, so that what
// remains is as even as it can be. The rest is dealt to the groups like cards,
// enclosure by enclosure: from n disks of an enclosure each of G groups gets
// floor(n/G) or ceil(n/G), and no way of dealing does better.
func (d builder) layOut() error {
	s := d.Spec
	for _, e := range s.Enclosures {
		bay := 0
		for _, l := range e.Disks {
			serials, err := l.Serials()
			if err != nil {
				return err // Parse has checked it
			}
			for _, serial := range serials {
				bay++
				d.Disks = append(d.Disks, Disk{Serial: serial, WWN: l.WWN, Enclosure: e.Name, Bay: bay, Size: l.Size, Type: l.Type, Service: e.Service, Module: e.Module, Array: e.Array, Failed: isFailed(s, serial), Growth: l.Growth, Sector: l.Sector})
			}
		}
	}
	for _, set := range s.Sets() {
		r := set.Storage.RAID
		groups, spares := r.Groups/set.Share, r.Spares/set.Share
		arrays := arraysOf(s, set)
		for _, a := range arrays {
			d.layOutSet(set, a, 0, groups/len(arrays), spares/len(arrays))
		}
	}
	d.layOutGrowths()
	for _, set := range s.Sets() {
		if err := d.perEnclosure(set); err != nil {
			return err
		}
		if err := d.failedDisks(set); err != nil {
			return err
		}
	}
	d.arrays()
	return d.leftOfLUNs()
}

// isFailed tells whether the spec has a disk out of service.
func isFailed(s *spec.Spec, serial string) bool { return slices.Contains(s.Failed, serial) }

// arraysOf lists the arrays of a set; those of a JBOD are one without a name.
func arraysOf(s *spec.Spec, set spec.Set) []string {
	out := lists.Map(s.ArraysOf(set.Name), func(a *spec.Array) string { return a.Name })
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// layOutGrowths makes groups of the disks by which the brick has grown: behind all
// others, so that nothing that exists gets another place or name.
func (d builder) layOutGrowths() {
	last := 0
	for _, k := range d.Disks {
		last = max(last, k.Growth)
	}
	for growth := 1; growth <= last; growth++ {
		for _, set := range d.Spec.Sets() {
			for _, array := range arraysOf(d.Spec, set) {
				disks := 0
				for _, k := range d.Disks {
					if k.set() == set.Name && k.Array == array && k.Growth == growth {
						disks++
					}
				}
				if groups := disks / set.Storage.RAID.Width(); groups > 0 {
					d.layOutSet(set, array, growth, groups, disks-groups*set.Storage.RAID.Width())
				}
			}
		}
	}
}

// leftOfLUNs refuses disks of which an array leaves nothing for data.
func (d builder) leftOfLUNs() error {
	for _, a := range d.Arrays {
		for _, l := range a.LUNs {
			if l.Size < spec.MiB {
				return d.tooSmall(l.Groups[0], "nothing for %s after what the %s %s keeps for itself", l.Name, a.Model, a.Name)
			}
		}
	}
	return nil
}

const (
	// leastXFS holds a file system with the smallest log, 64 MiB: mkfs.xfs makes eight allocation
	// groups of so small a volume, and the log must fit into one. Tried with xfsprogs 6.1, with
	// stripes of 2 to 192 disks.
	leastXFS = 8*64*spec.MiB + extentSize
	// leastTarget holds an MDT or OST: its journal is a twenty-fifth, and mke2fs makes none of
	// less than 1,024 blocks. Tried with e2fsprogs 1.47.
	leastTarget = 25 * 1024 * block
)

// room refuses disks whose volumes are too small for a file system.
func (d builder) room() error {
	for _, v := range d.Services() {
		if size := max(0, d.lvSize(v.Name, 0)); d.Lustre == nil && size < leastXFS {
			return d.tooSmall(v.Storage.Groups[0], "%s for the volume of %s, which needs %s", size, v.Name, leastXFS)
		}
		for _, t := range v.Targets {
			if size := max(0, t.Size); t.Kind != "mgs" && size < leastTarget {
				return d.tooSmall(t.Group, "%s for %s, which needs %s", size, t.Name, leastTarget)
			}
		}
	}
	return nil
}

// tooSmall is the error of disks that leave too little, at the size of the first one.
func (d builder) tooSmall(group, left string, args ...any) error {
	k, mend := d.groupNamed(group).Members[0], "use larger disks"
	if d.Spec.Scaled() {
		mend = "make the rack with a larger --scale"
	}
	i := slices.IndexFunc(d.Spec.Enclosures, func(e spec.Enclosure) bool { return e.Name == k.Enclosure })
	return errorAt(d.Spec, fmt.Sprintf("enclosures[%d].disks[0].size", i), mend, "disks of %s leave %s", k.Size, fmt.Sprintf(left, args...))
}

// perEnclosure refuses a layout that the spec has ruled out.
func (d builder) perEnclosure(set spec.Set) error {
	most := set.Storage.RAID.PerEnclosure
	for _, g := range d.GroupsOf(set.Name) {
		if n, e := worstEnclosure(g); most > 0 && n > most {
			return errorAt(d.Spec, set.Path+".raid.per_enclosure", fmt.Sprintf("spread the disks over more enclosures, choose narrower groups, or allow %d", n),
				"a group of %d disks over these enclosures has %d in enclosure %s, more than the %d allowed", len(g.Members), n, e, most)
		}
	}
	return nil
}

// failedDisks refuses a group that lacks more disks than it can lose, and failed
// disks of an array, which looks after them itself.
func (d builder) failedDisks(set spec.Set) error {
	groups := d.GroupsOf(set.Name)
	whole := func(g Group) int { return len(g.Spares) - len(failedOf(g.Spares)) }
	shared := 0
	for _, g := range groups {
		shared += whole(g)
	}
	for _, g := range groups {
		failed, spares := failedOf(g.Members), whole(g)
		if d.Flavour == spec.NFSHA || d.Flavour == spec.NFSHAXL { // whose groups share them
			spares = shared
		}
		if all := append(failed, failedOf(g.Spares)...); g.Array != "" && len(all) > 0 {
			return errorAt(d.Spec, "failed", "remove it: the array replaces its disks by itself; swap the disk in its bay", "disk %s is inside of array %s", all[0].Serial, g.Array)
		}
		if len(failed) > g.Parity+spares {
			return errorAt(d.Spec, "failed", "replace disks (mortar disk replace) before you take out another one", "%d members of group %s are marked as failed, and RAID %d %d+%d with %s can do without %d", len(failed), g.Name, g.Level, g.Data, g.Parity, spec.Plural(spares, "spare"), g.Parity+spares)
		}
	}
	return nil
}

func failedOf(ks []Disk) []Disk {
	return lists.Only(ks, func(k Disk) bool { return k.Failed })
}

// set is the service or module a disk is for.
func (k *Disk) set() string {
	if k.Module != "" {
		return k.Module
	}
	return k.Service
}

// layOutSet makes the groups of one set, on one array if it is on any, of the disks
// of one growth.
func (d builder) layOutSet(set spec.Set, array string, growth, groups, spares int) {
	s := d.Spec
	r := set.Storage.RAID
	var enclosures []string
	free := map[string][]int{} // enclosure -> indices into d.Disks, in bay order
	for i, k := range d.Disks {
		if k.set() != set.Name || k.Array != array || k.Growth != growth {
			continue
		}
		if free[k.Enclosure] == nil {
			enclosures = append(enclosures, k.Enclosure)
		}
		free[k.Enclosure] = append(free[k.Enclosure], i)
	}
	var spare []int
	for range spares {
		fullest := enclosures[0]
		for _, e := range enclosures {
			if len(free[e]) > len(free[fullest]) {
				fullest = e
			}
		}
		list := free[fullest]
		spare = append(spare, list[len(list)-1])
		free[fullest] = list[:len(list)-1]
	}
	dealt := make([]map[string][]int, groups) // group -> enclosure -> disks
	for g := range dealt {
		dealt[g] = map[string][]int{}
	}
	n := 0
	for _, e := range enclosures {
		for _, i := range free[e] {
			g := n % groups
			dealt[g][e] = append(dealt[g][e], i)
			n++
		}
	}
	level := r.Level
	if level == 60 {
		level = 6
	}
	base := len(d.Groups)
	for g := range groups {
		name := fmt.Sprintf("%s-r%d", s.Name, base+g)
		group := Group{
			Name: name, Service: set.Name,
			Level: level, Data: r.Data, Parity: r.Parity, Chunk: r.Chunk, Array: array, Growth: growth,
		}
		if s.Flavour == spec.Lustre {
			group.Service, group.Module = "", set.Name
		}
		if array == "" {
			group.UUID = mdUUID(stableUUID(s, "md", name))
		}
		for _, i := range alternate(lists.Only(enclosures, func(e string) bool { return dealt[g][e] != nil }), dealt[g]) {
			d.Disks[i].Group = name
			group.Members = append(group.Members, d.Disks[i])
		}
		group.Usable = spec.Bytes(r.Data) * group.Members[0].Size
		d.Groups = append(d.Groups, group)
	}
	for k, i := range spare {
		g := &d.Groups[base+k%groups]
		d.Disks[i].Spare = true
		if array != "" {
			continue // any group's: an array takes them where they are needed
		}
		g.Spares = append(g.Spares, d.Disks[i])
	}
}

// alternate orders a group's disks so that neighbours come from different
// enclosures as far as possible: the two halves of a RAID 10 mirror are
// neighbours, and sequential load is spread over the enclosures' links.
func alternate(enclosures []string, by map[string][]int) []int {
	left := map[string][]int{}
	total := 0
	for e, l := range by {
		left[e] = l
		total += len(l)
	}
	var out []int
	last := ""
	for len(out) < total {
		// The enclosure with most left that is not the last one; first of equals.
		next := ""
		for _, e := range enclosures {
			if len(left[e]) > 0 && e != last && (next == "" || len(left[e]) > len(left[next])) {
				next = e
			}
		}
		if next == "" {
			next = last
		}
		out = append(out, left[next][0])
		left[next] = left[next][1:]
		last = next
	}
	return out
}

// warn notes where the hardware makes a rule impossible to keep, or a choice
// of the spec costs safety.
func (d builder) warn() {
	add := func(list string) {
		for _, f := range d.rows(list) {
			line, col := d.Spec.Pos(f[0])
			d.Warnings = append(d.Warnings, Warning{Rule: f[1], Text: f[2], Line: line, Col: col})
		}
	}
	add("warnings of storage")
	if no := (spec.Errors)(nil); errors.As(Buildable(d.Design), &no) {
		d.Warnings = append(d.Warnings, Warning{Rule: "buildable", Text: no[0].Msg, Line: no[0].Line, Col: no[0].Col})
	}
	for _, t := range d.Translations {
		text := t.Old + " no longer exists and is left out: " + t.Why
		if t.New != "" {
			text = t.Old + " no longer exists; used instead: " + t.New
		}
		if t.Line > 0 { // what the spec itself has
			d.Warnings = append(d.Warnings, Warning{Rule: "obsolete", Text: text, Line: t.Line, Col: t.Col})
		}
	}
	add("warnings of servers")
}

// ClearPDUs are those that are commanded by SNMPv1, and where the first of them is.
func (t tuning) ClearPDUs() (out struct {
	At    string
	Names []string
}) {
	for i, p := range t.Spec.PDUs {
		if p.SNMP == nil {
			out.At = cmp.Or(out.At, fmt.Sprintf("pdus[%d].community_file", i))
			out.Names = append(out.Names, p.Name)
		}
	}
	return out
}

// fragileSet is a set with groups that do not survive the loss of an enclosure.
type fragileSet struct {
	spec.Set
	At, Where, Loss string
	Groups, Worst   int // how many groups; most disks of one in one enclosure
}

func (t tuning) Weak() []fragileSet {
	var out []fragileSet
	for _, set := range t.Spec.Sets() {
		w := fragileSet{Set: set, At: "enclosures"}
		for _, g := range t.GroupsOf(set.Name) {
			if n, e := worstEnclosure(g); n > w.Worst {
				w.Worst, w.Where = n, e
			}
			if !SurvivesEnclosure(g) {
				w.Groups++
			}
		}
		if w.Groups == 0 {
			continue
		}
		if i := slices.IndexFunc(t.Spec.Enclosures, func(e spec.Enclosure) bool { return e.Name == w.Where }); i >= 0 {
			w.At = fmt.Sprintf("enclosures[%d]", i)
		}
		w.Loss = spec.Plural(set.Storage.RAID.Parity, "disk")
		if set.Storage.RAID.Level == 10 {
			w.Loss = "one disk of each mirror"
		}
		out = append(out, w)
	}
	return out
}

// Sections are the sets of disks, one for each storage section.
func (t tuning) Sections() []spec.Set {
	all := t.Spec.Sets()
	return slices.CompactFunc(all, func(a, b spec.Set) bool { return a.Path == b.Path })
}

// TooFewSpares: nothing moves one of a set's spares to another group.
func (t tuning) TooFewSpares(set spec.Set) bool {
	r := set.Storage.RAID
	return r.Spares > 0 && r.Spares < r.Groups && set.Storage.Kind == "jbod" && !t.sharesSpares(set)
}

// misplaced is a card that is slower than those whose load it shares.
type misplaced struct {
	spec.Card
	At     string
	Widest int // lanes of a storage card
}

func (t tuning) Misplaced(server int) []misplaced {
	var out []misplaced
	cards := t.Spec.Servers[server].PCI
	widest := 0
	for _, k := range cards {
		if k.Kind == "sas-hba" || k.Kind == "raid" {
			widest = max(widest, k.Lanes)
		}
	}
	for i, k := range cards {
		if (k.Kind == "hca" || k.Kind == "nic") && k.Lanes < widest {
			out = append(out, misplaced{k, fmt.Sprintf("servers[%d].pci[%d]", server, i), widest})
		}
	}
	return out
}

// OneNode: all cards of a server with storage cards and several processors belong to one.
func (t tuning) OneNode(v spec.Server) bool {
	storage := slices.ContainsFunc(v.PCI, func(k spec.Card) bool { return k.Kind == "sas-hba" || k.Kind == "raid" })
	return storage && len(v.PCI) >= 2 && v.CPU != nil && v.CPU.Sockets >= 2 &&
		!slices.ContainsFunc(v.PCI, func(k spec.Card) bool { return k.Node != v.PCI[0].Node })
}

// Resolves says which names of an export's clients a server has to resolve: that of a host,
// those that match, or none.
func (t tuning) Resolves(e spec.Export) string {
	switch linux.ClientsOf(e.Clients) {
	case linux.ToHost:
		return "host"
	case linux.ToMatch:
		return "match"
	}
	return ""
}

// World says whether any machine may mount an export.
func (t tuning) World(e spec.Export) bool {
	return strings.ContainsAny(e.Clients, "*?") || strings.HasSuffix(e.Clients, "/0")
}

// sharesSpares tells whether the watcher of a cluster moves the spares of a set to the
// group that needs one: all its groups are of one service each.
func (d tuning) sharesSpares(set spec.Set) bool {
	groups := d.GroupsOf(set.Name)
	return d.Flavour != spec.NFS && (d.Lustre == nil || len(groups) == 0 || len(d.Peers(&groups[0])) == len(groups)-1)
}

// worstEnclosure is the enclosure with most members of a group.
func worstEnclosure(g Group) (n int, name string) {
	count := map[string]int{}
	for _, m := range g.Members {
		count[m.Enclosure]++
		if count[m.Enclosure] > n {
			n, name = count[m.Enclosure], m.Enclosure
		}
	}
	return n, name
}

// SurvivesEnclosure says whether a group lives on without any one enclosure.
func SurvivesEnclosure(g Group) bool {
	if g.Level == 10 { // a mirror pair must not be in one enclosure
		for i := 0; i+1 < len(g.Members); i += 2 {
			if g.Members[i].Enclosure == g.Members[i+1].Enclosure {
				return false
			}
		}
		return true
	}
	n, _ := worstEnclosure(g)
	return n <= g.Parity
}
