package testbed

import (
	"context"
	"sync"

	"github.com/mortarhpc/mortar/internal/host"
)

// Hosts has the sessions of a run and the clocks of their hosts. The zero value
// is empty and ready to use. It is safe for concurrent use.
type Hosts struct {
	mu sync.Mutex
	by map[string]reached
}

type reached struct {
	session *host.Session
	clock   Clock
}

// Clock compares a host's wall clock with ours. Offset is how far the host is
// ahead, RoundTrip how long the query took, both in ns. The error of Offset is
// at most half of RoundTrip.
type Clock struct{ Offset, RoundTrip int64 }

// Connect opens a session with a host and measures its clock, which may differ
// after each boot. The new session replaces the host's old one.
func (h *Hosts) Connect(ctx context.Context, dial host.Dial, name string) (*host.Session, error) {
	s, err := dial(ctx, name)
	if err != nil {
		return nil, err
	}
	x := reached{session: s}
	if x.clock.Offset, x.clock.RoundTrip, err = s.ClockOffset(ctx); err != nil {
		s.Close()
		return nil, err
	}
	h.mu.Lock()
	old := h.by[name]
	if h.by == nil {
		h.by = map[string]reached{}
	}
	h.by[name] = x
	h.mu.Unlock()
	if old.session != nil {
		old.session.Close()
	}
	return s, nil
}

// Session returns the session with a host, nil if Connect never reached it.
func (h *Hosts) Session(name string) *host.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[name].session
}

// Clock returns the clock of a host as measured by its last Connect.
func (h *Hosts) Clock(name string) Clock {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[name].clock
}

// Close ends all sessions.
func (h *Hosts) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.by {
		x.session.Close()
	}
}
