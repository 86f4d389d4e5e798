package plan

import (
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Facts is what was observed on the hosts before a plan is made, by host
// name. A host that is missing counts as one that has nothing yet.
type Facts struct {
	Hosts map[string]resource.HostFacts
	OS    map[string]linux.OSRelease
	// SCSI are the disks of servers that have LUNs of arrays, with their paths.
	SCSI map[string][]linux.SCSIDisk
	// Applied is the spec that was applied last; nil: none was recorded.
	Applied *claim.Applied
	// Unexport are exports, by their paths in the spec, that the user lets go.
	Unexport []string
	// Software is that of servers with a partner.
	Software map[string]Software
	// Lustre is where its packages come from; nil if they are on the hosts.
	Lustre *LustreSource
}

// HasArray tells whether the md array with this UUID is assembled on a host.
func (f Facts) HasArray(host, uuid string) bool {
	_, ok := f.array(host, uuid)
	return ok
}

// RunsArray tells whether the array does I/O on a host.
func (f Facts) RunsArray(host, uuid string) bool {
	a, ok := f.array(host, uuid)
	return ok && a.Running()
}

func (f Facts) array(host, uuid string) (linux.MDArray, bool) {
	for _, a := range f.Hosts[host].Arrays {
		if md.SameUUID(a.UUID, uuid) {
			return a, true
		}
	}
	return linux.MDArray{}, false
}
