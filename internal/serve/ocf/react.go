package ocf

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// react lets a group of rows of a service look, from the first to the last.
func (w *watcher) react(ctx context.Context, s *service, rows []*unit.Reflex) {
	for _, r := range rows {
		if w.lookAt(ctx, s, r) && r.Instead {
			return
		}
	}
}

// lookAt lets one row look and act, and says whether it has seen something.
func (w *watcher) lookAt(ctx context.Context, s *service, r *unit.Reflex) bool {
	now := w.k.Now()
	if r.Busy == nil {
		r.Busy = new(atomic.Bool)
	}
	if now.Before(r.Next) || !r.Busy.CompareAndSwap(false, true) {
		return false
	}
	acts := false
	defer func() {
		if !acts {
			r.Busy.Store(false)
		}
	}()
	r.Next = now.Add(r.Every)
	do := r.Sees(ctx)
	if do == nil {
		r.Since = time.Time{}
		return false
	}
	if r.Since.IsZero() {
		r.Since = now
	}
	if now.Sub(r.Since) < r.Lasts {
		return true
	}
	unlock := func() {}
	if r.Locked {
		var err error
		if unlock, err = w.lock(s.cfg.Service); err != nil {
			return true
		}
		if do = r.Sees(ctx); do == nil {
			unlock()
			return true
		}
	}
	acts, r.Next = true, now.Add(max(r.Every, r.Again))
	if r.Finish {
		ctx = context.WithoutCancel(ctx)
	}
	act := func() {
		defer r.Busy.Store(false)
		defer unlock()
		do(ctx)
	}
	if r.Beside {
		w.background(act)
	} else {
		act()
	}
	return true
}
