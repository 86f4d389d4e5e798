package observe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// systemArrays returns a server's arrays outside the brick: those of its system.
func (s *server) systemArrays(d *design.Design) []*array {
	ours := map[string]bool{}
	for i := range d.Groups {
		if a := s.array(&d.Groups[i]); a != nil {
			ours[a.Dev] = true
		}
	}
	if svc := d.Cached(); svc != nil {
		c := svc.Storage.Cache
		for _, u := range slices.Concat(c.DirtyUUIDs, c.CleanUUIDs) {
			for _, a := range s.arrays {
				if md.SameUUID(a.UUID, u) {
					ours[a.Dev] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.arrays), func(a *array) bool {
		// Skip arrays without redundancy and containers, which cannot be degraded.
		return ours[a.Dev] || a.RaidDisks < 2 || a.Level == "raid0" || a.Level == "linear" ||
			slices.ContainsFunc(a.members, func(m member) bool { return m.disk != nil })
	})
}

// SystemArray is an array of a server's system.
type SystemArray struct {
	Dev      string   // md0
	Level    string   // raid1
	Degraded int      // number of missing members
	Busy     bool     // a resync, rebuild or check is running
	Members  []string // working members: vdb, sda2
	Strays   []string // devices that belong to the array and are not in it
}

// SystemArrays finds the system's arrays in a server's answer to gather.ArrayRequest.
func SystemArrays(d *design.Design, h *gather.Host) []SystemArray {
	s := &server{host: h}
	s.read(d, &design.Pair{}) // an empty pair, since the cluster does not matter
	var out []SystemArray
	for _, a := range s.systemArrays(d) {
		x := SystemArray{Dev: a.Dev, Level: a.Level, Degraded: a.Degraded, Busy: a.Stat.Action != ""}
		for _, m := range a.members {
			if m.Is("in_sync") {
				x.Members = append(x.Members, m.Dev)
			}
		}
		for _, y := range h.Strays {
			if y.Array == a.Dev {
				x.Strays = append(x.Strays, y.Dev)
			}
		}
		out = append(out, x)
	}
	return out
}

// system judges the server's own arrays. It adds a summary to the host's line, and
// findings below. A degraded array is only a warning: the arrays are not part of the
// brick, and the partner takes over if the server dies of them.
func (v *view) system(c *Part, s *server) {
	v.background(c, s)
	for _, f := range prepared.Judge(v.d, s.name, s.host) {
		c.find(f.What, Code(f.Kind), with{"host": s.name, "what": f.What, "have": f.Have, "want": f.Want, "why": f.Why, "source": f.Source, "mend": f.Mend})
	}
	for _, a := range s.systemArrays(v.d) {
		name := "array " + a.Dev
		if a.Level == "raid1" || a.Level == "raid10" {
			name = "system mirror " + a.Dev
		}
		if at := s.mountedFrom(a.Dev); len(at) > 0 {
			name += " (" + strings.Join(at, ", ") + ")"
		}
		c.Text += fmt.Sprintf(", %s: %s", name, memberCount(a))
		s.judgeSystem(c, a, name)
	}
}

func (s *server) judgeSystem(c *Part, a *array, name string) {
	var good, bad []string
	slots := map[int]bool{}
	for _, m := range a.members {
		switch {
		case m.Is("faulty"):
			bad = append(bad, s.localDisk(m.Dev)+" has failed")
		case m.Is("in_sync"):
			good = append(good, s.localDisk(m.Dev))
			slots[m.Slot] = true
		case m.Slot >= 0:
			slots[m.Slot] = true // being rebuilt
		}
	}
	if a.State == "broken" {
		c.find(a.Dev, "system-array-broken", with{"host": s.name, "array": name})
		return
	}
	if a.Degraded > 0 {
		stray := ""
		for _, x := range s.host.Strays {
			if x.Array == a.Dev {
				bad = append(bad, s.localDisk(x.Dev)+" is there again but not in it")
				stray = x.Dev
			}
		}
		for i := range a.RaidDisks {
			if !slots[i] && len(bad) == 0 { // the missing disk is unknown
				bad = append(bad, fmt.Sprintf("the disk of slot %d is missing", i))
			}
		}
		w := c.find(a.Dev, SystemArrayDegraded, with{"host": s.name, "array": name, "device": a.Dev, "left": a.RaidDisks - a.Degraded, "disks": a.RaidDisks, "good": good, "bad": bad, "stray": stray})
		switch {
		case a.Stat.Action != "":
			w.Mend = ""
		case stray != "":
			w.Mend = fmt.Sprintf("`mdadm --manage /dev/%s --add /dev/%s` on %s, if that disk is to be trusted", a.Dev, stray, s.name)
		}
	}
	if a.Stat.Action != "" {
		addProgress(c, a.Stat, name+" of "+s.name)
	}
}

// mountedFrom lists the mount points of a device's file systems, and of those of
// volumes on it.
func (s *server) mountedFrom(dev string) []string {
	from := map[string]bool{"/dev/" + dev: true}
	for dm, below := range s.host.Below() {
		if slices.Contains(below, dev) {
			from["/dev/mapper/"+s.host.Mapped()[dm]] = true
		}
	}
	var at []string
	for _, m := range s.mounts {
		if from[m.Source] && !slices.Contains(at, m.Target) {
			at = append(at, m.Target)
		}
	}
	slices.Sort(at)
	return at
}

// localDisk names a disk, or the disk of a partition, by serial number.
func (s *server) localDisk(dev string) string {
	for _, d := range s.host.Disks {
		for _, p := range d.Paths {
			if resource.PartOf(dev, filepath.Base(p)) && d.Serial != "" {
				return "disk " + d.Serial + " (" + dev + ")"
			}
		}
	}
	return "disk " + dev
}
