package hw

import (
	"slices"
	"strconv"
)

// ALUA states, as LIO numbers them.
const (
	aluaOptimized    = 0
	aluaNonOptimized = 1
	aluaUnavailable  = 3
)

func (h *Hardware) ALUA(e *Enclosure, l *LUNPlace, controller int) int {
	switch {
	case h.ModulesOut[ModuleKey(e.Name, controller)]:
		return aluaUnavailable
	case h.Owner(e, l) == controller:
		return aluaOptimized
	}
	return aluaNonOptimized
}

// Owner is the controller that owns a LUN now.
func (h *Hardware) Owner(e *Enclosure, l *LUNPlace) int {
	c := l.Controller
	if h.LUNsMoved[ModuleKey(e.Name, c)] {
		c = 1 - c
	}
	if h.ModulesOut[ModuleKey(e.Name, c)] && !h.ModulesOut[ModuleKey(e.Name, 1-c)] {
		c = 1 - c
	}
	return c
}

// WasSlow reports whether a LUN has ever been slowed down.
func (h *Hardware) WasSlow(lun string) bool { _, ok := h.Slow[lun]; return ok }

func ModuleKey(enclosure string, module int) string { return enclosure + "/" + strconv.Itoa(module) }

// A PDU of 16 A warns from 12 A on. A node takes 2 A over all of its cords that have
// power.
const (
	PDUOverload, PDUNearOverload = 16, 12
	nodeLoad                     = 20 // tenths of an ampere
)

// LoadOf is what nodes and other things take from a PDU, in tenths of an ampere.
func (h *Hardware) LoadOf(c *Config, pdu string) int {
	load := h.Loads[pdu]
	for _, n := range c.Nodes {
		here, live := 0, 0
		for _, f := range n.Feeds {
			if !h.Off[OutletKey(f.PDU, f.Outlet)] {
				live++
				if f.PDU == pdu {
					here++
				}
			}
		}
		if live > 0 {
			load += nodeLoad * here / live
		}
	}
	return load
}

// Hardware is the set of differences from the Config: pulled cords, cables and disks,
// dead devices. It persists while a node is off.
type Hardware struct {
	// Off are the outlets that give no power, as "pdu/outlet".
	Off map[string]bool `json:"off,omitempty"`
	// DeadBMCs and DeadPDUs do not answer, by node and by name.
	DeadBMCs map[string]bool `json:"dead_bmcs,omitempty"`
	DeadPDUs map[string]bool `json:"dead_pdus,omitempty"`
	// LyingBMCs switch something else instead of their node. The value, by node, is
	// the power that the BMC reports: on or off.
	LyingBMCs map[string]string `json:"lying_bmcs,omitempty"`
	// Astray are outlets with something else than their node, as "pdu/outlet".
	Astray map[string]bool `json:"astray,omitempty"`
	// LinksDown are cables that are out, as "node/network".
	LinksDown map[string]bool `json:"links_down,omitempty"`
	// SwitchesDown are networks that carry nothing.
	SwitchesDown map[string]bool `json:"switches_down,omitempty"`
	// PathsOut are cut paths, as "node/disk/hba".
	PathsOut map[string]bool `json:"paths_out,omitempty"`
	// ModulesOut are dead I/O modules, as "enclosure/module".
	ModulesOut map[string]bool `json:"modules_out,omitempty"`
	// DisksOut are disks that are out of their slots.
	DisksOut map[string]bool `json:"disks_out,omitempty"`
	// SystemOut are servers' system disks that are out, as "node/disk".
	SystemOut map[string]bool `json:"system_out,omitempty"`
	// Speeds are limits other than the Config's, by disk.
	Speeds map[string]Speed `json:"speeds,omitempty"`
	// ArraysOff are arrays without power.
	ArraysOff map[string]bool `json:"arrays_off,omitempty"`
	// LUNsMoved are controllers whose LUNs the other controller owns, as
	// "enclosure/module".
	LUNsMoved map[string]bool `json:"luns_moved,omitempty"`
	// Loads are what others take from a PDU, in tenths of an ampere.
	Loads map[string]int `json:"loads,omitempty"`
	// Slow is the delay of a LUN's answers in milliseconds.
	Slow map[string]int `json:"slow,omitempty"`
}

// Speed bounds a disk; 0 is unbounded.
type Speed struct {
	IOPS           int64 `json:"iops"`
	BytesPerSecond int64 `json:"bytes_per_second"`
	// Writes bounds writes; IOPS then bounds reads only. 0: IOPS bounds both.
	Writes int64 `json:"writes,omitempty"`
}

// Set adds a key to a set of the hardware or removes it.
func Set(m *map[string]bool, key string, on bool) {
	if on {
		SetValue(m, key, true)
	} else {
		delete(*m, key)
	}
}

// SetValue sets a value of the hardware.
func SetValue[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

func OutletKey(pdu string, outlet int) string { return pdu + "/" + strconv.Itoa(outlet) }

func PathKey(node, disk string, hba int) string {
	return node + "/" + disk + "/" + strconv.Itoa(hba)
}

// Powered reports whether any of the node's cords has power.
func (h *Hardware) Powered(n *Node) bool {
	return len(n.Feeds) == 0 || slices.ContainsFunc(n.Feeds, func(f Feed) bool {
		key := OutletKey(f.PDU, f.Outlet)
		return !h.Off[key] || h.Astray[key]
	})
}

func SystemKey(node string, d SystemDisk) string { return node + "/" + strconv.Itoa(d.Slot) }

// SystemDiskOut reports whether a node's system disk is out of its slot.
func (h *Hardware) SystemDiskOut(node string, d SystemDisk) bool {
	return h.SystemOut[SystemKey(node, d)]
}

// PathGone reports whether a node cannot reach a disk over a path.
func (h *Hardware) PathGone(node string, d SharedDisk, path int) bool {
	return !d.CabledTo(node) || h.DisksOut[d.Name] || h.ArraysOff[d.Enclosure] || h.PathsOut[PathKey(node, d.Name, d.HBA(path))] ||
		h.ModulesOut[ModuleKey(d.Enclosure, d.Module(path))]
}

// LinkDown reports whether a node's cable to a network is pulled or the switch is off.
func (h *Hardware) LinkDown(node, network string) bool {
	return h.LinksDown[node+"/"+network] || h.SwitchesDown[network]
}

// Speed is a disk's present limits.
func (h *Hardware) Speed(d Disk) Speed {
	if s, ok := h.Speeds[d.Name]; ok {
		return s
	}
	return d.speed()
}

func (d Disk) speed() Speed { return Speed{IOPS: d.IOPS, BytesPerSecond: d.BytesPerSecond} }

// ShelvesPowered reports whether the shared disks have power. They are connected to
// every PDU, so they lose power when all outlets of all PDUs are off.
func (h *Hardware) ShelvesPowered(c *Config) bool {
	return len(c.PDUs) == 0 || slices.ContainsFunc(c.PDUs, func(p PDU) bool {
		for o := 1; o <= p.Outlets; o++ {
			if !h.Off[OutletKey(p.Name, o)] {
				return true
			}
		}
		return false
	})
}
