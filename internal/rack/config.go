package rack

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// Roles of a node. A server sees the shared disks; a client does not.
const (
	RoleServer = "server"
	RoleClient = "client"
)

// BootDistribution is the value of Node.Boot for Debian's own way of booting.
const BootDistribution = "distribution"

// Config describes the hardware of one rack. It is a pure description: the same
// Config always gives the same hardware (names, serials, addresses).
type Config struct {
	// Name is the brick's name; the rack's network namespace is
	// "mortar-"+Name. Lower-case letters, digits and hyphens, at most 32.
	Name string `json:"name"`
	// Suite is the Debian release of the nodes: "trixie" or "bookworm".
	Suite string `json:"suite"`
	// Mirror is the URL of a Debian archive. Empty: the one that the
	// host's own apt uses.
	Mirror string `json:"mirror,omitempty"`
	// Lustre is a directory with Debian packages of Lustre for the nodes'
	// kernel, all of which are installed on every node. Empty: none.
	Lustre string `json:"lustre,omitempty"`
	// RDMA gives every node Soft RoCE on the public network, and Debian's standard
	// kernel: the kernel for clouds, which nodes have otherwise, lacks Soft RoCE.
	RDMA bool `json:"rdma,omitempty"`
	// Accel is "kvm", "tcg" or empty. Empty probes KVM by booting the
	// nodes' kernel and falls back to emulation (TCG).
	Accel string `json:"accel,omitempty"`

	Networks   []Network   `json:"networks"`
	Nodes      []Node      `json:"nodes"`
	Enclosures []Enclosure `json:"enclosures,omitempty"`
	// Scale is the factor by which the disks are smaller than the brick's. The rack
	// only reports it.
	Scale int64 `json:"scale,omitempty"`
	// WWNs of each array's LUNs by the array's name in the brick, in order of LUN
	// number. The rack only reports them.
	WWNs map[string][]string `json:"wwns,omitempty"`
	// Sparse allows disks that together are larger than the free space of the host.
	Sparse bool `json:"sparse,omitempty"`
	// SSDs are NVMe drives that every server reaches, or that are inside one server.
	SSDs []Disk `json:"ssds,omitempty"`
	PDUs []PDU  `json:"pdus,omitempty"`
}

// Network is one switch of the rack.
type Network struct {
	// Name, for example "public". At most 12 characters.
	Name string `json:"name"`
	// Admin is the administrator's own address with prefix length, on
	// the network that carries BMCs, PDUs and ssh. Exactly one network
	// has it.
	Admin netip.Prefix `json:"admin,omitzero"`
	// MTU in bytes; 0 is 1500.
	MTU int `json:"mtu,omitempty"`
}

// Node is one machine.
type Node struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// Boot is "distribution" for a node that boots as Debian does: GRUB loads
	// Debian's kernel and initial RAM disk from the node's own system disk. Empty:
	// the rack's fast way.
	Boot string `json:"boot,omitempty"`
	// MemoryMiB is the node's memory in MiB; 0 is 1280 for a server and
	// 768 for a client.
	MemoryMiB int `json:"memory_mib,omitempty"`
	// CPUs; 0 is 2 with KVM and 1 in emulation, in which more CPUs are slower.
	CPUs int `json:"cpus,omitempty"`
	// NICs in the order the node sees them: eth0, eth1, ...
	NICs []NIC `json:"nics"`
	// LocalDisks are blank disks of this node only, in addition to its boot disks:
	// /dev/disk/by-id/virtio-SERIAL.
	LocalDisks []Disk `json:"local_disks,omitempty"`
	// BMC is nil for a node without one.
	BMC *BMC `json:"bmc,omitempty"`
	// Feeds are the outlets the node is plugged into. With none, the node
	// has power as long as it is switched on.
	Feeds []Feed `json:"feeds,omitempty"`
}

// NIC is one network interface of a node.
type NIC struct {
	Network string `json:"network"`
	// MAC address; empty derives one from the node's and the NIC's place.
	MAC string `json:"mac,omitempty"`
	// Address with prefix length, set by the node at boot.
	Address netip.Prefix `json:"address"`
}

// Enclosure is a disk shelf with two I/O modules: every server's first HBA reaches
// module 0, the second module 1. A RAID array is an Enclosure too: its Disks are the
// array's LUNs, its modules the controllers (see Array).
type Enclosure struct {
	Name string `json:"name"`
	// Servers that the enclosure is cabled to; empty: all.
	Servers []string `json:"servers,omitempty"`
	// Paths from a server to each disk; 0 is 2. With 4 each HBA is cabled to
	// both modules, with 1 only the first HBA is cabled.
	Paths int    `json:"paths,omitempty"`
	Disks []Disk `json:"disks"`
	// Array makes the Disks LUNs of a RAID array.
	Array *Array `json:"array,omitempty"`
}

// Disk is a disk, shared or local.
type Disk struct {
	// Name within the rack, for example "e1d01".
	Name   string `json:"name"`
	Serial string `json:"serial"`
	// WWN is the World Wide Name without prefix: 16 hexadecimal digits
	// ("5000c50000000a01"), or 32 for an array's LUN. dm-multipath names the disk
	// "3"+WWN. SSDs, local disks and disks inside an array have none.
	WWN     string `json:"wwn,omitempty"`
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	// Bytes is the disk's size; a multiple of 512.
	Bytes int64 `json:"bytes"`
	// IOPS and BytesPerSecond bound the disk's speed; 0 is unbounded.
	IOPS           int64 `json:"iops,omitempty"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	// SSD disks do not report a rotation rate.
	SSD bool `json:"ssd,omitempty"`
	// Chunk and FullStripe, in bytes, are the geometry that an array's LUN
	// reports (optimal transfer length granularity and optimal transfer length of
	// the block limits VPD page); 0: none.
	Chunk      int64 `json:"chunk,omitempty"`
	FullStripe int64 `json:"full_stripe,omitempty"`
	// Node is the server with the SSD inside; empty: every server reaches the SSD.
	Node string `json:"node,omitempty"`
	// LUN is the place of an array's LUN; nil for a disk.
	LUN *LUNPlace `json:"lun,omitempty"`
}

// BMC is a node's baseboard management controller (IPMI 2.0 over LAN).
type BMC struct {
	Address netip.Addr `json:"address"`
	User    string     `json:"user"`
	// PasswordFile holds the password, at most 16 characters (the limit of every
	// IPMI tool). Up creates a missing file with a random password, mode 0600.
	PasswordFile string `json:"password_file"`
}

// PDU is a switched power distribution unit that speaks APC's rPDU MIB.
type PDU struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// CommunityFile holds the SNMP read-write community; SNMP is instead a user of
	// SNMPv3. Up creates a missing file with a random secret, mode 0600.
	CommunityFile string `json:"community_file,omitempty"`
	SNMP          *SNMP  `json:"snmp,omitempty"`
	// Outlets is the number of outlets; 0 is 8.
	Outlets int `json:"outlets,omitempty"`
}

// SNMP is a user of SNMPv3 with its protocols, as snmpd spells them.
type SNMP struct {
	User        string `json:"user"`
	Auth        string `json:"auth"`
	AuthFile    string `json:"auth_file"`
	Privacy     string `json:"privacy"`
	PrivacyFile string `json:"privacy_file"`
}

// secrets returns the files with a PDU's secrets.
func (p *PDU) secrets() []string {
	if p.SNMP != nil {
		return []string{p.SNMP.AuthFile, p.SNMP.PrivacyFile}
	}
	return []string{p.CommunityFile}
}

// Feed is one power cord: a node's supply plugged into a PDU's outlet.
type Feed struct {
	PDU    string `json:"pdu"`
	Outlet int    `json:"outlet"`
}

var (
	nameRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	// No commas, quotes or blanks, since these values go into QEMU options.
	inquiryRE = regexp.MustCompile(`^[A-Za-z0-9._/+-]*$`)
	wwnRE     = regexp.MustCompile(`^[0-9a-f]{16}$`)
	lunWWNRE  = regexp.MustCompile(`^6[0-9a-f]{31}$`)
	userRE    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,16}$`)
)

// WithDefaults returns the Config with defaults for all missing values.
func (c Config) WithDefaults() Config {
	if c.Suite == "" {
		c.Suite = distro.Default().Suite
	}
	c.Networks = slices.Clone(c.Networks)
	for i := range c.Networks {
		if c.Networks[i].MTU == 0 {
			c.Networks[i].MTU = 1500
		}
	}
	c.PDUs = slices.Clone(c.PDUs)
	for i := range c.PDUs {
		if c.PDUs[i].Outlets == 0 {
			c.PDUs[i].Outlets = 8
		}
	}
	c.Enclosures = slices.Clone(c.Enclosures)
	for i := range c.Enclosures {
		if a := c.Enclosures[i].Array; a != nil && a.MemoryMiB == 0 {
			copy := *a
			copy.MemoryMiB = arrayMemoryMiB
			c.Enclosures[i].Array = &copy
		}
	}
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.MemoryMiB == 0 {
			n.MemoryMiB = 1280
			if n.Role == RoleClient {
				n.MemoryMiB = 768
			}
		}
		n.NICs = slices.Clone(n.NICs)
		for j := range n.NICs {
			if n.NICs[j].MAC == "" {
				// 52:54:00 is QEMU's own prefix.
				n.NICs[j].MAC = fmt.Sprintf("52:54:00:4d:%02x:%02x", j+1, i+1)
			}
		}
	}
	return c
}

// Validate returns an error that lists every mistake in the Config, nil if there is
// none. Call WithDefaults before.
func (c Config) Validate() error {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	seen := map[string]string{}
	unique := func(kind, value, owner string) {
		key := kind + "\x00" + strings.ToLower(value)
		if other, ok := seen[key]; ok {
			say("%s %s of %s is already that of %s", kind, value, owner, other)
		}
		seen[key] = owner
	}
	name := func(kind, n string) {
		if !nameRE.MatchString(n) {
			say("%s name %q: want lower-case letters, digits and hyphens, a letter first, at most 32", kind, n)
		}
		unique("name", n, kind+" "+n)
	}

	if !nameRE.MatchString(c.Name) {
		say("rack name %q: want lower-case letters, digits and hyphens, a letter first, at most 32", c.Name)
	}
	if known := distro.Suites(); !slices.Contains(known, c.Suite) {
		say("suite %q: want %s", c.Suite, strings.Join(known, " or "))
	}
	switch c.Accel {
	case "", "kvm", "tcg":
	default:
		say("accel %q: want kvm, tcg or nothing", c.Accel)
	}

	var admin *Network
	for i, n := range c.Networks {
		name("network", n.Name)
		if len(n.Name) > 12 {
			say("network name %q is longer than 12 characters", n.Name)
		}
		if n.MTU < 1280 || n.MTU > maxMTU {
			say("network %s: MTU %d is not within 1280 and %d", n.Name, n.MTU, maxMTU)
		}
		if n.Admin.IsValid() {
			if admin != nil {
				say("networks %s and %s both carry the admin's address", admin.Name, n.Name)
			}
			admin = &c.Networks[i]
			unique("address", n.Admin.Addr().String(), "the admin")
		}
	}
	if admin == nil {
		say("no network carries the admin's address")
	}
	onAdmin := func(a netip.Addr, owner string) {
		unique("address", a.String(), owner)
		if admin != nil && !admin.Admin.Masked().Contains(a) {
			say("address %s of %s is outside the management network %s", a, owner, admin.Admin.Masked())
		}
	}

	disk := func(d Disk, shared bool) {
		name("disk", d.Name)
		if lun := d.LUN != nil; !lun && (d.Serial == "" || len(d.Serial) > 20) || !inquiryRE.MatchString(d.Serial) {
			say("disk %s: serial %q: want 1 to 20 letters and digits", d.Name, d.Serial)
		}
		unique("serial", d.Serial, "disk "+d.Name)
		if d.LUN != nil && !lunWWNRE.MatchString(d.WWN) {
			say("LUN %s: wwn %q: want 32 lower-case hexadecimal digits, a 6 first", d.Name, d.WWN)
		} else if d.LUN == nil && shared && !wwnRE.MatchString(d.WWN) {
			say("disk %s: wwn %q: want 16 lower-case hexadecimal digits", d.Name, d.WWN)
		}
		if d.WWN != "" {
			unique("wwn", d.WWN, "disk "+d.Name)
		}
		if len(d.Vendor) > 8 || !inquiryRE.MatchString(d.Vendor) {
			say("disk %s: vendor %q: want at most 8 letters and digits", d.Name, d.Vendor)
		}
		if len(d.Product) > 16 || !inquiryRE.MatchString(d.Product) {
			say("disk %s: product %q: want at most 16 letters and digits", d.Name, d.Product)
		}
		if d.Bytes < 1<<20 || d.Bytes%512 != 0 {
			say("disk %s: size %d: want at least 1 MiB and a multiple of 512 bytes", d.Name, d.Bytes)
		}
		if d.IOPS < 0 || d.BytesPerSecond < 0 {
			say("disk %s: a negative speed", d.Name)
		}
	}
	targets := 0
	for _, e := range c.Enclosures {
		name("enclosure", e.Name)
		if e.Paths < 0 || e.Paths > maxPaths {
			say("enclosure %s: %d paths: want 1 to %d", e.Name, e.Paths, maxPaths)
		}
		for _, s := range e.Servers {
			if !slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Name == s && n.Role == RoleServer }) {
				say("enclosure %s: there is no server %q", e.Name, s)
			}
		}
		for _, d := range e.Disks {
			disk(d, true)
		}
		targets += e.allTargets()
		if e.Array != nil {
			for _, d := range e.Array.Disks {
				disk(d, false)
			}
			bad = append(bad, e.problems()...)
		}
	}
	if targets > maxTargets {
		say("the shared disks have %d targets on one HBA: at most %d fit", targets, maxTargets)
	}
	for _, d := range c.SSDs {
		disk(d, false)
	}
	if len(c.SSDs) > maxSSDs {
		say("%d SSDs: at most %d", len(c.SSDs), maxSSDs)
	}

	outlets := map[string]int{}
	for _, p := range c.PDUs {
		name("pdu", p.Name)
		onAdmin(p.Address, "pdu "+p.Name)
		for _, file := range p.secrets() {
			if !filepath.IsAbs(file) {
				say("pdu %s: secret file %q: want an absolute path", p.Name, file)
			}
		}
		if p.Outlets < 1 || p.Outlets > 48 {
			say("pdu %s: %d outlets: want 1 to 48", p.Name, p.Outlets)
		}
		outlets[p.Name] = p.Outlets
	}

	if len(c.Nodes) == 0 || len(c.Nodes) > 99 {
		say("%d nodes: want 1 to 99", len(c.Nodes))
	}
	for _, n := range c.Nodes {
		name("node", n.Name)
		if n.Role != RoleServer && n.Role != RoleClient {
			say("node %s: role %q: want server or client", n.Name, n.Role)
		}
		if n.Boot != "" && !n.distribution() {
			say("node %s: boot %q: want %s or nothing", n.Name, n.Boot, BootDistribution)
		}
		if n.MemoryMiB < 256 {
			say("node %s: %d MiB of memory: want at least 256", n.Name, n.MemoryMiB)
		}
		if n.CPUs < 0 {
			say("node %s: %d CPUs", n.Name, n.CPUs)
		}
		managed := false
		for _, nic := range n.NICs {
			if !slices.ContainsFunc(c.Networks, func(w Network) bool { return w.Name == nic.Network }) {
				say("node %s: there is no network %q", n.Name, nic.Network)
			}
			if hw, err := net.ParseMAC(nic.MAC); err != nil || len(hw) != 6 || hw[0]&1 != 0 {
				say("node %s: MAC address %q", n.Name, nic.MAC)
			}
			unique("MAC", nic.MAC, "node "+n.Name)
			if !nic.Address.IsValid() {
				say("node %s: no address on network %s", n.Name, nic.Network)
				continue
			}
			unique("address", nic.Address.Addr().String(), "node "+n.Name)
			if admin != nil && nic.Network == admin.Name {
				managed = true
			}
		}
		if admin != nil && !managed {
			say("node %s has no interface on the management network %s", n.Name, admin.Name)
		}
		for _, d := range n.LocalDisks {
			disk(d, false)
		}
		if b := n.BMC; b != nil {
			onAdmin(b.Address, "the BMC of "+n.Name)
			if !userRE.MatchString(b.User) {
				say("node %s: BMC user %q: want 1 to 16 letters and digits", n.Name, b.User)
			}
			if !filepath.IsAbs(b.PasswordFile) {
				say("node %s: BMC password file %q: want an absolute path", n.Name, b.PasswordFile)
			}
		}
		for _, f := range n.Feeds {
			if f.Outlet < 1 || f.Outlet > outlets[f.PDU] {
				say("node %s: pdu %q has no outlet %d", n.Name, f.PDU, f.Outlet)
			}
			unique("outlet", fmt.Sprintf("%s/%d", f.PDU, f.Outlet), "node "+n.Name)
		}
	}
	if len(bad) > 0 {
		return &RefusedError{Problems: bad}
	}
	return nil
}

func (n *Node) distribution() bool { return n.Boot == BootDistribution }

// distribution reports whether any node of the rack boots the distribution's way.
func (c *Config) distribution() bool {
	return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.distribution() })
}

// node returns the node of that name.
func (c *Config) node(name string) (*Node, error) {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i], nil
		}
	}
	return nil, notThere("node", name, c.Nodes, func(n Node) string { return n.Name })
}

func (c *Config) network(name string) (*Network, error) {
	for i := range c.Networks {
		if c.Networks[i].Name == name {
			return &c.Networks[i], nil
		}
	}
	return nil, notThere("network", name, c.Networks, func(n Network) string { return n.Name })
}

func (c *Config) pdu(name string) (*PDU, error) {
	for i := range c.PDUs {
		if c.PDUs[i].Name == name {
			return &c.PDUs[i], nil
		}
	}
	return nil, notThere("pdu", name, c.PDUs, func(p PDU) string { return p.Name })
}

func (c *Config) enclosure(name string) (*Enclosure, error) {
	for i := range c.Enclosures {
		if c.Enclosures[i].Name == name {
			return &c.Enclosures[i], nil
		}
	}
	return nil, notThere("enclosure", name, c.Enclosures, func(e Enclosure) string { return e.Name })
}

// adminNetwork is the network with the admin's address; Validate guarantees that one
// exists.
func (c *Config) adminNetwork() *Network {
	for i := range c.Networks {
		if c.Networks[i].Admin.IsValid() {
			return &c.Networks[i]
		}
	}
	return nil
}

// adminAddress is the node's address on the management network.
func (c *Config) adminAddress(n *Node) netip.Addr {
	admin := c.adminNetwork()
	for _, nic := range n.NICs {
		if nic.Network == admin.Name {
			return nic.Address.Addr()
		}
	}
	return netip.Addr{}
}

// netns is the name of the rack's network namespace.
func (c *Config) netns() string { return "mortar-" + c.Name }

func notThere[T any](kind, name string, have []T, of func(T) string) error {
	names := make([]string, len(have))
	for i, h := range have {
		names[i] = of(h)
	}
	if len(names) == 0 {
		return refuse("there is no %s %q: the rack has none", kind, name)
	}
	return refuse("there is no %s %q: the rack has %s", kind, name, strings.Join(names, ", "))
}

// RefusedError is the error for bad input, or for a host on which the rack cannot
// run. Nothing was changed.
type RefusedError struct {
	Problems []string
}

func (e *RefusedError) Error() string { return strings.Join(e.Problems, "\n") }

// ExitCode is the exit code of a command that ends with this error.
func (e *RefusedError) ExitCode() int { return 2 }

func refuse(format string, args ...any) error {
	return &RefusedError{Problems: []string{fmt.Sprintf(format, args...)}}
}
