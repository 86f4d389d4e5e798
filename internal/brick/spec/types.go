// Package spec holds the versioned file a user writes: its types, how it is
// parsed with line and column, its defaults, and the rules a file may not
// break. It knows what is wanted, never how anything is done: no package of
// Mortar is imported here, no host is reached, and nothing but the spec file
// itself is read.
package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

//go:generate go test . -run TestReference -update

// APIVersion is the only version of the file this binary reads.
const APIVersion = "mortar/v1"

// Flavour is the shape of a brick.
type Flavour string

// The flavours a brick can have.
const (
	NFS     Flavour = "nfs"       // one server
	NFSHA   Flavour = "nfs-ha"    // active-passive pair, one service
	NFSHAXL Flavour = "nfs-ha-xl" // pair with two services, each server active for one
	Lustre  Flavour = "lustre"    // HA-MDS and HA-OSS pairs
)

// Bytes is a size in bytes. In the file it is written with a unit: decimal
// (kB, MB, GB, TB) as disks are sold, or binary (KiB, MiB, GiB, TiB).
type Bytes int64

// Switch is on or off, which YAML 1.2 reads as text.
type Switch string

// Spec is one brick. The `doc` tags are the source of docs/spec.md.
type Spec struct {
	APIVersion string  `yaml:"apiVersion" json:"apiVersion" doc:"always mortar/v1"`
	Flavour    Flavour `yaml:"flavour" json:"flavour" doc:"nfs, nfs-ha, nfs-ha-xl or lustre"`
	Name       string  `yaml:"name" json:"name" doc:"name of the brick: letters, digits and dashes, at most 15; names volume groups, arrays and the cluster"`
	ID         string  `yaml:"id,omitempty" json:"id,omitempty" doc:"random letters and digits, 8 to 32, that no other brick has; joins the name in the UUIDs of arrays and file systems; mortar init makes one; never changed, and not added to a brick that exists"`
	Profile    Profile `yaml:"profile,omitempty" json:"profile,omitempty" doc:"tuned, or stock: the same brick with the values of the distribution and of ClusterLabs, to compare with; what else the file says of tuning (nfs.threads, lease, grace, ha.token_ms, filesystem.mount) is not used then" default:"tuned"`
	SSH        SSH     `yaml:"ssh,omitempty" json:"ssh,omitempty" doc:"how the administrator's machine reaches the hosts"`
	// PasswordCommand prints the secret of a file that is not there.
	PasswordCommand []string     `yaml:"password_command,omitempty" json:"password_command,omitempty" doc:"program and arguments that print a secret whose file (password_file, community_file, auth_file, privacy_file) does not exist, e.g. [pass, show, hpc/{}]: {} becomes the file's name; it runs on the administrator's machine, without a shell"`
	Networks        Networks     `yaml:"networks" json:"networks" doc:"the networks of the brick"`
	Servers         []Server     `yaml:"servers" json:"servers" doc:"the storage servers"`
	PDUs            []PDU        `yaml:"pdus,omitempty" json:"pdus,omitempty" doc:"switched power distribution units, for the second level of fencing"`
	Arrays          []Array      `yaml:"arrays,omitempty" json:"arrays,omitempty" doc:"RAID arrays and controllers, for kind: array; default: one of storage.model for each service or module"`
	Enclosures      []Enclosure  `yaml:"enclosures" json:"enclosures" doc:"disk enclosures (JBODs), or the shelves of an array, with their disks"`
	Storage         Storage      `yaml:"storage,omitempty" json:"storage,omitempty" doc:"what is made of the disks; required, but for lustre, where each module has its own"`
	Cache           *Cache       `yaml:"cache,omitempty" json:"cache,omitempty" doc:"SSDs in front of the volume"`
	Filesystem      Filesystem   `yaml:"filesystem,omitempty" json:"filesystem,omitempty" doc:"the file system on each volume"`
	NFS             NFSConfig    `yaml:"nfs,omitempty" json:"nfs,omitempty" doc:"kernel NFS server settings"`
	Services        []Service    `yaml:"services,omitempty" json:"services,omitempty" doc:"what is served: one service, two for nfs-ha-xl, none for lustre"`
	Lustre          *Lustrefs    `yaml:"lustre,omitempty" json:"lustre,omitempty" doc:"the Lustre file system, for flavour lustre"`
	HA              *HA          `yaml:"ha,omitempty" json:"ha,omitempty" doc:"cluster settings, for nfs-ha, nfs-ha-xl and lustre"`
	Preparation     *Preparation `yaml:"preparation,omitempty" json:"preparation,omitempty" doc:"how each server is set up below the brick: plan and status compare it, and say what differs"`
	Firewall        *Firewall    `yaml:"firewall,omitempty" json:"firewall,omitempty" doc:"apply opens the brick's ports in the firewall of its hosts; default: it leaves firewalls alone"`
	Clients         []Client     `yaml:"clients,omitempty" json:"clients,omitempty" doc:"client hosts Mortar mounts the exports on, and loads from in bench and drill; and how many others there are"`
	Wipe            []string     `yaml:"wipe,omitempty" json:"wipe,omitempty" doc:"serial numbers of disks that may be wiped although they carry data"`
	Failed          []string     `yaml:"failed,omitempty" json:"failed,omitempty" doc:"serial numbers of disks that are out of service (mortar disk fail): their RAID groups do without them until mortar disk replace"`
	Rack            Rack         `yaml:"rack,omitempty" json:"rack,omitempty" doc:"virtual rack only: what the hardware list does not say; ignored on real hardware"`

	// File is the path the spec was read from; Source its bytes.
	File   string `yaml:"-" json:"file"`
	Source []byte `yaml:"-" json:"-"`

	pos    positions
	scaled bool // by Scale
	nodes  int  // clients of the file, also those that are only counted
}

// Profile is whose values a brick is built with.
type Profile string

// Profiles.
const (
	Tuned Profile = "tuned" // Mortar's own, each with its reason
	Stock Profile = "stock" // the distribution's and ClusterLabs'
)

var Profiles = []string{string(Tuned), string(Stock)}

// ClientNames are the names of the clients, in the order of the file.
func (s *Spec) ClientNames() []string {
	return lists.Map(s.Clients, func(c Client) string { return c.Name })
}

// Nodes is how many clients the brick has: those of the file, one by one, in ranges or only
// counted. KeepClients does not change it.
func (s *Spec) Nodes() int { return max(s.nodes, len(s.Clients)) }

// KeepClients returns a copy of the spec without the clients for which keep is false.
func (s *Spec) KeepClients(keep func(Client) bool) *Spec {
	out := *s
	out.nodes = s.Nodes()
	out.Clients = slices.DeleteFunc(slices.Clone(s.Clients), func(c Client) bool { return !keep(c) })
	return &out
}

// HostPos says where in the file a key of a server or client stands; of another host: its beginning.
func (s *Spec) HostPos(host, key string) (line, col int) {
	for i := range s.Servers {
		if s.Servers[i].Name == host {
			return s.Pos(fmt.Sprintf("servers[%d].%s", i, key))
		}
	}
	for i := range s.Clients {
		if s.Clients[i].Name == host {
			return s.Pos(s.Clients[i].at + "." + key)
		}
	}
	return 1, 1
}

// SSH says how to reach every host.
type SSH struct {
	User       string `yaml:"user,omitempty" json:"user,omitempty" doc:"login name; another than root must have sudo without a password; a key of ssh that is not here is as ~/.ssh/config has it" default:"root"`
	Port       int    `yaml:"port,omitempty" json:"port,omitempty" doc:"TCP port" default:"22"`
	Identity   string `yaml:"identity,omitempty" json:"identity,omitempty" doc:"private key file; default: the agent and ~/.ssh/id_ed25519"`
	KnownHosts string `yaml:"known_hosts,omitempty" json:"known_hosts,omitempty" doc:"file of pinned host keys" default:"~/.ssh/known_hosts"`
}

// Networks of a brick. Public carries NFS, private the cluster's first ring,
// management SSH, BMCs and PDUs.
type Networks struct {
	Public     Network  `yaml:"public" json:"public" doc:"clients and service addresses; second corosync ring"`
	Private    *Network `yaml:"private,omitempty" json:"private,omitempty" doc:"server to server; first corosync ring; required for HA"`
	Management *Network `yaml:"management,omitempty" json:"management,omitempty" doc:"SSH, BMCs and PDUs; default: public"`
}

type Network struct {
	CIDR      string `yaml:"cidr" json:"cidr" doc:"network address and prefix, e.g. 10.20.0.0/16"`
	Speed     string `yaml:"speed,omitempty" json:"speed,omitempty" doc:"link speed, e.g. 10Gb/s, 100Gb/s; for the forecast, and status warns of a server's link that is slower"`
	MTU       int    `yaml:"mtu,omitempty" json:"mtu,omitempty" doc:"link MTU; up to 9216, on InfiniBand up to 65520; if it is given, apply refuses hosts whose interface has another one, and status warns" default:"1500"`
	Link      string `yaml:"link,omitempty" json:"link,omitempty" doc:"ethernet or infiniband; default: ethernet"`
	Interface string `yaml:"interface,omitempty" json:"interface,omitempty" doc:"interface of the servers on it, e.g. ib0; needed for Lustre"`
}

// Mbits returns the network's link speed in Mbit/s, 0 if the spec does not give it.
func (n *Network) Mbits() float64 {
	for unit, mbits := range map[string]float64{"Gb/s": 1000, "Mb/s": 1} {
		if num, ok := strings.CutSuffix(n.Speed, unit); ok {
			v, _ := strconv.ParseFloat(num, 64) // validated
			return v * mbits
		}
	}
	return 0
}

type Server struct {
	Name    string   `yaml:"name" json:"name" doc:"host name"`
	Address string   `yaml:"address" json:"address" doc:"address SSH goes to, on the management network, or a host name"`
	HostKey string   `yaml:"host_key,omitempty" json:"host_key,omitempty" doc:"pinned SSH host key ('ssh-ed25519 AAAA…'); default: looked up in ssh.known_hosts"`
	Public  string   `yaml:"public" json:"public" doc:"address on the public network"`
	Private string   `yaml:"private,omitempty" json:"private,omitempty" doc:"address on the private network"`
	Memory  Bytes    `yaml:"memory,omitempty" json:"memory,omitempty" doc:"memory; for tuning and forecast, and for the virtual rack"`
	Feeds   []string `yaml:"feeds,omitempty" json:"feeds,omitempty" doc:"power feeds of the server's supplies, e.g. [A, B]"`
	BMC     *BMC     `yaml:"bmc,omitempty" json:"bmc,omitempty" doc:"baseboard management controller: first level of fencing"`
	Outlets []Outlet `yaml:"outlets,omitempty" json:"outlets,omitempty" doc:"PDU outlets that power the server: second level of fencing, switched together"`
	// Fencing has what BMC and Outlets do not describe.
	Fencing []FenceAgent `yaml:"fencing,omitempty" json:"fencing,omitempty" doc:"devices that switch the server by other agents of fence-agents, in place of bmc or outlets or besides: a level for each without a feed, those with a feed are of the outlets' level"`
	Model   string       `yaml:"model,omitempty" json:"model,omitempty" doc:"model, e.g. R620; for the picture"`
	CPU     *CPU         `yaml:"cpu,omitempty" json:"cpu,omitempty" doc:"processors; for the forecast"`
	PCI     []Card       `yaml:"pci,omitempty" json:"pci,omitempty" doc:"cards and the slots they are in; for placement advice and forecast"`
	// SASPorts are only needed where an array knows hosts by them.
	SASPorts []string `yaml:"sas_ports,omitempty" json:"sas_ports,omitempty" doc:"SAS addresses of the HBA ports (16 hex digits, /sys/class/sas_phy/*/sas_address); for mortar array script"`
}

// CPU is what a server computes with.
type CPU struct {
	Model   string `yaml:"model,omitempty" json:"model,omitempty" doc:"model, e.g. E5-2680"`
	Sockets int    `yaml:"sockets,omitempty" json:"sockets,omitempty" doc:"number of processors" default:"2"`
	Cores   int    `yaml:"cores" json:"cores" doc:"cores of one processor"`
	MHz     int    `yaml:"mhz,omitempty" json:"mhz,omitempty" doc:"clock, MHz" default:"2500"`
}

// Card is a PCI Express card in a slot of a server.
type Card struct {
	Slot       int    `yaml:"slot" json:"slot" doc:"number of the slot, as printed on the chassis"`
	Kind       string `yaml:"kind" json:"kind" doc:"sas-hba, raid, hca (InfiniBand), nic or ssd"`
	Lanes      int    `yaml:"lanes" json:"lanes" doc:"lanes the slot gives: 4, 8 or 16"`
	Generation int    `yaml:"generation,omitempty" json:"generation,omitempty" doc:"generation of PCI Express, 1 to 6" default:"3"`
	Node       int    `yaml:"node,omitempty" json:"node,omitempty" doc:"NUMA node (processor) the slot belongs to" default:"0"`
}

// BMC is the IPMI controller of a server. It runs on the server's own feeds.
type BMC struct {
	Address      string `yaml:"address" json:"address" doc:"address on the management network"`
	User         string `yaml:"user" json:"user" doc:"IPMI user with operator or administrator rights"`
	PasswordFile string `yaml:"password_file" json:"password_file" doc:"file with the password, relative to the spec; mode 0600"`
	Cipher       int    `yaml:"cipher,omitempty" json:"cipher,omitempty" doc:"IPMI cipher suite" default:"3"`
	Privilege    string `yaml:"privilege,omitempty" json:"privilege,omitempty" doc:"rights that the session asks for: operator, which may switch the power, or administrator, for a BMC that wants more" default:"operator"`
}

// PDU is a switched power distribution unit with the APC MIB.
type PDU struct {
	Name          string `yaml:"name" json:"name" doc:"name of the PDU: letters, digits, dashes"`
	Address       string `yaml:"address" json:"address" doc:"address on the management network"`
	SNMP          *SNMP  `yaml:"snmp,omitempty" json:"snmp,omitempty" doc:"user of SNMPv3; this or community_file"`
	CommunityFile string `yaml:"community_file,omitempty" json:"community_file,omitempty" doc:"file with the write community of SNMPv1, relative to the spec; mode 0600. It crosses the network in clear text: only for a PDU that cannot do SNMPv3"`
	Feed          string `yaml:"feed" json:"feed" doc:"power feed the PDU hangs on, e.g. A"`
}

// SNMP is a user of SNMPv3, with authentication and encryption.
type SNMP struct {
	User        string `yaml:"user" json:"user" doc:"user that may switch outlets"`
	Auth        string `yaml:"auth,omitempty" json:"auth,omitempty" default:"SHA" doc:"authentication protocol: SHA, SHA-256 or SHA-512"`
	AuthFile    string `yaml:"auth_file" json:"auth_file" doc:"file with the pass phrase for authentication, 8 characters or more; relative to the spec, mode 0600"`
	Privacy     string `yaml:"privacy,omitempty" json:"privacy,omitempty" default:"AES" doc:"encryption: AES (128 bits) or AES-256"`
	PrivacyFile string `yaml:"privacy_file" json:"privacy_file" doc:"file with the pass phrase for encryption, another one; 8 characters or more, relative to the spec, mode 0600"`
}

type Outlet struct {
	PDU    string `yaml:"pdu" json:"pdu" doc:"name of the PDU"`
	Outlet int    `yaml:"outlet" json:"outlet" doc:"outlet number, from 1"`
}

type Enclosure struct {
	Name    string     `yaml:"name" json:"name" doc:"name of the enclosure: letters, digits, dashes"`
	Bays    int        `yaml:"bays,omitempty" json:"bays,omitempty" doc:"number of disk bays; default: number of disks"`
	Service string     `yaml:"service,omitempty" json:"service,omitempty" doc:"the service whose volume these disks carry; needed when there are two"`
	Module  string     `yaml:"module,omitempty" json:"module,omitempty" doc:"lustre: the module whose targets these disks carry; needed when there are several"`
	Array   string     `yaml:"array,omitempty" json:"array,omitempty" doc:"the array or RAID controller the enclosure is cabled to; needed when there are several"`
	Model   string     `yaml:"model,omitempty" json:"model,omitempty" doc:"model, e.g. MD1200"`
	Disks   []DiskList `yaml:"disks" json:"disks" doc:"the disks, in bay order"`
}

// DiskList is one disk, or a range of like disks.
type DiskList struct {
	Serial string `yaml:"serial" json:"serial" doc:"serial number, or a range: MA[01-12] stands for MA01 … MA12"`
	WWN    string `yaml:"wwn,omitempty" json:"wwn,omitempty" doc:"WWN (naa, 16 hex digits), for one disk only; default: found by serial"`
	Size   Bytes  `yaml:"size" json:"size" doc:"size as sold, e.g. 4TB"`
	Type   string `yaml:"type,omitempty" json:"type,omitempty" doc:"nl-sas, sas, ssd or nvme" default:"nl-sas"`
	RPM    int    `yaml:"rpm,omitempty" json:"rpm,omitempty" doc:"rotation rate; 0 for solid state"`
	Sector int    `yaml:"sector,omitempty" json:"sector,omitempty" doc:"bytes of a logical block: 512, or 4096 of a disk that is sold as 4Kn; default: not known before the hosts are asked. The disks of one service (module) have one size"`
	Server string `yaml:"server,omitempty" json:"server,omitempty" doc:"an SSD of a cache that is inside one server: its name; default: every server reaches it"`
	// Growth keeps what is there from being dealt anew: groups are made of disks of
	// one number only, those of 0 first.
	Growth int `yaml:"growth,omitempty" json:"growth,omitempty" doc:"written by mortar grow: 1 for the disks by which the brick grew first, then 2, and so on. They make groups of their own; disks that are left over become their spares"`
}

// Array is a RAID array, or a RAID controller in a server. The first of the
// enclosures that name it is the one with its controllers.
type Array struct {
	Name       string   `yaml:"name" json:"name" doc:"name of the array: letters, digits, dashes"`
	Model      string   `yaml:"model" json:"model" doc:"MD3200, MD3220, ME4084, ME5012, ME5024, ME5084, E2812, E2824, E2860, E5760, E4012, E4060, PERC-H810, PERC-H755, PERC-H965i or PERC-H965e"`
	Management []string `yaml:"management,omitempty" json:"management,omitempty" doc:"addresses of its controllers, for mortar array script and mortar status"`
	// User and what follows are for an ME4, whose management asks for them.
	User         string   `yaml:"user,omitempty" json:"user,omitempty" doc:"ME4: user of its management that may only look (role monitor), for mortar status"`
	PasswordFile string   `yaml:"password_file,omitempty" json:"password_file,omitempty" doc:"ME4: file with that user's password, relative to the spec; mode 0600"`
	Certificates []string `yaml:"certificates,omitempty" json:"certificates,omitempty" doc:"ME4: SHA-256 fingerprints of its controllers' certificates; mortar status prints those it sees, and sends no password before they are here"`
	Server       string   `yaml:"server,omitempty" json:"server,omitempty" doc:"PERC: the server the controller is in; default: the first"`
	Controller   int      `yaml:"controller,omitempty" json:"controller,omitempty" doc:"PERC: number of the controller, as omreport and perccli print it" default:"0"`
	WWNs         []string `yaml:"wwns,omitempty" json:"wwns,omitempty" doc:"WWN of each LUN, in order of LUN number: written here once the array has made them, compared by mortar array verify"`
}

// Cache is a pool of SSDs in front of the volume.
type Cache struct {
	SSDs   []DiskList `yaml:"ssds" json:"ssds" doc:"the SSDs of the pool, 1 to 4"`
	Mode   string     `yaml:"mode,omitempty" json:"mode,omitempty" doc:"write-back (two SSDs or more, dirty data on two of them) or write-through" default:"write-through"`
	Bypass Bytes      `yaml:"sequential_bypass,omitempty" json:"sequential_bypass,omitempty" doc:"a stream that has run for so long goes past the cache" default:"1MiB"`
}

// Storage says what is made of the disks.
type Storage struct {
	Kind  string `yaml:"kind,omitempty" json:"kind,omitempty" doc:"jbod (md RAID on shared disks) or array (LUNs of a RAID array)" default:"jbod"`
	Model string `yaml:"model,omitempty" json:"model,omitempty" doc:"array model, for kind array: see arrays.model"`
	// Volume is what lies between LUNs and file system.
	Volume string `yaml:"volume,omitempty" json:"volume,omitempty" doc:"lvm (striped over the groups or LUNs), or device: the file system directly on the one LUN" default:"lvm"`
	RAID   RAID   `yaml:"raid" json:"raid" doc:"geometry"`
	// WriteCacheMirroring: "" is on.
	WriteCacheMirroring Switch `yaml:"write_cache_mirroring,omitempty" json:"write_cache_mirroring,omitempty" doc:"MD3200 and MD3220: on or off, default on: both controllers have what was written and is not on disk yet. off is faster, and a controller that dies takes what it has acknowledged with it: for scratch data only. mortar array script sets it"`
	DropSlowDisks       Switch `yaml:"drop_slow_disks,omitempty" json:"drop_slow_disks,omitempty" doc:"on or off: md goes on without a disk of a RAID 6 group that answers much later than its peers for most of a minute, if the group is whole; until a spare or another disk has its data, the group has one parity disk; needs two servers; profile stock does not use it" default:"off"`
}

// Mirrored says whether both controllers of an MD3 array have what was written.
func (s *Storage) Mirrored() bool { return s.WriteCacheMirroring != "off" }

// RAID geometry, the same for every group.
type RAID struct {
	Level  int   `yaml:"level" json:"level" doc:"6, 10 or 60"`
	Data   int   `yaml:"data" json:"data" doc:"data disks in a group (the k of k+2)"`
	Parity int   `yaml:"parity,omitempty" json:"parity,omitempty" doc:"redundant disks in a group: 2, or for level 10 as many as data" default:"<2>"`
	Groups int   `yaml:"groups,omitempty" json:"groups,omitempty" doc:"number of groups in the brick; default: as many as the disks yield"`
	Spares int   `yaml:"spares,omitempty" json:"spares,omitempty" doc:"hot spares in the brick, spread over enclosures and groups" default:"0"`
	Chunk  Bytes `yaml:"chunk,omitempty" json:"chunk,omitempty" doc:"chunk (segment, stripe unit) on one disk" default:"128KiB"`
	// PerEnclosure makes an error of what is otherwise a warning.
	PerEnclosure int `yaml:"per_enclosure,omitempty" json:"per_enclosure,omitempty" doc:"refuse a layout with more disks of a group in one enclosure than this; 0: as few as the hardware allows" default:"0"`
}

type Filesystem struct {
	Type  string   `yaml:"type,omitempty" json:"type,omitempty" doc:"xfs" default:"xfs"`
	Mount []string `yaml:"mount,omitempty" json:"mount,omitempty" doc:"further mount options"`
}

// NFSConfig holds the kernel NFS server's settings.
type NFSConfig struct {
	Threads   int      `yaml:"threads,omitempty" json:"threads,omitempty" doc:"nfsd threads; default: two for each client, 256 at least and 1024 at most, in a sixteenth of the memory" default:"256"`
	Versions  []string `yaml:"versions,omitempty" json:"versions,omitempty" doc:"protocol versions served" default:"3, 4.1, 4.2"`
	Lease     int      `yaml:"lease,omitempty" json:"lease,omitempty" doc:"NFSv4 lease in seconds; 30 at least in HA" default:"30"`
	Grace     int      `yaml:"grace,omitempty" json:"grace,omitempty" doc:"NFSv4 and NLM grace period in seconds" default:"30"`
	Transport string   `yaml:"transport,omitempty" json:"transport,omitempty" doc:"tcp; or rdma: nfsd serves RDMA (port 20049) besides TCP, and clients mount by it; default: tcp"`
}

// The ways that NFS can go.
const (
	TCP  = "tcp"
	RDMA = "rdma"
)

// RDMA says whether nfsd serves RDMA besides TCP.
func (n *NFSConfig) RDMA() bool { return n.Transport == RDMA }

// RDMA says whether a mount goes over RDMA.
func (m *Mount) RDMA(n *NFSConfig) bool { return cmp.Or(m.Transport, n.Transport) == RDMA }

// Service is an address with exports on one volume.
type Service struct {
	Name    string   `yaml:"name" json:"name" doc:"name of the service: small letters, digits, dashes, at most 12; also the label of its file system"`
	Address string   `yaml:"address,omitempty" json:"address,omitempty" doc:"service (floating) address on the public network; default for nfs: the server's public address"`
	Server  string   `yaml:"server,omitempty" json:"server,omitempty" doc:"server that is preferred; default: the first"`
	Path    string   `yaml:"path,omitempty" json:"path,omitempty" doc:"mount point of the volume" default:"/srv/<name>"`
	Exports []Export `yaml:"exports" json:"exports" doc:"what clients may mount"`
}

// Export of a directory to a network.
type Export struct {
	Path    string   `yaml:"path,omitempty" json:"path,omitempty" doc:"directory on the volume; not its root, where the NFS server keeps its recovery state" default:"/data"`
	Clients string   `yaml:"clients" json:"clients" doc:"network or host that may mount it, e.g. 10.20.0.0/16"`
	Options []string `yaml:"options,omitempty" json:"options,omitempty" doc:"export options" default:"rw, sync, no_subtree_check"`
}

// Lustrefs is a Lustre file system: modules of two servers each, with the
// disks both reach. It is not called Lustre because the flavour is.
type Lustrefs struct {
	FSName      string          `yaml:"fsname" json:"fsname" doc:"name of the file system: at most 8 letters and digits"`
	LNET        string          `yaml:"lnet,omitempty" json:"lnet,omitempty" doc:"network driver of LNET on the public network: tcp or o2ib (InfiniBand verbs)" default:"tcp"`
	Modules     []Module        `yaml:"modules" json:"modules" doc:"one HA-MDS and one or more HA-OSS"`
	StripeCount int             `yaml:"stripe_count,omitempty" json:"stripe_count,omitempty" doc:"OSTs a new file is striped over; -1: all" default:"1"`
	StripeSize  Bytes           `yaml:"stripe_size,omitempty" json:"stripe_size,omitempty" doc:"bytes on one OST before the next one's turn; a multiple of 64KiB" default:"1MiB"`
	Pools       []OSTPool       `yaml:"pools,omitempty" json:"pools,omitempty" doc:"named sets of OSTs"`
	Params      []string        `yaml:"params,omitempty" json:"params,omitempty" doc:"further settings for lctl set_param -P, e.g. osc.*.max_dirty_mb=512; those of conf_param's form are translated"`
	Mount       string          `yaml:"mount,omitempty" json:"mount,omitempty" doc:"mount point on the clients" default:"/<fsname>"`
	Packages    *LustrePackages `yaml:"packages,omitempty" json:"packages,omitempty" doc:"where Lustre's packages come from; default: they are installed on the hosts already"`
}

// LustrePackages is where Lustre comes from: a directory or a repository.
type LustrePackages struct {
	Directory  string `yaml:"directory,omitempty" json:"directory,omitempty" doc:"directory of Debian packages, relative to the spec; apply copies them to the hosts"`
	Repository string `yaml:"repository,omitempty" json:"repository,omitempty" doc:"instead of directory: an apt repository as in sources.list(5): address, suite and components, e.g. https://lustre.example.org/debian ./"`
	Key        string `yaml:"key,omitempty" json:"key,omitempty" doc:"file with the OpenPGP key that the repository is signed with, relative to the spec"`
}

// Module is a pair of servers and their storage.
type Module struct {
	Name    string   `yaml:"name" json:"name" doc:"name of the module: letters, digits, dashes"`
	Role    string   `yaml:"role" json:"role" doc:"mds (MGS and an MDT) or oss (an OST for each RAID group)"`
	Servers []string `yaml:"servers" json:"servers" doc:"its two servers"`
	Storage Storage  `yaml:"storage" json:"storage" doc:"what is made of its disks"`
}

// OSTPool names some OSTs.
type OSTPool struct {
	Name string   `yaml:"name" json:"name" doc:"name of the pool: at most 15 letters, digits, - and _"`
	OSTs []string `yaml:"osts" json:"osts" doc:"indices and ranges, e.g. [0-5, 8]"`
}

// Preparation is how a server is set up below the brick. A key that is not there is not looked at.
type Preparation struct {
	LogicalProcessor Switch            `yaml:"logical_processor,omitempty" json:"logical_processor,omitempty" doc:"on or off: two threads on each core (BIOS: Logical Processor, Hyper-Threading)"`
	SubNUMA          Switch            `yaml:"sub_numa,omitempty" json:"sub_numa,omitempty" doc:"on or off: several NUMA nodes in a processor (BIOS: Sub-NUMA Cluster, NPS)"`
	PowerProfile     string            `yaml:"power_profile,omitempty" json:"power_profile,omitempty" doc:"performance, powersave, schedutil or ondemand: the governor of the processors' clock (BIOS: System Profile)"`
	FlowControl      Switch            `yaml:"flow_control,omitempty" json:"flow_control,omitempty" doc:"on or off: pause frames of the interface on the public network, sent and heeded"`
	PoolMode         string            `yaml:"pool_mode,omitempty" json:"pool_mode,omitempty" doc:"global, percpu, pernode or auto: how nfsd's threads are divided among processors (sunrpc.pool_mode); apply sets it for the next load of the module"`
	Swap             Bytes             `yaml:"swap,omitempty" json:"swap,omitempty" doc:"swap at least, for an xfs_repair that needs more than memory; apply makes a file of what is missing"`
	Versions         map[string]string `yaml:"versions,omitempty" json:"versions,omitempty" doc:"versions that each server has at least, by the names that plan prints: bios, bmc, kernel, a package, or disk, hba, nic or driver with its model, e.g. {bios: 2.10.2, disk DELL MD32xx: 0784}; a LUN's is that of its array's firmware"`
	MirrorSpares     int               `yaml:"mirror_spares,omitempty" json:"mirror_spares,omitempty" doc:"hot spares, at least, of the md RAID 1 that the server's own system is on" default:"0"`
}

// Firewall is how the brick's ports are opened on its hosts.
type Firewall struct {
	Kind    string   `yaml:"kind" json:"kind" doc:"nftables or firewalld"`
	Chains  []string `yaml:"chains,omitempty" json:"chains,omitempty" doc:"nftables: the site's chains that drop packets to the host, each as family, table and chain; apply puts one jump to a chain of the brick's own into each" default:"inet filter input"`
	Clients bool     `yaml:"clients,omitempty" json:"clients,omitempty" doc:"true: also on the clients, where the servers' NFSv3 callbacks arrive"`
}

// HA holds cluster settings. Times are in milliseconds where they say so.
type HA struct {
	Token         int    `yaml:"token_ms,omitempty" json:"token_ms,omitempty" doc:"corosync token timeout, ms" default:"1000"`
	Failback      string `yaml:"failback,omitempty" json:"failback,omitempty" doc:"manual or auto" default:"manual"`
	FenceTestDays int    `yaml:"fence_test_days,omitempty" json:"fence_test_days,omitempty" doc:"days after which status asks for another fence test" default:"200"`
	Reservations  Switch `yaml:"reservations,omitempty" json:"reservations,omitempty" doc:"on or off: shared disks, and LUNs of MD3 and ME4 arrays, are reserved for the server that serves them, so that a server that was wrongly taken for dead writes nothing; off is for disks that claim to know reservations and do not heed them, and for demonstrations" default:"on"`
}

// Client is a host that mounts the exports. In the file it may be a range of them, or only a
// number; a parsed spec has each of a range, and none that is only counted.
type Client struct {
	Name    string  `yaml:"name,omitempty" json:"name,omitempty" doc:"host name; or a range of like clients: c[001-400] stands for c001 … c400, and their addresses count up from the two that are given"`
	Address string  `yaml:"address,omitempty" json:"address,omitempty" doc:"address SSH goes to, or a host name"`
	HostKey string  `yaml:"host_key,omitempty" json:"host_key,omitempty" doc:"pinned SSH host key; of a range: the one that all of its clients have"`
	Public  string  `yaml:"public,omitempty" json:"public,omitempty" doc:"address on the public network"`
	Memory  Bytes   `yaml:"memory,omitempty" json:"memory,omitempty" doc:"memory; for the virtual rack"`
	Mounts  []Mount `yaml:"mounts,omitempty" json:"mounts,omitempty" doc:"what is mounted where; default: every service by NFSv4.1 and v3"`
	Load    bool    `yaml:"load,omitempty" json:"load,omitempty" doc:"true: drills and benchmarks load from these clients, and leave those without it alone; default: they load from all"`
	Count   int     `yaml:"count,omitempty" json:"count,omitempty" doc:"instead of all other keys: so many nodes mount the brick on which Mortar mounts nothing; the tuning counts them"`

	at string // its place in the file
}

// Mount of an export on a client.
type Mount struct {
	Service   string   `yaml:"service" json:"service" doc:"name of the service"`
	Export    string   `yaml:"export,omitempty" json:"export,omitempty" doc:"export of the service; default: its first"`
	Path      string   `yaml:"path" json:"path" doc:"mount point on the client"`
	Version   string   `yaml:"version,omitempty" json:"version,omitempty" doc:"3, 4.1 or 4.2" default:"4.1"`
	Transport string   `yaml:"transport,omitempty" json:"transport,omitempty" doc:"tcp or rdma; default: nfs.transport"`
	Options   []string `yaml:"options,omitempty" json:"options,omitempty" doc:"further mount options"`
}

// Rack holds what a virtual rack needs beyond the hardware list.
type Rack struct {
	Suite  string `yaml:"suite,omitempty" json:"suite,omitempty" doc:"Debian release of the nodes: trixie or bookworm" default:"trixie"`
	Mirror string `yaml:"mirror,omitempty" json:"mirror,omitempty" doc:"Debian mirror; default: that of the host"`
	IOPS   int    `yaml:"iops,omitempty" json:"iops,omitempty" doc:"throttle of each shared hard disk, I/O operations per second; 0: none" default:"0"`
	RDMA   Switch `yaml:"rdma,omitempty" json:"rdma,omitempty" doc:"on, with lustre.lnet o2ib: a scaled rack runs it over Soft RoCE, and the Lustre packages are for Debian's standard kernel; off: it speaks tcp" default:"off"`
}

// SoftRoCE says that the brick's networks carry verbs, which a virtual rack does in
// software.
func (s *Spec) SoftRoCE() bool {
	return s.NFS.RDMA() || s.Lustre != nil && s.Lustre.LNET == "o2ib"
}
