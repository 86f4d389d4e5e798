package hw

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Roles of a node. A server sees the shared disks; a client does not.
const (
	RoleServer = "server"
	RoleClient = "client"
)

// BootDistribution is the value of Node.Boot for Debian's own way of booting.
const BootDistribution = "distribution"

// Config describes the hardware of one rack, as FromSpec makes it. It is a pure
// description: the same Config always gives the same hardware (names, serials, addresses).
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
	// MTU in bytes.
	MTU int `json:"mtu,omitempty"`
}

type Node struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// Boot is "distribution" for a node that boots as Debian does: GRUB loads
	// Debian's kernel and initial RAM disk from the node's own system disk. Empty:
	// the rack's fast way.
	Boot      string `json:"boot,omitempty"`
	MemoryMiB int    `json:"memory_mib,omitempty"`
	// NICs in the order the node sees them: eth0, eth1, ...
	NICs []NIC `json:"nics"`
	// BMC is nil for a node without one.
	BMC *BMC `json:"bmc,omitempty"`
	// Feeds are the outlets the node is plugged into. With none, the node
	// has power as long as it is switched on.
	Feeds []Feed `json:"feeds,omitempty"`
}

// NIC is one network interface of a node.
type NIC struct {
	Network string `json:"network"`
	MAC     string `json:"mac,omitempty"`
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
	// Card is what perccli prints of a RAID card whose virtual disks the Disks are.
	Card string `json:"card,omitempty"`
	// Array makes the Disks LUNs of a RAID array.
	Array *Array `json:"array,omitempty"`
}

type Disk struct {
	// Name within the rack, for example "e1d01".
	Name   string `json:"name"`
	Serial string `json:"serial"`
	// WWN is the World Wide Name without prefix: 16 hexadecimal digits
	// ("5000c50000000a01"), or 32 for an array's LUN. dm-multipath names the disk
	// "3"+WWN. SSDs and disks inside an array have none.
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
	// Privilege is that of the user: operator or administrator; "" is administrator.
	Privilege string `json:"privilege,omitempty"`
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
	// Outlets is the number of outlets.
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

// Secrets are the fields of a PDU that name files with its secrets.
func (p *PDU) Secrets() []*string {
	if p.SNMP != nil {
		return []*string{&p.SNMP.AuthFile, &p.SNMP.PrivacyFile}
	}
	return []*string{&p.CommunityFile}
}

// Feed is one power cord: a node's supply plugged into a PDU's outlet.
type Feed struct {
	PDU    string `json:"pdu"`
	Outlet int    `json:"outlet"`
}

var (
	// Names of nodes and devices are names of files, and of block nodes of QEMU.
	nameRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	// No commas, quotes or blanks, since serial numbers go into QEMU options.
	serialRE = regexp.MustCompile(`^[A-Za-z0-9._/+-]{1,20}$`)
)

// Check refuses what a spec may say and a rack cannot have, and what a wrong option of
// rack up gives. All else of a Config is right because FromSpec derives it.
func (c *Config) Check() error {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	names, serials := map[string]bool{}, map[string]bool{}
	name := func(kind, n string) {
		if !nameRE.MatchString(n) {
			say("%s name %q: in the rack a name has lower-case letters, digits and hyphens, a letter first, at most 32", kind, n)
		}
		if names[n] {
			say("%s name %s: something else in the rack has that name", kind, n)
		}
		names[n] = true
	}
	name("rack", c.Name)
	delete(names, c.Name) // its network namespace has a prefix
	if known := distro.Suites(); !slices.Contains(known, c.Suite) {
		say("suite %q: want %s", c.Suite, strings.Join(known, " or "))
	}
	if !slices.Contains([]string{"", "kvm", "tcg"}, c.Accel) {
		say("accel %q: want kvm, tcg or nothing", c.Accel)
	}
	for _, n := range c.Nodes {
		name("node", n.Name)
		if n.Boot != "" && !n.Distribution() {
			say("node %s: boot %q: want %s or nothing", n.Name, n.Boot, BootDistribution)
		}
		if n.MemoryMiB < 256 {
			say("node %s: %d MiB of memory: want at least 256", n.Name, n.MemoryMiB)
		}
	}
	for _, p := range c.PDUs {
		name("pdu", p.Name)
	}
	targets := 0
	for _, e := range c.Enclosures {
		name("enclosure", e.Name)
		targets += e.allTargets()
		for _, d := range e.Disks {
			digits, company := 16, ""
			if d.LUN != nil {
				name("LUN", d.Name)
				digits, company = 32, "6" // NAA IEEE Registered Extended
			}
			if len(d.WWN) != digits || !strings.HasPrefix(d.WWN, company) {
				say("disk %s: WWN %q: in the rack it has %d digits, and of an array's LUN a 6 first", d.Name, d.WWN, digits)
			}
		}
		for _, g := range e.groups() {
			for _, m := range g.Members {
				if i := slices.IndexFunc(e.Array.Disks, func(d Disk) bool { return d.Name == m }); i < 0 || e.Array.Disks[i].Bytes < g.MemberBytes {
					say("array %s: group %s needs %d bytes of disk %q, which has not that many", e.Name, g.Name, g.MemberBytes, m)
				}
			}
		}
	}
	for _, d := range c.Images() {
		name("disk", d.Name)
		if !serialRE.MatchString(d.Serial) || serials[d.Serial] {
			say("disk %s: serial %q: in the rack it has 1 to 20 letters and digits, and no other disk has it", d.Name, d.Serial)
		}
		serials[d.Serial] = true
	}
	if targets > maxTargets {
		say("the shared disks have %d targets on one HBA: at most %d fit", targets, maxTargets)
	}
	if len(c.SSDs) > MaxSSDs {
		say("%d SSDs: at most %d", len(c.SSDs), MaxSSDs)
	}
	if len(c.Nodes) > maxNodes {
		say("%d nodes: at most %d", len(c.Nodes), maxNodes)
	}
	if len(bad) > 0 {
		return &tool.RefusedError{Problems: bad}
	}
	return nil
}

func (n *Node) Distribution() bool { return n.Boot == BootDistribution }

// SetBoot sets the way in which servers boot: HOW, or HOW=SERVER,SERVER for some; "" keeps it.
func (c *Config) SetBoot(boot string) error {
	if boot == "" {
		return nil
	}
	how, list, some := strings.Cut(boot, "=")
	names := strings.Split(list, ",")
	for i := range c.Nodes {
		n := &c.Nodes[i]
		at := slices.Index(names, n.Name)
		if n.Role == RoleServer && (!some || at >= 0) {
			n.Boot = how
			if some {
				names = slices.Delete(names, at, at+1)
			}
		}
	}
	if some && len(names) > 0 {
		return tool.Refuse("--boot %s: the brick has no server %q", boot, names[0])
	}
	return nil
}

// ParseScale reads 1/1000 as 1000.
func ParseScale(text string) (int64, error) {
	by, ok := strings.CutPrefix(text, "1/")
	n, err := strconv.ParseInt(by, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("--scale %q: want 1/N, e.g. 1/1000", text)
	}
	return n, nil
}

// Distribution reports whether any node of the rack boots the distribution's way.
func (c *Config) Distribution() bool {
	return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Distribution() })
}

// Named returns the element of a list that has a name; kind is for the error.
func Named[T any](kind, name string, list []T, of func(*T) string) (*T, error) {
	v := lists.Find(list, func(v *T) bool { return of(v) == name })
	if v == nil {
		return nil, NotThere(kind, name, list, func(v T) string { return of(&v) })
	}
	return v, nil
}

func (c *Config) Node(name string) (*Node, error) {
	return Named("node", name, c.Nodes, func(n *Node) string { return n.Name })
}

func (c *Config) Network(name string) (*Network, error) {
	return Named("network", name, c.Networks, func(n *Network) string { return n.Name })
}

func (c *Config) PDU(name string) (*PDU, error) {
	return Named("pdu", name, c.PDUs, func(p *PDU) string { return p.Name })
}

func (c *Config) Enclosure(name string) (*Enclosure, error) {
	return Named("enclosure", name, c.Enclosures, func(e *Enclosure) string { return e.Name })
}

// AdminNetwork is the network with the admin's address; FromSpec gives one to every rack.
func (c *Config) AdminNetwork() *Network {
	return lists.Find(c.Networks, func(n *Network) bool { return n.Admin.IsValid() })
}

// AdminAddress is the node's address on the management network.
func (c *Config) AdminAddress(n *Node) netip.Addr {
	admin := c.AdminNetwork()
	nic, _ := lists.First(n.NICs, func(nic NIC) bool { return nic.Network == admin.Name })
	return nic.Address.Addr()
}

// Netns is the name of the rack's network namespace.
func (c *Config) Netns() string { return "mortar-" + c.Name }

func NotThere[T any](kind, name string, have []T, of func(T) string) error {
	names := make([]string, len(have))
	for i, h := range have {
		names[i] = of(h)
	}
	if len(names) == 0 {
		return tool.Refuse("there is no %s %q: the rack has none", kind, name)
	}
	return tool.Refuse("there is no %s %q: the rack has %s", kind, name, strings.Join(names, ", "))
}

// PostSeconds is the duration of a server's self test before it loads a kernel. Real
// servers take a minute or more. The self test also keeps a fenced server from
// competing with the survivor for the shared processor during the takeover.
const PostSeconds = 20

// SecretFiles are the fields of a Config that name files with secrets.
func (c *Config) SecretFiles() []*string {
	var out []*string
	for i := range c.Nodes {
		if b := c.Nodes[i].BMC; b != nil {
			out = append(out, &b.PasswordFile)
		}
	}
	for i := range c.PDUs {
		out = append(out, c.PDUs[i].Secrets()...)
	}
	for _, e := range c.Arrays() {
		if m := e.Array.Management; m != nil && !m.SMcli {
			out = append(out, &m.PasswordFile)
		}
	}
	return out
}
