package host

import (
	"context"
	"errors"
	"sort"
	"sync"
)

// connectAtOnce bounds the logins that run at the same time.
const connectAtOnce = 32

// ConnectAll connects to all targets in parallel. If any fails, all that
// succeeded are closed and every failure is in the error, sorted by host;
// see [Errors].
func ConnectAll(ctx context.Context, targets map[string]Target, opts Options) (map[string]*Host, error) {
	hosts, failed := ConnectSome(ctx, targets, opts)
	if len(failed) == 0 {
		return hosts, nil
	}
	CloseAll(hosts)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, joined(failed)
}

// ConnectSome is for those who go on with what answers: it returns the hosts
// that could be reached and the errors of the others, by name.
func ConnectSome(ctx context.Context, targets map[string]Target, opts Options) (map[string]*Host, map[string]error) {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		hosts  = map[string]*Host{}
		failed = map[string]error{}
		gate   = make(chan struct{}, connectAtOnce)
	)
	for name, t := range targets {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			h, err := Connect(ctx, t, opts)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[name] = err
				return
			}
			hosts[name] = h
		})
	}
	wg.Wait()
	return hosts, failed
}

// CloseAll closes every host.
func CloseAll(hosts map[string]*Host) {
	for _, h := range hosts {
		h.Close()
	}
}

// Errors are the failures of several hosts.
type Errors []error

func (e Errors) Error() string { return errors.Join(e...).Error() }

// Unwrap gives all of them.
func (e Errors) Unwrap() []error { return e }

func joined(failed map[string]error) error {
	names := make([]string, 0, len(failed))
	for n := range failed {
		names = append(names, n)
	}
	sort.Strings(names)
	var all Errors
	for _, n := range names {
		all = append(all, failed[n])
	}
	return all
}
