package drill

import (
	"context"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// storageKind is what a kind of storage has that a drill can break: disks of
// JBODs under md, or LUNs of arrays.
type storageKind interface {
	// group is the RAID group that loses disks, and the serials of those that are
	// in it now.
	group(ctx context.Context, e *engine) (design.Group, []string, error)
	// reached is something that servers have several paths to, as faults name it.
	reached() (string, error)
	// module are the steps of a part failing that half of all paths lead through.
	module() ([]Step, error)
	// pulled is the fault of a disk of the group.
	pulled(serial string) Fault
	// slow is the fault of a disk of the group that answers late.
	slow() (Fault, error)
	// without is what must be seen of the group once it lacks n disks.
	without(n int) *Condition
	// parts are what a schedule may break of this kind, by fault: its arguments.
	parts() map[Kind][][]string
	// parity has the RAID compared with itself, and says what came of it; nothing
	// where servers do not see into it.
	parity(ctx context.Context, e *engine) []report.Check
	// rot says why no byte of a disk can be spoilt and found again; nil: it can.
	rot() error
}

// storage is the kind that the drill's service stands on.
func (s Scene) storage() storageKind {
	if len(s.Service.Storage.LUNs) > 0 {
		return lunStorage{s}
	}
	return mdStorage{s}
}
