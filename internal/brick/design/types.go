// Package design turns a Spec into a Design: RAID groups over enclosures,
// volumes, stripe alignment, the cluster graph, fencing levels, tuning with
// the reason for each value, and capacity. It is pure: no I/O, no clock, no
// randomness, so the same spec always gives the same design and every table
// of the source papers can be a test of it.
package design

import "github.com/mortarhpc/mortar/internal/brick/spec"

// Design is everything that is to be built, derived from one Spec. It holds
// no secrets, only the names of the files they are in.
type Design struct {
	Name     string        `json:"name"`
	Flavour  spec.Flavour  `json:"flavour"`
	SHA256   string        `json:"sha256"` // of the spec file, hex
	Spec     *spec.Spec    `json:"spec,omitempty"`
	Disks    []Disk        `json:"disks"` // every disk of every enclosure, in order
	Groups   []Group       `json:"groups"`
	Pairs    []Pair        `json:"pairs"` // of an NFS brick one; of Lustre one for each module
	Mounts   []ClientMount `json:"mounts"`
	Settings []Setting     `json:"settings"` // tuning, per role
	Capacity Capacity      `json:"capacity"`
	Warnings []Warning     `json:"warnings"`
	// Differs lists what profile stock has otherwise than profile tuned.
	Differs []Difference `json:"differs,omitempty"`

	Arrays       []Array       `json:"arrays,omitempty"`       // RAID arrays and controllers; none for JBODs
	Lustre       *Lustre       `json:"lustre,omitempty"`       // the file system of all pairs, for flavour lustre
	Advice       []Advice      `json:"advice,omitempty"`       // placement of cards
	Translations []Translation `json:"translations,omitempty"` // values of the past
}

// Pair is two servers that take over each other's services, a cluster of its
// own; or one server, which has no partner to take over.
type Pair struct {
	Name     string    `json:"name"`           // of the brick, or of Lustre's module
	Role     string    `json:"role,omitempty"` // of a module: mds or oss
	Servers  []string  `json:"servers"`
	HA       *HA       `json:"ha,omitempty"` // nil for one server
	Services []Service `json:"services"`
}

// Service is what moves from server to server as one: storage, and what is
// served from it. Exactly one of NFS and Targets is there: that is its kind.
type Service struct {
	Name      string  `json:"name"`
	Preferred string  `json:"preferred"` // server
	Storage   Storage `json:"storage"`
	*NFS              // an address with exports of a file system
	// Targets are those of a Lustre file system, in the order of mounting.
	Targets []Target `json:"targets,omitempty"`
}

// Storage is what a service stands on: md arrays of disks or LUNs of an array,
// joined by a volume group, with a cache of SSDs in front or without.
type Storage struct {
	Groups []string `json:"groups"` // RAID groups; md arrays, or inside of LUNs
	// Growths are what each growth added, in order: the last of Groups, or of LUNs by
	// their names.
	Growths [][]string `json:"growths,omitempty"`
	// LUNs are devices, where an array makes the groups.
	LUNs       []string   `json:"luns,omitempty"`
	VG         string     `json:"vg"`
	LV         string     `json:"lv"`      // device /dev/<VG>/<LV>
	Stripes    int        `json:"stripes"` // LVM stripes (1: linear), over the groups that were there first
	StripeSize spec.Bytes `json:"stripe_size"`
	// SystemID is the LVM system ID that owns the volume group while no server
	// serves it. HA: that of no host, mortar-<brick>. One server: its host
	// name, as LVM's system_id_source=uname gives it.
	SystemID   string     `json:"system_id"`
	ExtentSize spec.Bytes `json:"extent_size"` // LVM physical extent
	// Device is the one LUN that carries the data if there is no volume group.
	Device string `json:"device,omitempty"`
	Cache  *Cache `json:"cache,omitempty"`
	// DropSlow: ocf:mortar:watch has md go on without a slow disk.
	DropSlow bool `json:"drop_slow,omitempty"`
}

// NFS is an address with exports of an XFS file system.
type NFS struct {
	Address  string `json:"address"`   // service IP
	Prefix   int    `json:"prefix"`    // its network's prefix length
	StateDir string `json:"state_dir"` // shared directory for NFS recovery state, on the volume, outside every export; root 0711
	// Namespace is the network namespace of nfsd and the service address on the
	// server; "" is the server's own. Of two services each has one, because
	// both may run on one server: nfsd's threads, exports, clients, locks and
	// grace are those of a namespace.
	Namespace  string     `json:"namespace,omitempty"`
	Scope      string     `json:"scope"` // NFS server scope and statd name: equal on both nodes, or clients cannot reclaim
	Exports    []Export   `json:"exports"`
	FSUUID     string     `json:"fs_uuid"`   // UUIDv5
	FSLabel    string     `json:"fs_label"`  // at most 12 characters (XFS)
	SU         spec.Bytes `json:"su"`        // XFS stripe unit
	SW         int        `json:"sw"`        // XFS stripe width, in stripe units
	MkfsArgs   []string   `json:"mkfs_args"` // after `mkfs.xfs`, without the device
	MountPoint string     `json:"mount_point"`
	MountOpts  []string   `json:"mount_opts"`
}

// Array is a RAID array, or a RAID controller, and what is to be made on it.
type Array struct {
	Name       string   `json:"name"`
	Model      string   `json:"model"`
	Family     string   `json:"family"`  // md3, perc or me4
	Set        string   `json:"set"`     // the service or module its disks are for; of the first, if for two
	Servers    []string `json:"servers"` // cabled to it
	Management []string `json:"management,omitempty"`
	Controller int      `json:"controller"` // of a PERC
	// Unmirrored: only the controller that took a write has it before it is on disk
	// (storage.write_cache_mirroring: off).
	Unmirrored bool     `json:"unmirrored,omitempty"`
	Enclosures []string `json:"enclosures"` // the one with the controllers first
	LUNs       []LUN    `json:"luns"`       // in order of LUN number
	Spares     []Disk   `json:"spares,omitempty"`
}

// LUN is a virtual disk of an array.
type LUN struct {
	Name   string   `json:"name"` // of the virtual disk, and of its multipath map
	Array  string   `json:"array"`
	Number int      `json:"number"` // LUN
	Set    string   `json:"set"`    // service or module
	Groups []string `json:"groups"` // RAID group; several are the spans of a RAID 60
	Level  int      `json:"level"`  // 6, 10 or 60
	// Size is what hosts see, in bytes; what other LUNs leave of the group if
	// Rest is set.
	Size       spec.Bytes `json:"size"`
	Rest       bool       `json:"rest"`
	FullStripe spec.Bytes `json:"full_stripe"` // data disks x chunk, of one span
	Chunk      spec.Bytes `json:"chunk"`
	Controller int        `json:"controller"` // that owns it as a rule: 0 or 1 (A or B)
	Server     string     `json:"server"`     // that uses it as a rule
	WWN        string     `json:"wwn,omitempty"`
	Use        string     `json:"use"`              // pv, xfs, mgs, mdt or ost
	Device     string     `json:"device"`           // on the servers
	Growth     int        `json:"growth,omitempty"` // the growth that added it; 0: there from the first
}

// Cache is a pool of SSDs in front of the volume.
type Cache struct {
	SSDs      []Disk     `json:"ssds"`
	Mode      string     `json:"mode"`
	Bypass    spec.Bytes `json:"sequential_bypass"`
	Clean     spec.Bytes `json:"clean"` // room for data that is also on the disks; of SSDs inside servers: in each
	Dirty     spec.Bytes `json:"dirty"` // room for data that is not: each byte is on two SSDs
	Survives  int        `json:"survives_ssds"`
	Placement string     `json:"placement"`
	Mirror    spec.Bytes `json:"mirror_per_ssd"` // part of each SSD that is for dirty data
	// DirtyUUIDs and CleanUUIDs are those the arrays of SSDs may have: UUIDv5.
	DirtyUUIDs []string `json:"dirty_uuids"`
	CleanUUIDs []string `json:"clean_uuids"`
	Header     string   `json:"header"` // logical volume for bcache's superblocks
	Device     string   `json:"device"` // what the file system is on
}

// Lustre is a Lustre file system.
type Lustre struct {
	FSName      string         `json:"fsname"`
	LNET        string         `json:"lnet"` // networks= of the lnet module, e.g. o2ib(ib0)
	MGSNIDs     []string       `json:"mgs_nids"`
	ServerNIDs  []string       `json:"server_nids"` // of all servers: the MGS evicts one that does not answer
	Mount       string         `json:"mount"`       // on clients
	Source      string         `json:"source"`
	MountOpts   []string       `json:"mount_options"`
	StripeCount int            `json:"stripe_count"`
	StripeSize  spec.Bytes     `json:"stripe_size"`
	Pools       []spec.OSTPool `json:"pools,omitempty"`
	OSTs        int            `json:"osts"`
	Params      []string       `json:"params"` // for lctl set_param -P
}

// Target is an MGS, MDT or OST.
type Target struct {
	Name         string     `json:"name"` // testfs-OST0000
	Kind         string     `json:"kind"` // mgs, mdt or ost
	Index        int        `json:"index"`
	Module       string     `json:"module"`
	Group        string     `json:"group"`
	Volume       string     `json:"volume"` // logical volume in the group of its service
	Device       string     `json:"device"`
	Size         spec.Bytes `json:"size"`
	Server       string     `json:"server"`        // that mounts it as a rule
	ServiceNIDs  []string   `json:"service_nids"`  // of both servers
	Stride       int        `json:"stride"`        // chunk, in blocks of 4 KiB
	StripeWidth  int        `json:"stripe_width"`  // full stripe, in blocks of 4 KiB
	MkfsArgs     []string   `json:"mkfs_args"`     // after `mkfs.lustre`, the device last
	MountPoint   string     `json:"mount_point"`   // on the servers
	BytesPerNode spec.Bytes `json:"inode_ratio"`   // bytes for each inode
	Inodes       int64      `json:"inodes"`        // it can hold
	Usable       spec.Bytes `json:"usable"`        // estimate
	Resource     string     `json:"resource_name"` // in Pacemaker
}

// Advice is about what a person has to do with their hands.
type Advice struct {
	Server string `json:"server,omitempty"`
	Text   string `json:"text"`
	Source string `json:"source"`
}

// Translation is a value, option or command of the source papers that no
// longer exists, and what does its work today.
type Translation struct {
	Old    string `json:"old"`
	New    string `json:"new"` // what is used; empty: nothing, it is the default or the only way
	Why    string `json:"why"`
	Source string `json:"source"`
	Line   int    `json:"line,omitempty"` // in the spec, if that has it
	Col    int    `json:"col,omitempty"`
}

// Disk is one disk. Serial is always set; WWN (naa, hex, no prefix) if the
// spec gave it.
type Disk struct {
	Serial    string     `json:"serial"`
	WWN       string     `json:"wwn,omitempty"`
	Enclosure string     `json:"enclosure"`
	Bay       int        `json:"bay"` // from 1
	Size      spec.Bytes `json:"size"`
	Type      string     `json:"type"`
	Group     string     `json:"group"` // name of its RAID group; "" if spare or unused
	Spare     bool       `json:"spare"`
	Service   string     `json:"service"`
	Module    string     `json:"module,omitempty"` // of Lustre, in place of Service
	Array     string     `json:"array,omitempty"`  // the enclosure is cabled to
	Server    string     `json:"server,omitempty"` // that an SSD of a cache is inside of
	Failed    bool       `json:"failed,omitempty"` // taken out of service; its group does without it
	Growth    int        `json:"growth,omitempty"` // the growth it came with; 0: there from the first
	Sector    int        `json:"sector,omitempty"` // bytes of a logical block; 0: not in the spec
}

// Group is one RAID group: an md array on JBODs, a disk group or span on an
// array.
type Group struct {
	Name    string     `json:"name"` // md array name, e.g. brick1-r0; device /dev/md/<Name>
	UUID    string     `json:"uuid"` // md UUID as mdadm prints it (8:8:8:8 hex digits), a UUIDv5 of brick and group name
	Service string     `json:"service"`
	Level   int        `json:"level"` // of the md array: 6 or 10 (level 60 of a spec is level 6 groups in one striped volume)
	Data    int        `json:"data"`
	Parity  int        `json:"parity"`
	Chunk   spec.Bytes `json:"chunk"`
	Members []Disk     `json:"members"` // in RAID order
	Spares  []Disk     `json:"spares"`
	Usable  spec.Bytes `json:"usable"` // data disks x disk size, before metadata
	Module  string     `json:"module,omitempty"`
	Array   string     `json:"array,omitempty"`  // "" for md
	Growth  int        `json:"growth,omitempty"` // the growth that added it; 0: there from the first
}

// Set is the service or module the group is for.
func (g *Group) Set() string {
	if g.Module != "" {
		return g.Module
	}
	return g.Service
}

// Export is one line of exportfs.
type Export struct {
	Dir     string   `json:"dir"`  // absolute path on the server: MountPoint + Path; made by apply, root:root 0755, if it is not there
	Path    string   `json:"path"` // below the volume's root, e.g. /data
	Clients string   `json:"clients"`
	FSID    string   `json:"fsid"` // UUIDv5, stable over servers
	Options []string `json:"options"`
}

// HA is the cluster.
type HA struct {
	Cluster  string       `json:"cluster"`
	Nodes    []Node       `json:"nodes"`
	TokenMS  int          `json:"token_ms"`
	Failback string       `json:"failback"`
	Fencing  []FenceLevel `json:"fencing"`
	// Hedge is what the cluster uses before Fencing, for each node: a device that runs
	// those of Fencing without waiting in line. Profile stock has none.
	Hedge []FenceLevel `json:"hedge,omitempty"`
	// FenceTestDays is how old a proof of fencing may be, in days; 0 (of a design
	// made before there was a limit): any age.
	FenceTestDays int `json:"fence_test_days,omitempty"`
	// Reservations has the key of each server by which the LUNs or disks of a service are
	// reserved for the one that serves it (pr.KeyOf); empty: they are not.
	Reservations map[string]string `json:"reservations,omitempty"`
}

// Node of the cluster; Rings are its addresses, private first.
type Node struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Rings []string `json:"rings"`
}

// FenceLevel is a level (1 first; 0 is the hedge) of fencing for one node: all its
// devices must succeed together. Index is its place in the cluster's topology.
type FenceLevel struct {
	Node    string        `json:"node"`
	Level   int           `json:"level"`
	Index   int           `json:"index"`
	Devices []FenceDevice `json:"devices"`
}

// FenceDevice is one stonith resource.
type FenceDevice struct {
	ID     string            `json:"id"`    // e.g. fence-nfs1-bmc; fence-pdu-a, which is in the levels of both servers
	Agent  string            `json:"agent"` // fence_ipmilan, fence_apc_snmp
	Params map[string]string `json:"params"`
	// SecretParam is the agent's parameter that takes the secret, SecretFile
	// the file (on the administrator's machine, as in the spec) it is in.
	SecretParam string `json:"secret_param,omitempty"`
	SecretFile  string `json:"secret_file,omitempty"`
	// Secrets are the files of further secrets, by the agent's parameters.
	Secrets map[string]string `json:"secrets,omitempty"`
	// SNMP is the user of SNMPv3 in place of a secret; nil for others.
	SNMP  *spec.SNMP `json:"snmp,omitempty"`
	Feeds []string   `json:"feeds"` // power feeds the device depends on: all of them for a PDU, any one for a BMC
}

type ClientMount struct {
	Client  string   `json:"client"`
	Service string   `json:"service"` // of Lustre the file system
	Source  string   `json:"source"`  // 10.0.0.1:/srv/x
	Path    string   `json:"path"`
	Version string   `json:"version"` // of NFS, or lustre
	Options []string `json:"options"`
}

// Setting is one tuning value with its reason. apply reads values from
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
//	nfs.conf   section.key of nfs.conf(5)
type Setting struct {
	Role   string `json:"role"` // server, client or both
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
	Source string `json:"source"` // manual page or seed section
}

// Capacity in bytes: disks as sold, after RAID, and after md, LVM and XFS
// metadata (an estimate).
type Capacity struct {
	Raw    spec.Bytes `json:"raw"`
	RAID   spec.Bytes `json:"raid"`
	Usable spec.Bytes `json:"usable"`
	// LUNs is what hosts see of the arrays; Sets has each module of Lustre (the
	// total counts the OSTs only).
	LUNs spec.Bytes    `json:"luns,omitempty"`
	Sets []SetCapacity `json:"sets,omitempty"`
}

// SetCapacity is the capacity of a module.
type SetCapacity struct {
	Name   string     `json:"name"`
	Raw    spec.Bytes `json:"raw"`
	RAID   spec.Bytes `json:"raid"`
	LUNs   spec.Bytes `json:"luns,omitempty"`
	Usable spec.Bytes `json:"usable"`
}

// Warning is a rule the hardware makes it impossible to keep.
type Warning struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
}
