package design

import (
	"fmt"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Sizes of the part of a journal that one array has.
const (
	// journalMost keeps a takeover short. md frees a quarter of the journal at a time, and
	// a start replays what is in it, one page of one member after the other: 500 to 750
	// stripes a second on a rack, where 942 MiB cost a start 20 s. A smaller journal
	// has md flush the disks' caches more often.
	// Source: drivers/md/raid5-cache.c, RECLAIM_MAX_FREE_SPACE_SHIFT and
	// r5l_recovery_replay_one_stripe
	journalMost = 256 * spec.MiB
	// journalLeast holds some hundred full stripes of 8+2 disks with chunks of 128 KiB.
	journalLeast = 64 * spec.MiB
	// journalAlign is where partitions begin, and what the table of partitions takes at
	// either end. Source: sfdisk(8)
	journalAlign = spec.MiB
	// mirrorChunk stands for the chunk that RAID 1 has not, where md rounds by it.
	mirrorChunk = 64 * spec.KiB
)

// journals derives the journals: a mirror of two SSDs for each service, with a
// partition for each of its arrays. The kernel finds the partitions whenever it has the
// mirror, so they are on one server at a time, as it is, and nothing has to be told of
// them on the other one.
func (d *Design) journals() error {
	n := 0
	for _, set := range d.Spec.Journals() {
		services := d.Services()
		if d.Lustre != nil {
			services = nil
			for i := range d.Pairs {
				for j := range d.Pairs[i].Services {
					if d.Pairs[i].Name == set.Name {
						services = append(services, &d.Pairs[i].Services[j])
					}
				}
			}
		}
		ssds := d.journalSSDs(set)
		for i, v := range services {
			if err := d.journal(set, v, fmt.Sprintf("%s-j%d", d.Name, n), ssds[2*i:2*i+2]); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// journalSSDs are those of a storage section, in order.
func (d *Design) journalSSDs(set spec.Set) []Disk {
	var out []Disk
	for _, l := range set.Storage.Journal.SSDs {
		serials, err := l.Serials()
		if err != nil {
			continue // Parse has refused it
		}
		for _, serial := range serials {
			out = append(out, Disk{Serial: serial, WWN: l.WWN, Enclosure: "journal", Bay: len(out) + 1, Size: l.Size, Type: l.Type, Failed: isFailed(d.Spec, serial)})
		}
	}
	return out
}

// journal makes the journal of a service on two SSDs.
func (d *Design) journal(set spec.Set, v *Service, name string, ssds []Disk) error {
	least := min(ssds[0].Size, ssds[1].Size)
	for i := range ssds {
		ssds[i].Group = name
	}
	m := Group{Name: name, UUID: mdUUID(stableUUID(d.Spec, "md", name)), Level: 1, Data: 1, Parity: 1, Members: ssds, Usable: least}
	if d.Lustre != nil {
		m.Module = set.Name
	} else {
		m.Service = v.Name
	}
	at := set.Path + ".journal.ssds"
	if failed := failedOf(ssds); len(failed) > 1 {
		return errorAt(d.Spec, "failed", "replace one (mortar disk replace) before you take the other out", "both SSDs of mirror %s are marked as failed, and without its journal an array takes no writes", name)
	}
	groups := d.GroupsIn(&v.Storage)
	// Makers round differently: resource.Disks takes a disk that is one percent smaller.
	room := mdData(least-least/100, mirrorChunk) - 2*journalAlign
	disk := groups[0].Members[0].Size
	// md begins the journal where it begins the data of the disks.
	head := mdOffset(disk, groups[0].Chunk)
	size := min(room/spec.Bytes(len(groups)), head+journalMost) / journalAlign * journalAlign
	if size < head+journalLeast {
		return errorAt(d.Spec, at, "use larger SSDs", "SSDs of %s leave %s for the journal of each of %s, and md needs %s", least, max(size, 0).Binary(), plural(len(groups), "group"), (head + journalLeast).Binary())
	}
	j := &Journal{Mirror: m, Table: stableUUID(d.Spec, "journal-table", name).String()}
	for i, g := range groups {
		j.Parts = append(j.Parts, JournalPart{
			Group: g.Name, Start: journalAlign + spec.Bytes(i)*size, Size: size,
			Device: fmt.Sprintf("/dev/disk/by-id/md-uuid-%s-part%d", m.UUID, i+1),
		})
	}
	v.Storage.Journal = j
	return nil
}

// recommend says what the spec could have that its hardware may allow.
func (d *Design) recommend() {
	for i := range d.Pairs {
		p := &d.Pairs[i]
		if p.HA == nil || d.Spec.Profile == spec.Stock {
			continue
		}
		for j := range p.Services {
			st := &p.Services[j].Storage
			groups := d.MDGroups(&p.Services[j])
			if st.Journal != nil || len(groups) == 0 || groups[0].Level == 10 {
				continue
			}
			d.Recommended = append(d.Recommended, Advice{
				Text: fmt.Sprintf("a write journal (storage.journal) for the groups of %s, if SSDs are at hand that both servers reach. "+
					"When a server dies while a group lacks a disk, stripes that it was writing can be torn, and what the missing disk held there is rebuilt wrong. "+
					"Without a journal the start compares both parities, and is refused if they differ or if two disks are missing; after days without the disk that may take hours. With a journal the start replays the journal. "+
					"On a rack ten starts after a crash replayed it in seconds; with journals four times as large one start hung in the kernel. Drill it first (degraded-crash)", p.Name),
				Source: "md(4), DIRTY STRIPE JOURNAL; mdadm(8), --write-journal; docs/design.md",
			})
			break // one for the pair
		}
	}
}
