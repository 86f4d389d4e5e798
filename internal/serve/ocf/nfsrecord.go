package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// The next start needs to know of a server that has crashed: the clients' connections, which
// it wakes, who holds NFSv3 locks, and which locks there are. Each monitor of Pacemaker writes
// that to the volume, every 10 s, and the watcher does in between when something has changed.

// recorder is the watcher's side of it.
type recorder struct {
	at   time.Time
	seen recordable
	// busy: a record is being written, beside the watcher's loop. again: one was not written.
	busy, again atomic.Bool
	// ended keeps the lock of a stop, and thus its open file, until the process ends.
	ended func()
}

// recordable is what the kernel says of locks and connections, without a look at the volume.
type recordable struct {
	locks       []string
	connections []connection
}

func (r recordable) equal(other recordable) bool {
	return slices.Equal(r.locks, other.locks) && slices.Equal(r.connections, other.connections)
}

// record writes the lists. One process at a time does so, and none during a stop, which
// writes its own and then unmounts the volume: errBusy.
func (s *nfsKind) record(ctx context.Context) error {
	now, cancel := context.WithCancel(ctx)
	cancel()
	release, err := s.lists(now)
	if err != nil {
		return err
	}
	defer release()
	if name, _, err := s.present(); err != nil || name == "" {
		return err // a stop was faster
	}
	if err := s.noted(s.saveConnections(ctx)); err != nil {
		return fmt.Errorf("saving client connections on the volume: %w", err)
	}
	if err := s.noted(s.saveMonitored()); err != nil {
		return fmt.Errorf("saving who holds NFSv3 locks on the volume: %w", err)
	}
	if err := s.noted(s.saveLocks()); err != nil {
		return fmt.Errorf("saving the locks on the volume: %w", err)
	}
	return nil
}

// recordChange is the watcher's record between two monitors. It runs in the background: a
// disk may not answer.
func (s *nfsKind) recordChange(ctx context.Context, w *watcher) {
	r := &s.recorder
	if _, lost := w.gone[s.cfg.Service]; lost || w.now().Sub(r.at) < watchTick || r.busy.Load() || !s.locksCount() {
		return
	}
	seen, err := s.recordable(ctx)
	if err != nil {
		w.log("%s: locks and connections: %v", s.cfg.Service, err)
		return
	}
	if failed := r.again.Swap(false); !failed && seen.equal(r.seen) {
		return
	}
	r.at, r.seen = w.now(), seen
	r.busy.Store(true)
	w.background(func() {
		defer r.busy.Store(false)
		if err := s.record(ctx); err != nil {
			r.again.Store(true)
			if !errors.Is(err, errBusy) {
				w.log("%s: %v", s.cfg.Service, err)
			}
		}
	})
}

func (s *nfsKind) recordable(ctx context.Context) (r recordable, err error) {
	l, err := s.locks()
	if err != nil {
		return r, err
	}
	r.locks = l.Locks
	r.connections, err = s.established(s.clientPorts(ctx))
	return r, err
}

// endRecords keeps this process's stop from meeting a record that is being written. The lock
// ends with the process. A record that hangs must not keep the stop from trying: whoever uses
// the volume then is told to end.
func (s *nfsKind) endRecords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	var err error
	if s.recorder.ended, err = s.lists(ctx); err != nil {
		s.log.note("the watcher may still write its lists: %v", err)
	}
}

// recordTime is how long a stop waits for a record.
const recordTime = 5 * time.Second
