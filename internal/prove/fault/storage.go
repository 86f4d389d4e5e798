package fault

import (
	"context"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// storageKind has the parts of a kind of storage that a drill can break: disks of
// JBODs under md, or LUNs of arrays.
type storageKind interface {
	// group returns the RAID group that loses disks, and the serials of its
	// present disks.
	RAIDGroup(ctx context.Context, b *Site) (design.Group, []string, error)
	// reached is the name, for faults, of a disk or LUN that servers have several
	// paths to.
	Reached() (string, error)
	// module is the fault of a part with half of all paths, and the condition that it is mended;
	// nil: it stays.
	Module() (f Fault, home *Condition, err error)
	// pulled is the fault that pulls a disk of the group.
	Pulled(serial string) Fault
	// slow is the fault that slows a disk of the group down.
	Slow() (Fault, error)
	// lost is the sign that a server reaches the storage by fewer paths. what is the disk or LUN
	// whose paths are gone; "" is any.
	lost(what, server string) sign
	// without waits until the group works without these disks.
	Without(serials ...string) *Condition
	// startedDegraded waits until it is seen that the group was not whole when the active
	// server died: the passive one notes it at its start, or the array says so.
	StartedDegraded() *Condition
	// rebuilds says whether the servers rebuild a group, and can be told to do it slowly.
	Rebuilds() bool
	// parts returns the possible arguments of each fault that a schedule can
	// contain.
	Parts() map[Kind][][]string
	// parity compares the RAID's data with its parities and returns the checks;
	// none if servers do not see the disks of the RAID.
	Parity(ctx context.Context, b *Site) []report.Check
	// rot returns why a drill cannot corrupt bytes of a disk and find them again,
	// nil if it can.
	Rot() error
}

// Storage is the kind of storage of the service under test.
func (s Scene) Storage() storageKind {
	if len(s.Service.Storage.LUNs) > 0 {
		return lunStorage{s}
	}
	return mdStorage{s}
}
