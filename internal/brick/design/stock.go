package design

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Difference is a value that profile stock leaves to the distribution, or
// sets otherwise than profile tuned would.
type Difference struct {
	Role  string `json:"role"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Tuned string `json:"tuned"`
	Stock string `json:"stock"` // "" if nothing is set: the default of the kernel or program holds
}

// Values of the distribution and of ClusterLabs' programs.
const (
	stockThreads = 8    // Debian's nfs.conf; later releases have 16, and keep that
	stockLease   = 90   // kernel, fs/nfsd: NFSD_LEASE_TIME
	stockToken   = 3000 // corosync.conf(5)
)

// plain is a copy of a spec without its tuning: what profile stock builds.
// Layout, addresses, identities and the rules that keep data safe (sync
// exports, fencing by two levels) stay.
func plain(s *spec.Spec) *spec.Spec {
	out := *s
	out.NFS.Threads, out.NFS.Lease, out.NFS.Grace = stockThreads, stockLease, stockLease
	out.Filesystem.Mount = nil
	out.Storage.DropSlowDisks = "off" // there is no ocf:mortar:watch
	if s.HA != nil {
		ha := *s.HA
		ha.Token = stockToken
		out.HA = &ha
	}
	return &out
}

// stock turns a design of a plain spec into that of profile stock.
func (d *Design) stock(tuned []Setting) {
	for _, v := range d.Services() {
		// mkfs.xfs asks the device below for its geometry by itself: md's chunk and data disks.
		v.MkfsArgs = []string{"-L", v.FSLabel, "-m", "uuid=" + v.FSUUID}
		v.MountOpts = []string{"nodev", "nosuid"}
	}
	for _, l := range d.Fencing() {
		for _, f := range l.Devices {
			delete(f.Params, "power_wait")
			delete(f.Params, "power_timeout")
			delete(f.Params, "disable_timeout")
			delete(f.Params, "pcmk_delay_base")
		}
	}
	for i := range d.Mounts {
		m := &d.Mounts[i]
		m.Options = slices.DeleteFunc(m.Options, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return slices.Contains([]string{"timeo", "retrans", "rsize", "wsize", "nconnect"}, name)
		})
	}
	d.Settings = d.stockSettings()
	for _, t := range tuned {
		i := slices.IndexFunc(d.Settings, func(s Setting) bool { return s.Role == t.Role && s.Kind == t.Kind && s.Name == t.Name })
		switch {
		case i < 0:
			d.Differs = append(d.Differs, Difference{Role: t.Role, Kind: t.Kind, Name: t.Name, Tuned: t.Value})
		case d.Settings[i].Value != t.Value:
			d.Differs = append(d.Differs, Difference{t.Role, t.Kind, t.Name, t.Value, d.Settings[i].Value})
		}
	}
	for _, p := range []string{"nfs.threads", "nfs.lease", "nfs.grace", "ha.token_ms", "filesystem.mount"} {
		if d.Spec.Given(p) {
			line, col := d.Spec.Pos(p)
			d.Warnings = append(d.Warnings, Warning{Rule: "profile", Text: p + " is not used: profile stock takes the distribution's value", Line: line, Col: col})
		}
	}
}

// stockSettings are the values that profile stock sets, and the distribution's
// defaults that differ from Mortar's values.
func (d *Design) stockSettings() []Setting {
	s := d.Spec
	var out []Setting
	add := func(role, kind, name, value, reason, source string) {
		out = append(out, Setting{Role: role, Kind: kind, Name: name, Value: value, Reason: reason, Source: source})
	}
	add("server", "multipath", "path_grouping_policy", "multibus", "the two ports of a JBOD disk are equal", "multipath.conf(5)")
	add("server", "multipath", "user_friendly_names", "no", "maps are named by WWID, the same on both servers", "multipath.conf(5)")
	mirrorSettings(d, add)
	add("server", "mount", "nodev,nosuid", "on", "files belong to clients: a device node or set-user-ID program they made means nothing on the server", "mount(8)")
	add("server", "nfsd", "threads", strconv.Itoa(s.NFS.Threads), "the distribution's, not set by Mortar", "nfs.conf(5)")
	add("server", "nfsd", "versions", strings.Join(s.NFS.Versions, " "), "what the spec serves", "rpc.nfsd(8)")
	add("server", "nfsd", "lease", strconv.Itoa(s.NFS.Lease), "seconds; the kernel's, not set by Mortar", "nfsd(7)")
	add("server", "nfsd", "grace", strconv.Itoa(s.NFS.Grace), "seconds; the kernel's, not set by Mortar", "nfsd(7)")
	for _, sv := range d.Services()[:1] {
		add("server", "nfsd", "scope", sv.Scope, "without the same on both servers v4 clients do not reclaim their locks", "RFC 8881 2.10.4")
	}
	if everyExport(d, "sync") {
		add("server", "export", "sync", "on", "an answer means that the data is on disk. async would lose acknowledged writes at a crash", "exports(5)")
	}
	if everyExport(d, "no_subtree_check") {
		add("server", "export", "no_subtree_check", "on", "the default", "exports(5)")
	}
	add("server", "export", "fsid", "UUID of the path", "file handles stay valid on the other server", "exports(5)")
	if ha := d.Pairs[0].HA; ha != nil {
		add("server", "corosync", "token", strconv.Itoa(ha.TokenMS), "ms; the default", "corosync.conf(5)")
		add("server", "corosync", "consensus", strconv.Itoa(ha.TokenMS*6/5), "ms; the default, 1.2 x token", "corosync.conf(5)")
		add("server", "corosync", "two_node", "1", "one of two servers may go on alone, after fencing the other", "votequorum(5)")
		add("server", "corosync", "wait_for_all", "1", "follows from two_node", "votequorum(5)")
		add("server", "corosync", "crypto", "aes256/sha256", "nobody on the public network can forge or read a heartbeat", "corosync.conf(5)")
		add("server", "corosync", "link_mode", "passive", "the default", "corosync.conf(5)")
		add("server", "pacemaker", "stonith-enabled", "true", "the default; no takeover without proof that the other server is off", "pacemaker-controld(7)")
		add("server", "pacemaker", "stonith-timeout", "60s", "the default", "pacemaker-controld(7)")
		add("server", "pacemaker", "no-quorum-policy", "stop", "the default", "pacemaker-schedulerd(7)")
		stickiness := map[string]string{"manual": "1000", "auto": "0"}[ha.Failback]
		add("server", "pacemaker", "resource-stickiness", stickiness, "failback is "+ha.Failback, "pacemaker: resource meta-attributes")
	}
	add("client", "nfs", "hard", "on", "the default: programs wait through a takeover", "nfs(5)")
	return out
}
