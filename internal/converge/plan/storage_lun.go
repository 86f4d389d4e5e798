package plan

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// lunStorage are LUNs of RAID arrays behind two controllers, or of a RAID
// controller in the server.
type lunStorage struct{ *builder }

// direct tells whether LUNs are of a controller in the server: one path each.
func (l lunStorage) direct() bool { return l.luns()[0].Direct }

// luns are those of the pair.
func (l lunStorage) luns() []storage.DiskRef {
	return lists.Flat(l.services(), l.of)
}

// of are the LUNs of a service, in order.
func (l lunStorage) of(s *design.Service) []storage.DiskRef {
	var out []storage.DiskRef
	for _, u := range l.d.LUNsIn(&s.Storage) {
		i := slices.IndexFunc(l.d.Arrays, func(a design.Array) bool { return a.Name == u.Array })
		out = append(out, storage.DiskRef{
			Serial: u.WWN, WWN: u.WWN, Enclosure: u.Array, Size: int64(u.Size), LUN: u.Name, Direct: l.d.Arrays[i].Family == "perc",
		})
	}
	return out
}

// wanted are the LUNs of a service and what they may carry.
func (l lunStorage) wanted(s *design.Service) []storage.WantedDisk {
	var out []storage.WantedDisk
	for _, r := range l.of(s) {
		out = append(out, storage.WantedDisk{DiskRef: r, VG: s.Storage.VG, FS: s.FileSystem(), Wipe: slices.Contains(l.d.Spec.Wipe, r.WWN)})
	}
	return out
}

// refuse has LUNs that are not as designed refused, in the words of mortar array
// verify. A path that is out, or an owner that changed, is for status to tell once
// the pair serves: it must not keep anybody from changing something else.
func (l lunStorage) refuse() error {
	if l.facts.SCSI == nil {
		return nil // a plan for blank hosts
	}
	serves := map[string]bool{} // by LUN
	for _, s := range l.services() {
		for _, u := range l.of(s) {
			serves[u.LUN] = l.placeOf(s).managed || l.holder(s) != ""
		}
	}
	found := slices.DeleteFunc(array.Verify(l.d, l.facts.SCSI).Findings, func(f array.Finding) bool {
		return !slices.Contains(l.servers, f.Host) || f.Passing && serves[f.LUN]
	})
	var all Refusals
	for _, g := range array.Grouped(found) {
		for _, h := range g.Hosts {
			all = append(all, HostRefusal{Host: h, Step: "LUNs of " + h, Refusal: resource.Refusal{Identity: health.Identity{Code: g.Code, Subject: g.LUN, Args: g.Args}, What: g.Sentence(l.d), Mend: g.Mend}})
		}
	}
	return all.orNil()
}

// foreign are steps that look at what each LUN carries that a server found as
// designed; none changes anything.
func (l lunStorage) foreign(found func(host, lun string) bool) []Step {
	var steps []Step
	for _, s := range l.services() {
		host := l.placeOf(s).host
		for _, w := range l.wanted(s) {
			if found(host, w.LUN) {
				steps = append(steps, Step{Title: w.LUN, Host: host, Resource: &storage.Disks{Host: host, List: []storage.WantedDisk{w}, Check: true}})
			}
		}
	}
	return steps
}

func (l lunStorage) packages(p distro.Packages) []string {
	if l.direct() {
		return p.LVM
	}
	return slices.Concat(p.LVM, p.Multipath)
}

// modules: the kernel itself loads the device handler of a LUN (scsi_dh_alua,
// scsi_dh_rdac) once it sees the LUN; a kernel for clouds has none.
//
// Source: Linux, drivers/scsi/scsi_dh.c
func (l lunStorage) modules() []string {
	if l.direct() {
		return nil
	}
	return []string{"dm_multipath"}
}

func (l lunStorage) checks() {
	all := lists.Flat(l.services(), l.wanted)
	for _, host := range l.servers {
		l.add(StageHosts, host, "LUNs of "+host, &storage.Disks{Host: host, List: all})
		if !l.direct() {
			l.add(StageHosts, host, "who else has LUNs of "+host, &storage.Reservations{Host: host, LUNs: l.luns(), Keys: keys(l.pair)})
		}
	}
}

func (l lunStorage) carries(s *design.Service, host string, _ bool) {
	l.add(StageDisks, host, "LUNs of "+s.Name, &storage.Disks{Host: host, List: l.wanted(s), Check: true})
}

// files: LUNs have no md. A cache's mirrors do.
func (l lunStorage) files(h string, more []string) {
	if l.cached() != nil {
		l.mdFiles(h, "", nil, more)
	}
}

func (l lunStorage) devices(h string) {
	if !l.direct() {
		l.add(StagePaths, h, "multipath", &storage.Multipath{Brick: l.d.Name, Disks: l.luns(), Settings: l.settings("server", "multipath"), Reservation: reservations(l.pair)[h]})
	}
	l.blockQueue(h, l.luns(), nil)
}

func (l lunStorage) there(s *design.Service, host string) bool {
	return s.Storage.VG != "" && l.facts.Hosts[host].HasVolume(s.Storage.VG)
}

func (l lunStorage) uses(s *design.Service, host string) []string {
	if l.there(s, host) {
		return []string{"volume group " + s.Storage.VG}
	}
	return nil
}

func (l lunStorage) build(s *design.Service, _ place) (pvs, serials []string) {
	for _, r := range l.of(s) {
		serials = append(serials, r.Serial)
	}
	return s.Storage.LUNs, serials
}

func (l lunStorage) pv(lun string) string {
	all := l.d.LUNs()
	return all[slices.IndexFunc(all, func(u design.LUN) bool { return u.Name == lun })].Device
}

func (l lunStorage) claim(s *design.Service, u *storage.Unclaimed, r *storage.ReleaseStorage) {
	u.VG, r.PVs = s.Storage.VG, s.Storage.LUNs
}

func (l lunStorage) agent(s *design.Service, c *ocf.Config, r *storage.OCFConfig) {
	c.LUNStorage = &lun.LUNStorage{}
	c.Reservations = reservations(l.pair)
	if l.value("multipath", "no_path_retry", "") != "" {
		c.QueueSeconds = design.QueueSeconds
	}
	for _, u := range l.of(s) {
		c.LUNs = append(c.LUNs, lun.LUN{Name: u.LUN, Array: u.Enclosure}) // the resource fills in WWID and size
	}
	r.LUNs = l.of(s)
}
