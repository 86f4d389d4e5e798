package ocf

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pacemaker does not start a service again on a server where its start failed,
// or where it failed, until it forgets the failure after minutes. If the cause can be
// seen from outside of a running service (too few disks, a missing LUN, LNet without
// a network), the watcher makes Pacemaker forget the failure as soon as the cause is
// gone. When the partner is lost next, this server may then start the service.

// refusedFile exists if the agent refused the last start on this server for such a
// cause, or the watcher has seen that the server is not able to serve. Neither the file nor
// Pacemaker's failure outlives a boot.
func (s *service) refusedFile() string { return runDir + "/refused-" + s.cfg.Service }

// refused notes that this server cannot serve now. It returns err.
func (s *service) refused(err error) error {
	r, d := (*refusal)(nil), (*inDoubt)(nil)
	if errors.As(err, &d) || errors.As(err, &r) && s.storage.sound() != nil || s.kind.able() != nil {
		err = errors.Join(err, s.k.Save(s.refusedFile(), []byte(err.Error()+"\n")))
	}
	return err
}

// forget removes the note. Of two errors, a note that stays is the harmless
// one.
func (s *service) forget() {
	if _, err := s.k.ReadFile(s.refusedFile()); err != nil {
		return
	}
	if err := s.k.Remove(s.refusedFile()); err != nil {
		s.log.note("%v", err)
	}
}

// forgiveEvery is how often the watcher checks whether a refused service could start.
const forgiveEvery = 10 * time.Second

// forgive makes Pacemaker forget a failure whose cause is gone.
func (w *watcher) forgive(ctx context.Context, s *service) {
	name := s.cfg.Service
	_, unnoted := s.k.ReadFile(s.refusedFile())
	if err := s.kind.able(); err != nil {
		// Whoever meets it first, watcher or monitor, has the service banned.
		if unnoted != nil {
			if err := s.k.Save(s.refusedFile(), []byte(err.Error()+"\n")); err != nil {
				w.log("%v", err)
			}
		}
		return
	}
	if w.now().Sub(w.weighed[name]) < forgiveEvery {
		return
	}
	w.weighed[name] = w.now()
	// A cleanup before Pacemaker has written the failure down would clean up nothing.
	before := w.noted[name]
	if w.noted[name] = unnoted == nil; !w.noted[name] || !before || s.storage.sound() != nil {
		return
	}
	// A start or stop that runs now holds the lock.
	release, err := w.lock(name)
	if err != nil {
		return
	}
	s.forget()
	release()
	w.noted[name] = false
	w.log("what kept service %s from this server is gone: Pacemaker may start it here", name)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	argv := []string{"crm_resource", "--cleanup", "--resource", "service-" + name, "--node", s.host}
	if _, err := w.k.Run(ctx, command{argv: argv}); err != nil {
		w.log("%v", errors.Join(fmt.Errorf("service %s: %w", name, err), s.k.Save(s.refusedFile(), []byte("again\n"))))
	}
}
