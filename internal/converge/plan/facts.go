package plan

import (
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
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

// array is the md array with this UUID, if it is assembled on a host.
func (f Facts) array(host, uuid string) (linux.MDArray, bool) {
	return lists.First(f.Hosts[host].Arrays, func(a linux.MDArray) bool { return md.SameUUID(a.UUID, uuid) })
}
