package spec

import (
	"fmt"
	"slices"
)

// Journals are the storage sections that have a journal, each once.
func (s *Spec) Journals() []Set {
	var out []Set
	for _, set := range s.Sets() {
		if set.Storage.Journal != nil && !slices.ContainsFunc(out, func(o Set) bool { return o.Path == set.Path }) {
			out = append(out, set)
		}
	}
	return out
}

// Pairs is how many mirrors of two SSDs a journal has: one for each service, because a
// mirror is on one server at a time. Each OST of a Lustre module is a service.
func (set Set) Pairs(flavour Flavour) int {
	if flavour == Lustre {
		return set.Storage.RAID.Groups
	}
	return set.Share
}

// journals checks the SSDs of all journals by themselves, and returns their serial
// numbers.
func (c *checker) journals(bySerial, byWWN map[string]string) (serials []string) {
	for _, set := range c.s.Journals() {
		at := set.Path + ".journal"
		if !c.journalFits(set, at) {
			continue
		}
		for i := range set.Storage.Journal.SSDs {
			serials = append(serials, c.journalSSD(&set.Storage.Journal.SSDs[i], fmt.Sprintf("%s.ssds[%d]", at, i), bySerial, byWWN)...)
		}
	}
	return serials
}

// journalFits refuses a journal where there can be none.
func (c *checker) journalFits(set Set, at string) bool {
	switch raid := set.Storage.RAID; {
	case set.Storage.Kind != "jbod":
		c.errorf(at, "remove it", "a journal is for md arrays of disks, and these are LUNs of a RAID array")
	case raid.Level == 10:
		c.errorf(at, "remove it", "RAID 10 has no parity that a crash could leave wrong, and takes no journal")
	default:
		return true
	}
	return false
}

// journalSSD checks one entry. Its serial numbers are known to bySerial afterwards.
func (c *checker) journalSSD(l *DiskList, at string, bySerial, byWWN map[string]string) []string {
	if !c.s.Given(at + ".type") {
		l.Type = "nvme"
	}
	if l.Type != "nvme" && l.Type != "ssd" && slices.Contains(diskTypes, l.Type) {
		c.errorf(at+".type", "use ssd or nvme", "a journal on %s disks would slow down every write: each goes to it first", l.Type)
	}
	if c.disk(l, at, byWWN) && l.Size < leastSSD {
		c.errorf(at+".size", "use SSDs of 1GB or more", "an SSD of %s has no room for a journal", l.Size)
	}
	if l.Server != "" {
		c.errorf(at+".server", "put it where both servers reach it, or remove the journal",
			"a journal on an SSD inside %s: when %s dies, what was being written is on it, out of the other server's reach", l.Server, l.Server)
	}
	list, err := l.Serials()
	if err != nil {
		c.split(at+".serial", "", err)
		return nil
	}
	for _, serial := range list {
		if other, dup := bySerial[serial]; dup {
			c.errorf(at+".serial", "each disk has a serial number of its own: look at its label", "disk %s is already listed at %s", serial, c.at(other))
		}
		bySerial[serial] = at + ".serial"
	}
	return list
}

// journalPairs checks that each service has two SSDs, once the number of groups is
// known. One alone would be a single point of failure: without its journal an array
// takes no more writes, and is not started. Source: md(4), dirty stripe journal
func (c *checker) journalPairs() {
	for _, set := range c.s.Journals() {
		at, n, want := set.Path+".journal.ssds", 0, 2*set.Pairs(c.s.Flavour)
		for _, l := range set.Storage.Journal.SSDs {
			list, err := l.Serials()
			if err != nil {
				return // said already
			}
			n += len(list)
		}
		each := "the service"
		switch {
		case c.s.Flavour == Lustre:
			each = "each of the " + plural(want/2, "OST") + " of module " + set.Name
		case want > 2:
			each = "each of the two services"
		}
		switch {
		case n == 1 && want == 2:
			c.errorf(at, "add another one: they are mirrored", "a journal on one SSD: when it dies the volume takes no more writes")
		case n != want:
			c.errorf(at, fmt.Sprintf("list %d", want), "the journal has %s, and %s needs a mirror of two, which moves with it", plural(n, "SSD"), each)
		}
	}
}
