package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Hardware is what a host is made of, as far as a spec can say it. What a host
// does not tell is zero.
type Hardware struct {
	Model string // of the machine
	CPU   CPU
	NICs  []NIC
	BMC   string // IP address
	Cards []Card
	Disks []DiskHardware
	// Missing are the programs that would have told more.
	Missing []string `json:",omitempty"`
}

// CPU is what is in the sockets. Source: proc_cpuinfo(5).
type CPU struct {
	Model   string
	Sockets int
	Cores   int // of one socket
}

// NIC is a network interface that is up and has an address.
type NIC struct {
	Name       string
	MTU        int
	Mbps       int // speed of the link, Mb/s
	InfiniBand bool
	Addresses  []string // IPv4 with prefix: 10.1.2.3/24
}

// Card is what is in a PCI slot.
type Card struct {
	Slot       string // as the firmware names it
	Kind       string // as in a spec: sas-hba, raid, hca, nic, ssd
	Lanes      int
	Generation int // of PCI Express
	Node       int // NUMA
}

// DiskHardware is a disk, where it is and what is on it.
type DiskHardware struct {
	resource.DiskFact
	Vendor, Product string
	Rotating        bool
	// Enclosure is the identifier of a SES enclosure, and Bay the number there.
	Enclosure string
	Bay       int
	// Carries are what the disk has on it, in words; none: it is blank.
	Carries []string
}

// ObserveHardware reads the host behind sys, and changes nothing.
func ObserveHardware(ctx context.Context, sys resource.Sys) (Hardware, error) {
	return resource.Observe(ctx, sys, func(sys resource.Look) (Hardware, error) {
		h := Hardware{CPU: parseCPUInfo(sys.Must("/proc/cpuinfo")), NICs: observeNICs(sys)}
		h.Model = sys.Attr("/sys/class/dmi/id/product_name")
		out, installed := sys.Command("ipmitool", "lan", "print")
		switch {
		case !installed:
			h.Missing = append(h.Missing, "ipmitool")
		case out.Code == 0:
			h.BMC = parseLanPrint(out.Stdout)
		}
		h.Cards, h.Disks = observeCards(sys), observeDisks(sys)
		return h, nil
	})
}

// parseCPUInfo counts sockets and cores.
func parseCPUInfo(text string) CPU {
	var c CPU
	sockets := map[string]bool{}
	processors := 0
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, ":")
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(k) {
		case "processor":
			processors++
		case "model name":
			c.Model = v
		case "physical id":
			sockets[v] = true
		case "cpu cores":
			c.Cores, _ = strconv.Atoi(v)
		}
	}
	c.Sockets = max(len(sockets), 1)
	c.Cores = cmp.Or(c.Cores, max(processors/c.Sockets, 1))
	return c
}

// parseLanPrint finds the address of a BMC. Source: ipmitool(1), lan print
func parseLanPrint(text string) string {
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, ":")
		if v = strings.TrimSpace(v); strings.TrimSpace(k) == "IP Address" && v != "0.0.0.0" {
			return v
		}
	}
	return ""
}

func observeNICs(sys resource.Look) []NIC {
	links, err := linux.ParseLinks(sys.Ask("iproute2", "ip", "-json", "address", "show", "up"))
	sys.Check(err)
	var nics []NIC
	for _, l := range links {
		n := NIC{Name: l.Name, MTU: l.MTU, InfiniBand: l.Type == "infiniband"}
		for _, a := range l.Addresses {
			if a.Family == "inet" {
				n.Addresses = append(n.Addresses, fmt.Sprintf("%s/%d", a.Local, a.Prefix))
			}
		}
		if l.Type == "loopback" || len(n.Addresses) == 0 {
			continue
		}
		// A link that does not know its speed says -1, or fails to be read.
		speed := sys.Attr("/sys/class/net/" + l.Name + "/speed")
		mbps, _ := strconv.Atoi(speed)
		n.Mbps = max(mbps, 0)
		nics = append(nics, n)
	}
	return nics
}

func observeCards(sys resource.Look) []Card {
	files := map[string]string{}
	for _, pattern := range linux.PCIFiles {
		for _, p := range sys.Files(pattern) {
			files[p] = sys.Attr(p)
		}
	}
	slots := linux.PCICards(files)
	var cards []Card
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		c := slots[slot]
		if c.Kind == "" || c.MaxLanes == 0 || c.MaxGeneration == 0 {
			continue // not of those that a spec knows, or soldered to the bus
		}
		cards = append(cards, Card{slot, c.Kind, c.MaxLanes, c.MaxGeneration, max(c.Node, 0)})
	}
	return cards
}

func observeDisks(sys resource.Look) []DiskHardware {
	facts, err := sys.Disks(sys.Ctx)
	sys.Check(err)
	bays := observeBays(sys)
	ms := sys.Mounts()
	var all []DiskHardware
	var fs []foundDisk
	for _, f := range facts.All {
		if len(f.Paths) == 0 {
			continue
		}
		d := DiskHardware{DiskFact: f}
		dir := "/sys/block/" + path.Base(f.Paths[0])
		d.Vendor = sys.Attr(dir + "/device/vendor")
		d.Product = sys.Attr(dir + "/device/model")
		turns := sys.Attr(dir + "/queue/rotational")
		d.Rotating = turns == "1"
		for _, p := range f.Paths {
			if b, ok := bays[path.Base(p)]; ok {
				d.Enclosure, d.Bay = b.enclosure, b.bay
			}
		}
		all, fs = append(all, d), append(fs, foundDisk{DiskFact: f})
	}
	if len(fs) == 0 {
		return nil
	}
	sigs := signatures(sys, fs)
	for i := range all {
		for _, s := range sigs[i] {
			if words := s.describe(nil); !slices.Contains(all[i].Carries, words) {
				all[i].Carries = append(all[i].Carries, words)
			}
		}
		use := inUse(sys, ms, kernelNames(sys, fs[i]))
		if use != "" {
			all[i].Carries = append(all[i].Carries, "in use by "+use)
		}
	}
	return all
}

type bayOf struct {
	enclosure string
	bay       int
}

// observeBays says where disks are, by the kernel's names of their paths.
// Source: Linux, drivers/misc/enclosure.c
func observeBays(sys resource.Look) map[string]bayOf {
	disks := sys.Files("/sys/class/enclosure/*/*/device/block/*")
	bays := map[string]bayOf{}
	for _, p := range disks {
		component := path.Dir(path.Dir(path.Dir(p)))
		enclosure := path.Dir(component)
		id := sys.Attr(enclosure + "/id")
		slot := sys.Attr(component + "/slot")
		bay, err := strconv.Atoi(slot)
		if err != nil {
			continue // a component that says no number
		}
		bays[path.Base(p)] = bayOf{cmp.Or(id, path.Base(enclosure)), bay}
	}
	return bays
}
