// Package design turns a Spec into a Design: RAID groups over enclosures,
// volumes, stripe alignment, the cluster graph, fencing levels, tuning with
// the reason for each value, and capacity. It is pure: no I/O, no clock, no
// randomness, so the same spec always gives the same design and every table
// of the source papers can be a test of it.
package design

import "github.com/mortarhpc/mortar/internal/spec"

// Design is everything that is to be built, derived from one Spec. It holds
// no secrets, only the names of the files they are in.
type Design struct {
	Name     string
	Flavour  spec.Flavour
	SHA256   string // of the spec file, hex
	Spec     *spec.Spec
	Disks    []Disk // every disk of every enclosure, in order
	Groups   []Group
	Volumes  []Volume // one per service, same order
	Services []Service
	HA       *HA // nil for one server
	Mounts   []ClientMount
	Settings []Setting // tuning, per role
	Capacity Capacity
	Warnings []Warning
}

// Disk is one disk. Serial is always set; WWN (naa, hex, no prefix) if the
// spec gave it.
type Disk struct {
	Serial    string
	WWN       string
	Enclosure string
	Bay       int // from 1
	Size      spec.Bytes
	Type      string
	Group     string // name of its RAID group; "" if spare or unused
	Spare     bool
	Service   string
}

// Group is one md RAID group.
type Group struct {
	Name    string // md array name, e.g. brick1-r0; device /dev/md/<Name>
	UUID    string // md UUID as mdadm prints it (8:8:8:8 hex digits), a UUIDv5 of brick and group name
	Service string
	Level   int // of the md array: 6 or 10 (level 60 of a spec is level 6 groups in one striped volume)
	Data    int
	Parity  int
	Chunk   spec.Bytes
	Members []Disk // in RAID order
	Spares  []Disk
	Usable  spec.Bytes // data disks x disk size, before metadata
}

// Volume is one volume group with one logical volume and its file system.
type Volume struct {
	Service    string
	VG, LV     string   // device /dev/<VG>/<LV>
	Groups     []string // physical volumes, in order
	Stripes    int      // LVM stripes (1: linear)
	StripeSize spec.Bytes
	// SystemID is the LVM system ID that owns the volume group while nobody
	// serves it. HA: that of no host, mortar-<brick>. One server: its host
	// name, as LVM's system_id_source=uname gives it.
	SystemID   string
	ExtentSize spec.Bytes // LVM physical extent
	FSUUID     string     // UUIDv5
	FSLabel    string     // at most 12 characters (XFS)
	SU         spec.Bytes // XFS stripe unit
	SW         int        // XFS stripe width, in stripe units
	MkfsArgs   []string   // after `mkfs.xfs`, without the device
	MountPoint string
	MountOpts  []string
}

// Service is an address with exports.
type Service struct {
	Name      string
	Address   string // service IP
	Prefix    int    // its network's prefix length
	Preferred string // server
	Volume    string // Volume.VG
	StateDir  string // shared directory for NFS recovery state, on the volume, outside every export; root 0711
	Scope     string // NFS server scope and statd name: equal on both nodes, or clients cannot reclaim
	Exports   []Export
}

// Export is one line of exportfs.
type Export struct {
	Dir     string // absolute path on the server: MountPoint + Path; made by apply, root:root 0755, if it is not there
	Path    string // below the volume's root, e.g. /data
	Clients string
	FSID    string // UUIDv5, stable over servers
	Options []string
}

// HA is the cluster.
type HA struct {
	Cluster  string
	Nodes    []Node
	TokenMS  int
	Failback string
	Fencing  []FenceLevel
}

// Node of the cluster; Rings are its addresses, private first.
type Node struct {
	ID    int
	Name  string
	Rings []string
}

// FenceLevel is a level (1 first) of fencing for one node: all its devices
// must succeed together.
type FenceLevel struct {
	Node    string
	Level   int
	Devices []FenceDevice
}

// FenceDevice is one stonith resource.
type FenceDevice struct {
	ID     string // e.g. fence-nfs1-bmc, fence-nfs1-pdu-a
	Agent  string // fence_ipmilan, fence_apc_snmp
	Params map[string]string
	// SecretParam is the agent's parameter that takes the secret, SecretFile
	// the file (on the administrator's machine, as in the spec) it is in.
	SecretParam string
	SecretFile  string
	Feeds       []string // power feeds the device depends on: all of them for a PDU, any one for a BMC
}

// ClientMount is one mount on one client.
type ClientMount struct {
	Client, Service string
	Source          string // 10.0.0.1:/srv/x
	Path            string
	Version         string
	Options         []string
}

// Setting is one tuning value with its reason. What is applied is read from
// here (Design.Value), so that what a report lists is what a host has.
//
// Kinds and their names:
//
//	sysctl     key of sysctl(8)
//	disk       file in /sys/block/*/queue of each shared disk and its multipath map
//	md         file in /sys/block/*/md of each array; read_ahead_kb: of its queue
//	lv         file in /sys/block/*/queue of the logical volume
//	module     module.parameter, for modprobe.d
//	multipath  keyword of multipath.conf(5)
//	lvm        how volume groups are made
//	mkfs       option of mkfs.xfs(8)
//	mount      mount option of the volume, on the server
//	nfsd       threads, versions, lease, grace, scope
//	export     option of exports(5)
//	corosync   totem/quorum key of corosync.conf(5)
//	pacemaker  cluster property, resource default or operation
//	nfs        mount option of the client
type Setting struct {
	Role   string // server, client or both
	Kind   string
	Name   string
	Value  string
	Reason string
	Source string // manual page or seed section
}

// Capacity in bytes: disks as sold, after RAID, and after md, LVM and XFS
// metadata (an estimate).
type Capacity struct {
	Raw, RAID, Usable spec.Bytes
}

// Warning is a rule the hardware makes it impossible to keep.
type Warning struct {
	Rule, Text string
	Line, Col  int
}
