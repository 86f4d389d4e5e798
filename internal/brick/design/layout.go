package design

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
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
	var out []string
	for _, a := range s.ArraysOf(set.Name) {
		out = append(out, a.Name)
	}
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
			if l.Size >= spec.MiB {
				continue
			}
			k := d.groupNamed(l.Groups[0]).Members[0]
			i := slices.IndexFunc(d.Spec.Enclosures, func(e spec.Enclosure) bool { return e.Name == k.Enclosure })
			return errorAt(d.Spec, fmt.Sprintf("enclosures[%d].disks[0].size", i), "use larger disks",
				"disks of %s leave nothing for %s after what the %s %s keeps for itself", k.Size, l.Name, a.Model, a.Name)
		}
	}
	return nil
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
	for _, g := range d.GroupsOf(set.Name) {
		failed, spares := failedOf(g.Members), 0
		for _, x := range d.GroupsOf(set.Name) {
			if x.Name == g.Name || d.Flavour == spec.NFSHA || d.Flavour == spec.NFSHAXL { // whose groups share them
				spares += len(x.Spares) - len(failedOf(x.Spares))
			}
		}
		if all := append(failed, failedOf(g.Spares)...); g.Array != "" && len(all) > 0 {
			return errorAt(d.Spec, "failed", "remove it: the array replaces its disks by itself; swap the disk in its bay", "disk %s is inside of array %s", all[0].Serial, g.Array)
		}
		if len(failed) > g.Parity+spares {
			return errorAt(d.Spec, "failed", "replace disks (mortar disk replace) before you take out another one", "%d members of group %s are marked as failed, and RAID %d %d+%d with %s can do without %d", len(failed), g.Name, g.Level, g.Data, g.Parity, plural(spares, "spare"), g.Parity+spares)
		}
	}
	return nil
}

// failedOf are the disks that are marked as failed.
func failedOf(ks []Disk) []Disk {
	return slices.DeleteFunc(slices.Clone(ks), func(k Disk) bool { return !k.Failed })
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
		for _, i := range alternate(enclosures, dealt[g]) {
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
	s := d.Spec
	add := func(at, rule, format string, args ...any) {
		line, col := s.Pos(at)
		d.Warnings = append(d.Warnings, Warning{Rule: rule, Text: fmt.Sprintf(format, args...), Line: line, Col: col})
	}
	var clear []string // PDUs, and where the first of them is
	at := ""
	for i, p := range s.PDUs {
		if p.SNMP == nil {
			clear = append(clear, p.Name)
			at = cmp.Or(at, fmt.Sprintf("pdus[%d].community_file", i))
		}
	}
	if at != "" {
		add(at, "snmp", "SNMPv1 sends the community of %s in clear text: whoever listens on the management network can switch servers off. A user of SNMPv3 (snmp:) mends that", strings.Join(clear, " and "))
	}
	if s.HA != nil && s.HA.Reservations == "off" && d.Reservable() {
		add("ha.reservations", "reservations", "reservations is off: a server that was taken for dead, and is not, can write to LUNs that its partner serves by then, which destroys acknowledged data. Remove it, unless this is a demonstration")
	}
	for _, sv := range s.Sets() {
		worst, where, groups := 0, "", 0
		for _, g := range d.GroupsOf(sv.Name) {
			n, e := worstEnclosure(g)
			if n > worst {
				worst, where = n, e
			}
			if !SurvivesEnclosure(g) {
				groups++
			}
		}
		if groups > 0 {
			at := "enclosures"
			for i, e := range s.Enclosures {
				if e.Name == where {
					at = fmt.Sprintf("enclosures[%d]", i)
				}
			}
			raid := sv.Storage.RAID
			add(at, "enclosure-spread", "%s of "+d.setWord()+" %s "+map[bool]string{true: "does", false: "do"}[groups == 1]+" not survive the loss of an enclosure: up to %d disks of one group are in enclosure %s, and RAID %d %d+%d can lose %s; these disks and enclosures allow no better spread",
				plural(groups, "group"), sv.Name, worst, where, raid.Level, raid.Data, raid.Parity, lossText(d.GroupsOf(sv.Name)[0]))
		}
	}
	said := map[string]bool{}
	for _, set := range s.Sets() {
		if said[set.Path] {
			continue
		}
		said[set.Path] = true
		of := ""
		if d.Lustre != nil {
			of = " in module " + set.Name
		}
		if !set.Storage.Mirrored() {
			add(set.Path+".write_cache_mirroring", "unmirrored", "write_cache_mirroring is off%s: what a controller of the array has acknowledged and not yet written is lost when it dies. Write on, unless this is scratch data that can be made again", of)
		}
		if set.Storage.RAID.Spares == 0 {
			add(set.Path+".raid", "no-spare", "there is no hot spare%s: a rebuild begins only when somebody has replaced the failed disk", of)
		} else if sp := set.Storage.RAID.Spares; sp < set.Storage.RAID.Groups && set.Storage.Kind == "jbod" && !d.sharesSpares(set) {
			add(set.Path+".raid.spares", "spares", "%s for %d groups%s: nothing moves a spare to another group %s", plural(sp, "spare"), set.Storage.RAID.Groups, of,
				map[bool]string{true: "on a single server", false: "that is another target's"}[d.Lustre == nil])
		}
	}
	d.warnHardware(add)
	for i, sv := range s.Services {
		for j, e := range sv.Exports {
			at := fmt.Sprintf("services[%d].exports[%d]", i, j)
			for _, o := range e.Options {
				if o == "async" {
					add(at+".options", "async", "async: what the server acknowledged is lost if it crashes before writing it")
				}
			}
			if strings.ContainsAny(e.Clients, "*?") || strings.HasSuffix(e.Clients, "/0") {
				add(at+".clients", "world", "%s is exported to %s: any machine that reaches the server", e.Path, e.Clients)
			}
			switch linux.ClientsOf(e.Clients) {
			case linux.ToHost:
				add(at+".clients", "export-name", "%s is exported to the host name %s: while it does not resolve on the server that starts the service, as after a power cut that DNS does not survive, that host is not served. Its address needs no name service", e.Path, e.Clients)
			case linux.ToMatch:
				add(at+".clients", "export-name", "%s is exported to %s: rpc.mountd asks a name service for each client that mounts, also for those of other exports, and while none answers, mounts wait. A network needs no name service", e.Path, e.Clients)
			}
		}
	}
	for i, o := range s.Filesystem.Mount {
		if strings.HasPrefix(o, "allocsize=") {
			add(fmt.Sprintf("filesystem.mount[%d]", i), "allocsize", "a fixed allocsize switches XFS's dynamic preallocation off; leave it out unless all files are large")
		}
	}
}

// sharesSpares tells whether the watcher of a cluster moves the spares of a set to the
// group that needs one: all its groups are of one service each.
func (d builder) sharesSpares(set spec.Set) bool {
	groups := d.GroupsOf(set.Name)
	return d.Flavour != spec.NFS && (d.Lustre == nil || len(groups) == 0 || len(d.Peers(&groups[0])) == len(groups)-1)
}

// setWord is what a set of disks is called in this flavour.
func (d builder) setWord() string {
	if d.Flavour == spec.Lustre {
		return "module"
	}
	return "service"
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

func lossText(g Group) string {
	if g.Level == 10 {
		return "one disk of each mirror"
	}
	return plural(g.Parity, "disk")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
