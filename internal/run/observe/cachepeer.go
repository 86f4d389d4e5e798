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

// CachePeer asks the servers about the cache, over sessions that a collector
// keeps.
type CachePeer struct {
	service string // that has the cache
	all     *Collector
	names   []string
}

// NewCachePeer is for the brick of a collector; Close closes both.
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

// Stats asks the server that has the cache up, which it puts first for the
// next time. Without smart, SSDs are not asked for their health, which takes
// longer than all the rest.
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

// Events are what the servers' journals say of the cache since a time, as
// journalctl(1) takes it, in order of time; with an error, those of the others.
func (p *CachePeer) Events(ctx context.Context, since string) ([]CacheEvent, error) {
	var all []CacheEvent
	var errs []error
	for _, h := range slices.Sorted(slices.Values(p.names)) {
		// 1: there is no such line.
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
