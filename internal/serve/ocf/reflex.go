package ocf

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// reflex is a row of the watcher's table: what the watcher sees, how long that must last,
// what it does, and when it may again. Kinds of storage and of services have rows of their
// own, see reflexes.
type reflex struct {
	name string
	// every is the least time from one look to the next; 0: the row looks whenever the
	// watcher does.
	every time.Duration
	// sees looks, in the watcher's loop, and gives what is to be done; nil: nothing. It must
	// not wait for a disk.
	sees func(context.Context) action
	// lasts is how long there must have been something to do.
	lasts time.Duration
	// again is the least time from an act to the next look.
	again time.Duration

	// instead: while this row sees something, the rows below it in its group do not look.
	instead bool
	// locked: the row acts under the lock of the service's actions, and looks once more when
	// it has the lock: while the service starts or stops, its layers come and go.
	locked bool
	// beside: the row acts beside the watcher's loop, one act at a time. A disk that hangs
	// must not keep the watcher from what it sees.
	beside bool
	// finish: the end of the watcher does not cut an act short.
	finish bool
	// busy: an act goes on. Rows that share it act one at a time.
	busy *atomic.Bool

	next  time.Time // the next look is not before
	since time.Time // that there is something to do
}

// action is what a reflex does.
type action func(context.Context)

// always is what a row sees that acts at each look.
func always(do action) func(context.Context) action {
	return func(context.Context) action { return do }
}

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

// limit has when something was done, by what it was done to: what does not help is not done
// again and again.
type limit map[string][]time.Time

// reached says whether something was done so often within so long.
func (l limit) reached(what string, now time.Time, most int, within time.Duration) bool {
	if l == nil {
		return false
	}
	l[what] = slices.DeleteFunc(l[what], func(t time.Time) bool { return now.Sub(t) >= within })
	return len(l[what]) >= most
}

// count counts that something is done now.
func (l *limit) count(what string, now time.Time) {
	if *l == nil {
		*l = limit{}
	}
	(*l)[what] = append((*l)[what], now)
}

// allows counts something that is done now, unless the limit is reached.
func (l *limit) allows(what string, now time.Time, most int, within time.Duration) bool {
	if l.reached(what, now, most, within) {
		return false
	}
	l.count(what, now)
	return true
}

// lastSaid has the last message about something: the same one is not logged again.
type lastSaid map[string]string

// news says whether a message is another one than the last; "" begins anew.
func (l *lastSaid) news(about, text string) bool {
	if *l == nil {
		*l = lastSaid{}
	}
	was := (*l)[about]
	(*l)[about] = text
	return text != "" && text != was
}
