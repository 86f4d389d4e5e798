package observe

import (
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// AskTraffic makes Collect also ask the servers for the facts of which watch counts traffic.
func (c *Collector) AskTraffic() { c.traffic = true }

// DiskStats counts what each device has read and written.
const DiskStats = "/proc/diskstats"

func countTraffic(d *design.Design, reqs map[string]gather.Request) {
	for _, s := range d.Spec.Servers {
		r := reqs[s.Name]
		r.Files = append(r.Files, DiskStats)
		reqs[s.Name] = r
	}
}
