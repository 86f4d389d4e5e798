package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Widest md RAID: 1.2 superblocks count at most 1920 members, but a group of
// more than this many rebuilds for days and is never what is wanted.
const maxGroup = 32

// Width is the number of disks in a group.
func (r RAID) Width() int { return r.Data + r.Parity }

// layout checks enclosures, disks, geometry, the cache and the lists of serial numbers.
type layout struct {
	*checker
	sound     bool // groups can be counted
	allKnown  bool // every serial could be read
	bySerial  map[string]string
	byWWN     map[string]string
	all       []string            // serials
	first     map[diskLot]place   // the first disks of each lot
	blocks    map[string]place    // of a set, those that tell their sector
	grown     map[[2]string][]int // disks of each growth, from 1, by set and array
	count     map[string]int      // by set, without growths
	perArray  map[[2]string]int   // by set and array
	enclosure map[string]string   // name -> path
}

// diskLot is disks that make groups together.
type diskLot struct {
	set    string
	growth int
}

type place struct {
	at string
	*DiskList
}

func (c *checker) disks() {
	l := &layout{checker: c, allKnown: true, bySerial: map[string]string{}, byWWN: map[string]string{}, first: map[diskLot]place{}, blocks: map[string]place{},
		grown: map[[2]string][]int{}, count: map[string]int{}, perArray: map[[2]string]int{}, enclosure: map[string]string{}}
	l.sound = l.geometries()
	if len(c.s.Enclosures) == 0 {
		c.errorf("enclosures", "list the enclosures with their disks", "the brick has no enclosure")
		return
	}
	l.sound = l.sound && c.servicesOK && l.arrays()
	for i := range c.s.Enclosures {
		l.shelfOf(&c.s.Enclosures[i], fmt.Sprintf("enclosures[%d]", i))
	}
	l.serials("wipe", c.s.Wipe)
	l.serials("failed", c.s.Failed)
	l.cache()
	if l.sound {
		l.groups()
		l.growth()
	}
}

// shelfOf checks an enclosure and its disks.
func (c *layout) shelfOf(e *Enclosure, at string) {
	if !re().word.MatchString(e.Name) {
		c.errorf(at+".name", "use letters, digits and dashes", "%q cannot name an enclosure", e.Name)
	} else if other, dup := c.enclosure[e.Name]; dup {
		c.errorf(at+".name", "give each enclosure its own name", "enclosure %q is already there at %s", e.Name, c.at(other))
	}
	c.enclosure[e.Name] = at + ".name"
	set := c.enclosureSet(e, at)
	c.sound = c.sound && set != "" && c.enclosureArray(e, at)
	n, later := 0, 0
	for j := range e.Disks {
		l := &e.Disks[j]
		disks := c.entry(place{fmt.Sprintf("%s.disks[%d]", at, j), l}, set, e.Array)
		n += disks
		if l.Growth > 0 {
			later += disks
		}
	}
	c.refuse(n == 0 && len(e.Disks) == 0, at+".disks", "list its disks, e.g. disks: [{serial: 'MA[01-12]', size: 4TB}]", "enclosure %s has no disks", e.Name)
	if e.Bays == 0 && !c.s.Given(at+".bays") {
		e.Bays = max(n, 1)
	}
	c.refuse(c.between(at+".bays", e.Bays, 1, 1024, "") && n > e.Bays, at+".bays", "mend bays or disks", "enclosure %s has %s but %d disks", e.Name, Plural(e.Bays, "bay"), n)
	c.count[set] += n - later
	c.perArray[[2]string{set, e.Array}] += n - later
}

// entry checks an entry of disks of a set, and counts them.
func (c *layout) entry(l place, set, array string) int {
	sound := c.disk(l.DiskList, l.at, c.byWWN)
	list, err := l.Serials()
	if err != nil {
		c.split(l.at+".serial", "", err)
		c.sound, c.allKnown = false, false // nor is the number of disks known
		return 0
	}
	c.listed(l, list)
	if l.Growth > 0 {
		on := [2]string{set, array}
		for len(c.grown[on]) < l.Growth {
			c.grown[on] = append(c.grown[on], 0)
		}
		c.grown[on][l.Growth-1] += len(list)
	}
	// Growths too are in one volume group, for which LVM wants one size.
	// Source: lvm.conf(5), devices/allow_mixed_block_sizes
	if f, ok := c.blocks[set]; l.Sector != 0 && !ok {
		c.blocks[set] = l
	} else if l.Sector != 0 && l.Sector != f.Sector {
		c.errorf(l.at+".sector", "use disks of one kind in a "+c.setWord()+", or format these anew (sg_format, nvme format)",
			"disks with logical blocks of %d bytes and, at %s, of %d would share a volume", l.Sector, c.at(f.at), f.Sector)
	}
	of := diskLot{set, l.Growth}
	f, ok := c.first[of]
	switch {
	case !sound:
	case !ok:
		c.first[of] = l
	case l.Size != f.Size || l.Type != f.Type:
		c.errorf(l.at, "use like disks in all groups of a "+c.setWord()+", or make it two "+c.setWord()+"s", "disks of %s %s and, at %s, of %s %s would share RAID groups: every group would be as small and as slow as its worst disk", l.Size, l.Type, c.at(f.at), f.Size, f.Type)
	}
	return len(list)
}

// listed notes serials, and refuses those that are listed already: in one message for a
// range, however many disks it has.
func (c *layout) listed(l place, list []string) {
	dups := map[string][]string{} // by where they stand already
	var before []string
	for _, serial := range list {
		if other, dup := c.bySerial[serial]; dup {
			line := c.at(other)
			if dups[line] == nil {
				before = append(before, line)
			}
			dups[line] = append(dups[line], serial)
			continue
		}
		c.bySerial[serial] = l.at + ".serial"
		c.all = append(c.all, serial)
	}
	for _, line := range before {
		again := dups[line]
		what := "disk " + again[0] + " is"
		if len(again) == len(list) && len(list) > 1 {
			what = fmt.Sprintf("the range %s (%d disks) is", l.Serial, len(list))
		} else if len(again) > 1 {
			what = fmt.Sprintf("%d disks of the range %s (first %s, last %s) are", len(again), l.Serial, again[0], again[len(again)-1])
		}
		c.errorf(l.at+".serial", "each disk has a serial number of its own: look at its label", "%s already listed at %s", what, line)
	}
}

// growth checks that the disks by which a set grew make groups, one growth after
// the other. Of several arrays, not each has to grow each time.
func (c *layout) growth() {
	for _, set := range c.s.Sets() {
		r := set.Storage.RAID
		last := 0
		for on, all := range c.grown {
			if on[0] == set.Name {
				last = max(last, len(all))
			}
		}
		for i := range last {
			disks, few, any := 0, "", false
			for on, all := range c.grown {
				if on[0] != set.Name || i >= len(all) || all[i] == 0 {
					continue
				}
				any = true
				if disks = all[i]; disks < r.Width() {
					few = on[1]
					break
				}
			}
			if any && disks >= r.Width() {
				continue
			}
			where := fmt.Sprintf("%s %s", c.setWord(), set.Name)
			if few != "" {
				where += " on array " + few
			}
			c.errorf(c.firstOf(set.Name, i+1), fmt.Sprintf("add disks until there are %d or more; growths are numbered from 1 without a gap", r.Width()),
				"growth %d of %s has %s, too few for one group of RAID %d %d+%d (%d disks)", i+1, where, Plural(disks, "disk"), r.Level, r.Data, r.Parity, r.Width())
		}
	}
}

// firstOf is where the first disks of a growth of a set are listed, or where the
// enclosures are if there are none.
func (c *layout) firstOf(set string, growth int) string {
	for i, e := range c.s.Enclosures {
		for j, l := range e.Disks {
			if e.Set() == set && l.Growth == growth {
				return fmt.Sprintf("enclosures[%d].disks[%d].growth", i, j)
			}
		}
	}
	return "enclosures"
}

// serials checks a list of serial numbers of the brick's disks, at key, of which
// something is done that must not hit another disk: bySerial has the disks' places,
// all their serial numbers if each is known.
func (c *layout) serials(key string, list []string) {
	s := c.s
	for i, w := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case strings.ContainsAny(w, "[]*?"):
			c.errorf(at, "write out the serial of each disk", "%s takes no ranges or patterns (%q)", key, w)
		case re().dev.MatchString(w):
			_, err := expandSerial(w)
			c.split(at, key+": ", err)
		case c.bySerial[w] == "" && (!c.allKnown || slices.ContainsFunc(s.Arrays, func(a Array) bool { return slices.Contains(a.WWNs, w) })):
		case c.bySerial[w] == "":
			mend := "list only disks of this brick"
			if near := Nearest(w, c.all); near != "" {
				mend += fmt.Sprintf("; a near one is %s, but compare with the disk's label first", near)
			}
			c.errorf(at, mend, "no disk of this brick has the serial %q", w)
		case slices.Index(list, w) < i:
			c.errorf(at, "remove one", "serial %s is there twice", w)
		}
	}
}

// setWord is what a set of disks is called in this flavour.
func (c *checker) setWord() string {
	if c.s.Flavour == Lustre {
		return "module"
	}
	return "service"
}

// enclosureSet finds out which service or module an enclosure's disks are
// for; "" if that is not clear.
func (c *layout) enclosureSet(e *Enclosure, at string) string {
	s := c.s
	if s.Flavour == Lustre {
		return c.enclosureModule(e, at)
	}
	if e.Module != "" {
		c.errorf(at+".module", "write service:, or choose flavour lustre", "flavour %s has no modules", s.Flavour)
		return ""
	}
	if e.Service == "" {
		if len(s.Services) > 1 && c.servicesOK {
			c.errorf(at, "add service: the service whose volume its disks carry", "there are two services, and enclosure %s says of neither", e.Name)
		} else if len(s.Services) == 1 {
			e.Service = s.Services[0].Name
		}
		return e.Service
	}
	names := lists.Map(s.Services, func(v Service) string { return v.Name })
	if !slices.Contains(names, e.Service) {
		if !c.servicesOK {
			return "" // said already, of the services
		}
		c.errorf(at+".service", didYouMean(e.Service, names, "the services are: "+strings.Join(names, ", ")), "there is no service %q", e.Service)
	}
	return e.Service
}

var diskTypes = []string{"nl-sas", "sas", "ssd", "nvme"}

// disk checks one entry by itself, and says whether size and type are sound.
func (c *layout) disk(l *DiskList, at string, byWWN map[string]string) (sound bool) {
	sound = true
	ofSSDs := !strings.HasPrefix(at, "enclosures") // the cache says itself what is too small for it
	if l.Size < 512*MB && !ofSSDs || l.Size > PB {
		c.errorf(at+".size", "write it as sold, e.g. 4TB", "a disk of %s does not exist", l.Size)
		sound = false
	}
	if !slices.Contains(diskTypes, l.Type) {
		c.errorf(at+".type", didYouMean(l.Type, diskTypes, "use "+oneOf(diskTypes)), "unknown disk type %q", l.Type)
		sound = false
	}
	c.refuse(l.Server != "" && !ofSSDs, at+".server", "remove it", "the disks of an enclosure are reached by the servers it is cabled to")
	c.diskGrowth(l, at, ofSSDs)
	c.refuse(l.RPM < 0 || l.RPM > 20000, at+".rpm", "write e.g. 7200, or 0 for solid state", "rpm is %d", l.RPM)
	if l.Sector != 0 && l.Sector != 512 && l.Sector != 4096 {
		c.errorf(at+".sector", "write 512, or 4096 for a disk that is sold as 4Kn, or leave it out", "no disk has logical blocks of %d bytes", l.Sector)
		l.Sector = 0
	}
	if l.WWN == "" {
		return sound
	}
	m := re().wwn.FindStringSubmatch(l.WWN)
	switch {
	case m == nil:
		c.errorf(at+".wwn", "write its 16 or 32 hex digits, in quotes, as `lsblk -d -o NAME,WWN` prints them", "%q is not a WWN", l.WWN)
	case re().ranges.MatchString(l.Serial):
		c.errorf(at+".wwn", "list the disks one by one, or leave the WWN out: it is found by serial", "one WWN cannot be that of the whole range %s", l.Serial)
	default:
		l.WWN = strings.ToLower(m[1])
		if other, dup := byWWN[l.WWN]; dup {
			c.errorf(at+".wwn", "each disk has a WWN of its own", "WWN %s is already listed at %s", l.WWN, c.at(other))
		}
		byWWN[l.WWN] = at + ".wwn"
	}
	return sound
}

// maxGrowth bounds how often a brick can grow; a file system that has grown so
// often is better made anew.
const maxGrowth = 100

// diskGrowth checks the growth of one entry: which bricks can grow.
func (c *layout) diskGrowth(l *DiskList, at string, ofSSDs bool) {
	at += ".growth"
	if l.Growth == 0 {
		return
	}
	switch {
	case l.Growth < 0 || l.Growth > maxGrowth:
		c.errorf(at, fmt.Sprintf("number growths 1 to %d", maxGrowth), "growth is %d", l.Growth)
		l.Growth = 0
	case ofSSDs:
		c.errorf(at, "remove it", "an SSD of a cache makes no RAID group")
	case c.s.Flavour == Lustre:
		c.errorf(at, "add a module with enclosures of its own: that is how Lustre grows", "the targets of a Lustre module do not grow")
	case c.s.Storage.Kind == "array" && c.s.Storage.RAID.Level == 60:
		c.errorf(at, "build another brick", "a LUN of RAID 60 takes in no more spans")
	case c.s.Storage.Kind == "array" && c.s.Storage.Volume == "device":
		c.errorf(at, "build another brick, with storage.volume lvm", "a file system directly on its LUN takes in no other LUN")
	}
}

// geometries checks every storage section of the spec.
func (c *layout) geometries() bool {
	s := c.s
	if s.Flavour == Lustre {
		c.refuse(s.Given("storage"), "storage", "move it into the modules below lustre", "flavour lustre has a storage section in each module, not one for all")
		ok := s.Lustre != nil
		for _, set := range s.Sets() {
			ok = c.geometry(set.Path, set.Storage) && ok
		}
		return ok
	}
	if !s.Given("storage") {
		c.errorf("", "add it: "+docOf("Storage"), "key %q is missing", "storage")
		return false
	}
	return c.geometry("storage", &s.Storage)
}

// geometry checks what a storage section says by itself.
func (c *layout) geometry(path string, st *Storage) bool {
	r, before := &st.RAID, c.found
	c.refuse(st.Kind != "jbod" && st.Kind != "array", path+".kind", "use jbod or array", "unknown kind of storage %q", st.Kind)
	c.refuse(st.Model != "" && st.Kind == "jbod", path+".model", "remove it, or write kind: array", "model names a RAID array, but kind is jbod")
	c.refuse(st.Kind == "array" && st.Model == "" && len(c.s.Arrays) == 0, path, "add model: "+oneOf(ModelNames()), "which array is it?")
	c.refuse(st.Kind == "jbod" && len(c.s.Arrays) > 0 && c.s.Flavour != Lustre, path+".kind", "write kind: array, or remove arrays", "there are arrays, but kind is jbod")
	model, known := ModelOf(st.Model)
	c.refuse(st.Model != "" && !known, path+".model", c.modelMend(st.Model), "unknown array model %q", st.Model)
	switch {
	case st.Volume == "device" && c.s.Flavour == Lustre:
		c.errorf(path+".volume", "remove it", "a Lustre target is always made directly on its device")
	case st.Volume == "device" && c.isHA():
		c.errorf(path+".volume", "use lvm: a volume group belongs to one server at a time", "without LVM nothing keeps the other server from mounting the LUN")
	case st.Volume == "device" && c.s.Cache != nil:
		c.errorf(path+".volume", "use lvm", "a cache is part of the volume group, and with volume: device there is none")
	case st.Volume == "device" && st.Kind != "array":
		c.errorf(path+".volume", "use lvm, or leave it out", "volume: device is for the one LUN of an array")
	case st.Volume != "lvm" && st.Volume != "device":
		c.errorf(path+".volume", "use lvm or device", "unknown kind of volume %q", st.Volume)
	}
	switch {
	case st.DropSlowDisks == "off":
	case st.DropSlowDisks != "on":
		c.errorf(path+".drop_slow_disks", "use on or off", "drop_slow_disks is %q", st.DropSlowDisks)
	case st.Kind == "array":
		c.errorf(path+".drop_slow_disks", "remove it", "a RAID array looks after its disks by itself: servers do not see them")
	case r.Level == 10:
		c.errorf(path+".drop_slow_disks", "remove it, or use RAID 6", "without a disk, a mirror of RAID 10 has no copy left of the other one")
	case !c.isHA():
		c.errorf(path+".drop_slow_disks", "remove it; mortar status names a slow disk", "ocf:mortar:watch drops slow disks, and flavour nfs has no cluster that runs it")
	}
	c.refuse(r.PerEnclosure < 0 || r.PerEnclosure > maxGroup, path+".raid.per_enclosure", "choose 0 (as few as possible) or more", "per_enclosure is %d", r.PerEnclosure)
	given := c.s.Given(path + ".raid.parity")
	switch r.Level {
	case 6, 60:
		if !given {
			r.Parity = 2
		}
		c.refuse(r.Parity != 2, path+".raid.parity", "write parity: 2, or leave it out", "RAID %d has two parity disks in a group, not %d", r.Level, r.Parity)
		c.refuse(r.Data < 2 || r.Data+2 > maxGroup, path+".raid.data", fmt.Sprintf("choose 2 to %d; 8 and 10 are usual", maxGroup-2), "data is %d", r.Data)
	case 10:
		if !given {
			r.Parity = r.Data
		}
		c.refuse(r.Parity != r.Data, path+".raid.parity", "leave it out", "RAID 10 has one mirror disk for each data disk, not %d for %d", r.Parity, r.Data)
		c.refuse(r.Data < 1 || 2*r.Data > maxGroup, path+".raid.data", fmt.Sprintf("choose 1 to %d", maxGroup/2), "data is %d", r.Data)
	case 0, 1, 5, 50:
		c.errorf(path+".raid.level", "use 6 (k+2) or 10", "RAID %d does not survive a second failed disk during a rebuild, or not even a first", r.Level)
	default:
		c.errorf(path+".raid.level", "use 6, 10 or 60", "there is no RAID level %d", r.Level)
	}
	c.refuse(r.Groups < 0 || r.Groups > 1000 || r.Groups == 0 && c.s.Given(path+".raid.groups"), path+".raid.groups", "choose 1 or more, or leave it out: as many as the disks yield", "groups is %d", r.Groups)
	c.refuse(r.Spares < 0 || r.Spares > 1000, path+".raid.spares", "choose 0 or more", "spares is %d", r.Spares)
	c.refuse(r.Chunk < 4*KiB || r.Chunk > 16*MiB || r.Chunk&(r.Chunk-1) != 0, path+".raid.chunk", "choose a power of two from 4KiB to 16MiB, e.g. 128KiB or 512KiB", "chunk is %s", r.Chunk)
	if c.found > before || !known {
		return c.found == before
	}
	return c.modelGeometry(path, model, r)
}

// modelGeometry checks that an array can make groups of this kind.
func (c *layout) modelGeometry(path string, m ArrayModel, r *RAID) bool {
	before := c.found
	c.refuse(!slices.Contains(m.Levels, r.Level), path+".raid.level", "use "+oneOf(words(m.Levels)), "%s has no RAID level %d", Article(m.Name), r.Level)
	c.refuse(!slices.Contains(m.Chunks, r.Chunk), path+".raid.chunk", fmt.Sprintf("choose a power of two from %s to %s", m.Chunks[0], m.Chunks[len(m.Chunks)-1]), "%s has no chunk of %s", Article(m.Name), r.Chunk)
	c.refuse(r.Level != 10 && r.Width() > m.Widest, path+".raid.data", fmt.Sprintf("choose %d at most", m.Widest-2), "a group of %d disks is wider than the %d %s can make", r.Width(), m.Widest, Article(m.Name))
	return c.found == before
}

func words[T any](list []T) []string {
	return lists.Map(list, func(v T) string { return fmt.Sprint(v) })
}

func (c *checker) modelMend(name string) string {
	if near := Nearest(strings.ToUpper(name), ModelNames()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "use " + oneOf(ModelNames())
}

// mirroring checks write_cache_mirroring of each set's arrays.
func (c *layout) mirroring() {
	said := map[string]bool{}
	for _, set := range c.s.Sets() {
		v, at := set.Storage.WriteCacheMirroring, set.Path+".write_cache_mirroring"
		if v == "" || said[at] {
			continue
		}
		said[at] = true
		if v != "on" && v != "off" {
			c.errorf(at, "use on or off", "write_cache_mirroring is %q", v)
			continue
		}
		arrays := c.s.ArraysOf(set.Name)
		c.refuse(len(arrays) == 0, at, "remove it", "there is no array: the disks are JBODs")
		for _, a := range arrays {
			if m, ok := ModelOf(a.Model); ok && m.Family != "md3" {
				c.errorf(at, "remove it", "Mortar sets this on MD3200 and MD3220 only, and array %s is %s", a.Name, Article(m.Name))
				break
			}
		}
	}
}

// groups checks that the groups use up the disks of each set and of each
// array, and fills in their number.
func (c *layout) groups() {
	for i, a := range c.s.Arrays {
		if !slices.ContainsFunc(c.s.Enclosures, func(e Enclosure) bool { return e.Array == a.Name }) {
			c.errorf(fmt.Sprintf("arrays[%d]", i), "write array: "+a.Name+" with its enclosures, or remove it", "array %s has no enclosure", a.Name)
			return
		}
	}
	c.mirroring()
	sets := c.s.Sets()
	total := map[string]int{} // groups, by path of the storage section
	for _, set := range sets {
		fit, ok := c.groupsOf(set, len(sets), c.count[set.Name])
		if !ok {
			return
		}
		total[set.Path] += fit
		c.groupsOfArrays(set)
	}
	for _, set := range sets {
		luns := total[set.Path]
		if set.Storage.RAID.Level == 60 {
			luns = len(c.s.ArraysOf(set.Name))
		}
		c.refuse(set.Storage.Volume == "device" && luns != 1, set.Path+".volume", "use lvm, which stripes over them", "volume: device is for one LUN, and there are %d", luns)
		if r := &set.Storage.RAID; r.Groups == 0 {
			r.Groups = total[set.Path]
		}
	}
	if c.s.Flavour == Lustre {
		c.osts()
	}
}

// groupsOf checks the disks of one set and counts its groups.
func (c *layout) groupsOf(set Set, sets, disks int) (groups int, ok bool) {
	r, n := &set.Storage.RAID, set.Share
	at := func(key string) string { return set.Path + ".raid" + key }
	width := r.Width()
	shape := fmt.Sprintf("RAID %d %d+%d", r.Level, r.Data, r.Parity)
	if r.Spares%n != 0 {
		c.errorf(at(".spares"), "choose an even number", "%d spares cannot be shared out evenly between %d services", r.Spares, n)
		return 0, false
	}
	if r.Groups%n != 0 {
		c.errorf(at(".groups"), "choose an even number", "%d groups cannot be shared out evenly between %d services", r.Groups, n)
		return 0, false
	}
	spares := r.Spares / n
	of := ""
	if sets > 1 {
		of = " of " + c.setWord() + " " + set.Name
	}
	fit := (disks - spares) / width
	switch {
	case disks < width+spares:
		c.errorf(at(""), "add disks, or choose fewer data disks or spares", "%s%s, %d of them spare, are too few for one group of %s (%d disks)", Plural(disks, "disk"), of, spares, shape, width)
		return 0, false
	case r.Groups == 0 && (disks-spares)%width != 0:
		left := (disks - spares) % width
		c.errorf(at(""), otherGeometry(*r, n, disks, spares, left), "%d disks%s less %s make %s of %s (%d disks each), and %s left over", disks, of, Plural(spares, "spare"), Plural(fit, "group"), shape, width, Plural(left, "disk")+map[bool]string{true: " is", false: " are"}[left == 1])
		return 0, false
	case r.Groups != 0 && r.Groups/n*width+spares != disks:
		need := r.Groups/n*width + spares
		c.errorf(at(".groups"), "mend groups, data or spares so that every disk has a use", "%s of %s and %s are %d disks, but%s there are %d", Plural(r.Groups/n, "group"), shape, Plural(spares, "spare"), need, of, disks)
		return 0, false
	}
	return fit, true
}

// groupsOfArrays checks that each array of a set can make whole groups of its
// own disks: no group reaches over two arrays.
func (c *layout) groupsOfArrays(set Set) {
	arrays := c.s.ArraysOf(set.Name)
	if len(arrays) == 0 {
		return
	}
	r := &set.Storage.RAID
	spares := r.Spares / set.Share
	if spares%len(arrays) != 0 {
		c.errorf(set.Path+".raid.spares", fmt.Sprintf("choose a multiple of %d", len(arrays)), "%d spares cannot be shared out evenly between %d arrays", spares, len(arrays))
		return
	}
	groups := -1
	for _, a := range arrays {
		disks := c.perArray[[2]string{set.Name, a.Name}] - spares/len(arrays)
		n := disks / r.Width()
		m, _ := ModelOf(a.Model)
		switch {
		case disks%r.Width() != 0:
			c.errorf(set.Path+".raid", "cable the enclosures so that each array has whole groups", "array %s has %d disks besides its spares, which make no whole number of groups of %d", a.Name, disks, r.Width())
			return
		case groups >= 0 && n != groups:
			c.errorf(set.Path+".raid", "give the arrays of a "+c.setWord()+" the same number of disks", "array %s would make %s, another one of %s %s %d: a volume striped over both would be unequal", a.Name, Plural(n, "group"), c.setWord(), set.Name, groups)
			return
		case r.Level == 60 && (n < 2 || n > m.Spans):
			c.errorf(set.Path+".raid.level", map[bool]string{true: "use level 6", false: "use fewer, wider spans"}[n < 2], "RAID 60 on array %s has %s; %s makes 2 to %d", a.Name, Plural(n, "span"), Article(m.Name), m.Spans)
			return
		}
		groups = n
	}
}

// otherGeometry proposes numbers that use up all disks of a service.
func otherGeometry(r RAID, n, disks, spares, left int) string {
	options := []string{fmt.Sprintf("write spares: %d", (spares+left)*n)}
	if r.Level != 10 {
		for _, k := range []int{10, 8, 12, 6, 4, 9, 7, 5, 11, 3, 2} {
			if k != r.Data && (disks-spares)%(k+r.Parity) == 0 {
				options = append(options, fmt.Sprintf("data: %d", k))
				break
			}
		}
	}
	return strings.Join(options, ", or ")
}
