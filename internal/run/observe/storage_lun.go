package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	lunarray "github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// lunStorage are LUNs of RAID arrays.
type lunStorage struct{ *view }

func (v lunStorage) request(r *Request) { r.SCSI = true }

// parts: does each server see each LUN as it is designed, by as many paths as it
// is cabled with, and over the controller that owns it.
func (v lunStorage) parts() []*Part {
	p := &Part{Name: "LUN"}
	up := v.answering()
	if len(up) == 0 {
		return []*Part{unknown(p, "no server answers")}
	}
	found := lunarray.Verify(v.d, v.scsi(up)).Findings
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
		c := p.add(OK, "array "+a.Name, "%d LUNs, each by %d paths", len(luns), v.d.PathsTo(a, up[0].name))
		c.Parts = grouped(a, luns, mine)
		all, whole = all+len(luns), whole+len(luns)-len(broken)
	}
	p.Text = fmt.Sprintf("%d of %d whole", whole, all)
	return []*Part{p}
}

// scsi is what servers see of SCSI disks. A path that multipath has given up
// does not work, whatever the kernel says.
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

// all are the LUNs of the pair.
func (v lunStorage) all() []design.LUN {
	var out []design.LUN
	for i := range v.pair.Services {
		out = append(out, v.d.LUNsIn(&v.pair.Services[i].Storage)...)
	}
	return out
}

// grouped says once what is wrong with several LUNs, or on several servers.
func grouped(a *design.Array, luns []string, found []lunarray.Finding) []*Part {
	type group struct {
		lunarray.Finding
		hosts, luns []string
	}
	var byHost, all []*group
	for _, f := range found {
		i := slices.IndexFunc(byHost, func(g *group) bool { return g.Host == f.Host && g.Text == f.Text })
		if i < 0 {
			i = len(byHost)
			byHost = append(byHost, &group{Finding: f})
		}
		byHost[i].luns = append(byHost[i].luns, f.LUN)
	}
	for _, g := range byHost {
		i := slices.IndexFunc(all, func(o *group) bool { return o.Text == g.Text && slices.Equal(o.luns, g.luns) })
		if i < 0 {
			i = len(all)
			all = append(all, g)
		}
		all[i].hosts = append(all[i].hosts, g.Host)
	}
	var out []*Part
	for _, g := range all {
		level := Fault
		if g.Passing && !strings.Contains(g.Text, "none of them works") {
			level = Warning
		}
		which := "LUN " + list(g.luns)
		switch {
		case len(g.luns) == len(luns) && len(luns) > 1:
			which = fmt.Sprintf("each of the %d LUNs of array %s", len(luns), a.Name)
		case len(g.luns) > 1:
			which = fmt.Sprintf("each of the LUNs %s", list(g.luns))
		}
		out = append(out, &Part{Name: g.luns[0], Level: level, Text: list(g.hosts) + ": " + which + " " + g.Text, Mend: g.Mend})
	}
	return out
}
