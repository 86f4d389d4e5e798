package ocf

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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

// watch is what a row needs of the watcher, for the service that it is of.
type watch interface {
	log(format string, a ...any)
	// record logs a change of the host, where the log has Mortar's changes.
	record(format string, a ...any)
	// lock keeps the service's actions from running, or fails if one runs.
	lock() (func(), error)
	// lost says whether the devices of the service are out of reach: what reads them would
	// hang.
	lost() bool
	// fail tells Pacemaker that the service has failed here.
	fail(ctx context.Context, why string)
	// hurry has the watcher look again sooner: clients reclaim their locks.
	hurry()
}

// action is what a reflex does.
type action func(context.Context)

// always is what a row sees that acts at each look.
func always(do action) func(context.Context) action {
	return func(context.Context) action { return do }
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

// sayOnce is the same for errors that say the same: texts may have the names of temporary
// files.
func sayOnce(err error) string {
	if no := unix.Errno(0); errors.As(err, &no) {
		return no.Error()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// WatchTick is the time between two looks of the watcher without a message.
const watchTick = 2 * time.Second
