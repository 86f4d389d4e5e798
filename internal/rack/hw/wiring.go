package hw

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

func ArrayState(dir, name string) string { return filepath.Join(dir, "nodes", name, "state.ext4") }

// ArrayStateBytes is the size of an array's own disk: some settings.
const ArrayStateBytes = 64 << 20

// Slot finds a disk of an array.
func (c *Config) Slot(disk string) (*Enclosure, int, bool) {
	for _, e := range c.Arrays() {
		if i := slices.IndexFunc(e.Array.Disks, func(d Disk) bool { return d.Name == disk }); i >= 0 {
			return e, i, true
		}
	}
	return nil, 0, false
}

// A node that boots the distribution's way has one system disk: a partition with the
// whole system, and Debian's GRUB in front of it. SeaBIOS loads GRUB, and GRUB loads
// Debian's kernel and initial RAM disk. The rest of the boot is Debian's own: see
// distributionRecipe.

const (
	// DiskBytes is the size of such a disk. The system takes 1 GiB, and there is
	// space for another kernel with its initial RAM disk. The file is sparse.
	DiskBytes = 3 << 30
	// PartitionStart is the begin of the only partition: 1 MiB, the default of all
	// partitioning tools. GRUB's core image is in the gap before it.
	PartitionStart = 1 << 20
	SectorBytes    = 512
	// DiskUUID is the UUID of the root file system, the same in every node.
	DiskUUID = "6d6f7274-6172-4272-8163-6b726f6f7400"
)

// DiskName returns the rack's name of a disk, given that name or the serial number
// in the spec. It returns an unknown name unchanged.
func (c *Config) DiskName(name string) string {
	for _, d := range c.SharedDisks() {
		if strings.EqualFold(d.Serial, name) {
			return d.Name
		}
	}
	for _, d := range c.Images() {
		if d.Serial != "" && strings.EqualFold(d.Serial, name) {
			return d.Name
		}
	}
	return name
}

// EnclosureName returns the rack's name of an enclosure, given that name or the name
// in the spec (see FromSpec).
func (c *Config) EnclosureName(name string) string {
	for _, e := range c.Enclosures {
		if e.Name == enclosurePrefix+strings.ToLower(name) {
			return e.Name
		}
	}
	return name
}

func IsServer(n *Node) bool { return n.Role == RoleServer }

func (n *Node) Renewable() error {
	if n.Distribution() {
		return tool.Refuse("server %s boots from a disk of its own (--boot distribution): such a one cannot be made anew", n.Name)
	}
	return nil
}

// OutletName is the label of an outlet: the node on it.
func (c *Config) OutletName(pdu string, outlet int) string {
	for _, n := range c.Nodes {
		for _, f := range n.Feeds {
			if f.PDU == pdu && f.Outlet == outlet {
				return n.Name
			}
		}
	}
	return "Outlet " + strconv.Itoa(outlet)
}

// Limits of a node's hardware.
const (
	// virtio-scsi addresses targets 0 to 255.
	maxTargets = 256
	// maxNodes fit into the last byte of their MAC addresses.
	maxNodes = 99
	// Every NVMe drive needs a root port on the node's root bus. Eight ports are the
	// functions of one device: the bus has 32.
	MaxSSDs = 32
	// MaxMTU is that of IPoIB; taps, bridges and virtio-net support it too.
	MaxMTU = 65520
	// HBAs is the number of host bus adapters of a server, and of I/O
	// modules of an enclosure.
	HBAs = 2
)

// SharedDisk is a disk of an enclosure with its place among all of them,
// from which its names inside QEMU follow.
type SharedDisk struct {
	Disk
	Enclosure string
	Index     int      // stays when an array gets more LUNs
	Servers   []string // that see it; empty: all
	Paths     int
	Target    int        // first of its targets on an HBA
	Array     *Enclosure // the array of a LUN; nil for a disk
	Portal    int        // the array's place among the arrays
}

// SharedDisks lists the disks of all enclosures.
func (c *Config) SharedDisks() []SharedDisk {
	var out []SharedDisk
	target, plain := 1, 0
	for i := range c.Enclosures {
		e := &c.Enclosures[i]
		for k, d := range e.Disks {
			s := SharedDisk{Disk: d, Enclosure: e.Name, Index: plain, Servers: e.Servers, Paths: e.paths(), Target: target}
			if e.Array != nil {
				s.Array, s.Portal = e, c.ArrayIndex(e.Name)
				s.Index = 1000*(1+i) + k // apart from those of disks
				if len(d.LUN.Servers) > 0 {
					s.Servers = d.LUN.Servers
				}
			} else {
				target += e.targets()
				plain++
			}
			out = append(out, s)
		}
		if e.Array != nil {
			target += e.targets()
		}
	}
	return out
}

// CabledTo reports whether a server has cables to the enclosure.
func (e *Enclosure) CabledTo(server string) bool {
	return len(e.Servers) == 0 || slices.Contains(e.Servers, server)
}

// allTargets is the number of SCSI targets that an enclosure takes on an HBA. The LUNs
// of an array share its ports.
func (e *Enclosure) allTargets() int {
	if e.Array != nil {
		return e.targets()
	}
	return e.targets() * len(e.Disks)
}

func (e *Enclosure) paths() int {
	if e.Paths == 0 {
		return HBAs
	}
	return e.Paths
}

// targets is the number of SCSI targets each disk takes on an HBA.
func (e *Enclosure) targets() int { return (e.paths() + HBAs - 1) / HBAs }

// HBA and module are the two ends of a path. Paths after the first two lead from each
// HBA to the other module.
func (d SharedDisk) HBA(path int) int { return path % HBAs }

func (d SharedDisk) Module(path int) int { return (path + path/HBAs) % HBAs }

func (d SharedDisk) BlockID() string { return "sd" + strconv.Itoa(d.Index) }

// Session says whether a server reaches the disk over iSCSI sessions of QEMU. QEMU cuts the
// full stripe that a device of such a session reports down to 4 MiB. So a LUN of a controller
// inside a server, which no other server reaches, is a disk of QEMU's own.
//
// Source: QEMU, hw/scsi/scsi-generic.c, scsi_handle_inquiry_reply
func (d SharedDisk) Session() bool { return d.Array != nil || d.FullStripe == 0 }

func (d SharedDisk) PathID(path int) string { return fmt.Sprintf("path%d-sd%d", path, d.Index) }

func (d SharedDisk) SessionID(path int) string { return "session-" + d.PathID(path) }

func SSDID(i int) string { return "ssd" + strconv.Itoa(i) }

func SSDDeviceID(i int) string { return "nvme" + strconv.Itoa(i) }

func NICID(i int) string { return "eth" + strconv.Itoa(i) }

func TapName(node, nic int) string { return fmt.Sprintf("n%de%d", node, nic) }

func BridgeName(network string) string { return "br-" + network }

func DiskImage(dir, name string) string { return filepath.Join(dir, "disks", name+".raw") }

func (c *Config) ProcessName(n string) string { return c.Netns() + "." + n }

// SystemDisks is the number of mirrored disks with a server's own layer.
const SystemDisks = 2

// SystemDisk is one of the disks with a node's own layer, or the boot disk of a node.
type SystemDisk struct {
	Image  string
	Serial string
	Slot   int // 0 or 1: slot of a server's disk that can be pulled; -1: none
	Bytes  int64
}

// SystemDisksOf lists the disks with a node's own layer: a server has a mirror; a
// client, and a node that boots the distribution's way, has a single disk.
func SystemDisksOf(dir string, n *Node) []SystemDisk {
	at := func(name string) string { return filepath.Join(dir, "nodes", n.Name, name) }
	if n.Distribution() {
		return []SystemDisk{{at("disk.raw"), "system", -1, DiskBytes}}
	}
	if !IsServer(n) {
		return []SystemDisk{{at("state.ext4"), "state", -1, StateBytes}}
	}
	var out []SystemDisk
	for i := range SystemDisks {
		// A serial has at most 20 characters; the initrd looks for its prefix.
		serial := fmt.Sprintf("sys%d-%s", i, n.Name)
		out = append(out, SystemDisk{at(fmt.Sprintf("system%d.raw", i)), serial[:min(len(serial), 20)], i, StateBytes})
	}
	return out
}

func (d SystemDisk) BlockID() string { return "system" + strconv.Itoa(max(d.Slot, 0)) }

func (d SystemDisk) DeviceID() string { return d.BlockID() + "-dev" }

// CabledTo reports whether a server has cables to the disk's enclosure.
func (d SharedDisk) CabledTo(server string) bool {
	return len(d.Servers) == 0 || slices.Contains(d.Servers, server)
}

// In reports whether a node reaches an SSD.
func (d Disk) In(n *Node) bool { return d.Node == "" || d.Node == n.Name }

const (
	// StateBytes is the size of a system disk. The file is sparse.
	StateBytes = 1 << 30
	// MirrorBytes is the space for md at its end: superblock, bitmap, list of bad
	// blocks.
	MirrorBytes = 1 << 20
)

func (c *Config) MTU(network string) int {
	if w, err := c.Network(network); err == nil {
		return w.MTU
	}
	return 1500
}

// Images lists the disks that have an image, those inside of arrays included.
func (c *Config) Images() []Disk {
	var out []Disk
	for _, e := range c.Enclosures {
		if e.Array != nil {
			out = append(out, e.Array.Disks...)
		} else {
			out = append(out, e.Disks...)
		}
	}
	return append(out, c.SSDs...)
}

// Shelves is the process of the shared disks.
const Shelves = "shelves"

// InsideName is the process of the disks inside a server.
func InsideName(server string) string { return "disks-" + server }

// Shelf is the process that serves a shared disk, or an SSD inside a server.
func (d Disk) Shelf() string {
	if d.Node != "" {
		return InsideName(d.Node)
	}
	return Shelves
}
