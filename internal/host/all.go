package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// atOnce bounds the hosts that are asked, or logged in to, at the same time.
const atOnce = 256

// lingerTime is how long All waits, once ctx has ended, for those that are to
// end with it.
const lingerTime = time.Second

// All calls f for each host, in their order and many at once, and gives what came of each: a
// result or an error. All are asked even if one fails, so that the user sees
// every failure at once. A call that does not end with ctx is left behind, and
// costs its own row only.
func All[R any](ctx context.Context, names []string, f func(ctx context.Context, name string) (R, error)) (map[string]R, Errors) {
	type row struct {
		name string
		r    R
		err  error
	}
	rows := make(chan row, len(names))
	slots := make(chan struct{}, atOnce)
	waiting := map[string]bool{}
	for _, n := range names {
		waiting[n] = true
	}
	go func() {
		for _, n := range names {
			select {
			case slots <- struct{}{}:
				go func() {
					defer func() { <-slots }()
					r, err := f(ctx, n)
					rows <- row{n, r, err}
				}()
			case <-ctx.Done():
				rows <- row{name: n, err: context.Cause(ctx)}
			}
		}
	}()
	out, failed := map[string]R{}, Errors{}
	var over <-chan time.Time
	ended := ctx.Done()
	for len(waiting) > 0 {
		select {
		case x := <-rows:
			delete(waiting, x.name)
			if x.err != nil {
				failed[x.name] = x.err
			} else {
				out[x.name] = x.r
			}
		case <-ended:
			ended, over = nil, time.After(lingerTime)
		case <-over:
			for n := range waiting {
				failed[n] = context.Cause(ctx)
			}
			return out, failed
		}
	}
	return out, failed
}

// Each is All for what has no result. Its error names every host that failed; if
// ctx has ended it is ctx's.
func Each(ctx context.Context, names []string, f func(ctx context.Context, name string) error) error {
	_, failed := All(ctx, names, func(ctx context.Context, n string) (struct{}, error) {
		err := f(ctx, n)
		if err != nil {
			err = fmt.Errorf("%s: %w", n, err)
		}
		return struct{}{}, err
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return failed.Join()
}

// ConnectAll connects to all targets in parallel. If any fails, all that
// succeeded are closed and every failure is in the error; see [Errors].
func ConnectAll(ctx context.Context, targets map[string]Target, opts Options) (map[string]*Session, error) {
	hosts, failed := All(ctx, slices.Sorted(maps.Keys(targets)), func(ctx context.Context, n string) (*Session, error) {
		return Connect(ctx, targets[n], opts)
	})
	if len(failed) == 0 {
		return hosts, nil
	}
	CloseAll(hosts)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, failed.Join()
}

// CloseAll closes every session.
func CloseAll(hosts map[string]*Session) {
	for _, h := range hosts {
		h.Close()
	}
}

// Errors are the failures of several hosts, by name.
type Errors map[string]error

func (e Errors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap gives all of them, sorted by host.
func (e Errors) Unwrap() []error {
	return lists.Map(slices.Sorted(maps.Keys(e)), func(n string) error { return e[n] })
}

// Join is e as an error: nil if there is no failure.
func (e Errors) Join() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
