package plan

import (
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// mdStorage are md arrays of disks that both servers reach, each by two paths.
type mdStorage struct{ *builder }

func (m mdStorage) refuse() error { return nil }

func (m mdStorage) packages(p distro.Packages) []string {
	if design.AllNVMe(m.d) {
		return slices.Concat(p.MD, p.LVM)
	}
	return slices.Concat(p.MD, p.LVM, p.Multipath)
}

func (m mdStorage) modules() []string {
	level := "raid456"
	if m.groups()[0].Level == 10 {
		level = "raid10"
	}
	if design.AllNVMe(m.d) {
		return []string{level}
	}
	return []string{level, "dm_multipath"}
}

func (m mdStorage) groups() []design.Group { return m.d.ArraysOf(m.pair) }

// disks are those of the arrays.
func (m mdStorage) disks() []design.Disk { return m.d.DisksOf(m.pair) }

// arraysOf are the md arrays of a service.
func (m mdStorage) arraysOf(s *design.Service) []design.Group { return m.d.GroupsIn(&s.Storage) }

// uuids are those of some arrays.
func uuids(groups []design.Group) []string {
	return lists.Map(groups, func(g design.Group) string { return g.UUID })
}

// disksOf are a group's members and spares.
func disksOf(g design.Group) []design.Disk { return slices.Concat(g.Members, g.Spares) }

// wanted are the disks of the pair that are in service, each with the array that
// it is a member of.
func (m mdStorage) wanted() []storage.WantedDisk {
	group, set := map[string]string{}, map[string]string{}
	for _, g := range m.groups() {
		for _, k := range disksOf(g) {
			group[k.Serial] = g.UUID
		}
	}
	for _, s := range m.services() {
		for _, g := range m.arraysOf(s) {
			for _, k := range disksOf(g) {
				set[k.Serial] = s.Name
			}
		}
	}
	disks := m.inService()
	out := make([]storage.WantedDisk, 0, len(disks))
	for _, k := range disks {
		out = append(out, storage.WantedDisk{DiskRef: ref(k), Group: group[k.Serial], Set: set[k.Serial], Wipe: slices.Contains(m.d.Spec.Wipe, k.Serial)})
	}
	return out
}

// inService are the disks of the pair that are not marked as failed.
func (m mdStorage) inService() []design.Disk {
	return slices.DeleteFunc(m.disks(), func(k design.Disk) bool { return k.Failed })
}

func (m mdStorage) checks() {
	list, disks := m.wanted(), refs(m.inService())
	for _, host := range m.servers {
		m.add(StageHosts, host, "disks of "+host, &storage.Disks{Host: host, List: list, Arrays: uuids(m.groups())})
		if reservations(m.pair) != nil {
			m.add(StageHosts, host, "who else has disks of "+host, &storage.Reservations{Host: host, LUNs: disks, Keys: keys(m.pair)})
		}
	}
}

func (m mdStorage) carries(s *design.Service, host string, first bool) {
	used := map[string]bool{}
	for _, g := range m.arraysOf(s) {
		for _, k := range disksOf(g) {
			used[k.Serial] = true
		}
	}
	disks := m.inService()
	mine := make([]storage.WantedDisk, 0, len(disks))
	for i, w := range m.wanted() {
		k := disks[i]
		ofNobody := k.Service == "" && k.Group == "" && !used[k.Serial]
		if used[k.Serial] || k.Service == s.Name || ofNobody && first {
			mine = append(mine, w)
		}
	}
	m.add(StageDisks, host, "disks of "+s.Name, &storage.Disks{Host: host, List: mine, Arrays: uuids(m.groups()), Check: true})
}

func (m mdStorage) files(h string, more []string) {
	var text strings.Builder
	if m.pair.HA != nil {
		text.WriteString("# Shared arrays: nothing but the resource agent may assemble them, on the one\n" +
			"# server that owns them. With <ignore>, udev does not.\n# Source: mdadm.conf(5)\n")
	} else {
		text.WriteString("# Assembled at boot, as their members appear.\n")
	}
	for _, g := range m.groups() {
		dev := "/dev/md/" + g.Name
		if m.pair.HA != nil {
			dev = "<ignore>"
		}
		text.WriteString("ARRAY " + dev + " UUID=" + g.UUID + "\n")
	}
	m.mdFiles(h, text.String(), uuids(m.groups()), more)
}

func (m mdStorage) devices(h string) {
	disks := refs(m.disks())
	if !design.AllNVMe(m.d) {
		m.add(StagePaths, h, "multipath", &storage.Multipath{
			Brick: m.d.Name, Disks: disks, Settings: m.settings("server", "multipath"), Reservation: reservations(m.pair)[h],
		})
	}
	m.blockQueue(h, disks, uuids(m.groups()))
}

func (m mdStorage) there(s *design.Service, host string) bool {
	return slices.ContainsFunc(m.arraysOf(s), func(g design.Group) bool {
		_, there := m.facts.array(host, g.UUID)
		return there
	})
}

func (m mdStorage) uses(s *design.Service, host string) []string {
	var out []string
	for _, g := range m.arraysOf(s) {
		if a, there := m.facts.array(host, g.UUID); there && a.Running() { // it does I/O
			out = append(out, "array "+g.Name)
		}
	}
	return out
}

func (m mdStorage) build(s *design.Service, p place) (pvs, _ []string) {
	groups := m.arraysOf(s)
	for _, g := range groups {
		pvs = append(pvs, pvOf(g.Name))
	}
	arrays := arraysOf(groups, p.alone())
	for i, g := range groups {
		a := arrays[i]
		if key := reservations(m.pair)[p.host]; key != "" {
			a.Heed = []string{mortarPath, "ocf", ocf.HeedAction, key}
		}
		if g.Growth > 0 && p.managed {
			a.Grow = &storage.Growing{VG: s.Storage.VG, LV: s.Storage.LV, PVs: pvs}
		}
		m.add(StageStorage, p.host, "md array "+g.Name, a)
		m.steps[len(m.steps)-1].Apart = true
	}
	return pvs, nil
}

// pvOf is an array as a physical volume.
func pvOf(group string) string { return "/dev/md/" + group }

func (m mdStorage) pv(group string) string { return pvOf(group) }

func (m mdStorage) claim(s *design.Service, u *storage.Unclaimed, r *storage.ReleaseStorage) {
	u.Arrays, r.Arrays = map[string]string{}, map[string]string{}
	for _, g := range m.arraysOf(s) {
		u.Arrays[g.UUID], r.Arrays[g.UUID] = g.Name, g.Name
	}
}

func (m mdStorage) agent(s *design.Service, c *ocf.Config, r *storage.OCFConfig) {
	c.MDStorage = &mdraid.MDStorage{DropSlow: s.Storage.DropSlow}
	c.Reservations = reservations(m.pair)
	for _, g := range m.arraysOf(s) {
		c.Arrays = append(c.Arrays, mdraid.Array{Name: g.Name, UUID: g.UUID, Need: md.Fewest(g.Level, len(g.Members))})
		r.Members = append(r.Members, refs(disksOf(g)))
	}
}

// ArrayOf is the md array of a RAID group, to be compared where it runs: its diff adds
// disks of the group that it does not have.
func ArrayOf(d *design.Design, g design.Group) *storage.Array {
	groups := []design.Group{g}
	if s := d.On(g.Name); s != nil {
		groups = d.GroupsIn(&s.Storage)
	}
	i := slices.IndexFunc(groups, func(x design.Group) bool { return x.Name == g.Name })
	return arraysOf(groups, false)[i]
}

// arraysOf are the md arrays of the groups of one service. They share one list of all their
// disks: with a list for each, a plan of 100,000 disks takes 17 GB.
func arraysOf(groups []design.Group, assemble bool) (out []*storage.Array) {
	pool := lists.Flat(groups, func(g design.Group) []storage.DiskRef { return refs(disksOf(g)) })
	peers := uuids(groups)
	for _, g := range groups {
		out = append(out, &storage.Array{
			Name: g.Name, UUID: g.UUID, Level: g.Level, Chunk: int64(g.Chunk),
			Members: refs(g.Members), Spares: refs(g.Spares), Assemble: assemble, Peers: peers, Pool: pool,
		})
	}
	return out
}
