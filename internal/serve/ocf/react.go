package ocf

import (
	"context"
	"sync/atomic"
	"time"
)

// react lets a group of rows of a service look, from the first to the last.
func (w *watcher) react(ctx context.Context, s *service, rows []*reflex) {
	for _, r := range rows {
		if w.lookAt(ctx, s, r) && r.instead {
			return
		}
	}
}

// lookAt lets one row look and act, and says whether it has seen something.
func (w *watcher) lookAt(ctx context.Context, s *service, r *reflex) bool {
	now := w.k.Now()
	if r.busy == nil {
		r.busy = new(atomic.Bool)
	}
	if now.Before(r.next) || !r.busy.CompareAndSwap(false, true) {
		return false
	}
	acts := false
	defer func() {
		if !acts {
			r.busy.Store(false)
		}
	}()
	r.next = now.Add(r.every)
	do := r.sees(ctx)
	if do == nil {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() {
		r.since = now
	}
	if now.Sub(r.since) < r.lasts {
		return true
	}
	unlock := func() {}
	if r.locked {
		var err error
		if unlock, err = w.lock(s.cfg.Service); err != nil {
			return true
		}
		if do = r.sees(ctx); do == nil {
			unlock()
			return true
		}
	}
	acts, r.next = true, now.Add(max(r.every, r.again))
	if r.finish {
		ctx = context.WithoutCancel(ctx)
	}
	act := func() {
		defer r.busy.Store(false)
		defer unlock()
		do(ctx)
	}
	if r.beside {
		w.background(act)
	} else {
		act()
	}
	return true
}
