package ocf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Pacemaker does not start a service again on a server where its start failed,
// or where it failed, until it forgets the failure after minutes. If the cause can be
// seen from outside of a running service (too few disks, a missing LUN, LNet without
// a network, a config that cannot be read), or was that the action took too long, the watcher
// makes Pacemaker forget the failure as soon as the cause is gone. When the partner is lost next, this server may then start the service.

// refused notes that this server cannot serve now. It returns err.
func (s *service) refused(ctx context.Context, err error) error {
	if doubt.Of(err) != nil || ctx.Err() != nil || errors.As(err, new(*refusal.Refusal)) && s.storage.Sound(ctx) != nil || s.kind.Able() != nil {
		err = errors.Join(err, s.RefusedNote().Write(err.Error()+"\n"))
	}
	return err
}

// noteBadConfig notes that a start was refused for what is in a config.
func noteBadConfig(k kernel.Host, file string, cause error) error {
	name, ok := strings.CutPrefix(strings.TrimSuffix(path.Base(file), ".json"), "service-") // see ConfigPath
	if !ok {
		return nil
	}
	s := &unit.Host{K: k, Service: name} // its config is what is missing
	return errors.Join(s.BadConfigNote().Write(file), s.RefusedNote().Write(cause.Error()+"\n"))
}

// configured says whether a config for which a start was refused, if there is one, can be
// served now.
func (s *service) configured() bool {
	file, refused := s.BadConfigNote().Read()
	if !refused {
		return true
	}
	cfg, err := Load(file)
	return err == nil && cfg.Able() == nil
}

// tooLate notes that this server did not serve in time. What held it up is gone, or the next
// start goes without it, once the storage is sound: a disk that does not answer counts as
// missing. Should the next start be late as well, the service was on no better server.
func (s *service) tooLate(err error) {
	s.Log.NoteErr(s.RefusedNote().Write(err.Error()+"\n"), "")
}

// forgiveEvery is how often the watcher checks whether a refused service could start.
const forgiveEvery = 10 * time.Second

// forgives makes Pacemaker forget a failure whose cause is gone. A server that is not able to
// serve notes that: watcher or monitor, whichever meets it first, has the service banned.
func (w *watcher) forgives(s *service) []*unit.Reflex {
	unable := &unit.Reflex{Name: "forgive: the server is not able to serve", Instead: true, Sees: func(context.Context) unit.Act {
		err := s.kind.Able()
		if err == nil {
			return nil
		}
		return func(context.Context) {
			if n := s.RefusedNote(); !n.There() {
				if err := n.Write(err.Error() + "\n"); err != nil {
					w.log("%v", err)
				}
			}
		}
	}}
	// A cleanup before Pacemaker has written the failure down would clean up nothing.
	forgive := &unit.Reflex{Name: "forgive: the cause is gone", Every: forgiveEvery, Lasts: forgiveEvery, Beside: true}
	forgive.Sees = func(context.Context) unit.Act {
		if !s.RefusedNote().There() {
			return nil
		}
		return func(ctx context.Context) {
			if w.forgiveNow(ctx, s) {
				forgive.Since = time.Time{}
			}
		}
	}
	return []*unit.Reflex{unable, forgive}
}

// forgiveNow makes Pacemaker forget a failure if the storage is sound, and says whether it
// has tried that.
func (w *watcher) forgiveNow(ctx context.Context, s *service) bool {
	name := s.cfg.Service
	if !s.configured() || s.storage.Sound(ctx) != nil {
		return false
	}
	// A start or stop that runs now holds the lock.
	release, err := w.lock(name)
	if err != nil {
		return false
	}
	s.RefusedNote().Forget()
	if err := s.BadConfigNote().Remove(); err != nil {
		w.log("%v", err)
	}
	release()
	w.log("what kept service %s from this server is gone: Pacemaker may start it here", name)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	argv := []string{"crm_resource", "--cleanup", "--resource", "service-" + name, "--node", s.Node}
	if _, err := w.k.Run(ctx, kernel.Command{Argv: argv}); err != nil {
		w.log("%v", errors.Join(fmt.Errorf("service %s: %w", name, err), s.RefusedNote().Write("again\n")))
	}
	return true
}
