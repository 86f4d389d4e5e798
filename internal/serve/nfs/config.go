package nfs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// NFSService is an address with exports of one XFS file system.
type NFSService struct {
	FSUUID     string   `json:"fs_uuid"`
	MountPoint string   `json:"mount_point"`
	MountOpts  []string `json:"mount_opts"`
	// StateDir, on the volume, is bind-mounted on /var/lib/nfs while the
	// service runs, so that recovery state moves with it.
	StateDir string `json:"state_dir"`
	// StateImage, on the volume, has the file system that is mounted on StateDir;
	// empty: StateDir is a directory of the volume.
	StateImage string   `json:"state_image,omitempty"`
	NFS        NFS      `json:"nfs"`
	Exports    []Export `json:"exports"`
	Address    string   `json:"address"` // service IP with prefix, 10.0.0.9/24
	// Namespace is the network namespace that the service address and nfsd are
	// in, with nfsd's daemons; empty: the host's own. Two services that may
	// run on one server need one each: nfsd, its exports, clients and locks,
	// its grace and its daemons are those of a namespace.
	Namespace string `json:"namespace,omitempty"`
}

// NFS server settings.
type NFS struct {
	Threads int `json:"threads"`
	// Connections is how many nfsd keeps, where the kernel has such a limit; 0: as the kernel has it.
	Connections int      `json:"connections,omitempty"`
	Versions    []string `json:"versions"`
	Lease       int      `json:"lease"` // s
	Grace       int      `json:"grace"` // s
	// LockGrace is lockd's grace period in s; 0: as long as nfsd's.
	LockGrace int    `json:"lock_grace,omitempty"`
	Scope     string `json:"scope"` // server scope and statd name, equal on both nodes
	// Clients is how many the brick has; 0: few.
	Clients int `json:"clients,omitempty"`
	// RDMA is the port on which nfsd serves RDMA besides TCP; 0: none.
	RDMA int `json:"rdma,omitempty"`
}

type Export struct {
	Dir     string   `json:"dir"`
	Clients string   `json:"clients"`
	FSID    string   `json:"fsid"`
	Options []string `json:"options"`
}

func (c *NFSService) Check(f *unit.Faults) {
	if len(md.Hex(c.FSUUID)) != 32 {
		f.Add("fs_uuid %q: 32 hex digits are needed", c.FSUUID)
	}
	if f.Abs("mount_point", c.MountPoint) {
		if f.Abs("state_dir", c.StateDir) && !unit.Below(c.MountPoint, c.StateDir) {
			f.Add("state_dir %s is not below mount_point %s: lock recovery would not move with the service", c.StateDir, c.MountPoint)
		}
		if c.StateImage != "" && f.Abs("state_image", c.StateImage) && (!unit.Below(c.MountPoint, c.StateImage) || unit.Below(c.StateDir, c.StateImage)) {
			f.Add("state_image %s is not below mount_point %s, or is below state_dir", c.StateImage, c.MountPoint)
		}
	}
	if len(c.Exports) == 0 {
		f.Add("exports is empty")
	}
	for i, e := range c.Exports {
		if f.Abs(fmt.Sprintf("exports[%d].dir", i), e.Dir) && e.Dir != c.MountPoint && !unit.Below(c.MountPoint, e.Dir) {
			f.Add("exports[%d].dir %s is not on mount_point %s", i, e.Dir, c.MountPoint)
		}
		if !unit.Plain(e.Clients, "*?@._/-") || strings.HasPrefix(e.Clients, "-") {
			f.Add("exports[%d].clients %q: one host or network is needed", i, e.Clients)
		}
		if !unit.Plain(e.FSID, "-") {
			f.Add("exports[%d].fsid %q: a UUID or number is needed, or file handles change at failover", i, e.FSID)
		}
		for _, o := range e.Options {
			if o == "async" {
				f.Add("exports[%d].options: async loses acknowledged writes at failover", i)
			}
			if !unit.Plain(o, "_=.:/@+-") || strings.HasPrefix(o, "fsid=") {
				f.Add("exports[%d].options: %q is not one option (fsid has its own key)", i, o)
			}
			if v, ok := strings.CutPrefix(o, "sec="); ok {
				for _, flavour := range strings.Split(v, ":") {
					if !slices.Contains(securityFlavours, flavour) {
						f.Add("exports[%d].options: %q: each security flavour is one of %s", i, o, strings.Join(securityFlavours, ", "))
					}
				}
			}
		}
	}
	for _, o := range c.MountOpts {
		if o == "nouuid" || o == "norecovery" || o == "ro" {
			f.Add("mount_opts: %s is not allowed: it would take away a guard of the data, or the service", o)
		}
	}
	if c.NFS.Threads < 1 || c.NFS.Threads > 8192 {
		f.Add("nfs.threads %d: 1 to 8192 are needed", c.NFS.Threads)
	}
	if c.NFS.Connections < 0 {
		f.Add("nfs.connections %d: 0 or more are needed", c.NFS.Connections)
	}
	if c.NFS.Lease < 1 || c.NFS.Grace < 1 || c.NFS.Lease > 3600 || c.NFS.Grace > 3600 {
		f.Add("nfs.lease %d and nfs.grace %d: 1 to 3600 s are needed", c.NFS.Lease, c.NFS.Grace)
	}
	if c.NFS.LockGrace < 0 || c.NFS.LockGrace > c.NFS.Grace {
		f.Add("nfs.lock_grace %d: 1 to nfs.grace (%d s) is possible", c.NFS.LockGrace, c.NFS.Grace)
	}
	if c.NFS.RDMA < 0 || c.NFS.RDMA > 65535 {
		f.Add("nfs.rdma %d: a port of 1 to 65535 is needed, or 0 for none", c.NFS.RDMA)
	}
	f.Word("nfs.scope", c.NFS.Scope)
	if len(c.NFS.Versions) == 0 {
		f.Add("nfs.versions is empty")
	}
	for _, v := range c.NFS.Versions {
		if !slices.Contains(nfsVersions, v) {
			f.Add("nfs.versions: %q is none of %s", v, strings.Join(nfsVersions, ", "))
		}
	}
	if p, err := netip.ParsePrefix(c.Address); err != nil || !p.Addr().Is4() {
		f.Add("address %q: an IPv4 address with prefix length is needed, e.g. 10.0.0.9/24", c.Address)
	}
	if c.Namespace != "" {
		f.Word("namespace", c.Namespace)
	}
}

// nfsVersions are the protocol versions the kernel can serve.
// Source: nfsd(7), /proc/fs/nfsd/versions.
var nfsVersions = []string{"3", "4.0", "4.1", "4.2"}

// serves says whether a protocol version is among those wanted.
func (n NFS) serves(version string) bool { return slices.Contains(n.Versions, version) }

func (c *NFSService) Prefix() netip.Prefix { return netip.MustParsePrefix(c.Address) }

// securityFlavours are those of exports(5).
var securityFlavours = []string{"sys", "krb5", "krb5i", "krb5p", "none"}
