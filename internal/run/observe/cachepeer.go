package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// CachePeer asks the servers about the cache, over the sessions of a Collector.
type CachePeer struct {
	service string // service with the cache
	all     *Collector
	names   []string
}

// NewCachePeer returns a CachePeer for the brick of a Collector; its Close closes
// both. It is an error if the brick has no cache.
func NewCachePeer(d *design.Design, c *Collector) (*CachePeer, error) {
	s := d.Cached()
	if s == nil {
		return nil, errors.New("the brick has no cache: the spec has no key cache")
	}
	return &CachePeer{service: s.Name, all: c, names: d.Servers()}, nil
}

// Close ends the sessions.
func (p *CachePeer) Close() { p.all.Close() }

func (p *CachePeer) query(ctx context.Context, host string, argv ...string) (resource.Output, error) {
	out, err := p.all.Session(host).Query(ctx, argv...)
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("%s: %s", host, strings.TrimSpace(out.Stderr))
	}
	return out, err
}

// Stats returns the name and the cache's counters of the server on which the cache
// is up, and asks that server first next time. With smart it includes the SSDs'
// health, which takes longer than all the rest.
func (p *CachePeer) Stats(ctx context.Context, smart bool) (string, cache.Stats, error) {
	var errs []error
	for i, h := range p.names {
		out, err := p.query(ctx, h, "/usr/local/sbin/mortar", "host-cache", "stats", "--smart="+strconv.FormatBool(smart), cache.ConfigPath(p.service))
		var st cache.Stats
		if err == nil {
			err = json.Unmarshal([]byte(out.Stdout), &st)
		}
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

// CacheEvent is a line of a server's journal about the cache.
type CacheEvent struct {
	Server string `json:"server"`
	Time   int64  `json:"time_us"`
	Text   string `json:"text"`
}

// Events returns the lines about the cache in the servers' journals, in order of
// time. since has the format of journalctl(1). If some servers fail, Events returns
// the others' lines with an error.
func (p *CachePeer) Events(ctx context.Context, since string) ([]CacheEvent, error) {
	var all []CacheEvent
	var errs []error
	for _, h := range slices.Sorted(slices.Values(p.names)) {
		// journalctl exits with 1 if no line matches.
		out, err := p.query(ctx, h, "journalctl", "--output=json", "--output-fields=MESSAGE", "--since="+since, "--lines=2000", "--grep="+cache.EventPattern)
		if err != nil && out.Code != 1 {
			errs = append(errs, fmt.Errorf("%s: %w", h, err))
			continue
		}
		for line := range strings.Lines(out.Stdout) {
			var j struct {
				Time    string `json:"__REALTIME_TIMESTAMP"`
				Message any    `json:"MESSAGE"`
			}
			if json.Unmarshal([]byte(line), &j) != nil {
				continue
			}
			e := CacheEvent{Server: h, Text: fmt.Sprint(j.Message)}
			_, _ = fmt.Sscan(j.Time, &e.Time)
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b CacheEvent) int { return int(a.Time - b.Time) })
	return all, errors.Join(errs...)
}
