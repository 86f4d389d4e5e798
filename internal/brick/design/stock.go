package design

import (
	"slices"
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

// untuned is a copy of a spec without its tuning: what profile stock builds.
// Layout, addresses, identities and the rules that keep data safe (sync
// exports, fencing by two levels) stay.
func untuned(s *spec.Spec) *spec.Spec {
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
func (d builder) stock(tuned []Setting) {
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
	d.Settings = d.settings("stock")
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
