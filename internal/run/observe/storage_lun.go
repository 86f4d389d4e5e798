package observe

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/pr"
	lunarray "github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// lunStorage are LUNs of RAID arrays.
type lunStorage struct{ *view }

func (v lunStorage) request(r *gather.Request) {
	r.SCSI, r.Pace = true, true
	if v.pair.HA == nil || len(v.pair.HA.Reservations) == 0 {
		return
	}
	for _, l := range v.all() {
		r.Reservations = append(r.Reservations, l.WWN)
	}
}

// parts checks that each server sees each LUN as designed, over all cabled paths and
// over the controller that owns it.
func (v lunStorage) parts() []*Part {
	p := &Part{Name: "LUN"}
	up := v.answering()
	if len(up) == 0 {
		return []*Part{p}
	}
	reserved, wrong := v.reserved(up)
	verified := lunarray.Verify(v.d, v.scsi(up))
	found := append(verified.Findings, wrong...)
	whole, all := 0, 0
	for i := range v.d.Arrays {
		a := &v.d.Arrays[i]
		var luns []string
		for _, l := range v.all() {
			if l.Array == a.Name {
				luns = append(luns, l.Name)
			}
		}
		if len(luns) == 0 {
			continue
		}
		broken := map[string]bool{}
		mine := slices.DeleteFunc(slices.Clone(found), func(f lunarray.Finding) bool { return !slices.Contains(luns, f.LUN) })
		for _, f := range mine {
			broken[f.LUN] = true
		}
		c := p.add("array "+a.Name, "%d LUNs, each by %d paths", len(luns), v.d.PathsTo(a, up[0].name))
		for _, n := range v.pair.Servers {
			mine := slices.DeleteFunc(slices.Clone(luns), func(l string) bool { return reserved[l] != n })
			switch {
			case len(mine) == len(luns):
				c.Text += ", reserved for " + n
			case len(mine) > 0:
				c.Text += fmt.Sprintf(", %s reserved for %s", health.List(mine), n)
			}
		}
		grouped(c, v.d, mine)
		for _, s := range up {
			for _, striped := range v.striped(a.Name) {
				devs := map[string]string{}
				for _, m := range verified.Matches {
					if m.Host == s.name && slices.Contains(striped, m.LUN) {
						devs[s.mapped(m.Seen.Device)] = m.LUN
					}
				}
				slowLUNs(c, s.name, devs, s.host.Pace)
			}
		}
		all, whole = all+len(luns), whole+len(luns)-len(broken)
	}
	p.Text = fmt.Sprintf("%d of %d whole", whole, all)
	return []*Part{p}
}

// mapped is the kernel's name (dm-3) of a device of the device mapper, which may be named by
// udev's link with its UUID; of others the last part of its path.
//
// Source: udev's 13-dm-disk.rules, dm-name- and dm-uuid-
func (s *server) mapped(device string) string {
	name := path.Base(device)
	for file, text := range s.host.Files {
		text = strings.TrimSpace(text)
		if dev, ok := strings.CutSuffix(file, "/dm/name"); ok && (text == name || "dm-name-"+text == name) {
			return path.Base(dev)
		}
		if dev, ok := strings.CutSuffix(file, "/dm/uuid"); ok && "dm-uuid-"+text == name {
			return path.Base(dev)
		}
	}
	return name
}

// striped are the LUNs of an array that share a volume's load, by service.
func (v lunStorage) striped(array string) (out [][]string) {
	for i := range v.pair.Services {
		if v.pair.Services[i].Storage.Stripes < 2 {
			continue // one after the other: the first may have all of it
		}
		var names []string
		for _, l := range v.d.LUNsIn(&v.pair.Services[i].Storage) {
			if l.Array == array {
				names = append(names, l.Name)
			}
		}
		out = append(out, names)
	}
	return out
}

// slowLUNs finds the LUNs of a volume that answer much later than the others; luns are
// their names by the server's devices.
func slowLUNs(c *Part, server string, luns map[string]string, pace map[string]gather.Pace) {
	if len(luns) < 3 {
		return // they are no mirror, which two would be taken for
	}
	slowest(slices.Sorted(maps.Keys(luns)), pace, func(dev string, args with) {
		args["lun"], args["host"] = luns[dev], server
		c.find("", LUNSlow, args)
	})
}

// scsi returns the SCSI disks that servers see. A path that multipath considers
// failed does not work, even if the SCSI layer reports it as running.
func (v lunStorage) scsi(up []*server) map[string][]linux.SCSIDisk {
	out := map[string][]linux.SCSIDisk{}
	for _, s := range up {
		disks := slices.Clone(s.host.SCSI)
		for i := range disks {
			disks[i].Paths = slices.Clone(disks[i].Paths)
			for j := range disks[i].Paths {
				if x := &disks[i].Paths[j]; s.failed[x.Name] != "" {
					x.State = s.failed[x.Name]
				}
			}
		}
		out[s.name] = disks
	}
	return out
}

// all returns the LUNs of the pair.
func (v lunStorage) all() []design.LUN {
	var out []design.LUN
	for i := range v.pair.Services {
		out = append(out, v.d.LUNsIn(&v.pair.Services[i].Storage)...)
	}
	return out
}

// grouped joins equal findings about several LUNs, or on several servers.
func grouped(c *Part, d *design.Design, found []lunarray.Finding) {
	for _, g := range lunarray.Grouped(found) {
		args := with{"lun": g.LUN, "luns": g.LUNs, "hosts": g.Hosts, "which": g.Which(d)}
		maps.Copy(args, g.Args)
		c.find(g.LUN, Code(g.Code), args)
	}
}

// reserved returns the server that holds the reservation of each LUN, by the LUN's
// name, and findings about the reservations.
func (v lunStorage) reserved(up []*server) (holders map[string]string, wrong []lunarray.Finding) {
	holders = map[string]string{}
	if v.pair.HA == nil {
		return holders, nil
	}
	node := map[pr.Key]string{}
	var own []pr.Key
	for n, text := range v.pair.HA.Reservations {
		if k, err := pr.ParseKey(text); err == nil {
			node[k], own = n, append(own, k)
		}
	}
	for i := range v.pair.Services {
		where := v.where(&v.pair.Services[i]).Server
		for _, l := range v.d.LUNsIn(&v.pair.Services[i].Storage) {
			st, paths := reservation(up, l, where)
			if st == nil {
				continue // no server sees the LUN; parts has another finding for that
			}
			holders[l.Name] = node[st.Holder]
			find := func(code string, args with) {
				wrong = append(wrong, lunarray.Found(cmp.Or(where, up[0].name), l.Name, code, args))
			}
			switch strangers := st.Others(own...); {
			case len(strangers) > 0:
				find("lun-stranger", with{"key": strangers[0], "mend": pr.Mend("/dev/mapper/" + l.Name)})
			case where == "" || node[st.Holder] == where && paths <= st.Count(st.Holder):
			case node[st.Holder] == where:
				find("lun-unregistered", with{"paths": paths, "registered": st.Count(st.Holder)})
			default:
				find("lun-unreserved", with{"holder": cmp.Or(node[st.Holder], "no server")})
			}
		}
	}
	return holders, wrong
}

// reservation returns the state of a LUN's reservation as the server that serves the
// LUN sees it, else as any server sees it, and the number of paths of the serving
// server.
func reservation(up []*server, l design.LUN, where string) (st *pr.State, paths int) {
	for _, s := range up {
		said, ok := s.host.Reservations[strings.ToLower(l.WWN)]
		if !ok || st != nil && s.name != where {
			continue
		}
		st = &said
		if s.name != where {
			continue
		}
		for _, d := range s.host.SCSI {
			for _, p := range d.Paths {
				if strings.EqualFold(d.WWN, l.WWN) && p.Usable() && s.failed[p.Name] == "" {
					paths++
				}
			}
		}
	}
	return st, paths
}
