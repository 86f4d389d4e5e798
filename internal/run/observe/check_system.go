package observe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Stray is a device that belongs to an array which runs without it, as a disk
// that was out of its slot and is back.
type Stray struct {
	Dev   string `json:"dev"`   // vdb, sda2
	Array string `json:"array"` // md0
}

// strays finds them, by what udev has read from the devices.
func strays(sys resource.Sys) []Stray {
	host := resource.Tree{Sys: sys}
	arrays, _ := linux.MDArrays(host) // what cannot be read is no array to judge
	if len(arrays) == 0 {
		return nil
	}
	in := map[string]bool{}
	for _, a := range arrays {
		members, _ := linux.MDMembers(host, a.Dev)
		for _, m := range members {
			in[m.Dev] = true
		}
	}
	var out []Stray
	devs, _ := sys.Glob("/sys/class/block/*/dev")
	for _, p := range devs {
		name := filepath.Base(filepath.Dir(p))
		num, err := sys.ReadFile(p)
		if err != nil || in[name] {
			continue
		}
		b, err := sys.ReadFile("/run/udev/data/b" + strings.TrimSpace(string(num)))
		if err != nil {
			continue
		}
		props := linux.ParseUdev(string(b))
		if props["ID_FS_TYPE"] != "linux_raid_member" { // as libblkid names md members
			continue
		}
		for _, a := range arrays {
			if md.SameUUID(a.UUID, props["ID_FS_UUID"]) {
				out = append(out, Stray{name, a.Dev})
			}
		}
	}
	return out
}

// systemArrays are a server's arrays that are not the brick's: what its system
// is on.
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
		// Without redundancy, or a container of arrays: nothing can be degraded.
		return ours[a.Dev] || a.RaidDisks < 2 || a.Level == "raid0" || a.Level == "linear" ||
			slices.ContainsFunc(a.members, func(m member) bool { return m.disk != nil })
	})
}

// SystemArray is an array of a server that its system is on.
type SystemArray struct {
	Dev      string   // md0
	Level    string   // raid1
	Degraded int      // how many members are missing
	Busy     bool     // it is being resynced, rebuilt or checked
	Members  []string // devices that work in it: vdb, sda2
	Strays   []string // devices that belong to it and are not in it
}

// SystemRequest asks for what SystemArrays needs.
func SystemRequest() Request {
	r := Request{Files: []string{"/proc/mdstat"}, Links: []string{"/dev/md/*"}, Disks: true}
	for _, f := range mdFiles {
		r.Files = append(r.Files, "/sys/block/md*/md/"+f)
	}
	return r
}

// SystemArrays finds them in a server's answer.
func SystemArrays(d *design.Design, h *Host) []SystemArray {
	s := &server{host: h}
	s.read(d, &design.Pair{}) // its cluster is not asked
	var out []SystemArray
	for _, a := range s.systemArrays(d) {
		x := SystemArray{Dev: a.Dev, Level: a.Level, Degraded: a.Degraded, Busy: a.stat.Action != ""}
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

// system says how the server's own arrays are: in the host's line, and below it
// what is wrong. They are no part of the brick, which its partner carries if
// the server dies of them, so one that is degraded is a warning.
func (v *view) system(c *Part, s *server) {
	for _, a := range s.systemArrays(v.d) {
		name := "array " + a.Dev
		if a.Level == "raid1" || a.Level == "raid10" {
			name = "system mirror " + a.Dev
		}
		if at := s.mountedFrom(a.Dev); len(at) > 0 {
			name += " (" + strings.Join(at, ", ") + ")"
		}
		c.Text += fmt.Sprintf(", %s: %s", name, whole(a))
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
		c.add(Fault, a.Dev, "%s of %s is broken: more disks are gone than it can lose", name, s.name)
		return
	}
	if a.Degraded > 0 {
		mend := "replace the disk, then `mdadm --manage /dev/" + a.Dev + " --add DISK` on " + s.name
		for _, x := range s.host.Strays {
			if x.Array == a.Dev {
				bad = append(bad, s.localDisk(x.Dev)+" is there again but not in it")
				mend = "`mdadm --manage /dev/" + a.Dev + " --add /dev/" + x.Dev + "` on " + s.name + ", if that disk is to be trusted"
			}
		}
		for i := range a.RaidDisks {
			if !slots[i] && len(bad) == 0 { // nothing tells which disk it was
				bad = append(bad, fmt.Sprintf("the disk of slot %d is missing", i))
			}
		}
		text := fmt.Sprintf("%s of %s is degraded: %d of %d disks left", name, s.name, a.RaidDisks-a.Degraded, a.RaidDisks)
		if len(good) > 0 {
			text += ", " + list(good)
		}
		if len(bad) > 0 {
			text += "; " + list(bad)
		}
		w := c.add(Warning, a.Dev, "%s", text)
		if a.stat.Action == "" {
			w.Mend = mend
		}
	}
	if a.stat.Action != "" {
		addProgress(c, a.stat, name+" of "+s.name)
	}
}

// mountedFrom lists where file systems of a device are mounted, also of volumes
// on it.
func (s *server) mountedFrom(dev string) []string {
	from := map[string]bool{"/dev/" + dev: true}
	for p := range s.host.Links {
		rest, _ := strings.CutPrefix(p, "/sys/block/")
		if dm, slave, ok := strings.Cut(rest, "/slaves/"); ok && slave == dev {
			from["/dev/mapper/"+strings.TrimSpace(s.host.Files["/sys/block/"+dm+"/dm/name"])] = true
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

// localDisk names a disk, or the one that a partition is on, by serial number.
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
