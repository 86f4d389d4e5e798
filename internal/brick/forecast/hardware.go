package forecast

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fabrics a public network can be.
const (
	Ethernet = "ethernet"
	IPoIB    = "ipoib" // NFS over TCP on InfiniBand
	RDMA     = "rdma"  // verbs: LNET o2ib
)

// Hardware is what the model needs to know of a brick. Rates are decimal:
// MB/s is 10^6 bytes per second. A field with a tag hw is a fact that --set can
// change: the tag has its name, then the values of a text, or the least and the most
// of a number, and the size of the unit in which it is given.
type Hardware struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // nfs or lustre
	Async    bool   `json:"async" hw:"async" doc:"async exports: a crash loses what was acknowledged"`
	// Servers that serve clients at the same time: one of an active-passive pair.
	Servers int     `json:"servers" hw:"servers,1,1000" doc:"servers that serve at the same time"`
	Cores   int     `json:"cores" hw:"cores,1,1024" doc:"cores of one server"`
	Memory  float64 `json:"memory" hw:"memory_gib,1,65536,1073741824" doc:"memory of one server, GiB"` // bytes
	// Bricks are HA-OSS modules of Lustre.
	Bricks int `json:"bricks" hw:"bricks,1,100000" doc:"bricks of this kind in one file system"`
	MDS    int `json:"mds" hw:"mds,0,1000" doc:"metadata servers at work"`

	HBAs     int     `json:"hbas" hw:"hbas,1,16" doc:"SAS HBAs or RAID controllers of one server"`
	HBAPorts int     `json:"hba_ports" hw:"hba_ports,1,4" doc:"four-lane SAS ports of one HBA that are cabled"`
	SASGbps  float64 `json:"sas_gbps" hw:"sas_gbps,1,48" doc:"rate of one SAS lane, Gb/s"`
	HBAGen   int     `json:"hba_gen" hw:"hba_gen,1,6" doc:"generation of PCI Express of the HBAs"`
	HBALanes int     `json:"hba_lanes" hw:"hba_lanes,1,16" doc:"PCI Express lanes of one HBA"`
	Links    int     `json:"links" hw:"links,1,16" doc:"network links of one server at work"`
	LinkGbps float64 `json:"link_gbps" hw:"link_gbps,0.1,1600" doc:"rate of one network link as it is sold, Gb/s"`
	Fabric   string  `json:"fabric" hw:"fabric,ethernet,ipoib,rdma" doc:"what the public network is"`
	NICGen   int     `json:"nic_gen" hw:"nic_gen,1,6" doc:"generation of PCI Express of the network cards"`
	NICLanes int     `json:"nic_lanes" hw:"nic_lanes,1,16" doc:"PCI Express lanes of one network card"`
	// FarSlot: of the generation of processors that suffered from it.
	FarSlot   bool    `json:"far_slot" hw:"far_slot" doc:"network card and HBAs are not at the same processor"`
	RAID      string  `json:"raid" hw:"raid,md,md3200,md3200-hpt,h810,me4084" doc:"who makes the RAID groups; md3200: as in the Lustre brick, md3200-hpt: as in NSS4-HA"`
	Mirrored  bool    `json:"write_cache_mirroring" hw:"write_cache_mirroring" doc:"MD3 arrays: both controllers have what is written and not on disk yet"`
	Arrays    int     `json:"arrays" hw:"arrays,1,64" doc:"arrays, or RAID controllers, that share the groups"`
	Level     int     `json:"level"` // 6 or 10
	Groups    int     `json:"groups" hw:"groups,1,1000" doc:"RAID groups"`
	Data      int     `json:"data"`
	Parity    int     `json:"parity"`
	DiskType  string  `json:"disk_type" hw:"disk_type,nl-sas,sas,ssd,nvme" doc:"kind of the disks"`
	DiskBytes float64 `json:"disk_bytes" hw:"disk_tb,0.01,1000,1e12" doc:"size of a disk, TB"`

	CacheSSDs   int    `json:"cache_ssds" hw:"cache_ssds,0,64" doc:"SSDs of the cache; 0: none"`
	CacheMode   string `json:"cache_mode" hw:"cache_mode,write-back,write-through" doc:"mode of the cache"`
	CacheBypass bool   `json:"cache_bypass" hw:"cache_bypass" doc:"sequential streams go past the cache"`
	CacheCold   bool   `json:"cache_cold" hw:"cache_cold" doc:"what is read is not in the cache yet"`

	// The load.
	Clients    int     `json:"clients" hw:"clients,1,4096" doc:"most clients, with one thread and one file each"`
	Threads    int     `json:"threads" hw:"threads,1,4096" doc:"most threads of all clients together in the metadata tests"`
	ClientGbps float64 `json:"client_gbps" hw:"client_gbps,0.1,1600" doc:"rate of a client's link, Gb/s"`
	FileBytes  float64 `json:"file_bytes" hw:"file_gib,0.001,65536,1073741824" doc:"file of one client in the random tests, GiB"`

	// Assumed lists what was not given.
	Assumed []Assumption `json:"assumed,omitempty"`
}

// Assumption is a fact that was not given.
type Assumption struct {
	Name  string `json:"name"` // as --set takes it
	Value string `json:"value"`
	Why   string `json:"why"`
}

// fact is a field of Hardware with a tag hw.
type fact struct {
	doc   string
	field int
	args  []string // of the tag, without the name
}

var facts = sync.OnceValue(func() map[string]fact {
	all, t := map[string]fact{}, reflect.TypeFor[Hardware]()
	for i := range t.NumField() {
		if tag, ok := t.Field(i).Tag.Lookup("hw"); ok {
			args := strings.Split(tag, ",")
			all["hw."+args[0]] = fact{t.Field(i).Tag.Get("doc"), i, args[1:]}
		}
	}
	return all
})

// limits are those of a number, and the size of its unit.
func (f fact) limits() (lo, hi, unit float64) {
	lo, _ = strconv.ParseFloat(f.args[0], 64)
	hi, _ = strconv.ParseFloat(f.args[1], 64)
	unit = 1
	if len(f.args) > 2 {
		unit, _ = strconv.ParseFloat(f.args[2], 64)
	}
	return lo, hi, unit
}

func (f fact) set(h *Hardware, v string) error {
	switch p := reflect.ValueOf(h).Elem().Field(f.field); p.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q: want true or false", v)
		}
		p.SetBool(b)
	case reflect.String:
		if !slices.Contains(f.args, v) {
			return fmt.Errorf("%q: want one of %s", v, strings.Join(f.args, ", "))
		}
		p.SetString(v)
	case reflect.Int:
		lo, hi, _ := f.limits()
		n, err := strconv.Atoi(v)
		if err != nil || float64(n) < lo || float64(n) > hi {
			return fmt.Errorf("%q: want a whole number from %s to %s", v, f.args[0], f.args[1])
		}
		p.SetInt(int64(n))
	case reflect.Float64:
		lo, hi, unit := f.limits()
		x, err := strconv.ParseFloat(v, 64)
		if err != nil || !(x >= lo && x <= hi) {
			return fmt.Errorf("%q: want a number from %s to %s", v, f.args[0], f.args[1])
		}
		p.SetFloat(x * unit)
	}
	return nil
}

func (f fact) show(h *Hardware) string {
	p := reflect.ValueOf(h).Elem().Field(f.field)
	if p.Kind() == reflect.Float64 {
		_, _, unit := f.limits()
		return strconv.FormatFloat(p.Float()/unit, 'g', 6, 64)
	}
	return fmt.Sprint(p)
}

// md3 says whether the RAID is an MD3200's, whose write cache may be mirrored.
func (h *Hardware) md3() bool { return strings.HasPrefix(h.RAID, "md3200") }

func hardwareNames() []string { return slices.Sorted(maps.Keys(facts())) }

func (h *Hardware) set(name, value string) error {
	f, ok := facts()[name]
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
	h.Assumed = append(h.Assumed, Assumption{name, facts()[name].show(h), why})
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
