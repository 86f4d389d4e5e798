package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Widest md RAID: 1.2 superblocks count at most 1920 members, but a group of
// more than this many rebuilds for days and is never what is wanted.
const maxGroup = 32

// Width is the number of disks in a group.
func (r RAID) Width() int { return r.Data + r.Parity }

// disks checks enclosures, disks, geometry and the wipe list.
func (c *checker) disks() {
	s := c.s
	geometry := c.geometry()
	if len(s.Enclosures) == 0 {
		c.errorf("enclosures", "list the enclosures with their disks", "the brick has no enclosure")
		return
	}
	bySerial, byWWN, names := map[string]string{}, map[string]string{}, map[string]string{}
	type like struct {
		at   string
		size Bytes
		typ  string
	}
	first := map[string]like{} // by service
	count := map[string]int{}
	var serials []string
	geometry = geometry && c.servicesOK
	allKnown := true // every serial could be read
	for i := range s.Enclosures {
		e := &s.Enclosures[i]
		at := fmt.Sprintf("enclosures[%d]", i)
		if !wordRE.MatchString(e.Name) {
			c.errorf(at+".name", "use letters, digits and dashes", "%q cannot name an enclosure", e.Name)
		} else if other, dup := names[e.Name]; dup {
			c.errorf(at+".name", "give each enclosure its own name", "enclosure %q is already there at %s", e.Name, c.at(other))
		}
		names[e.Name] = at + ".name"
		service := c.enclosureService(e, at)
		geometry = geometry && service != ""
		n := 0
		for j := range e.Disks {
			l := &e.Disks[j]
			lat := fmt.Sprintf("%s.disks[%d]", at, j)
			sound := c.disk(l, lat, byWWN)
			list, err := l.Serials()
			if err != nil {
				c.split(lat+".serial", "", err)
				geometry, allKnown = false, false // nor is the number of disks known
				continue
			}
			for _, serial := range list {
				if other, dup := bySerial[serial]; dup {
					c.errorf(lat+".serial", "each disk has a serial number of its own: look at its label", "disk %s is already listed at %s", serial, c.at(other))
					continue
				}
				bySerial[serial] = lat + ".serial"
				serials = append(serials, serial)
			}
			n += len(list)
			f, ok := first[service]
			if !sound {
				continue
			}
			if !ok {
				first[service] = like{lat, l.Size, l.Type}
			} else if l.Size != f.size || l.Type != f.typ {
				c.errorf(lat, "use like disks in all groups of a service, or make it two services", "disks of %s %s and, at %s, of %s %s would share RAID groups: every group would be as small and as slow as its worst disk", l.Size, l.Type, c.at(f.at), f.size, f.typ)
			}
		}
		if n == 0 && len(e.Disks) == 0 {
			c.errorf(at+".disks", "list its disks, e.g. disks: [{serial: 'MA[01-12]', size: 4TB}]", "enclosure %s has no disks", e.Name)
		}
		if e.Bays == 0 && !s.given(at+".bays") {
			e.Bays = n
		}
		if c.between(at+".bays", e.Bays, 1, 1024, "") && n > e.Bays {
			c.errorf(at+".bays", "mend bays or disks", "enclosure %s has %s but %d disks", e.Name, plural(e.Bays, "bay"), n)
		}
		count[service] += n
	}
	for i, w := range s.Wipe {
		at := fmt.Sprintf("wipe[%d]", i)
		switch {
		case strings.ContainsAny(w, "[]*?"):
			c.errorf(at, "write out the serial of each disk whose data may be destroyed", "wipe takes no ranges or patterns (%q)", w)
		case devRE.MatchString(w):
			_, err := expandSerial(w)
			c.split(at, "wipe: ", err)
		case bySerial[w] == "" && !allKnown:
		case bySerial[w] == "":
			mend := "list only disks of this brick"
			if near := nearest(w, serials); near != "" {
				mend += fmt.Sprintf("; a near one is %s, but compare with the disk's label before you wipe it", near)
			}
			c.errorf(at, mend, "no disk of this brick has the serial %q", w)
		case slices.Index(s.Wipe, w) < i:
			c.errorf(at, "remove one", "serial %s is there twice", w)
		}
	}
	if geometry {
		c.groups(count)
	}
}

func (c *checker) enclosureService(e *Enclosure, at string) string {
	s := c.s
	if e.Service == "" {
		if len(s.Services) > 1 && c.servicesOK {
			c.errorf(at, "add service: the service whose volume its disks carry", "there are two services, and enclosure %s says of neither", e.Name)
		} else if len(s.Services) == 1 {
			e.Service = s.Services[0].Name
		}
		return e.Service
	}
	var names []string
	for _, v := range s.Services {
		names = append(names, v.Name)
	}
	if !slices.Contains(names, e.Service) {
		mend := "the services are: " + strings.Join(names, ", ")
		if near := nearest(e.Service, names); near != "" {
			mend = fmt.Sprintf("did you mean %q?", near)
		}
		c.errorf(at+".service", mend, "there is no service %q", e.Service)
	}
	return e.Service
}

var diskTypes = []string{"nl-sas", "sas", "ssd", "nvme"}

// disk checks one entry by itself, and says whether size and type are sound.
func (c *checker) disk(l *DiskList, at string, byWWN map[string]string) (sound bool) {
	sound = true
	if l.Size < 512*MB || l.Size > PB {
		c.errorf(at+".size", "write it as sold, e.g. 4TB", "a disk of %s does not exist", l.Size)
		sound = false
	}
	if !slices.Contains(diskTypes, l.Type) {
		mend := "use " + or(diskTypes)
		if near := nearest(l.Type, diskTypes); near != "" {
			mend = fmt.Sprintf("did you mean %q?", near)
		}
		c.errorf(at+".type", mend, "unknown disk type %q", l.Type)
		sound = false
	}
	if l.RPM < 0 || l.RPM > 20000 {
		c.errorf(at+".rpm", "write e.g. 7200, or 0 for solid state", "rpm is %d", l.RPM)
	}
	if l.WWN == "" {
		return sound
	}
	m := wwnRE.FindStringSubmatch(l.WWN)
	switch {
	case m == nil:
		c.errorf(at+".wwn", "write its 16 or 32 hex digits, in quotes, as `lsblk -d -o NAME,WWN` prints them", "%q is not a WWN", l.WWN)
	case rangeRE.MatchString(l.Serial):
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

// geometry checks what storage.raid says by itself.
func (c *checker) geometry() bool {
	st, r := &c.s.Storage, &c.s.Storage.RAID
	ok := true
	bad := func(at, mend, format string, args ...any) {
		c.errorf(at, mend, format, args...)
		ok = false
	}
	if st.Kind != "jbod" && st.Kind != "array" {
		bad("storage.kind", "use jbod or array", "unknown kind of storage %q", st.Kind)
	}
	if st.Model != "" && st.Kind == "jbod" {
		bad("storage.model", "remove it, or write kind: array", "a model is that of a RAID array, but kind is jbod")
	}
	if st.Kind == "array" && st.Model == "" {
		bad("storage", "add model: MD3200, MD3220, PERC-H810 or ME4084", "which array is it?")
	}
	given := c.s.given("storage.raid.parity")
	switch r.Level {
	case 6, 60:
		if !given {
			r.Parity = 2
		}
		if r.Parity != 2 {
			bad("storage.raid.parity", "write parity: 2, or leave it out", "RAID %d has two parity disks in a group, not %d", r.Level, r.Parity)
		}
		if r.Data < 2 || r.Data+2 > maxGroup {
			bad("storage.raid.data", fmt.Sprintf("choose 2 to %d; 8 and 10 are usual", maxGroup-2), "data is %d", r.Data)
		}
	case 10:
		if !given {
			r.Parity = r.Data
		}
		if r.Parity != r.Data {
			bad("storage.raid.parity", "leave it out", "RAID 10 has one mirror disk for each data disk, not %d for %d", r.Parity, r.Data)
		}
		if r.Data < 1 || 2*r.Data > maxGroup {
			bad("storage.raid.data", fmt.Sprintf("choose 1 to %d", maxGroup/2), "data is %d", r.Data)
		}
	case 0, 1, 5, 50:
		bad("storage.raid.level", "use 6 (k+2) or 10", "RAID %d does not survive a second failed disk during a rebuild, or not even a first", r.Level)
	default:
		bad("storage.raid.level", "use 6, 10 or 60", "there is no RAID level %d", r.Level)
	}
	if r.Groups < 0 || r.Groups > 1000 || r.Groups == 0 && c.s.given("storage.raid.groups") {
		bad("storage.raid.groups", "choose 1 or more, or leave it out: as many as the disks yield", "groups is %d", r.Groups)
	}
	if r.Spares < 0 || r.Spares > 1000 {
		bad("storage.raid.spares", "choose 0 or more", "spares is %d", r.Spares)
	}
	if r.Chunk < 4*KiB || r.Chunk > 16*MiB || r.Chunk&(r.Chunk-1) != 0 {
		bad("storage.raid.chunk", "choose a power of two from 4KiB to 16MiB, e.g. 128KiB or 512KiB", "chunk is %s", r.Chunk)
	}
	return ok
}

// groups checks that the groups use up the disks, and fills in their number.
func (c *checker) groups(count map[string]int) {
	r := &c.s.Storage.RAID
	n := max(1, len(c.s.Services))
	width := r.Width()
	shape := fmt.Sprintf("RAID %d %d+%d", r.Level, r.Data, r.Parity)
	if r.Spares%n != 0 {
		c.errorf("storage.raid.spares", "choose an even number", "%d spares cannot be shared out evenly between %d services", r.Spares, n)
		return
	}
	if r.Groups%n != 0 {
		c.errorf("storage.raid.groups", "choose an even number", "%d groups cannot be shared out evenly between %d services", r.Groups, n)
		return
	}
	total := 0
	for i := range c.s.Services {
		name := c.s.Services[i].Name
		disks, spares := count[name], r.Spares/n
		of := ""
		if n > 1 {
			of = " of service " + name
		}
		fit := (disks - spares) / width
		switch {
		case disks < width+spares:
			c.errorf("storage.raid", "add disks, or choose fewer data disks or spares", "%s%s, %d of them spare, are too few for one group of %s (%d disks)", plural(disks, "disk"), of, spares, shape, width)
			return
		case r.Groups == 0 && (disks-spares)%width != 0:
			left := (disks - spares) % width
			c.errorf("storage.raid", c.otherGeometry(disks, spares, left), "%d disks%s less %s make %s of %s (%d disks each), and %s left over", disks, of, plural(spares, "spare"), plural(fit, "group"), shape, width, plural(left, "disk")+map[bool]string{true: " is", false: " are"}[left == 1])
			return
		case r.Groups != 0 && r.Groups/n*width+spares != disks:
			need := r.Groups/n*width + spares
			c.errorf("storage.raid.groups", "mend groups, data or spares so that every disk has a use", "%s of %s and %s are %d disks, but%s there are %d", plural(r.Groups/n, "group"), shape, plural(spares, "spare"), need, of, disks)
			return
		}
		total += fit
	}
	if r.Groups == 0 {
		r.Groups = total
	}
}

// otherGeometry proposes numbers that use up all disks of a service.
func (c *checker) otherGeometry(disks, spares, left int) string {
	n := max(1, len(c.s.Services))
	options := []string{fmt.Sprintf("write spares: %d", (spares+left)*n)}
	r := c.s.Storage.RAID
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
