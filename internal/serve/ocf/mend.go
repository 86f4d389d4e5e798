package ocf

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Something else on the server takes away what a service needs: a restart of
// systemd-networkd the service address, cloud-init the line in /etc/hosts, a person a bind
// mount. The storage, nfsd and the clients' locks are untouched, so a move would cost more
// than the fault, and the same restart on the other server would be the second failure. The
// watcher puts back what is missing above the file system, in place.

// repair is one thing that a service needs above its file system, and that can be put back
// while all else serves on.
type repair struct {
	what string // in messages
	// part is the layer that it belongs to: all layers below must run. "": the server needs
	// it whether it serves or not, and it is no reason to move a service.
	part string
	// missing reads neither the volume nor the devices: they may not answer.
	missing func() bool
	put     func(context.Context) error
}

// What goes for the fourth time within mendWindow is not put back: the cause lasts, and
// Pacemaker judges the service. Three unrelated restarts within ten minutes are a bad day.
const (
	mostMends  = 3
	mendWindow = 10 * time.Minute
)

// mender is what the watcher remembers of a service's repairs.
type mender struct {
	busy atomic.Bool            // repairs are being made, to which the fields below belong
	done map[string][]time.Time // by what was put back
	said map[string]string      // by what was not: why
}

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

// mend puts back what is missing of a service.
func (w *watcher) mend(ctx context.Context, s *service) {
	name := s.cfg.Service
	if w.menders == nil {
		w.menders = map[string]*mender{}
	}
	m := w.menders[name]
	if m == nil {
		m = &mender{done: map[string][]time.Time{}, said: map[string]string{}}
		w.menders[name] = m
	}
	// Disks that were gone have to prove themselves: the watcher itself took the address.
	trusted := w.attributes[attrStorage+name]
	due := func() []repair {
		return slices.DeleteFunc(s.damaged(), func(r repair) bool { return r.part != "" && trusted != nil && !trusted.value })
	}
	if len(due()) == 0 || !m.busy.CompareAndSwap(false, true) {
		return
	}
	// While the service starts or stops, its layers come and go.
	unlock, err := w.lock(name)
	if err != nil {
		m.busy.Store(false)
		return
	}
	all := due()
	// A disk that hangs must not keep the watcher from what it sees. A watcher that ends
	// finishes a repair.
	ctx = context.WithoutCancel(ctx)
	w.background(func() {
		defer m.busy.Store(false)
		defer unlock()
		for _, r := range all {
			m.mend(ctx, w, s, r)
		}
	})
}

// mend makes one repair.
func (m *mender) mend(ctx context.Context, w *watcher, s *service, r repair) {
	m.done[r.what] = slices.DeleteFunc(m.done[r.what], func(t time.Time) bool { return w.now().Sub(t) >= mendWindow })
	err := fmt.Errorf("gone again after it was put back %d times within %v", mostMends, mendWindow)
	if len(m.done[r.what]) < mostMends {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = s.repair(ctx, r)
		cancel()
	}
	if err != nil {
		if why := sayOnce(err); m.said[r.what] != why {
			m.said[r.what] = why
			w.log("service %s: %s is gone, and it is not put back: %v", s.cfg.Service, r.what, err)
		}
		return
	}
	delete(m.said, r.what)
	m.done[r.what] = append(m.done[r.what], w.now())
	w.log("service %s: %s was gone: put back", s.cfg.Service, r.what)
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
