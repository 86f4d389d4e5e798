package forecast

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Fabrics a public network can be.
const (
	Ethernet = "ethernet"
	IPoIB    = "ipoib" // NFS over TCP on InfiniBand
	RDMA     = "rdma"  // verbs: LNET o2ib
)

// Hardware is what the model needs to know of a brick. Rates are decimal:
// MB/s is 10^6 bytes per second.
type Hardware struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // nfs or lustre
	Async    bool   `json:"async"`    // exports acknowledge before data is on disk
	// Servers that serve clients at the same time: one of an active-passive pair.
	Servers int     `json:"servers"`
	Cores   int     `json:"cores"`  // of one server
	Memory  float64 `json:"memory"` // bytes, of one server
	// Bricks of this kind that serve one file system (Lustre: HA-OSS modules).
	Bricks int `json:"bricks"`
	MDS    int `json:"mds"` // Lustre: metadata servers at work

	HBAs     int     `json:"hbas"`      // SAS HBAs or RAID controllers of one server
	HBAPorts int     `json:"hba_ports"` // four-lane ports of one that are cabled
	SASGbps  float64 `json:"sas_gbps"`  // of one lane: 3, 6, 12, 24
	HBAGen   int     `json:"hba_gen"`   // PCI Express
	HBALanes int     `json:"hba_lanes"`
	Links    int     `json:"links"` // network links of one server at work
	LinkGbps float64 `json:"link_gbps"`
	Fabric   string  `json:"fabric"`
	NICGen   int     `json:"nic_gen"`
	NICLanes int     `json:"nic_lanes"`
	// FarSlot: network card and HBAs are at different processors, and those
	// are of the generation that suffered from it.
	FarSlot bool   `json:"far_slot"`
	RAID    string `json:"raid"` // md, or the array: md3200, md3200-hpt, h810, me4084
	// Mirrored: both controllers of an MD3 have what is written and not on disk yet.
	Mirrored  bool    `json:"write_cache_mirroring"`
	Arrays    int     `json:"arrays"` // arrays, or RAID controllers, that share the groups
	Level     int     `json:"level"`  // 6 or 10
	Groups    int     `json:"groups"`
	Data      int     `json:"data"`
	Parity    int     `json:"parity"`
	DiskType  string  `json:"disk_type"` // nl-sas, sas, ssd, nvme
	DiskBytes float64 `json:"disk_bytes"`

	CacheSSDs   int    `json:"cache_ssds"`
	CacheMode   string `json:"cache_mode"`   // write-back or write-through
	CacheBypass bool   `json:"cache_bypass"` // sequential streams go past it
	CacheCold   bool   `json:"cache_cold"`   // what is read is not in it yet

	// The load: clients with one thread and one file each.
	Clients    int     `json:"clients"` // most of them
	Threads    int     `json:"threads"` // most of all clients together, in the metadata tests
	ClientGbps float64 `json:"client_gbps"`
	FileBytes  float64 `json:"file_bytes"` // of one client, in the random tests

	// Assumed lists what was not given.
	Assumed []Assumption `json:"assumed,omitempty"`
}

// Assumption is a fact that was not given.
type Assumption struct {
	Name  string `json:"name"` // as --set takes it
	Value string `json:"value"`
	Why   string `json:"why"`
}

// fact makes one field of Hardware reachable by name.
type fact struct {
	doc  string
	set  func(h *Hardware, v string) error
	show func(h *Hardware) string
}

func intFact(doc string, lo, hi int, p func(h *Hardware) *int) fact {
	return fact{doc, func(h *Hardware, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q: want a whole number from %d to %d", v, lo, hi)
		}
		*p(h) = n
		return nil
	}, func(h *Hardware) string { return strconv.Itoa(*p(h)) }}
}

func floatFact(doc string, lo, hi, unit float64, p func(h *Hardware) *float64) fact {
	return fact{doc, func(h *Hardware, v string) error {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil || !(x >= lo && x <= hi) {
			return fmt.Errorf("%q: want a number from %g to %g", v, lo, hi)
		}
		*p(h) = x * unit
		return nil
	}, func(h *Hardware) string { return strconv.FormatFloat(*p(h)/unit, 'g', 6, 64) }}
}

func textFact(doc string, values []string, p func(h *Hardware) *string) fact {
	return fact{doc, func(h *Hardware, v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("%q: want one of %s", v, strings.Join(values, ", "))
		}
		*p(h) = v
		return nil
	}, func(h *Hardware) string { return *p(h) }}
}

func boolFact(doc string, p func(h *Hardware) *bool) fact {
	return fact{doc, func(h *Hardware, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q: want true or false", v)
		}
		*p(h) = b
		return nil
	}, func(h *Hardware) string { return strconv.FormatBool(*p(h)) }}
}

var facts = map[string]fact{
	"hw.async":                 boolFact("async exports: a crash loses what was acknowledged", func(h *Hardware) *bool { return &h.Async }),
	"hw.servers":               intFact("servers that serve at the same time", 1, 1000, func(h *Hardware) *int { return &h.Servers }),
	"hw.cores":                 intFact("cores of one server", 1, 1024, func(h *Hardware) *int { return &h.Cores }),
	"hw.memory_gib":            floatFact("memory of one server, GiB", 1, 65536, 1<<30, func(h *Hardware) *float64 { return &h.Memory }),
	"hw.bricks":                intFact("bricks of this kind in one file system", 1, 100000, func(h *Hardware) *int { return &h.Bricks }),
	"hw.mds":                   intFact("metadata servers at work", 0, 1000, func(h *Hardware) *int { return &h.MDS }),
	"hw.hbas":                  intFact("SAS HBAs or RAID controllers of one server", 1, 16, func(h *Hardware) *int { return &h.HBAs }),
	"hw.hba_ports":             intFact("four-lane SAS ports of one HBA that are cabled", 1, 4, func(h *Hardware) *int { return &h.HBAPorts }),
	"hw.sas_gbps":              floatFact("rate of one SAS lane, Gb/s", 1, 48, 1, func(h *Hardware) *float64 { return &h.SASGbps }),
	"hw.hba_gen":               intFact("generation of PCI Express of the HBAs", 1, 6, func(h *Hardware) *int { return &h.HBAGen }),
	"hw.hba_lanes":             intFact("PCI Express lanes of one HBA", 1, 16, func(h *Hardware) *int { return &h.HBALanes }),
	"hw.links":                 intFact("network links of one server at work", 1, 16, func(h *Hardware) *int { return &h.Links }),
	"hw.link_gbps":             floatFact("rate of one network link as it is sold, Gb/s", 0.1, 1600, 1, func(h *Hardware) *float64 { return &h.LinkGbps }),
	"hw.fabric":                textFact("what the public network is", []string{Ethernet, IPoIB, RDMA}, func(h *Hardware) *string { return &h.Fabric }),
	"hw.nic_gen":               intFact("generation of PCI Express of the network cards", 1, 6, func(h *Hardware) *int { return &h.NICGen }),
	"hw.nic_lanes":             intFact("PCI Express lanes of one network card", 1, 16, func(h *Hardware) *int { return &h.NICLanes }),
	"hw.far_slot":              boolFact("network card and HBAs are not at the same processor", func(h *Hardware) *bool { return &h.FarSlot }),
	"hw.raid":                  textFact("who makes the RAID groups; md3200: as in the Lustre brick, md3200-hpt: as in NSS4-HA", raids, func(h *Hardware) *string { return &h.RAID }),
	"hw.write_cache_mirroring": boolFact("MD3 arrays: both controllers have what is written and not on disk yet", func(h *Hardware) *bool { return &h.Mirrored }),
	"hw.arrays":                intFact("arrays, or RAID controllers, that share the groups", 1, 64, func(h *Hardware) *int { return &h.Arrays }),
	"hw.groups":                intFact("RAID groups", 1, 1000, func(h *Hardware) *int { return &h.Groups }),
	"hw.disk_type":             textFact("kind of the disks", []string{"nl-sas", "sas", "ssd", "nvme"}, func(h *Hardware) *string { return &h.DiskType }),
	"hw.disk_tb":               floatFact("size of a disk, TB", 0.01, 1000, 1e12, func(h *Hardware) *float64 { return &h.DiskBytes }),
	"hw.cache_ssds":            intFact("SSDs of the cache; 0: none", 0, 64, func(h *Hardware) *int { return &h.CacheSSDs }),
	"hw.cache_mode":            textFact("mode of the cache", []string{"write-back", "write-through"}, func(h *Hardware) *string { return &h.CacheMode }),
	"hw.cache_bypass":          boolFact("sequential streams go past the cache", func(h *Hardware) *bool { return &h.CacheBypass }),
	"hw.cache_cold":            boolFact("what is read is not in the cache yet", func(h *Hardware) *bool { return &h.CacheCold }),
	"hw.clients":               intFact("most clients, with one thread and one file each", 1, 4096, func(h *Hardware) *int { return &h.Clients }),
	"hw.threads":               intFact("most threads of all clients together in the metadata tests", 1, 4096, func(h *Hardware) *int { return &h.Threads }),
	"hw.client_gbps":           floatFact("rate of a client's link, Gb/s", 0.1, 1600, 1, func(h *Hardware) *float64 { return &h.ClientGbps }),
	"hw.file_gib":              floatFact("file of one client in the random tests, GiB", 0.001, 65536, 1<<30, func(h *Hardware) *float64 { return &h.FileBytes }),
}

// md3 says whether the RAID is an MD3200's, whose write cache may be mirrored.
func (h *Hardware) md3() bool { return strings.HasPrefix(h.RAID, "md3200") }

var raids = []string{"md", "md3200", "md3200-hpt", "h810", "me4084"}

func hardwareNames() []string {
	var out []string
	for n := range facts {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

func (h *Hardware) set(name, value string) error {
	f, ok := facts[name]
	if !ok {
		return unknown("hardware fact", name, hardwareNames())
	}
	if err := f.set(h, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// It is no longer assumed.
	h.Assumed = slices.DeleteFunc(h.Assumed, func(a Assumption) bool { return a.Name == name })
	return nil
}

// assume notes that a fact was not given.
func (h *Hardware) assume(name, why string) {
	h.Assumed = append(h.Assumed, Assumption{name, facts[name].show(h), why})
}

// Check says what of the hardware cannot be calculated with.
func (h *Hardware) Check() error {
	switch {
	case h.Groups < 1 || h.Data < 1:
		return fmt.Errorf("no RAID groups to calculate with")
	case h.CacheSSDs == 1 && h.CacheMode == "write-back":
		return fmt.Errorf("hw.cache_ssds: write-back on one SSD would lose data with it; give two, or hw.cache_mode=write-through")
	case h.Protocol == "lustre" && h.MDS < 1:
		return fmt.Errorf("hw.mds: a Lustre file system needs a metadata server")
	case h.DiskBytes <= 0 || math.IsNaN(h.DiskBytes):
		return fmt.Errorf("the size of the disks is not known")
	}
	return nil
}

// disks that carry data or parity.
func (h *Hardware) disks() float64     { return float64(h.Groups * (h.Data + h.Parity)) }
func (h *Hardware) dataDisks() float64 { return float64(h.Groups * h.Data) }

// dataRateMBps is what a link carries after its line code; other rates than
// those InfiniBand is sold by are taken as data rates.
func dataRateMBps(fabric string, gbps float64) float64 {
	if fabric != Ethernet {
		// Source: InfiniBand Architecture Specification, volume 2.
		switch gbps {
		case 10, 20, 40: // SDR, DDR, QDR as they are sold: 8b/10b
			gbps *= 0.8
		case 56: // FDR: 4 x 14.0625 Gb/s, 64b/66b
			gbps = 54.54
		}
	}
	return gbps * 1000 / 8
}
