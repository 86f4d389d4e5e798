package watch

import (
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Traffic is the bytes that the volumes of a service have read and written on a
// server since it activated them.
type Traffic struct {
	Service string
	Server  string
	Read    int64 // bytes
	Written int64 // bytes
}

// traffics returns the traffic of each service on the server with its volumes. A
// service without logical volumes, or one that runs nowhere, has no traffic.
func traffics(d *design.Design, f observe.Facts) []Traffic {
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
	stats := linux.ParseDiskStats(h.Files[observe.DiskStats])
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
