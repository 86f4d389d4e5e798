package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mortarhpc/mortar/internal/host/agent"
)

// Dial opens a session with a host of the inventory. It is called from
// several goroutines at once.
type Dial func(ctx context.Context, name string) (*Session, error)

// Dialer dials the hosts of an inventory.
func Dialer(targets map[string]Target, opts Options) Dial {
	return func(ctx context.Context, name string) (*Session, error) {
		t, ok := targets[name]
		if !ok {
			return nil, fmt.Errorf("%s is not in the inventory", name)
		}
		return Connect(ctx, t, opts)
	}
}

// ByName gives the session with a host. It may connect to the host at its first
// call.
type ByName func(name string) *Session

// Pool keeps a session with each host that it was asked for: it dials when one
// is first used, and again if one broke.
type Pool struct {
	// Gate is the policy for actions on the pool's sessions. It is set before
	// the first is used.
	Gate Gate

	dial Dial

	mu   sync.Mutex
	open map[string]*Session
}

// NewPool makes a pool of the hosts that dial knows.
func NewPool(dial Dial) *Pool { return &Pool{dial: dial, open: map[string]*Session{}} }

// Session is one with a host that is dialled when it is needed. A question over
// it that finds the connection broken is asked once more over a new one. An
// action is sent once: it is not known whether a host that went silent has done it.
// Close does nothing: the pool closes it.
func (p *Pool) Session(name string) *Session { return New(name, pooled{p, name}).Under(p.Gate) }

// With hands f a session with a host that is connected; f asks, and runs no
// action. If f finds that a session that was kept is broken, it is called once
// more, with a new one.
func (p *Pool) With(ctx context.Context, name string, f func(*Session) error) error {
	for fresh := false; ; fresh = true {
		p.mu.Lock()
		s := p.open[name]
		p.mu.Unlock()
		if s == nil {
			var err error
			if s, err = p.dial(ctx, name); err != nil {
				return err
			}
			fresh = true
			p.mu.Lock()
			p.open[name] = s
			p.mu.Unlock()
		}
		err := f(s.Under(p.Gate))
		var said *agent.Error
		if err == nil || errors.As(err, &said) {
			return err // the host's own answer: the session is good
		}
		p.Drop(name)
		if fresh || ctx.Err() != nil {
			return err
		}
	}
}

// Keep gives the pool a session that is open already; the pool closes it.
func (p *Pool) Keep(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[s.Name] = s
}

// Drop ends the session with a host.
func (p *Pool) Drop(name string) {
	p.mu.Lock()
	s := p.open[name]
	delete(p.open, name)
	p.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Close ends all sessions.
func (p *Pool) Close() {
	p.mu.Lock()
	names := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, n := range names {
		p.Drop(n)
	}
}

// pooled is the line of a pool's session.
type pooled struct {
	pool *Pool
	name string
}

func (x pooled) Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	if !agent.Acts(op) {
		return x.pool.With(ctx, x.name, func(s *Session) error { return s.line.Call(ctx, op, params, result, onEvent) })
	}
	var s *Session
	if err := x.pool.With(ctx, x.name, func(alive *Session) error {
		s = alive
		_, err := s.Clock(ctx)
		return err
	}); err != nil {
		return err
	}
	return s.line.Call(ctx, op, params, result, onEvent)
}

func (x pooled) Close() {}
