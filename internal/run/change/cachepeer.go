package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// CachePeer asks the servers about the cache, over the sessions of a Collector.
type CachePeer struct {
	service string // service with the cache
	all     *observe.Collector
	names   []string
}

// NewCachePeer returns a CachePeer for the brick of a Collector; its Close closes
// both. It is an error if the brick has no cache.
func NewCachePeer(d *design.Design, c *observe.Collector) (*CachePeer, error) {
	s := d.Cached()
	if s == nil {
		return nil, errors.New("the brick has no cache: the spec has no key cache")
	}
	return &CachePeer{service: s.Name, all: c, names: d.Servers()}, nil
}

// Close ends the sessions.
func (p *CachePeer) Close() { p.all.Close() }

// Stats returns the name and the cache's counters of the server on which the cache
// is up, and asks that server first next time. With smart it includes the SSDs'
// health, which takes longer than all the rest.
func (p *CachePeer) Stats(ctx context.Context, smart bool) (string, cache.Stats, error) {
	var errs []error
	for i, h := range p.names {
		st, err := p.ask(ctx, h, smart)
		if err == nil && !st.Up {
			err = fmt.Errorf("%s: the cache is not up", h)
		}
		if err == nil {
			p.names[0], p.names[i] = p.names[i], p.names[0]
			return h, st, nil
		}
		errs = append(errs, err)
	}
	return "", cache.Stats{}, errors.Join(errs...)
}

// Uncached returns the server on which a part of the volume goes past the cache, if there is
// one.
func (p *CachePeer) Uncached(ctx context.Context) (string, cache.Stats) {
	for _, h := range p.names {
		if st, err := p.ask(ctx, h, false); err == nil && st.Uncached > 0 {
			return h, st
		}
	}
	return "", cache.Stats{}
}

func (p *CachePeer) ask(ctx context.Context, server string, smart bool) (st cache.Stats, err error) {
	text, err := p.all.Session(server).Text(ctx, "/usr/local/sbin/mortar", "host-cache", "stats", "--smart="+strconv.FormatBool(smart), cache.ConfigPath(p.service))
	if err != nil {
		return st, fmt.Errorf("%s: %w", server, err)
	}
	return st, json.Unmarshal([]byte(text), &st)
}
