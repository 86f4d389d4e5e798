package ocf

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pacemaker does not start a service again where its start has failed, until it
// forgets the failure, after minutes. If the start was refused for the storage's
// sake (too few disks, a LUN that was not there), the watcher has it forgotten as
// soon as the storage is sound: the next crash finds a partner that may start.

// refusedFile is there while the last start on this server was refused for the
// storage's sake. It does not outlive a boot, and neither does the failure.
func (s *service) refusedFile() string { return runDir + "/refused-" + s.cfg.Service }

// refused notes a start that the storage does not allow now. It gives the error back.
func (s *service) refused(err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) && s.storage.sound() != nil {
		err = errors.Join(err, s.k.Save(s.refusedFile(), []byte(err.Error()+"\n")))
	}
	return err
}

// forget drops the note. That it was there may be told too often, not too seldom.
func (s *service) forget() {
	if _, err := s.k.ReadFile(s.refusedFile()); err != nil {
		return
	}
	if err := s.k.Remove(s.refusedFile()); err != nil {
		s.log.note("%v", err)
	}
}

// forgiveEvery is how often the storage of a refused service is looked at.
const forgiveEvery = 10 * time.Second

// forgive has Pacemaker forget a refused start whose cause is gone.
func (w *watcher) forgive(ctx context.Context, s *service) {
	name := s.cfg.Service
	if w.now().Sub(w.weighed[name]) < forgiveEvery {
		return
	}
	w.weighed[name] = w.now()
	if _, err := s.k.ReadFile(s.refusedFile()); err != nil || s.storage.sound() != nil {
		return
	}
	// Not while a start or stop of it runs.
	release, err := w.lock(name)
	if err != nil {
		return
	}
	s.forget()
	release()
	w.log("the storage of service %s is sound again: Pacemaker may start it here", name)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	argv := []string{"crm_resource", "--cleanup", "--resource", "service-" + name, "--node", s.host}
	if _, err := w.k.Run(ctx, command{argv: argv}); err != nil {
		w.log("%v", errors.Join(fmt.Errorf("service %s: %w", name, err), s.k.Save(s.refusedFile(), []byte("again\n"))))
	}
}
