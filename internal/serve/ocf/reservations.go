package ocf

import "context"

// reservations keep every server but one from writing to LUNs: SCSI-3 persistent
// reservations. docs/reservations.md has the reasons.
type reservations interface {
	// Holder is the server that the LUNs are reserved for; "" for none. Of LUNs
	// that several have it is another server than this one.
	Holder() (string, error)
	// Take reserves all LUNs for this server, whichever server of the cluster has
	// them: a partner that wakes up later can write no more. It refuses, before
	// it changes anything, if a stranger is registered.
	Take(ctx context.Context) error
	// Keep looks after the reservation of LUNs that are in use here, and gives
	// their holder. It reserves the LUNs of an array again if all of them have
	// forgotten it, and registers a path that is not. It fails with errTaken if this
	// server has lost the LUNs, and with errForgot if one alone has forgotten.
	Keep(ctx context.Context) (holder string, err error)
	// Give gives up what this server has; what others have stays.
	Give(ctx context.Context) error
}

// noReservations is what storage has whose devices know none.
type noReservations struct{}

func (noReservations) Holder() (string, error)              { return "", nil }
func (noReservations) Take(context.Context) error           { return nil }
func (noReservations) Keep(context.Context) (string, error) { return "", nil }
func (noReservations) Give(context.Context) error           { return nil }
