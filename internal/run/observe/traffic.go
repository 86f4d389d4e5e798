package observe

import (
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// Traffic is the bytes that the volumes of a service have read and written on a
// server since it activated them.
type Traffic struct {
	Service string
	Server  string
	Read    int64 // bytes
	Written int64 // bytes
}

// AskTraffic makes Collect also ask the servers for the facts that Traffics needs.
func (c *Collector) AskTraffic() { c.traffic = true }

const diskStats = "/proc/diskstats"

func countTraffic(d *design.Design, reqs map[string]gather.Request) {
	for _, s := range d.Spec.Servers {
		r := reqs[s.Name]
		r.Files = append(r.Files, diskStats)
		reqs[s.Name] = r
	}
}

// Traffics returns the traffic of each service on the server with its volumes. A
// service without logical volumes, or one that runs nowhere, has no traffic.
func Traffics(d *design.Design, f Facts) []Traffic {
	var out []Traffic
	for i := range d.Pairs {
		p := &d.Pairs[i]
		for j := range p.Services {
			s := &p.Services[j]
			for _, server := range p.Servers {
				if t, ok := trafficOn(s, f.Hosts[server].Host); ok {
					t.Service, t.Server = s.Name, server
					out = append(out, t)
				}
			}
		}
	}
	return out
}

func trafficOn(s *design.Service, h *gather.Host) (t Traffic, ok bool) {
	if h == nil {
		return t, false
	}
	names := map[string]bool{}
	for _, v := range s.Volumes() {
		vg, lv, _ := strings.Cut(v, "/")
		names[linux.DMName(vg, lv)] = true
	}
	stats := linux.ParseDiskStats(h.Files[diskStats])
	for dev, name := range h.Mapped() {
		if !names[name] {
			continue
		}
		if x, counted := stats[dev]; counted {
			ok = true
			t.Read, t.Written = t.Read+x.Read, t.Written+x.Written
		}
	}
	return t, ok
}
