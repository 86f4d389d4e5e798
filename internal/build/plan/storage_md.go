package plan

import (
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// mdStorage are md arrays of disks that both servers reach, each by two paths.
type mdStorage struct{ *builder }

func (m mdStorage) refuse() error { return nil }

func (m mdStorage) packages(p distro.Packages) []string {
	if len(m.pair.Mirrors()) > 0 {
		return slices.Concat(p.MD, p.LVM, p.Multipath, p.Partition)
	}
	return slices.Concat(p.MD, p.LVM, p.Multipath)
}

func (m mdStorage) modules() []string {
	level := "raid456"
	if m.groups()[0].Level == 10 {
		level = "raid10"
	}
	if len(m.pair.Mirrors()) > 0 {
		return []string{level, "raid1", "dm_multipath"}
	}
	return []string{level, "dm_multipath"}
}

func (m mdStorage) groups() []design.Group { return m.d.ArraysOf(m.pair) }

// arrays are all md arrays of the pair: those of the groups, and the mirrors of journals.
func (m mdStorage) arrays() []design.Group { return append(m.groups(), m.pair.Mirrors()...) }

// disks are those of the arrays.
func (m mdStorage) disks() []design.Disk {
	return append(m.d.DisksOf(m.pair), m.pair.JournalSSDs()...)
}

// arraysOf are the md arrays of a service, in the order of making them: the mirror of
// the journal first.
func (m mdStorage) arraysOf(s *design.Service) []design.Group {
	groups := m.d.GroupsIn(&s.Storage)
	if j := s.Storage.Journal; j != nil {
		return append([]design.Group{j.Mirror}, groups...)
	}
	return groups
}

// uuids are those of some arrays.
func uuids(groups []design.Group) []string {
	var out []string
	for _, g := range groups {
		out = append(out, g.UUID)
	}
	return out
}

// wanted are the disks of the pair that are in service, each with the array that
// it is a member of.
func (m mdStorage) wanted() []resource.WantedDisk {
	group, set := map[string]string{}, map[string]string{}
	for _, g := range m.arrays() {
		for _, k := range append(slices.Clone(g.Members), g.Spares...) {
			group[k.Serial] = g.UUID
		}
	}
	for i := range m.pair.Services {
		for _, g := range m.d.GroupsIn(&m.pair.Services[i].Storage) {
			for _, k := range append(slices.Clone(g.Members), g.Spares...) {
				set[k.Serial] = m.pair.Services[i].Name
			}
		}
	}
	var out []resource.WantedDisk
	for _, k := range m.inService() {
		out = append(out, resource.WantedDisk{DiskRef: ref(k), Group: group[k.Serial], Set: set[k.Serial], Wipe: slices.Contains(m.d.Spec.Wipe, k.Serial)})
	}
	return out
}

// inService are the disks of the pair that are not marked as failed.
func (m mdStorage) inService() []design.Disk {
	return slices.DeleteFunc(slices.Clone(m.disks()), func(k design.Disk) bool { return k.Failed })
}

func (m mdStorage) checks(host string) {
	m.add(StageHosts, host, "disks of "+host, &resource.Disks{Host: host, List: m.wanted(), Arrays: uuids(m.arrays())})
}

func (m mdStorage) carries(s *design.Service, host string, first bool) {
	used := map[string]bool{}
	for _, g := range m.arraysOf(s) {
		for _, k := range append(slices.Clone(g.Members), g.Spares...) {
			used[k.Serial] = true
		}
	}
	var mine []resource.WantedDisk
	for i, w := range m.wanted() {
		k := m.inService()[i]
		ofNobody := k.Service == "" && k.Group == "" && !used[k.Serial]
		if used[k.Serial] || k.Service == s.Name || ofNobody && first {
			mine = append(mine, w)
		}
	}
	m.add(StageDisks, host, "disks of "+s.Name, &resource.Disks{Host: host, List: mine, Arrays: uuids(m.arrays()), Check: true})
}

func (m mdStorage) files(h string, more []string) {
	var text strings.Builder
	if m.pair.HA != nil {
		text.WriteString("# Shared arrays: nothing but the resource agent may assemble them, on the one\n" +
			"# server that owns them. With <ignore>, udev does not.\n# Source: mdadm.conf(5)\n")
	} else {
		text.WriteString("# Assembled at boot, as their members appear.\n")
	}
	for _, g := range m.arrays() {
		dev := "/dev/md/" + g.Name
		if m.pair.HA != nil {
			dev = "<ignore>"
		}
		text.WriteString("ARRAY " + dev + " UUID=" + g.UUID + "\n")
	}
	m.mdFiles(h, text.String(), uuids(m.arrays()), more)
}

func (m mdStorage) devices(h string) {
	m.add(StageMultipath, h, "multipath", &resource.Multipath{
		Brick: m.d.Name, Disks: refs(m.disks()), Settings: m.settings("server", "multipath"),
	})
	// SSDs of a journal keep the kernel's queue: the values are those for the disks.
	m.blockQueue(h, refs(m.d.DisksOf(m.pair)), uuids(m.groups()))
}

func (m mdStorage) there(s *design.Service, host string) bool {
	return slices.ContainsFunc(m.arraysOf(s), func(g design.Group) bool { return m.facts.HasArray(host, g.UUID) })
}

func (m mdStorage) uses(s *design.Service, host string) []string {
	var out []string
	for _, g := range m.arraysOf(s) {
		if m.facts.RunsArray(host, g.UUID) {
			out = append(out, "array "+g.Name)
		}
	}
	return out
}

func (m mdStorage) build(s *design.Service, p place) (pvs, _ []string) {
	groups := m.d.GroupsIn(&s.Storage)
	for _, g := range groups {
		pvs = append(pvs, pvOf(g.Name))
	}
	m.journal(s, p)
	for _, g := range groups {
		a := arrayOf(m.d, s.Storage.Journal, g, p.alone())
		if g.Growth > 0 && p.managed {
			a.Grow = &resource.Growing{VG: s.Storage.VG, LV: s.Storage.LV, PVs: pvs}
		}
		m.add(StageStorage, p.host, "md array "+g.Name, a)
	}
	return pvs, nil
}

// journal has the mirror made, and a partition for each array.
func (m mdStorage) journal(s *design.Service, p place) {
	j := s.Storage.Journal
	if j == nil {
		return
	}
	t := &resource.JournalTable{Mirror: j.Mirror.Name, UUID: j.Mirror.UUID, Table: j.Table, Assemble: p.alone()}
	for _, part := range j.Parts {
		t.Parts = append(t.Parts, resource.JournalPart{Name: part.Group, Start: int64(part.Start), Size: int64(part.Size), Device: part.Device})
	}
	m.add(StageStorage, p.host, "mirror "+j.Mirror.Name+" of the journal", arrayOf(m.d, nil, j.Mirror, p.alone()))
	m.add(StageStorage, p.host, "partitions of "+j.Mirror.Name, t)
}

// pvOf is an array as a physical volume.
func pvOf(group string) string { return "/dev/md/" + group }

func (m mdStorage) pv(group string) string { return pvOf(group) }

func (m mdStorage) claim(s *design.Service, u *resource.Unclaimed, r *resource.ReleaseStorage) {
	u.Arrays, r.Arrays = map[string]string{}, map[string]string{}
	for _, g := range m.d.GroupsIn(&s.Storage) {
		u.Arrays[g.UUID], r.Arrays[g.UUID] = g.Name, g.Name
	}
	if j := s.Storage.Journal; j != nil {
		u.Arrays[j.Mirror.UUID] = j.Mirror.Name
		r.Mirrors = map[string]string{j.Mirror.UUID: j.Mirror.Name}
	}
}

func (m mdStorage) agent(s *design.Service, c *ocf.Config, r *resource.OCFConfig) {
	c.MDStorage = &ocf.MDStorage{DropSlow: s.Storage.DropSlow}
	j := s.Storage.Journal
	if j != nil {
		c.Journal = &ocf.Array{Name: j.Mirror.Name, UUID: j.Mirror.UUID, Need: 1}
		c.Needs = append(c.Needs, ocf.NeedJournal)
		r.Journal = refs(j.Mirror.Members)
	}
	for _, g := range m.d.GroupsIn(&s.Storage) {
		_, part := j.Of(g.Name)
		c.Arrays = append(c.Arrays, ocf.Array{Name: g.Name, UUID: g.UUID, Need: md.Fewest(g.Level, len(g.Members)), Journal: part})
		r.Members = append(r.Members, refs(append(slices.Clone(g.Members), g.Spares...)))
	}
}

// ArrayOf is the md array of a RAID group, to be compared where it runs: its diff adds
// disks of the group that it does not have.
func ArrayOf(d *design.Design, g design.Group) *resource.Array {
	for _, s := range d.Services() {
		if slices.Contains(s.Storage.Groups, g.Name) {
			return arrayOf(d, s.Storage.Journal, g, false)
		}
	}
	return arrayOf(d, nil, g, false)
}

func arrayOf(d *design.Design, j *design.Journal, g design.Group, assemble bool) *resource.Array {
	a := &resource.Array{
		Name: g.Name, UUID: g.UUID, Level: g.Level, Chunk: int64(g.Chunk),
		Members: refs(g.Members), Spares: refs(g.Spares), Assemble: assemble,
	}
	for _, p := range d.Peers(&g) {
		a.Peers = append(a.Peers, p.UUID)
		a.Others = append(a.Others, refs(append(slices.Clone(p.Members), p.Spares...))...)
	}
	if part, _ := j.Of(g.Name); part != nil {
		a.Journal = part.Device
	}
	return a
}
