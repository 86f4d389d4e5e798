package observe

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// view is the facts about one pair, in the form that the checks need. It judges
// nothing.
type view struct {
	d       *design.Design
	pair    *design.Pair
	now     time.Time
	servers []*server          // all of the pair, in its order
	byName  map[string]*server // the same servers
	crm     *linux.CRM         // view of the server crmOf, which the checks use; nil if no server's cluster answers
	crmOf   *server
	cib     *linux.CIB
	facts   Facts
}

type server struct {
	name    string
	host    *gather.Host // nil if it does not answer
	err     string
	mounts  []linux.Mount
	arrays  []*array
	disks   map[string]*seenDisk // by the design's serial
	failed  map[string]string    // paths that multipath considers failed: sdX to reason
	links   []linux.Ring
	cluster gather.Cluster // zero without fencing
	// odd has what of the answers of its tools is not understood, by tool.
	odd map[string]health.Unread
}

// seenDisk is a disk of the design as one server sees it.
type seenDisk struct {
	resource.DiskFact
	good []string // working paths, sdX
	bad  map[string]string
}

// array is an assembled md array on a server, with the disks of its members.
type array struct {
	gather.Array
	members []member
}

type member struct {
	linux.MDMember
	disk *design.Disk
}

// of is the member that is a disk, nil if none is.
func (a *array) of(serial string) *member {
	return lists.Find(a.members, func(m *member) bool { return m.disk != nil && m.disk.Serial == serial })
}

func newView(d *design.Design, p *design.Pair, f Facts) *view {
	v := &view{d: d, pair: p, now: f.Time, facts: f, byName: map[string]*server{}}
	for _, s := range p.Servers {
		a := f.Hosts[s]
		sv := &server{name: s, host: a.Host, err: a.Err}
		if a.Host == nil && a.Err == "" {
			sv.err = "was not asked"
		}
		if a.Host != nil {
			sv.read(d, p)
		}
		v.servers = append(v.servers, sv)
		v.byName[s] = sv
	}
	// Prefer the view of a server in a partition with quorum; among these the
	// DC's own view, then the first.
	for _, s := range v.servers {
		crm := s.cluster.CRM
		if crm == nil {
			continue
		}
		better := v.crm == nil ||
			crm.DC.Quorum && !v.crm.DC.Quorum ||
			crm.DC.Quorum == v.crm.DC.Quorum && crm.DC.Name == s.name && v.crm.DC.Name != v.crmOf.name
		if better {
			v.crm, v.crmOf, v.cib = crm, s, s.cluster.CIB
		}
	}
	return v
}

// read parses a server's answer.
func (s *server) read(d *design.Design, p *design.Pair) {
	h := s.host
	s.mounts = linux.ParseMounts(h.Files["/proc/self/mounts"])
	s.odd = map[string]health.Unread{}
	s.links, s.odd["corosync-cfgtool"] = linux.ParseRings(h.Run[gather.CmdLinks].Stdout)
	if p.HA != nil {
		if s.cluster = h.Cluster(); s.cluster.CRM != nil {
			s.odd["crm_mon"] = s.cluster.Unread
		}
	}

	failed, odd := h.FailedPaths()
	s.odd["dmsetup"] = odd
	s.disks, s.failed = map[string]*seenDisk{}, failed
	pathDisk := map[string]*design.Disk{} // sdX or nvmeXn1 -> disk
	for i := range d.Disks {
		want := &d.Disks[i]
		for _, have := range h.Disks {
			if !have.Is(want.Serial, want.WWN) {
				continue
			}
			sd := &seenDisk{DiskFact: have}
			sd.good, sd.bad = have.Divide(failed)
			s.disks[want.Serial] = sd
			for _, p := range have.Paths {
				pathDisk[filepath.Base(p)] = want
			}
			break
		}
	}
	below, mapped := h.Below(), h.Mapped()
	diskOf := func(dev string) *design.Disk {
		if x := pathDisk[dev]; x != nil {
			return x
		}
		for _, slave := range below[dev] {
			if x := pathDisk[slave]; x != nil {
				return x
			}
		}
		name := mapped[dev]
		uuid := strings.TrimSpace(h.Files["/sys/block/"+dev+"/dm/uuid"])
		for i := range d.Disks {
			w := &d.Disks[i]
			if sd := s.disks[w.Serial]; sd != nil && name != "" && sd.Device == "/dev/mapper/"+name {
				return w
			}
			// Without a path only the map's WWID identifies the disk.
			if w.WWN != "" && strings.EqualFold(uuid, "mpath-3"+w.WWN) {
				return w
			}
		}
		return nil
	}
	for _, f := range h.Arrays() {
		a := &array{Array: f}
		for _, m := range f.Members {
			a.members = append(a.members, member{m, diskOf(m.Dev)})
		}
		for _, line := range a.Stat.Unread {
			odd := s.odd["/proc/mdstat"]
			odd.Add(a.Dev + ": " + line)
			s.odd["/proc/mdstat"] = odd
		}
		s.arrays = append(s.arrays, a)
	}
}

// array finds the assembled array of a group on a server.
func (s *server) array(g *design.Group) *array {
	a, _ := lists.First(s.arrays, func(a *array) bool { return md.SameUUID(a.UUID, g.UUID) || a.UUID == "" && a.Name == g.Name })
	return a
}

// reaches reports whether a path of a server to a disk works.
func (s *server) reaches(x *design.Disk) bool {
	sd := s.disks[x.Serial]
	return sd != nil && len(sd.good) > 0
}

// mountOf finds the mount of a volume's file system on a server.
func (s *server) mountOf(vol *design.Service) (linux.Mount, bool) {
	m, ok := linux.MountAt(s.mounts, vol.MountPoint)
	return m, ok && m.Type != "autofs"
}

// where finds the server of a service: by the cluster, or without one the only
// server.
func (v *view) where(svc *design.Service) Where {
	w := Where{Service: svc.Name, Address: svc.Floating(), Preferred: svc.Preferred}
	if v.pair.HA == nil {
		w.Server = v.servers[0].name
		w.Preferred = w.Server
		return w
	}
	if v.crm == nil {
		return w
	}
	r := gather.ServiceIn(v.crm, svc.Name)
	if r == nil {
		return w
	}
	w.Server = r.Node()
	if t, ok := v.crm.Started(r.ID, w.Server, v.crmOf.host.UTCOffset); ok && w.Server != "" {
		w.Since = &t
	}
	return w
}

// diskName names a disk by serial, enclosure and bay, as a person at the rack needs
// it.
func diskName(x *design.Disk) string {
	s := x.Serial
	if x.Enclosure != "" {
		s += " (enclosure " + x.Enclosure + " bay " + strconv.Itoa(x.Bay) + ")"
	}
	return s
}
