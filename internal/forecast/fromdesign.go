package forecast

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/spec"
)

// FromDesign reads off a design what the model needs. What a spec does not
// say is assumed, and listed as such.
func FromDesign(d *design.Design) (Hardware, error) {
	s := d.Spec
	h := Hardware{Name: d.Name, Protocol: "nfs", Servers: 1, Bricks: 1, RAID: "md", Arrays: 1, Links: 1}
	if len(d.Groups) == 0 {
		return h, fmt.Errorf("%s: the design has no RAID groups", d.Name)
	}
	h.Servers = len(d.Services)
	g := d.Groups[0]
	h.Level, h.Groups, h.Data, h.Parity = g.Level, len(d.Groups), g.Data, g.Parity
	h.DiskType = g.Members[0].Type
	h.DiskBytes = float64(g.Members[0].Size)
	for _, sv := range d.Services {
		for _, e := range sv.Exports {
			h.Async = h.Async || slices.Contains(e.Options, "async")
		}
	}

	server := s.Servers[0]
	h.Memory = float64(server.Memory)
	if h.Memory == 0 {
		h.Memory = 128 << 30
		h.assume("hw.memory_gib", "servers have no memory in the spec")
	}
	h.Cores = 16
	h.assume("hw.cores", "the spec does not say")
	h.HBAs, h.HBAPorts, h.SASGbps, h.HBAGen, h.HBALanes = 2, 2, 12, 3, 8
	if h.DiskType == "nvme" {
		h.HBAs, h.HBAGen, h.HBALanes = 1, 4, 16
		h.assume("hw.hba_lanes", "one cable of 16 lanes to the enclosure")
		h.assume("hw.hba_gen", "the spec does not say")
	} else {
		h.assume("hw.hbas", "one to each controller or expander")
		h.assume("hw.hba_ports", "one to each controller or expander")
		h.assume("hw.sas_gbps", "the spec does not say")
		h.assume("hw.hba_gen", "the spec does not say")
		h.assume("hw.hba_lanes", "the spec does not say")
	}

	h.LinkGbps = speed(s.Networks.Public.Speed)
	if h.LinkGbps == 0 {
		h.LinkGbps = 10
		h.assume("hw.link_gbps", "networks.public has no speed")
	}
	h.Fabric = Ethernet
	if h.LinkGbps == 56 { // only InfiniBand FDR is sold as that
		h.Fabric = IPoIB
	}
	h.assume("hw.fabric", "the spec does not say")
	h.NICGen, h.NICLanes = 3, 8
	if h.LinkGbps > 56 {
		h.NICLanes = 16
	}
	if h.LinkGbps > 100 {
		h.NICGen = 4
	}
	if h.LinkGbps > 200 {
		h.NICGen = 5
	}
	h.assume("hw.nic_gen", "enough for the link")
	h.assume("hw.nic_lanes", "enough for the link")
	h.load()
	return h, nil
}

// load sets the clients of the papers' benchmarks.
func (h *Hardware) load() {
	h.Clients, h.ClientGbps, h.FileBytes = 64, h.LinkGbps, 4<<30
	h.assume("hw.clients", "as in the published benchmarks")
	h.assume("hw.client_gbps", "as the servers'")
	h.assume("hw.file_gib", "as in the published benchmarks")
}

// speed reads a link speed as a parsed spec has it: 10Gb/s.
func speed(s string) float64 {
	v, unit, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s)), "b/s")
	if s == "" || unit != "" || v == "" {
		return 0
	}
	scale := map[byte]float64{'m': 1e-3, 'g': 1, 't': 1e3}[v[len(v)-1]]
	x, err := strconv.ParseFloat(strings.TrimSpace(v[:len(v)-1]), 64)
	if err != nil {
		return 0
	}
	return x * scale
}

// FleetOf reads off a design the fleet that Simulate wants: bricks of this
// kind, with the failure and repair rates of the sim.… coefficients.
func FleetOf(d *design.Design, c Coefficients) (Fleet, error) {
	f := Fleet{Bricks: 1, Years: 10, Seed: 1, Servers: min(len(d.Spec.Servers), 2), Spares: d.Spec.Storage.RAID.Spares, Enclosures: len(d.Spec.Enclosures)}
	if len(d.Groups) == 0 {
		return f, fmt.Errorf("%s: the design has no RAID groups", d.Name)
	}
	var size spec.Bytes
	worst := 0
	for _, g := range d.Groups {
		count := map[string]int{}
		for i, m := range g.Members {
			size = max(size, m.Size)
			key := m.Enclosure
			if g.Level == 10 { // what counts is each mirror
				key = fmt.Sprint(i/2, m.Enclosure)
			}
			count[key]++
			worst = max(worst, count[key])
		}
	}
	g := d.Groups[0]
	f.Groups, f.Disks, f.Parity, f.PerEnclosure = len(d.Groups), len(g.Members), g.Parity, worst
	if g.Level == 10 {
		// A RAID 10 of n disks is n/2 mirrors, each of which may lose one.
		f.Groups, f.Disks, f.Parity = len(d.Groups)*len(g.Members)/2, 2, 1
	}
	f.Rates(c, float64(size))
	return f, nil
}

// Rates fills in failure rates and repair times from the sim.… coefficients,
// for disks of a size in bytes.
func (f *Fleet) Rates(c Coefficients, diskBytes float64) {
	f.DiskAFR, f.BatchShare, f.BatchFactor = c.Get("sim.disk_afr"), c.Get("sim.batch_share"), c.Get("sim.batch_factor")
	f.RebuildHours = diskBytes / (c.Get("sim.rebuild_mbps") * 1e6) / 3600
	f.ReplaceHours, f.RestoreHours = c.Get("sim.replace_hours"), c.Get("sim.restore_hours")
	f.LatentPerYear, f.ScrubHours = c.Get("sim.latent_per_year"), c.Get("sim.scrub_hours")
	f.EnclosureAFR, f.EnclosureRepair = c.Get("sim.enclosure_afr"), c.Get("sim.enclosure_hours")
	f.ControllerAFR, f.ControllerRepair = c.Get("sim.controller_afr"), c.Get("sim.controller_hours")
	f.ServerAFR, f.ServerRepair = c.Get("sim.server_afr"), c.Get("sim.server_hours")
	f.PowerPerYear, f.PowerHours = c.Get("sim.power_per_year"), c.Get("sim.power_hours")
	f.FailoverSeconds, f.FailoverFails, f.HandHours = c.Get("sim.failover_seconds"), c.Get("sim.failover_fails"), c.Get("sim.hand_hours")
}
