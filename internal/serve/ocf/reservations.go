package ocf

import "context"

// reservations keep every server but one from writing to the storage, see package lun.
type reservations interface {
	// Keep looks after the reservation of storage that is in use here, and gives its holder.
	Keep(ctx context.Context) (holder string, err error)
	// Give gives up what this server has; what others have stays.
	Give(ctx context.Context) error
}

// noReservations is what storage has whose devices know none.
type noReservations struct{}

func (noReservations) Keep(context.Context) (string, error) { return "", nil }
func (noReservations) Give(context.Context) error           { return nil }
