package unit

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Reflex is a row of the watcher's table: what the watcher sees, how long that must last,
// what it does, and when it may again. Kinds of storage and of services have rows of their
// own, see reflexes.
type Reflex struct {
	Name string
	// Every is the least time from one look to the next; 0: the row looks whenever the
	// watcher does.
	Every time.Duration
	// Sees looks, in the watcher's loop, and gives what is to be done; nil: nothing. It must
	// not wait for a disk.
	Sees func(context.Context) Act
	// Lasts is how long there must have been something to do.
	Lasts time.Duration
	// Again is the least time from an act to the next look.
	Again time.Duration

	// Instead: while this row sees something, the rows below it in its group do not look.
	Instead bool
	// Locked: the row acts under the lock of the service's actions, and looks once more when
	// it has the lock: while the service starts or stops, its layers come and go.
	Locked bool
	// Beside: the row acts beside the watcher's loop, one act at a time. A disk that hangs
	// must not keep the watcher from what it sees.
	Beside bool
	// Finish: the end of the watcher does not cut an act short.
	Finish bool
	// Busy: an act goes on. Rows that share it act one at a time.
	Busy *atomic.Bool

	Next  time.Time // the next look is not before
	Since time.Time // that there is something to do
}

// Watch is what a row needs of the watcher, for the service that it is of.
type Watch interface {
	Log(format string, a ...any)
	// Record logs a change of the host, where the log has Mortar's changes.
	Record(format string, a ...any)
	// Lock keeps the service's actions from running, or fails if one runs.
	Lock() (func(), error)
	// Lost says whether the devices of the service are out of reach: what reads them would
	// hang.
	Lost() bool
	// Fail tells Pacemaker that the service has failed here.
	Fail(ctx context.Context, why string)
	// Hurry has the watcher look again sooner: clients reclaim their locks.
	Hurry()
}

// action is what a reflex does.
type Act func(context.Context)

// Always is what a row sees that acts at each look.
func Always(do Act) func(context.Context) Act {
	return func(context.Context) Act { return do }
}

// Limit has when something was done, by what it was done to: what does not help is not done
// again and again.
type Limit map[string][]time.Time

// Reached says whether something was done so often within so long.
func (l Limit) Reached(what string, now time.Time, most int, within time.Duration) bool {
	if l == nil {
		return false
	}
	l[what] = slices.DeleteFunc(l[what], func(t time.Time) bool { return now.Sub(t) >= within })
	return len(l[what]) >= most
}

// Count counts that something is done now.
func (l *Limit) Count(what string, now time.Time) {
	if *l == nil {
		*l = Limit{}
	}
	(*l)[what] = append((*l)[what], now)
}

// Allows counts something that is done now, unless the limit is reached.
func (l *Limit) Allows(what string, now time.Time, most int, within time.Duration) bool {
	if l.Reached(what, now, most, within) {
		return false
	}
	l.Count(what, now)
	return true
}

// LastSaid has the last message about something: the same one is not logged again.
type LastSaid map[string]string

// News says whether a message is another one than the last; "" begins anew.
func (l *LastSaid) News(about, text string) bool {
	if *l == nil {
		*l = LastSaid{}
	}
	was := (*l)[about]
	(*l)[about] = text
	return text != "" && text != was
}

// SayOnce is the same for errors that say the same: texts may have the names of temporary
// files.
func SayOnce(err error) string {
	if no := unix.Errno(0); errors.As(err, &no) {
		return no.Error()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// WatchTick is the time between two looks of the watcher without a message.
const WatchTick = 2 * time.Second
