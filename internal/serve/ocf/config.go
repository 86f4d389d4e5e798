// Package ocf is Mortar's OCF resource agent, run on a server by Pacemaker as
// ocf:mortar:service: it brings one service of a brick (md arrays, volume
// group, file system, NFS state, nfsd, exports, service address) up and down
// in one process and checks each part. It is handed everything in its Config;
// it knows neither spec nor design, and it never decides where a service runs.
//
// It guards data by refusing: an array that lacks members beyond its
// redundancy, a volume group owned by a stranger, a file system with another
// UUID, a device mounted twice, a service address somebody else answers for.
// It never forces: no `mdadm --force`, no lazy unmount, no file system repair.
// What it cannot stop it reports as not stopped, so that Pacemaker fences.
package ocf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

// Config is the file the agent's `config` parameter names. Written by apply
// on each server, root only.
type Config struct {
	Service    string   `json:"service"`
	Arrays     []Array  `json:"arrays"`
	VG         string   `json:"vg"`
	LV         string   `json:"lv"`
	FSUUID     string   `json:"fs_uuid"`
	MountPoint string   `json:"mount_point"`
	MountOpts  []string `json:"mount_opts"`
	// StateDir, on the volume, is bind-mounted on /var/lib/nfs while the
	// service runs, so that recovery state moves with it.
	StateDir string   `json:"state_dir"`
	NFS      NFS      `json:"nfs"`
	Exports  []Export `json:"exports"`
	Address  string   `json:"address"` // service IP with prefix, 10.0.0.9/24
	// Namespace is the network namespace that the service address and nfsd are
	// in, with nfsd's daemons; empty: the host's own. Two services that may
	// run on one server need one each: nfsd, its exports, clients and locks,
	// its grace and its daemons are those of a namespace.
	Namespace string `json:"namespace,omitempty"`
	// Nodes maps each cluster node to its public address, to find the
	// interface the service address goes on.
	Nodes map[string]string `json:"nodes"`
	// Rings maps each cluster node to its addresses on Corosync's networks, and
	// Fences lists those of all fence devices: the watcher keeps a server that
	// is on none of the networks from fencing.
	Rings  map[string][]string `json:"rings,omitempty"`
	Fences []string            `json:"fences,omitempty"`
	// SystemID is the LVM system ID the volume group has while nobody serves
	// it (design.Volume.SystemID). A clean stop gives the group back to it;
	// empty: the group stays with the node that served it last.
	SystemID string `json:"system_id,omitempty"`
	// Cache is the config file of the volume's cache (package cache); "" for
	// none.
	Cache string `json:"cache,omitempty"`
	// DirtyDegraded says what to do with an array that was being written when
	// its server died and that lacks a member too. Its parity may not match
	// its data, so the missing member's blocks may be rebuilt wrong, in
	// stripes that were acknowledged long ago. "refuse" (default) leaves that
	// to a human; "start" prefers a running service.
	DirtyDegraded string `json:"dirty_degraded,omitempty"`
}

// BuildingID is the LVM system ID that a volume group has while apply builds
// it. The agent refuses it: apply may have the arrays on another server.
func BuildingID(systemID string) string { return systemID + "-building" }

// Array is one md array by UUID and its members' WWNs or serials.
type Array struct {
	Name    string   `json:"name"`
	UUID    string   `json:"uuid"`
	Members []string `json:"members"` // device paths, /dev/disk/by-id or /dev/mapper, resolved by apply on the host
	// Need is the smallest number of members that the array can work with; 0:
	// not known.
	Need int `json:"need,omitempty"`
}

// NFS server settings.
type NFS struct {
	Threads  int      `json:"threads"`
	Versions []string `json:"versions"`
	Lease    int      `json:"lease"` // s
	Grace    int      `json:"grace"` // s
	// LockGrace is lockd's grace period in s; 0: as long as nfsd's.
	LockGrace int    `json:"lock_grace,omitempty"`
	Scope     string `json:"scope"` // server scope and statd name, equal on both nodes
}

// Export is one export.
type Export struct {
	Dir     string   `json:"dir"`
	Clients string   `json:"clients"`
	FSID    string   `json:"fsid"`
	Options []string `json:"options"`
}

// Load reads and checks a config file.
func Load(file string) (*Config, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src)
}

// Parse checks src, the content of file, and returns it as a Config.
func Parse(file string, src []byte) (*Config, error) {
	var c Config
	if err := strictjson.Decode(src, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &c, nil
}

// check finds every fault of a config that can be seen without a host.
func (c *Config) check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	word := func(key, v string) {
		if v == "" {
			bad("%s is empty", key)
		} else if strings.ContainsAny(v, " \t\r\n/\"'\\") || strings.HasPrefix(v, "-") {
			bad("%s %q: a name without blanks, quotes and slashes is needed", key, v)
		}
	}
	abs := func(key, v string) bool {
		if !path.IsAbs(v) || path.Clean(v) != v || v == "/" || strings.ContainsAny(v, " \t\r\n\"\\") {
			bad("%s %q: a clean absolute path without blanks, below /, is needed", key, v)
			return false
		}
		return true
	}
	word("service", c.Service)
	word("vg", c.VG)
	word("lv", c.LV)
	if len(c.Arrays) == 0 {
		bad("arrays is empty")
	}
	for i, a := range c.Arrays {
		word(fmt.Sprintf("arrays[%d].name", i), a.Name)
		if len(md.Hex(a.UUID)) != 32 {
			bad("arrays[%d].uuid %q: 32 hex digits are needed", i, a.UUID)
		}
		if len(a.Members) == 0 {
			bad("arrays[%d].members is empty", i)
		}
		for j, m := range a.Members {
			if !strings.HasPrefix(m, "/dev/") {
				bad("arrays[%d].members[%d] %q: a path below /dev is needed", i, j, m)
			}
		}
		for _, b := range c.Arrays[:i] {
			if a.Name == b.Name || md.Hex(a.UUID) == md.Hex(b.UUID) {
				bad("arrays[%d] %q has the name or UUID of another one", i, a.Name)
			}
		}
	}
	if len(md.Hex(c.FSUUID)) != 32 {
		bad("fs_uuid %q: 32 hex digits are needed", c.FSUUID)
	}
	if abs("mount_point", c.MountPoint) {
		if abs("state_dir", c.StateDir) && !below(c.MountPoint, c.StateDir) {
			bad("state_dir %s is not below mount_point %s: lock recovery would not move with the service", c.StateDir, c.MountPoint)
		}
	}
	if len(c.Exports) == 0 {
		bad("exports is empty")
	}
	for i, e := range c.Exports {
		if abs(fmt.Sprintf("exports[%d].dir", i), e.Dir) && e.Dir != c.MountPoint && !below(c.MountPoint, e.Dir) {
			bad("exports[%d].dir %s is not on mount_point %s", i, e.Dir, c.MountPoint)
		}
		if !plain(e.Clients, "*?@._/-") || strings.HasPrefix(e.Clients, "-") {
			bad("exports[%d].clients %q: one host or network is needed", i, e.Clients)
		}
		if !plain(e.FSID, "-") {
			bad("exports[%d].fsid %q: a UUID or number is needed, or file handles change at failover", i, e.FSID)
		}
		for _, o := range e.Options {
			if o == "async" {
				bad("exports[%d].options: async loses acknowledged writes at failover", i)
			}
			if !plain(o, "_=.:/@+-") || strings.HasPrefix(o, "fsid=") {
				bad("exports[%d].options: %q is not one option (fsid has its own key)", i, o)
			}
			if v, ok := strings.CutPrefix(o, "sec="); ok {
				for _, flavour := range strings.Split(v, ":") {
					if !slices.Contains(securityFlavours, flavour) {
						bad("exports[%d].options: %q: each security flavour is one of %s", i, o, strings.Join(securityFlavours, ", "))
					}
				}
			}
		}
	}
	for _, o := range c.MountOpts {
		if o == "nouuid" || o == "norecovery" || o == "ro" {
			bad("mount_opts: %s is not allowed: it would take away a guard of the data, or the service", o)
		}
	}
	if c.NFS.Threads < 1 || c.NFS.Threads > 8192 {
		bad("nfs.threads %d: 1 to 8192 are needed", c.NFS.Threads)
	}
	if c.NFS.Lease < 1 || c.NFS.Grace < 1 || c.NFS.Lease > 3600 || c.NFS.Grace > 3600 {
		bad("nfs.lease %d and nfs.grace %d: 1 to 3600 s are needed", c.NFS.Lease, c.NFS.Grace)
	}
	if c.NFS.LockGrace < 0 || c.NFS.LockGrace > c.NFS.Grace {
		bad("nfs.lock_grace %d: 1 to nfs.grace (%d s) is possible", c.NFS.LockGrace, c.NFS.Grace)
	}
	word("nfs.scope", c.NFS.Scope)
	if len(c.NFS.Versions) == 0 {
		bad("nfs.versions is empty")
	}
	for _, v := range c.NFS.Versions {
		if !slices.Contains(nfsVersions, v) {
			bad("nfs.versions: %q is none of %s", v, strings.Join(nfsVersions, ", "))
		}
	}
	if p, err := netip.ParsePrefix(c.Address); err != nil || !p.Addr().Is4() {
		bad("address %q: an IPv4 address with prefix length is needed, e.g. 10.0.0.9/24", c.Address)
	}
	if c.Namespace != "" {
		word("namespace", c.Namespace)
	}
	if len(c.Nodes) == 0 {
		bad("nodes is empty")
	}
	for n, a := range c.Nodes {
		word("node name", n)
		if _, err := netip.ParseAddr(a); err != nil {
			bad("nodes.%s: %q is not an address", n, a)
		}
	}
	for n, as := range c.Rings {
		for _, a := range as {
			if _, err := netip.ParseAddr(a); err != nil {
				bad("rings.%s: %q is not an address", n, a)
			}
		}
	}
	for _, a := range c.Fences {
		if _, err := netip.ParseAddr(a); err != nil {
			bad("fences: %q is not an address", a)
		}
	}
	if c.SystemID != "" {
		word("system_id", c.SystemID)
	}
	if c.DirtyDegraded != "" && c.DirtyDegraded != "refuse" && c.DirtyDegraded != "start" {
		bad("dirty_degraded %q: refuse or start is needed", c.DirtyDegraded)
	}
	return errors.Join(errs...)
}

// nfsVersions are the protocol versions the kernel can serve.
// Source: nfsd(7), /proc/fs/nfsd/versions.
var nfsVersions = []string{"3", "4.0", "4.1", "4.2"}

// serves says whether a protocol version is among those wanted.
func (n NFS) serves(version string) bool { return slices.Contains(n.Versions, version) }

func (c *Config) prefix() netip.Prefix { return netip.MustParsePrefix(c.Address) }

// securityFlavours are those of exports(5).
var securityFlavours = []string{"sys", "krb5", "krb5i", "krb5p", "none"}

// plain says whether a word is there and has only letters, digits and the
// further characters: exportfs and its table have no quotes for others.
func plain(word, further string) bool {
	return word != "" && strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(further, r)
	}) < 0
}

// below says whether path p is under directory dir.
func below(dir, p string) bool { return strings.HasPrefix(p, dir+"/") }
