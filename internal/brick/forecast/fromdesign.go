package forecast

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// FromDesign reads off a design what the model needs. What a spec does not
// say is assumed, and listed as such.
func FromDesign(d *design.Design) (Hardware, error) {
	s := d.Spec
	h := Hardware{Name: d.Name, Protocol: "nfs", Servers: len(s.Sets()), Bricks: 1, RAID: "md", Arrays: 1, Links: 1}
	sets := s.Sets()
	server := s.Servers[0]
	if d.Lustre != nil {
		// One HA-OSS module stands for all; each of its servers has half of the OSTs.
		h.Protocol, h.Servers, h.Bricks = "lustre", 2, 0
		sets = nil
		for i, m := range s.Lustre.Modules {
			if m.Role == "mds" {
				h.MDS++
				continue
			}
			if h.Bricks++; h.Bricks == 1 {
				sets = append(sets, s.Sets()[i])
				server = serverOf(s, m.Servers[0])
			}
		}
	}
	var groups []design.Group
	arrays := map[string]bool{}
	for _, set := range sets {
		groups = append(groups, d.GroupsOf(set.Name)...)
		for _, a := range s.ArraysOf(set.Name) {
			arrays[a.Name] = true
		}
	}
	if len(groups) == 0 {
		return h, fmt.Errorf("%s: the design has no RAID groups", d.Name)
	}
	g := groups[0]
	h.Level, h.Groups, h.Data, h.Parity = g.Level, len(groups), g.Data, g.Parity
	h.DiskType = g.Members[0].Type
	h.DiskBytes = float64(g.Members[0].Size)
	for _, sv := range d.Services() {
		if sv.NFS == nil {
			continue
		}
		for _, e := range sv.Exports {
			h.Async = h.Async || slices.Contains(e.Options, "async")
		}
	}

	sas, why := 12.0, "the spec does not say"
	if len(arrays) > 0 {
		h.Arrays = len(arrays)
		model := s.ArraysOf(sets[0].Name)[0].Model
		switch m, _ := spec.ModelOf(model); {
		case m.Family == "md3" && h.Protocol == "lustre":
			h.RAID, sas = "md3200", 6
			h.assume("hw.raid", "the spec does not say whether the High Performance Tier is on; the Lustre paper only lists it among the array's features")
		case m.Family == "md3":
			h.RAID, sas = "md3200-hpt", 6
			h.assume("hw.raid", "the spec does not say whether the High Performance Tier is on; in NSS4-HA it was")
		case m.Family == "perc" && len(m.NotRun) == 0:
			h.RAID, sas = "h810", 6
		case m.Family == "perc":
			h.RAID = "h810"
			h.assume("hw.raid", "nothing is published of a "+m.Name+": the processor of an H810 stands in, on links of 12 Gbit/s")
		case m.Family == "me5":
			h.RAID = "me4084"
			h.assume("hw.raid", "nothing is published of an ME5: the controllers of an ME4084 stand in")
		default:
			h.RAID = strings.ToLower(m.Name)
		}
		if !slices.Contains(facts()["hw.raid"].args, h.RAID) {
			return h, fmt.Errorf("%s: there are no coefficients for an array %s; take the nearest with --set hw.raid=…", d.Name, model)
		}
		h.Mirrored = h.md3() && sets[0].Storage.Mirrored()
		why = "as the array's ports"
	}

	h.Memory = float64(server.Memory)
	if h.Memory == 0 {
		h.Memory = 128 << 30
		h.assume("hw.memory_gib", "the spec does not say")
	}
	if server.CPU != nil {
		h.Cores = server.CPU.Sockets * server.CPU.Cores
	} else {
		h.Cores = 16
		h.assume("hw.cores", "the spec does not say")
	}
	h.storageCards(server)
	h.SASGbps, h.HBAPorts = sas, 2
	if h.DiskType != "nvme" {
		h.assume("hw.hba_ports", "one to each controller or expander")
		h.assume("hw.sas_gbps", why)
	}
	h.network(s, server)

	if sv := d.Cached(); sv != nil {
		c := sv.Storage.Cache
		h.CacheSSDs, h.CacheMode, h.CacheBypass = len(c.SSDs), c.Mode, c.Bypass > 0
	}
	h.load(s)
	return h, nil
}

func serverOf(s *spec.Spec, name string) spec.Server {
	return s.Servers[max(0, slices.IndexFunc(s.Servers, func(v spec.Server) bool { return v.Name == name }))]
}

// storageCards reads HBAs or RAID controllers off the list of cards.
func (h *Hardware) storageCards(v spec.Server) {
	for _, k := range v.PCI {
		if k.Kind != "sas-hba" && k.Kind != "raid" {
			continue
		}
		if h.HBAs++; h.HBAs == 1 {
			h.HBAGen, h.HBALanes = k.Generation, min(k.Lanes, 8)
		}
		// The weakest counts: the groups are spread over all of them.
		h.HBAGen, h.HBALanes = min(h.HBAGen, k.Generation), min(h.HBALanes, k.Lanes)
	}
	if h.HBAs > 0 {
		return
	}
	h.HBAGen = 3
	switch {
	case h.DiskType == "nvme":
		h.HBAs, h.HBAGen, h.HBALanes = 1, 4, 16
		h.assume("hw.hba_lanes", "one cable of 16 lanes to the enclosure")
		h.assume("hw.hba_gen", "the spec does not say")
		return
	case h.RAID == "h810":
		h.HBAs, h.HBALanes = h.Arrays, 8
		h.assume("hw.hbas", "the RAID controllers")
	default:
		h.HBAs, h.HBALanes = 2, 8
		h.assume("hw.hbas", "one to each controller or expander")
	}
	h.assume("hw.hba_gen", "the spec does not say")
	h.assume("hw.hba_lanes", "the spec does not say")
}

// network reads the public network and the card it is on.
func (h *Hardware) network(s *spec.Spec, v spec.Server) {
	h.LinkGbps = s.Networks.Public.Mbits() / 1000
	if h.LinkGbps == 0 {
		h.LinkGbps = 10
		h.assume("hw.link_gbps", "networks.public has no speed")
	}
	h.Fabric = Ethernet
	if s.Networks.Public.Link == "infiniband" {
		h.Fabric = IPoIB
		if s.SoftRoCE() {
			h.Fabric = RDMA
		}
	}
	cards, storage, near := 0, 0, false
	for _, k := range v.PCI {
		if k.Kind == "hca" && h.Fabric != Ethernet || k.Kind == "nic" && h.Fabric == Ethernet {
			if cards++; cards > 1 {
				continue
			}
			h.NICGen, h.NICLanes = k.Generation, k.Lanes
			for _, x := range v.PCI {
				if x.Kind == "sas-hba" || x.Kind == "raid" {
					storage++
					near = near || x.Node == k.Node
				}
			}
		}
	}
	if cards > 1 {
		h.assume("hw.links", fmt.Sprintf("there are %d network cards, but the spec does not say that they share the load", cards))
	}
	if storage > 0 && !near {
		// Measured on the first processors with PCI Express of their own. The
		// peaks of NSS7.3 and 7.4, whose cards were at different processors too,
		// show nothing of it.
		if h.FarSlot = v.CPU != nil && firstPCIe(v.CPU.Model); !h.FarSlot {
			h.assume("hw.far_slot", "network card and HBAs are at different processors; that was only measured to matter on E5-2600 (v2)")
		}
	}
	if h.NICLanes > 0 {
		return
	}
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
}

// firstPCIe says whether a processor is one of the generation in which PCI
// Express moved into it: Xeon E5-2600 and its v2.
func firstPCIe(model string) bool {
	return strings.Contains(model, "E5-26") && !strings.Contains(model, "v3") && !strings.Contains(model, "v4")
}

// load sets the clients of the papers' benchmarks.
func (h *Hardware) load(s *spec.Spec) {
	h.Clients, h.Threads, h.ClientGbps, h.FileBytes = 64, 512, h.LinkGbps, 4<<30
	file := "as in the published benchmarks of 2013 and later"
	if y, ok := paper.Of(s); ok && y.RandomFile > 0 {
		h.FileBytes, file = float64(y.RandomFile), "as in the random tests of "+y.Title
	}
	h.assume("hw.clients", "as in the published benchmarks")
	h.assume("hw.threads", "as in the published benchmarks")
	h.assume("hw.client_gbps", "as the servers'")
	h.assume("hw.file_gib", file)
}

// Module is a kind of brick for Simulate, and how many a design has of it.
type Module struct {
	Name  string  `json:"name"`
	Role  string  `json:"role"` // nfs, oss or mds
	Count int     `json:"count"`
	Raw   float64 `json:"raw_bytes"` // of one
	Fleet Fleet   `json:"fleet"`
}

// Modules reads off a design the fleets Simulate wants: of one NFS brick, or
// of the MDS and the OSS modules of Lustre, with the failure and repair rates
// of the sim.… coefficients.
func Modules(d *design.Design, c Coefficients) ([]Module, error) {
	s := d.Spec
	var out []Module
	for i, set := range s.Sets() {
		m := Module{Name: d.Name, Role: "nfs", Count: 1}
		servers := len(s.Servers)
		if d.Lustre != nil {
			mod := s.Lustre.Modules[i]
			m.Name, m.Role, servers = mod.Name, mod.Role, len(mod.Servers)
		}
		f := Fleet{Bricks: 1, Years: 10, Seed: 1, Servers: min(servers, 2), ActiveActive: m.Role == "oss" || d.Flavour == spec.NFSHAXL}
		f.Spares = set.Storage.RAID.Spares / max(set.Share, 1)
		groups := d.GroupsOf(set.Name)
		if len(groups) == 0 {
			return nil, fmt.Errorf("%s: the design has no RAID groups", m.Name)
		}
		enclosures := map[string]bool{}
		size, g := 0.0, groups[0]
		for _, k := range d.Disks {
			if k.Service == set.Name || k.Module == set.Name {
				enclosures[k.Enclosure] = true
				m.Raw += float64(k.Size)
				size = max(size, float64(k.Size))
			}
		}
		f.Enclosures = len(enclosures)
		for _, g := range groups {
			count := map[string]int{}
			for i, k := range g.Members {
				key := k.Enclosure
				if g.Level == 10 { // what counts is each mirror
					key = fmt.Sprint(i/2, k.Enclosure)
				}
				count[key]++
				f.PerEnclosure = max(f.PerEnclosure, count[key])
			}
		}
		f.Groups, f.Disks, f.Parity = len(groups), len(g.Members), g.Parity
		if g.Level == 10 {
			// A RAID 10 of n disks is n/2 mirrors, each of which may lose one.
			f.Groups, f.Disks, f.Parity = len(groups)*len(g.Members)/2, 2, 1
		}
		// Two controllers of an array, or two I/O modules of the JBODs; RAID
		// cards stand alone.
		f.Arrays, f.Controllers = 1, 2
		if arrays := s.ArraysOf(set.Name); len(arrays) > 0 {
			f.Arrays = len(arrays)
			if a, _ := spec.ModelOf(arrays[0].Model); a.Family == "perc" {
				f.Controllers = 1
			}
		}
		f.rates(c, size, g.Members[0].Type)
		m.Fleet = f

		// Like modules are one fleet; the services of an XL brick share servers and stay one brick.
		if n := len(out) - 1; n >= 0 && d.Flavour == spec.NFSHAXL {
			out[n].Fleet.Groups += f.Groups
			out[n].Fleet.Spares += f.Spares
			out[n].Fleet.Enclosures += f.Enclosures
			out[n].Fleet.Arrays += f.Arrays
			out[n].Raw += m.Raw
			continue
		}
		if n := slices.IndexFunc(out, func(o Module) bool { return o.Role == m.Role && o.Fleet == m.Fleet }); n >= 0 {
			out[n].Count++
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

// rebuildRate names the coefficient of the speed of a rebuild.
func rebuildRate(diskType string) string {
	if !solid(diskType) {
		return "sim.rebuild_mbps"
	}
	return "sim.rebuild_" + diskType + "_mbps"
}

// rates fills in failure rates and repair times, each from the coefficient sim.NAME with
// its field's name in JSON, for disks of a size in bytes and a type.
func (f *Fleet) rates(c Coefficients, diskBytes float64, diskType string) {
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		if k, ok := c.Find("sim." + v.Type().Field(i).Tag.Get("json")); ok {
			v.Field(i).SetFloat(k.Value)
		}
	}
	f.RebuildHours = diskBytes / (c.Get(rebuildRate(diskType)) * 1e6) / 3600
	if diskType != "nl-sas" {
		f.LatentPerYear = c.Get("sim.latent_enterprise_per_year")
	}
}
