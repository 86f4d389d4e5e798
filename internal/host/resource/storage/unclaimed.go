package storage

import (
	"maps"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Unclaimed guards shared storage that apply builds: no cluster knows its
// service on this host, running or not, and its arrays are not assembled here.
type Unclaimed struct {
	Service string            // the cluster's resource
	Arrays  map[string]string // UUID to name; nil on the host that builds
	// VG on LUNs has no active volume here; "" on the host that builds, and over md.
	VG string `json:",omitempty"`
}

func (u *Unclaimed) Identity() (kind, id string) { return "unclaimed", u.Service }

// Diff refuses, or has nothing to do. It reads files only.
func (u *Unclaimed) Diff(sys resource.Look) ([]resource.Action, error) {
	if slices.ContainsFunc(sys.Configured(), func(r linux.CRMResource) bool { return r.ID == u.Service }) {
		return nil, resource.Refuse("start Corosync and Pacemaker on all servers; the cluster starts the service",
			"the cluster has %s (%s): it alone brings up its storage", u.Service, linux.CIBFile)
	}
	if u.VG != "" && (resource.HostFacts{Mapped: sys.Mapped()}).HasVolume(u.VG) {
		return nil, resource.Refuse("find out which server uses it, and deactivate it on the other with `vgchange --activate n "+u.VG+"`",
			"volume group %s is active here too", u.VG)
	}
	arrays := sys.Arrays()
	for _, uuid := range slices.Sorted(maps.Keys(u.Arrays)) {
		for _, a := range arrays {
			if md.SameUUID(a.UUID, uuid) {
				return nil, resource.Refuse("find out which server uses it, and stop it on the other with `mdadm --stop /dev/"+a.Dev+"`",
					"array %s is assembled here too (/dev/%s)", u.Arrays[uuid], a.Dev)
			}
		}
	}
	return nil, nil
}
