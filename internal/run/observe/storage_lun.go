package observe

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
)

// lunStorage are LUNs of RAID arrays.
type lunStorage struct{ *view }

// parts: does each server see each LUN, by as many paths as it is cabled with.
func (v lunStorage) parts() []*Part {
	p := &Part{Name: "LUN"}
	up := v.answering()
	if len(up) == 0 {
		return []*Part{unknown(p, "no server answers")}
	}
	whole, all := 0, v.all()
	for _, l := range all {
		c := p.add(OK, l.Name, "%s of array %s", size(uint64(l.Size)), l.Array)
		for _, s := range up {
			v.seen(c, l, s)
		}
		if len(c.Parts) == 0 {
			whole++
		}
	}
	p.Text = fmt.Sprintf("%d of %d whole", whole, len(all))
	return []*Part{p}
}

// all are the LUNs of the pair.
func (v lunStorage) all() []design.LUN {
	var out []design.LUN
	for _, l := range v.d.LUNs() {
		if slices.ContainsFunc(v.pair.Services, func(s design.Service) bool { return slices.Contains(s.Storage.LUNs, l.Device) }) {
			out = append(out, l)
		}
	}
	return out
}

// seen adds what is wrong with a LUN on a server.
func (v lunStorage) seen(c *Part, l design.LUN, s *server) {
	sd, want := s.luns[l.Name], 0
	for i := range v.d.Arrays {
		if a := &v.d.Arrays[i]; a.Name == l.Array {
			want = v.d.PathsTo(a, s.name)
		}
	}
	switch {
	case sd == nil:
		c.add(Fault, s.name, "%s does not see LUN %s", s.name, l.Name).Mend = "look at the array's mapping of the LUN to the server (`mortar array verify`), and at the cables"
	case len(sd.good) == 0:
		c.add(Fault, s.name, "all paths from %s to LUN %s have failed", s.name, l.Name).Mend = "look at the array's controllers and the cables"
	case len(sd.good) < want:
		c.add(Warning, s.name, "%s reaches LUN %s by %d of %d paths", s.name, l.Name, len(sd.good), want).Mend = "look at the cable, the HBA port and the array's controller"
	}
}
