package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// docOf is the doc tag of a top-level key, by the name of its field.
func docOf(field string) string {
	f, ok := reflect.TypeOf(Spec{}).FieldByName(field)
	if !ok {
		panic("spec: no field " + field)
	}
	return f.Tag.Get("doc")
}

// CardKinds are the cards a spec knows.
var CardKinds = []string{"sas-hba", "raid", "hca", "nic", "ssd"}

func (c *checker) hardware() {
	ports := map[string]string{}
	for i := range c.s.Servers {
		v := &c.s.Servers[i]
		at := fmt.Sprintf("servers[%d]", i)
		if v.CPU != nil {
			c.between(at+".cpu.sockets", v.CPU.Sockets, 1, 8, "")
			c.between(at+".cpu.cores", v.CPU.Cores, 1, 512, "")
			c.between(at+".cpu.mhz", v.CPU.MHz, 500, 8000, "")
		}
		slots := map[int]bool{}
		for j, k := range v.PCI {
			pat := fmt.Sprintf("%s.pci[%d]", at, j)
			c.refuse(!slices.Contains(CardKinds, k.Kind), pat+".kind", "use "+oneOf(CardKinds), "unknown kind of card %q", k.Kind)
			c.refuse(!slices.Contains([]int{1, 2, 4, 8, 16}, k.Lanes), pat+".lanes", "use 4, 8 or 16", "a slot with %d lanes does not exist", k.Lanes)
			c.between(pat+".slot", k.Slot, 1, 64, "")
			c.between(pat+".generation", k.Generation, 1, 6, "")
			c.between(pat+".node", k.Node, 0, 15, "")
			c.refuse(slots[k.Slot], pat+".slot", "look at the chassis", "slot %d of server %s has two cards", k.Slot, v.Name)
			slots[k.Slot] = true
		}
		for j, p := range v.SASPorts {
			pat := fmt.Sprintf("%s.sas_ports[%d]", at, j)
			m := re().sas.FindStringSubmatch(p)
			if m == nil {
				c.errorf(pat, "write 16 hex digits, in quotes, as /sys/class/sas_phy/*/sas_address has them", "%q is not a SAS address", p)
				continue
			}
			p = strings.ToLower(m[1])
			if first, dup := ports[p]; dup {
				c.errorf(pat, "each port has an address of its own", "SAS address %s is already listed at %s", p, c.at(first))
			}
			ports[p] = pat
			v.SASPorts[j] = p
		}
	}
}

// management4 checks what the management of an ME4 or ME5 is asked with.
func (c *layout) management4(at string, a *Array, family string) {
	for _, k := range []struct{ key, value string }{{"user", a.User}, {"password_file", a.PasswordFile}, {"certificates", strings.Join(a.Certificates, "")}} {
		if k.value != "" && family != "me4" && family != "me5" {
			c.errorf(at+"."+k.key, "remove it", "only an ME4 or ME5 is asked with a %s", strings.ReplaceAll(k.key, "_", " "))
			return
		}
	}
	c.refuse((a.User == "") != (a.PasswordFile == ""), at, "give both or none", "array %s has a user or a password_file alone", a.Name)
	if a.PasswordFile != "" {
		c.secretFile(at+".password_file", a.PasswordFile)
	}
	for j, f := range a.Certificates {
		c.refuse(!re().sha256.MatchString(f), fmt.Sprintf("%s.certificates[%d]", at, j), "write its 64 hex digits, in quotes, as `mortar status` prints them", "%q is no SHA-256 fingerprint", f)
	}
}

// arrays checks the list of arrays and fills in those that are implied by
// storage.model.
func (c *layout) arrays() bool {
	s := c.s
	before := c.found
	var names []string
	wwns := map[string]bool{}
	for i := range s.Arrays {
		a := &s.Arrays[i]
		at := fmt.Sprintf("arrays[%d]", i)
		c.named(at+".name", "array", a.Name, names, re().word, "use letters, digits and dashes")
		names = append(names, a.Name)
		m, known := ModelOf(a.Model)
		c.refuse(!known, at+".model", c.modelMend(a.Model), "unknown array model %q", a.Model)
		for j, addr := range a.Management {
			nw, nwName := c.management, "management"
			c.address(fmt.Sprintf("%s.management[%d]", at, j), addr, nw, nwName, "array "+a.Name)
		}
		c.refuse(known && m.Family != "perc" && a.Server != "", at+".server", "remove it", "%s is in no server: both reach it", Article(m.Name))
		if known && m.Family == "perc" {
			if a.Server == "" && len(s.Servers) > 0 {
				a.Server = s.Servers[0].Name
			}
			if c.server(a.Server) == nil {
				c.unknownServer(at+".server", a.Server)
			}
			c.refuseInside(at, m)
			c.between(at+".controller", a.Controller, 0, 63, "")
		}
		c.management4(at, a, m.Family)
		for j, w := range a.WWNs {
			wat := fmt.Sprintf("%s.wwns[%d]", at, j)
			f := re().wwn.FindStringSubmatch(w)
			switch {
			case f == nil:
				c.errorf(wat, "write its 16 or 32 hex digits, in quotes, as `lsblk -d -o NAME,WWN` prints them", "%q is not a WWN", w)
			case wwns[strings.ToLower(f[1])]:
				c.errorf(wat, "each LUN has a WWN of its own", "WWN %s is there twice", w)
			default:
				a.WWNs[j] = strings.ToLower(f[1])
				wwns[a.WWNs[j]] = true
			}
		}
	}
	if c.found > before {
		return false
	}
	if len(s.Arrays) == 0 {
		for _, set := range s.Sets() {
			if set.Storage.Kind != "array" {
				continue
			}
			name := set.Name
			if set.Share == 1 && s.Flavour != Lustre {
				name = s.Name
			}
			a := Array{Name: name, Model: set.Storage.Model}
			if m, _ := ModelOf(a.Model); m.Family == "perc" && len(s.Servers) > 0 {
				a.Server = s.Servers[0].Name
				if c.refuseInside(set.Path, m) {
					return false
				}
			}
			s.Arrays = append(s.Arrays, a)
			for i := range s.Enclosures {
				if e := &s.Enclosures[i]; e.Array == "" && (e.Set() == set.Name || e.Set() == "" && set.Share == 1) {
					e.Array = name
				}
			}
		}
	}
	if len(s.Arrays) == 1 {
		// With one array there is nothing to choose.
		for i := range s.Enclosures {
			e := &s.Enclosures[i]
			for _, set := range s.Sets() {
				if e.Array == "" && set.Storage.Kind == "array" && (s.Flavour != Lustre || set.Name == e.Module) {
					e.Array = s.Arrays[0].Name
				}
			}
		}
	}
	return true
}

// refuseInside refuses a controller in a server if two servers are to reach its disks.
func (c *layout) refuseInside(at string, m ArrayModel) bool {
	c.refuse(c.isHA(), at+".model", "use an array with two controllers that both servers reach, or flavour nfs", "%s is inside of one server: the other could not take its disks over", Article(m.Name))
	return c.isHA()
}

// Article puts "a" or "an" before the name of an array model.
func Article(model string) string {
	if strings.HasPrefix(model, "M") || strings.HasPrefix(model, "E") {
		return "an " + model
	}
	return "a " + model
}

// enclosureArray checks which array an enclosure hangs on.
func (c *layout) enclosureArray(e *Enclosure, at string) bool {
	s := c.s
	set, known := lists.First(s.Sets(), func(x Set) bool { return x.Name == e.Set() })
	if !known {
		return false
	}
	if set.Storage.Kind == "jbod" {
		if e.Array != "" {
			c.errorf(at+".array", "remove it, or write kind: array", "enclosure %s hangs on array %s, but kind is jbod", e.Name, e.Array)
			return false
		}
		return true
	}
	names := lists.Map(s.Arrays, func(a Array) string { return a.Name })
	if e.Array == "" {
		c.errorf(at, "add array: one of "+oneOf(names), "enclosure %s hangs on no array", e.Name)
		return false
	}
	if !slices.Contains(names, e.Array) {
		c.errorf(at+".array", didYouMean(e.Array, names, "the arrays are: "+strings.Join(names, ", ")), "there is no array %q", e.Array)
		return false
	}
	a := &s.Arrays[slices.Index(names, e.Array)]
	m, ok := ModelOf(a.Model)
	if !ok {
		return false
	}
	at2 := fmt.Sprintf("arrays[%d]", slices.Index(names, e.Array))
	if set.Storage.Model != "" && a.Model != set.Storage.Model {
		c.errorf(at2+".model", "mend one of them", "array %s is %s, but %s.model is %s", a.Name, Article(a.Model), set.Path, set.Storage.Model)
		return false
	}
	if !c.modelGeometry(set.Path, m, &set.Storage.RAID) {
		return false
	}
	return c.shelf(e, at, a, m)
}

// shelf checks what the first enclosure of an array may be: the one with its
// controllers, and the one that stands for their number.
func (c *layout) shelf(e *Enclosure, at string, a *Array, m ArrayModel) bool {
	var chain []*Enclosure
	for i := range c.s.Enclosures {
		if o := &c.s.Enclosures[i]; o.Array == a.Name {
			chain = append(chain, o)
		}
	}
	if chain[0] != e {
		return true
	}
	n := e.Bays
	disks := 0
	for _, l := range e.Disks {
		if list, err := l.Serials(); err == nil {
			disks += len(list)
		}
	}
	if n = max(n, disks); m.Bays > 0 && n > m.Bays {
		c.errorf(at, "put the others into another enclosure", "enclosure %s has the controllers of %s, which has %d bays, not %d", e.Name, Article(m.Name), m.Bays, n)
		return false
	}
	if len(chain) > m.Shelves {
		c.errorf(at, fmt.Sprintf("cable %d at most to one array", m.Shelves), "array %s has %d enclosures, more than the %d %s drives", a.Name, len(chain), m.Shelves, Article(m.Name))
		return false
	}
	return true
}

// cache checks the SSDs in front of the volume.
func (c *layout) cache() {
	s := c.s
	k := s.Cache
	if k == nil {
		return
	}
	if s.Flavour == Lustre {
		c.errorf("cache", "remove it", "a cache belongs to an NFS volume; flavour lustre has none")
		return
	}
	modes := []string{"write-back", "write-through"}
	modeOK := slices.Contains(modes, k.Mode)
	if !modeOK {
		c.errorf("cache.mode", didYouMean(k.Mode, modes, "use write-back or write-through"), "unknown mode %q of a cache", k.Mode)
	}
	c.refuse(k.Bypass < 0 || k.Bypass > GiB, "cache.sequential_bypass", "choose up to 1GiB, e.g. 1MiB", "sequential_bypass is %s", k.Bypass)
	n := 0
	known := true
	for i := range k.SSDs {
		l := &k.SSDs[i]
		at := fmt.Sprintf("cache.ssds[%d]", i)
		if !s.Given(at + ".type") {
			l.Type = "nvme"
		}
		c.refuse(l.Type != "nvme" && l.Type != "ssd" && slices.Contains(diskTypes, l.Type), at+".type", "use ssd or nvme", "a cache of %s disks is no faster than what it caches", l.Type)
		if c.disk(l, at, map[string]string{}) && l.Size < leastSSD {
			c.errorf(at+".size", "use SSDs of 1GB or more", "an SSD of %s has no room for the metadata of a cache", l.Size)
		}
		c.inside(l, at)
		list, err := l.Serials()
		if err != nil {
			c.split(at+".serial", "", err)
			known = false
			continue
		}
		for _, serial := range list {
			if other, dup := c.bySerial[serial]; dup {
				c.errorf(at+".serial", "each disk has a serial number of its own: look at its label", "disk %s is already listed at %s", serial, c.at(other))
			}
			c.bySerial[serial] = at + ".serial"
			n++
		}
	}
	switch {
	case !known:
	case n < 1 || n > 4:
		c.errorf("cache.ssds", "list 1 to 4", "the cache has %s", Plural(n, "SSD"))
	case modeOK && k.Mode == "write-back" && n < 2:
		c.errorf("cache.mode", "add an SSD, or use write-through", "write-back needs two SSDs: dirty data on the only one is lost with it")
	}
}

// inside checks where an SSD of the cache is.
func (c *layout) inside(l *DiskList, at string) {
	if l.Server == "" {
		return
	}
	switch names := c.s.serverNames(); {
	case !slices.Contains(names, l.Server):
		c.errorf(at+".server", "use "+oneOf(names), "there is no server %q", l.Server)
	case len(names) > 1 && c.s.Cache.Mode == "write-back":
		c.errorf(at+".server", "put it where both servers reach it, or use write-through",
			"write-back on an SSD inside %s: when %s dies, what is dirty on it is out of the other server's reach", l.Server, l.Server)
	}
}
