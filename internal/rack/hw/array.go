package hw

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Array is a RAID array with two controllers. It is a machine of its own in
// the rack: Linux, with RAID groups of md over its virtual disks, and its LUNs
// exported by LIO. See docs/rack.md for the reasons.
type Array struct {
	// Vendor, Product and Revision of the SCSI inquiry.
	Vendor   string `json:"vendor"`
	Product  string `json:"product"`
	Revision string `json:"revision"`
	// Disks in their slots.
	Disks  []Disk      `json:"disks"`
	Groups []RAIDGroup `json:"groups"`
	// Spares are names of disks, for every group.
	Spares []string `json:"spares,omitempty"`
	// Scripts are what configured the array, in order; none: it is empty.
	Scripts []string `json:"scripts,omitempty"`
	// Management is the array's management interface; nil: none.
	Management *Management `json:"management,omitempty"`
}

// RAIDGroup is a RAID group (disk group, virtual disk) of an array.
type RAIDGroup struct {
	Name string `json:"name"`
	// Level is 6 or 10.
	Level int `json:"level"`
	// Chunk is the part of a stripe on one disk, in bytes.
	Chunk int64 `json:"chunk"`
	// MemberBytes is how much of each disk the group uses.
	MemberBytes int64 `json:"member_bytes"`
	// Members are names of disks, in RAID order.
	Members []string `json:"members"`
}

// LUNPlace is the place of a LUN in an array, and the controller that owns the LUN.
type LUNPlace struct {
	Number int    `json:"number"`
	Group  string `json:"group"`
	// Offset in the group, in bytes.
	Offset int64 `json:"offset"`
	// Controller is the preferred owner: 0 or 1.
	Controller int `json:"controller"`
	// Unmirrored: the write cache is in one controller, and lost with it.
	Unmirrored bool `json:"unmirrored,omitempty"`
	// Servers that the LUN is mapped to; empty: all that are cabled to the array.
	Servers []string `json:"servers,omitempty"`
}

const (
	// Controllers of an array. Each has one portal.
	Controllers = 2
	// ArrayMemoryMiB, the memory of an array's machine, is enough for 84 disks, 8 groups and 64 sessions, which
	// leave 150 MiB of it free.
	ArrayMemoryMiB = 512
	// DisksPerHBA is how many disks an array has on one HBA.
	DisksPerHBA = 128
	// metadataBytes is md's space on each disk in addition to the group's data:
	// 1 MiB before the data, and losses by rounding.
	metadataBytes = 4 << 20
	// ISCSIPort is the registered port of iSCSI.
	ISCSIPort = 3260
	// ArrayTime bounds a command to an array. A change of ALUA states takes less
	// than two seconds, adding a disk to a group three.
	ArrayTime = time.Minute
)

// Arrays lists the enclosures that are arrays.
func (c *Config) Arrays() []*Enclosure {
	var out []*Enclosure
	for i := range c.Enclosures {
		if c.Enclosures[i].Array != nil {
			out = append(out, &c.Enclosures[i])
		}
	}
	return out
}

// WithArray reports whether a server has LUNs of arrays.
func (c *Config) WithArray(server string) bool {
	return slices.ContainsFunc(c.Arrays(), func(e *Enclosure) bool { return e.CabledTo(server) })
}

// data is the capacity of a group in disks.
func (g *RAIDGroup) data() int {
	if g.Level == 10 {
		return len(g.Members) / 2
	}
	return len(g.Members) - 2
}

// ArrayNet is an address on an array's own link to the servers, which replaces its
// SAS cables. 198.18.0.0/15 is reserved for tests of devices (RFC 2544), so no brick
// uses these addresses.
func ArrayNet(index, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(index), byte(host)})
}

const (
	LinkHost   = 1  // our end, on which the host ports listen
	LinkPortal = 11 // controller 0; controller 1 has the next address
)

// TargetName is an array's iSCSI name. InitiatorName is the name of the other end of
// a path: an HBA and one LUN. Each of QEMU's sessions has one LUN, so a name for each
// LUN gives each session its own nexus with the same ISID.
func TargetName(c *Config, e *Enclosure) string { return "iqn.2026-11.rack:" + c.Name + "." + e.Name }

func InitiatorName(server string, hba, lun int) string {
	return fmt.Sprintf("iqn.2026-11.rack:%s.hba%d.lun%d", server, hba, lun)
}

// Portal is where a process serves its disks, inside the rack's network namespace.
func Portal(c *Config, process string) netip.AddrPort {
	n := slices.IndexFunc(c.Nodes, func(n Node) bool { return InsideName(n.Name) == process })
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(ISCSIPort+1+n))
}

// Number is a disk's WWN as a number; 0 for one that is not hexadecimal, as FromSpec makes none.
func (d Disk) Number() uint64 {
	n, _ := strconv.ParseUint(d.WWN, 16, 64)
	return n
}

// DiskTarget is the iSCSI name of a disk that QEMU gives to a server as one of its own.
func DiskTarget(id string) string { return "iqn.2026-11.rack:" + id }

// DriveName is the iSCSI name of a port of a disk in an enclosure, ServerName that of the HBA
// of a server that reaches it; see vdisk.
func DriveName(d SharedDisk, path int) string { return DiskTarget(d.PathID(path)) }

func ServerName(server string, hba int) string {
	return fmt.Sprintf("iqn.2026-11.rack:%s.hba%d", server, hba)
}

// ArrayIndex is an array's place among the arrays.
func (c *Config) ArrayIndex(name string) int {
	return slices.IndexFunc(c.Arrays(), func(e *Enclosure) bool { return e.Name == name })
}

// Survives is how many disks a group can lose without losing data.
func (g *RAIDGroup) Survives() int {
	if g.Level == 10 {
		return len(g.Members) / 2 // one of each pair; md itself reports a lost pair
	}
	return 2
}

// MappedTo reports whether a server sees a LUN.
func (e *Enclosure) MappedTo(l *LUNPlace, server string) bool {
	return e.CabledTo(server) && (len(l.Servers) == 0 || slices.Contains(l.Servers, server))
}

// Assigned lists the slots of an array's disks that are spares, or members of a group.
func (a *Array) Assigned() []int {
	var out []int
	for i, d := range a.Disks {
		if slices.Contains(a.Spares, d.Name) || slices.ContainsFunc(a.Groups, func(g RAIDGroup) bool { return slices.Contains(g.Members, d.Name) }) {
			out = append(out, i)
		}
	}
	return out
}

// Management is an array's management interface, at an address for each controller: the
// HTTPS API of an ME4, or what an MD3 answers to SMcli. It is read-only.
//
// Source: Dell EMC PowerVault ME4 Series Storage System CLI Reference Guide, "API
// basetype properties"; package raid has the client.
type Management struct {
	Array     string       `json:"array"` // its name in the brick
	Addresses []netip.Addr `json:"addresses"`
	// SMcli: the program of that name on the rack's servers asks the array, without a user.
	SMcli bool   `json:"smcli,omitempty"`
	User  string `json:"user"`
	// PasswordFile holds the password of User.
	PasswordFile string `json:"password_file"`
}

// ArraysEmpty reports whether the rack has arrays, and none has been configured.
func (c *Config) ArraysEmpty() bool {
	return len(c.Arrays()) > 0 && !slices.ContainsFunc(c.Arrays(), func(e *Enclosure) bool { return len(e.Array.Scripts) > 0 })
}

// SameButArrays reports whether two racks differ at most in what is configured on their
// arrays.
func (c *Config) SameButArrays(o *Config) bool {
	blank := func(c *Config) Config {
		out := *c
		out.WWNs, out.Enclosures = nil, slices.Clone(c.Enclosures)
		for i := range out.Enclosures {
			if e := &out.Enclosures[i]; e.Array != nil {
				a := Array{Vendor: e.Array.Vendor, Product: e.Array.Product, Revision: e.Array.Revision, Disks: e.Array.Disks, Management: e.Array.Management}
				e.Disks, e.Array = nil, &a
			}
		}
		return out
	}
	return reflect.DeepEqual(blank(c), blank(o))
}
