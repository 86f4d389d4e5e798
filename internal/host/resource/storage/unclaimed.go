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
		return nil, resource.Refuse("service-in-cluster", resource.With{"service": u.Service, "cib": linux.CIBFile})
	}
	if u.VG != "" && (resource.HostFacts{Mapped: sys.Mapped()}).HasVolume(u.VG) {
		return nil, resource.Refuse("vg-used-here", resource.With{"vg": u.VG})
	}
	arrays := sys.Arrays()
	for _, uuid := range slices.Sorted(maps.Keys(u.Arrays)) {
		for _, a := range arrays {
			if md.SameUUID(a.UUID, uuid) {
				return nil, resource.Refuse("array-used-here", resource.With{"array": u.Arrays[uuid], "device": a.Dev})
			}
		}
	}
	return nil, nil
}
