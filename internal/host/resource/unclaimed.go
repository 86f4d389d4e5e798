package resource

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
)

// Unclaimed guards shared storage that apply builds: no cluster knows its
// service on this host, running or not, and its arrays are not assembled here.
type Unclaimed struct {
	Service string            // the cluster's resource
	Arrays  map[string]string // UUID to name; nil on the host that builds
	// VG on LUNs has no active volume here; "" on the host that builds, and over md.
	VG string `json:",omitempty"`
}

// Kind is "unclaimed".
func (u *Unclaimed) Kind() string { return "unclaimed" }

// ID is the cluster's resource.
func (u *Unclaimed) ID() string { return u.Service }

// Diff refuses, or has nothing to do. It reads files only.
func (u *Unclaimed) Diff(_ context.Context, sys Sys) ([]Action, error) {
	rs, err := configuredResources(sys)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(rs, func(r linux.CRMResource) bool { return r.ID == u.Service }) {
		return nil, &Refusal{
			What: "the cluster has " + u.Service + " (" + linux.CIBFile + "): it alone brings up its storage",
			Mend: "start Corosync and Pacemaker on all servers; the cluster starts the service",
		}
	}
	if u.VG != "" {
		names, err := mapped(sys)
		if err != nil {
			return nil, err
		}
		if (HostFacts{Mapped: names}).HasVolume(u.VG) {
			return nil, &Refusal{
				What: "volume group " + u.VG + " is active here too",
				Mend: "find out which server uses it, and deactivate it on the other with `vgchange --activate n " + u.VG + "`",
			}
		}
	}
	arrays, err := linux.MDArrays(Tree{sys})
	if err != nil {
		return nil, err
	}
	for _, uuid := range slices.Sorted(maps.Keys(u.Arrays)) {
		for _, a := range arrays {
			if md.SameUUID(a.UUID, uuid) {
				return nil, &Refusal{
					What: fmt.Sprintf("array %s is assembled here too (/dev/%s)", u.Arrays[uuid], a.Dev),
					Mend: "find out which server uses it, and stop it on the other with `mdadm --stop /dev/" + a.Dev + "`",
				}
			}
		}
	}
	return nil, nil
}
