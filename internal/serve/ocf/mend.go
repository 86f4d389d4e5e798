package ocf

import (
	"context"
	"fmt"
	"slices"
	"time"
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
func (s *service) damaged() (due []repair) {
	serves := !s.overdueNote().there() && s.storage.reachable() && s.kind.serving()
	for _, r := range s.kind.repairs() {
		if (serves || r.part == "") && r.missing() {
			due = append(due, r)
		}
	}
	return due
}

// damagedHere says whether the watcher is about to put something back that the service needs.
func (s *service) damagedHere() bool {
	return slices.ContainsFunc(s.damaged(), func(r repair) bool { return r.part != "" })
}

// mends puts back what is missing of a service.
func (w *watcher) mends(s *service) *reflex {
	var done limit
	var said lastSaid
	return &reflex{name: "repairs", locked: true, beside: true, finish: true, sees: func(context.Context) action {
		// Disks that were gone have to prove themselves: the watcher itself took the address.
		trusted := w.attributes[attrStorage+s.cfg.Service]
		due := slices.DeleteFunc(s.damaged(), func(r repair) bool { return r.part != "" && trusted != nil && !trusted.value })
		if len(due) == 0 {
			return nil
		}
		return func(ctx context.Context) {
			for _, r := range due {
				err := fmt.Errorf("gone again after it was put back %d times within %v", mostMends, mendWindow)
				if !done.reached(r.what, w.k.Now(), mostMends, mendWindow) {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
					err = s.repair(ctx, r)
					cancel()
				}
				if said.news(r.what, sayOnce(err)) {
					w.log("service %s: %s is gone, and it is not put back: %v", s.cfg.Service, r.what, err)
				}
				if err == nil {
					done.count(r.what, w.k.Now())
					w.log("service %s: %s was gone: put back", s.cfg.Service, r.what)
				}
			}
		}
	}}
}

// repair makes a repair if this server owns the storage, and all layers below run.
func (s *service) repair(ctx context.Context, r repair) error {
	if r.part != "" {
		if err := s.mine(ctx); err != nil {
			return err
		}
		for _, p := range s.parts() {
			if p.name == r.part {
				break
			}
			if st, err := p.state(); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			} else if st != running {
				return fmt.Errorf("%s does not run", p.name)
			}
		}
	}
	return r.put(ctx)
}
