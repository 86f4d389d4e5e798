package ocf

import (
	"context"
	"errors"
	"fmt"
)

// reservations keep every server but one from writing to LUNs: SCSI-3 persistent
// reservations. This build has none (issue 16): a service that needs them does
// not start.
type reservations interface {
	// Holder is the server that the LUNs are reserved for; "" for none. It fails
	// if not all of them are reserved for the same.
	Holder() (string, error)
	// Take reserves all LUNs for this server, whoever has them: a partner that
	// wakes up later can write no more.
	Take(ctx context.Context) error
	// Give gives up what this server has; what others have stays.
	Give(ctx context.Context) error
}

// noReservations is what this build has.
type noReservations struct{}

func (noReservations) Holder() (string, error)    { return "", nil }
func (noReservations) Give(context.Context) error { return nil }
func (noReservations) Take(context.Context) error {
	return &refusal{errors.New("this build of mortar cannot reserve LUNs, so nothing would keep the partner from writing to them")}
}

func (s *lunKind) reserveState() (state, error) {
	switch holder, err := s.reserve.Holder(); {
	case err != nil:
		return broken, err
	case holder != s.host:
		return stopped, nil
	}
	return running, nil
}

func (s *lunKind) startReserve(ctx context.Context) error {
	holder, err := s.reserve.Holder()
	if err != nil || holder == s.host {
		return err
	}
	if holder != "" && s.cfg.Nodes[holder] == "" {
		return &refusal{fmt.Errorf("the LUNs of service %s are reserved for %q, which is no node of this cluster", s.cfg.Service, holder)}
	}
	return s.reserve.Take(ctx)
}

func (s *lunKind) stopReserve(ctx context.Context) error { return s.reserve.Give(ctx) }
