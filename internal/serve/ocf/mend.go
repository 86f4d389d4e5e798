package ocf

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Something else on the server takes away what a service needs: a restart of
// systemd-networkd the service address, cloud-init the line in /etc/hosts, a person a bind
// mount. The storage, nfsd and the clients' locks are untouched, so a move would cost more
// than the fault, and the same restart on the other server would be the second failure. The
// watcher puts back what is missing above the file system, in place.

// What goes for the fourth time within mendWindow is not put back: the cause lasts, and
// Pacemaker judges the service. Three unrelated restarts within ten minutes are a bad day.
const (
	mostMends  = 3
	mendWindow = 10 * time.Minute
)

// damaged are the repairs that a service which runs here needs. One that is stopping, that
// has failed to stop, or whose disks are out of reach needs none.
func (s *service) damaged() (due []unit.Repair) {
	serves := !s.OverdueNote().There() && s.storage.Reachable() && s.kind.Serving()
	for _, r := range s.kind.Repairs() {
		if (serves || r.Part == "") && r.Missing() {
			due = append(due, r)
		}
	}
	return due
}

// DamagedHere says whether the watcher is about to put something back that the service needs.
func (s *service) DamagedHere() bool {
	return slices.ContainsFunc(s.damaged(), func(r unit.Repair) bool { return r.Part != "" })
}

// mends puts back what is missing of a service.
func (w *watcher) mends(s *service) *unit.Reflex {
	var done unit.Limit
	var said unit.LastSaid
	return &unit.Reflex{Name: "repairs", Locked: true, Beside: true, Finish: true, Sees: func(context.Context) unit.Act {
		// Disks that were gone have to prove themselves: the watcher itself took the address.
		trusted := w.attributes[attrStorage+s.cfg.Service]
		due := slices.DeleteFunc(s.damaged(), func(r unit.Repair) bool { return r.Part != "" && trusted != nil && !trusted.value })
		if len(due) == 0 {
			return nil
		}
		return func(ctx context.Context) {
			for _, r := range due {
				err := fmt.Errorf("gone again after it was put back %d times within %v", mostMends, mendWindow)
				if !done.Reached(r.What, w.k.Now(), mostMends, mendWindow) {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
					err = s.repair(ctx, r)
					cancel()
				}
				if said.News(r.What, unit.SayOnce(err)) {
					w.log("service %s: %s is gone, and it is not put back: %v", s.cfg.Service, r.What, err)
				}
				if err == nil {
					done.Count(r.What, w.k.Now())
					w.log("[%s] service %s: %s was gone: put back", unit.PutBack(r.Name), s.cfg.Service, r.What)
				}
			}
		}
	}}
}

// repair makes a repair if this server owns the storage, and all layers below run.
func (s *service) repair(ctx context.Context, r unit.Repair) error {
	if r.Part != "" {
		if err := s.Mine(ctx); err != nil {
			return err
		}
		for _, p := range s.parts() {
			if p.Name == r.Part {
				break
			}
			if st, err := p.State(); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			} else if st != unit.Running {
				return fmt.Errorf("%s does not run", p.Name)
			}
		}
	}
	return r.Put(ctx)
}
