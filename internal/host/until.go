package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotDone is of the error of a wait whose limit is over.
var ErrNotDone = errors.New("not done")

// Wait says how long to wait for something that comes about by itself.
type Wait struct {
	// Limit bounds the wait; Poll is the pause between two looks.
	Limit, Poll time.Duration
	// Seen is told what is still missing, when that changes; may be nil.
	Seen func(left string)
	// Pause replaces the pause between two looks; may be nil. It returns when it
	// is time to look again, or ctx has ended.
	Pause func(ctx context.Context)
}

// Until looks again and again until nothing is left to wait for: look says what
// is, or "". An error of look ends the wait. When the limit is over, the error
// is an ErrNotDone and says what was last seen.
func (w Wait) Until(ctx context.Context, look func(context.Context) (left string, err error)) error {
	wctx, cancel := context.WithTimeoutCause(ctx, w.Limit, fmt.Errorf("%w within %v", ErrNotDone, w.Limit))
	defer cancel()
	last := ""
	for {
		left, err := look(wctx)
		switch {
		case err == nil && left == "":
			return nil
		case wctx.Err() != nil:
			// The look was cut short: the one before it tells more.
			return over(ctx, wctx, cmp.Or(last, left))
		case err != nil:
			return err
		}
		if left != last && w.Seen != nil {
			w.Seen(left)
		}
		last = left
		if w.Pause != nil {
			w.Pause(wctx)
		} else {
			select {
			case <-wctx.Done():
			case <-time.After(w.Poll):
			}
		}
		if wctx.Err() != nil {
			return over(ctx, wctx, last)
		}
	}
}

// over is why a wait ended in vain.
func over(ctx, wctx context.Context, last string) error {
	why := context.Cause(wctx)
	if ctx.Err() != nil {
		why = ctx.Err()
	}
	if last == "" {
		return why
	}
	return fmt.Errorf("%w; last seen: %s", why, last)
}
