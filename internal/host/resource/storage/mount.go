package storage

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// MountPoint is a mounted file system, with or without a line in /etc/fstab.
type MountPoint struct {
	Source, Path, Type string
	// Until is a source that may stay mounted until the next boot.
	Until   string `json:",omitempty"`
	Options []string
	// Fstab: there is a line for it, so that it is mounted at boot. Without,
	// it is mounted for the time of building only.
	Fstab bool
	Why   string `json:",omitempty"`
}

func (m *MountPoint) Identity() (kind, id string) { return "mount", m.Path }

// Diff compares fstab's line and what is mounted.
func (m *MountPoint) Diff(sys resource.Look) ([]resource.Action, error) {
	var as []resource.Action
	live, mounted := linux.MountAt(sys.Mounts(), m.Path)
	if !mounted && !sys.Exists(m.Path) {
		as = append(as, resource.Action{Title: "make directory " + m.Path, File: &resource.File{Path: m.Path, Mkdir: true, Mode: 0o755}})
	}
	if m.Fstab {
		old, _ := sys.File("/etc/fstab")
		if text := setFstab(old, m.line(), m.Path); text != old {
			as = append(as, sys.Want(&resource.TextFile{Path: "/etc/fstab", Content: []byte(text), Why: m.Why})...)
		}
	}
	mount := []string{"mount", "-t", m.Type, "-o", strings.Join(m.liveOptions(), ","), m.Source, m.Path}
	if m.Fstab {
		mount = append([]string{"mount"}, m.once()...)
	}
	do := resource.Action{Title: "mount " + m.Path, Cmd: mount, Seconds: 180}
	switch {
	case !mounted:
		as = append(as, do)
	case !m.sameSource(sys, live):
		return nil, resource.Refuse("mount-other", resource.With{"source": live.Source, "path": m.Path, "want": m.Source})
	case !m.sameOptions(live):
		as = append(as, resource.Action{Title: "unmount " + m.Path, Why: "it is mounted with other options", Cmd: []string{"umount", m.Path}, Seconds: 180}, do)
	}
	return as, nil
}

// once has mount(8) try once and tell, where fstab has a boot try until the
// brick is there.
func (m *MountPoint) once() []string {
	switch {
	case slices.Contains(m.Options, "bg"):
		return []string{"-o", "fg", m.Path}
	case slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "retry=") }):
		return []string{"-o", "retry=0", m.Path}
	}
	return []string{m.Path}
}

// liveOptions leaves out what only concerns fstab.
func (m *MountPoint) liveOptions() []string {
	o := lists.Only(m.Options, func(s string) bool { return s != "nofail" && s != "_netdev" && !strings.HasPrefix(s, "x-") })
	if len(o) == 0 {
		return []string{"defaults"}
	}
	return o
}

func (m *MountPoint) line() string {
	o := strings.Join(m.Options, ",")
	if o == "" {
		o = "defaults"
	}
	return strings.Join([]string{linux.Escape(m.Source), linux.Escape(filepath.Clean(m.Path)), m.Type, o, "0", "0"}, " ")
}

// setFstab replaces the line of a mount point, or appends it; all other
// lines stay as they are.
func setFstab(text, line, target string) string {
	target = filepath.Clean(target)
	var out []string
	done := false
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		f := linux.Fields(l)
		if len(f) >= 2 && !strings.HasPrefix(f[0], "#") && filepath.Clean(linux.Unescape(f[1])) == target {
			if !done {
				out = append(out, line)
			}
			done = true
			continue
		}
		out = append(out, l)
	}
	if !done {
		out = append(out, line)
	}
	return strings.Join(out, "\n") + "\n"
}

func (m *MountPoint) sameSource(sys resource.Look, live linux.Mount) bool {
	if m.Type == "lustre" {
		// The order of the MGS' NIDs only says which is asked first.
		got, gotFS, _ := strings.Cut(live.Source, ":/")
		want, wantFS, _ := strings.Cut(m.Source, ":/")
		return gotFS == wantFS && resource.SameSet(strings.Split(got, ":"), strings.Split(want, ":")) && live.Type == m.Type
	}
	if !strings.HasPrefix(m.Source, "/dev/") {
		// NFS shows the type nfs4 for version 4, and may add a slash.
		return strings.TrimSuffix(live.Source, "/") == strings.TrimSuffix(m.Source, "/") && strings.HasPrefix(live.Type, m.Type)
	}
	a, b := sys.Kernel(live.Source), sys.Kernel(m.Source)
	until := m.Until != "" && a == sys.Kernel(m.Until)
	return a != "" && (a == b || until) && live.Type == m.Type
}

// sameOptions compares the options that decide over data, protocol version
// and hard or soft, and the transport. Sizes are negotiated, and connections shared between
// mounts of one server, so that their live values may rightly differ.
func (m *MountPoint) sameOptions(live linux.Mount) bool {
	if m.Type == "lustre" && slices.Contains(m.Options, "flock") && !slices.Contains(live.Options, "flock") {
		return false // locks would hold on one client only, or not at all
	}
	if m.Type != "nfs" && m.Type != "nfs4" {
		return !slices.Contains(live.Options, "ro") || slices.Contains(m.Options, "ro")
	}
	for _, o := range m.Options {
		switch {
		case o == "hard", o == "soft", o == "softerr", strings.HasPrefix(o, "proto="):
			if !slices.Contains(live.Options, o) {
				return false
			}
		case strings.HasPrefix(o, "vers="), strings.HasPrefix(o, "nfsvers="):
			_, v, _ := strings.Cut(o, "=")
			if !slices.Contains(live.Options, "vers="+v) {
				return false
			}
		}
	}
	return true
}

// ReleaseStorage takes down what building left up, before Pacemaker may
// start the service anywhere: in an HA pair nothing is assembled outside of
// it. It is not used on a server where Pacemaker runs the service.
type ReleaseStorage struct {
	VG, LV     string
	SystemID   string // that owns the group while it is built
	RestID     string // that owns it from now on
	MountPoint string
	Arrays     map[string]string // UUID → name
	// PVs are the physical volumes where they are LUNs, which stay; nil over md.
	PVs []string `json:",omitempty"`
	// Cache is the config of the volume's cache, Cached the device mapper's
	// name of what is mounted then; "" without.
	Cache, Cached string
}

func (r *ReleaseStorage) Identity() (kind, id string) { return "release-storage", r.VG }

// Diff looks at mounts, device mapper and md in sysfs.
func (r *ReleaseStorage) Diff(sys resource.Look) ([]resource.Action, error) {
	var as []resource.Action
	if _, ok := linux.MountAt(sys.Mounts(), r.MountPoint); ok {
		as = append(as, resource.Action{Title: "unmount " + r.MountPoint, Cmd: []string{"umount", r.MountPoint}, Seconds: 300})
	}
	names := sys.Mapped()
	active := r.VG != "" && resource.HostFacts{Mapped: names}.HasVolume(r.VG)
	if r.Cache != "" && active && slices.Contains(names, r.Cached) {
		as = append(as, resource.Action{
			Title: "stop the cache of " + r.VG, Why: "dirty data stays on the SSDs, and goes with them",
			Cmd: []string{resource.MortarCommand, "host-cache", "stop", r.Cache}, Beside: path.Base(r.Cache),
		})
	}
	var stop []string
	for _, a := range sys.Arrays() {
		if hasUUID(slices.Collect(maps.Keys(r.Arrays)), a.UUID) {
			stop = append(stop, "/dev/"+a.Dev)
		}
	}
	pvs := append(slices.Clone(r.PVs), stop...)
	if active {
		argv := append([]string{"lvm", "vgchange", "--activate", "n"}, resource.LVMArgs(r.SystemID, pvs)...)
		as = append(as, resource.Action{Title: "deactivate volume group " + r.VG, Cmd: append(argv, r.VG)})
	}
	if len(pvs) > 0 {
		as = append(as, r.handOver(sys, pvs)...)
	}
	if len(stop) > 0 {
		as = append(as, resource.Action{
			Title: "stop the arrays of " + r.VG, Why: "from now on only Pacemaker brings them up, on one server",
			Cmd: append([]string{"mdadm", "--stop"}, stop...),
		})
	}
	return as, nil
}

// handOver gives the volume group the owner that the resource agent takes it
// from.
func (r *ReleaseStorage) handOver(sys resource.Look, pvs []string) []resource.Action {
	for _, row := range lvmReport(sys, "vgs", "vg_name,vg_systemid", r.SystemID, pvs) {
		if row["vg_name"] != r.VG || row["vg_systemid"] != r.SystemID {
			continue
		}
		argv := append([]string{"lvm", "vgchange", "--yes", "--systemid", r.RestID}, resource.LVMArgs(r.SystemID, pvs)...)
		return []resource.Action{{
			Title: "hand volume group " + r.VG + " over", Cmd: append(argv, r.VG),
			Why: "it is built: from now on the resource agent takes it",
		}}
	}
	return nil
}
