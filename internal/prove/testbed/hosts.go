package testbed

import (
	"context"
	"sync"

	"github.com/mortarhpc/mortar/internal/host"
)

// Hosts are the sessions of a run, and the clocks of their hosts. The zero value
// has none. It is safe for concurrent use.
type Hosts struct {
	mu sync.Mutex
	by map[string]reached
}

type reached struct {
	session *host.Session
	clock   Clock
}

// Clock is how far a host's wall clock is ahead of ours, and how long the
// question took, both in ns. The error of the offset is at most half of that.
type Clock struct{ Offset, RoundTrip int64 }

// Connect reaches a host and measures its clock: after a boot it is another. The
// session replaces the one that there was.
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

// Session is the one with a host, nil if it was never reached.
func (h *Hosts) Session(name string) *host.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[name].session
}

// Clock is the time of a host when it was reached.
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
