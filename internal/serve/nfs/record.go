package nfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The next start needs to know of a server that has crashed: the clients' connections, which
// it wakes, who holds NFSv3 locks, which locks there are, and which NFSv4 clients were gone. Each monitor of Pacemaker writes
// lists of them to the volume, every 10 s, and the watcher does in between.

type list struct {
	file string
	text []byte // nil: no file
	// current: none is better than an old one.
	current bool
}

func (s *server) put(l list) error {
	if l.text == nil {
		return s.K.Remove(l.file)
	}
	err := s.K.Save(l.file, l.text)
	if err != nil && l.current {
		err = errors.Join(err, s.K.Remove(l.file))
	}
	return err
}

// outdated are the lists that the volume has otherwise. A whole look is a monitor's.
func (s *recorder) outdated(ctx context.Context, whole bool) (all []list, err error) {
	for _, look := range []func(context.Context) (*list, error){s.address.connections, s.NLM.monitoredNow, s.NLM.locksNow} {
		l, err := look(ctx)
		if err != nil {
			return nil, err
		}
		if l != nil {
			all = append(all, *l)
		}
	}
	// Looked at last and written first, so that no file that another client has locked by now
	// counts as locked by one that is gone.
	l, err := s.goneNow(whole)
	if l != nil {
		all = slices.Insert(all, 0, *l)
	}
	return all, err
}

// Record writes the lists that have changed, but none once a stop has begun: it lists the locks
// itself, and unmounts the volume. One process writes at a time: a monitor waits
// for the watcher, so that it finds out if a disk never answers.
func (s *recorder) Record(ctx context.Context, wait bool) error {
	until := ctx
	if !wait {
		until = unit.AtOnce(ctx)
	}
	release, err := s.svc.LockLists(until)
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, unit.ErrBusy) && (!wait || s.svc.Waits()):
		return nil
	case errors.Is(err, unit.ErrBusy):
		return errors.New("another process has not finished writing lists to the volume")
	case wait: // the watcher would say so every 2 s
		s.Log.Note("two processes may write lists to the volume: %v", err)
	}
	began := s.K.Now()
	all, err := s.outdated(ctx, wait)
	s.Took = s.K.Now().Sub(began)
	if err != nil || len(all) == 0 || !s.Addressed() {
		return err
	}
	// What a server writes that was frozen, and counts as fenced, goes over what the other
	// one has written. It is the monitor that resets it.
	if err := s.svc.StillOwned(); err != nil {
		return err
	}
	for _, l := range all {
		if !s.Addressed() {
			return nil
		}
		if err := s.noted(s.put(l)); err != nil {
			return fmt.Errorf("saving %s: %w", l.file, err)
		}
	}
	return nil
}

// Addressed says whether the service address is here; a stop takes it away first.
func (s *server) Addressed() bool {
	name, _, err := s.Present()
	return err == nil && name != ""
}

// recorder is the watcher's part: it records beside its loop, because a disk, or rpcbind,
// may not answer.
type recorder struct {
	*server
	At   time.Time
	Took time.Duration // to see what has changed
	said unit.LastSaid
	// ended keeps the lock of a stop, and thus its open file, until the process ends.
	ended func()
}

// recordDue has the lists written between two monitors. Many locks take the kernel long to
// list, and no client gets one meanwhile.
func (s *recorder) recordDue(w unit.Watch) unit.Act {
	r := s
	if w.Lost() || !s.NLM.locksCount() || s.K.Now().Sub(r.At) < max(20*r.Took, unit.WatchTick) {
		return nil
	}
	r.At = s.K.Now()
	return func(ctx context.Context) {
		err := s.Record(ctx, false)
		if ctx.Err() == nil && r.said.News("", unit.SayOnce(err)) {
			w.Log("%s: %v", s.Service, err)
		}
	}
}

// endRecords keeps this process's stop from meeting a record that is being written. The lock
// ends with the process. A record that hangs must not keep the stop from trying.
func (s *recorder) endRecords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	var err error
	if s.ended, err = s.svc.LockLists(ctx); errors.Is(err, unit.ErrBusy) {
		s.Log.Note("the watcher still writes lists to the volume after %v", recordTime)
	} else if err != nil {
		s.Log.Note("the watcher may write lists to the volume: %v", err)
	}
}

// recordTime is how long a stop waits for a record: longer than rpcbind may take to answer.
const recordTime = 6 * time.Second
