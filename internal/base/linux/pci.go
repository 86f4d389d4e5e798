package linux

import (
	"path"
	"strconv"
	"strings"
)

// PCICard is what is in a PCI slot. Source: kernel, Documentation/ABI/testing/sysfs-bus-pci
type PCICard struct {
	Kind                      string // as in a spec: sas-hba, raid, hca, nic, ssd; "": none of these
	Lanes, MaxLanes           int    // of the link, and that the card has
	Generation, MaxGeneration int    // of PCI Express; 0: not told
	Node                      int    // NUMA; -1: not told
}

// PCIFiles are patterns of what PCICards reads.
var PCIFiles = []string{"/sys/bus/pci/slots/*/address", pciDevices + "*/class", pciDevices + "*/current_link_width", pciDevices + "*/max_link_width",
	pciDevices + "*/current_link_speed", pciDevices + "*/max_link_speed", pciDevices + "*/numa_node"}

const pciDevices = "/sys/bus/pci/devices/"

// cardKinds are a spec's words for classes of PCI devices.
// Source: PCI Code and ID Assignment Specification
var cardKinds = map[string]string{"0x0104": "raid", "0x0107": "sas-hba", "0x0108": "ssd", "0x0200": "nic", "0x0207": "hca"}

// generations of PCI Express, by the speed of a lane in GT/s.
var generations = map[string]int{"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}

// PCICards gives the cards by the slots that the firmware names, without empty ones.
func PCICards(files map[string]string) map[string]PCICard {
	out := map[string]PCICard{}
	for p, address := range files {
		if !strings.HasPrefix(p, "/sys/bus/pci/slots/") {
			continue
		}
		attr := func(name string) string {
			return strings.TrimSpace(files[pciDevices+strings.TrimSpace(address)+".0/"+name])
		}
		number := func(name string) int { n, _ := strconv.Atoi(attr(name)); return n }
		generation := func(name string) int { gts, _, _ := strings.Cut(attr(name), " "); return generations[gts] }
		class := attr("class")
		if class == "" {
			continue
		}
		c := PCICard{Kind: cardKinds[class[:min(len(class), 6)]], Lanes: number("current_link_width"), MaxLanes: number("max_link_width"),
			Generation: generation("current_link_speed"), MaxGeneration: generation("max_link_speed"), Node: -1}
		if n, err := strconv.Atoi(attr("numa_node")); err == nil {
			c.Node = n
		}
		out[path.Base(path.Dir(p))] = c
	}
	return out
}
