package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// stack is the cache between the volume and its file system (package cache).
type stack interface {
	State() (running bool, err error)
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	SyncChanged() bool
	NoteSync() error
	Revive(ctx context.Context) error
	OnDisks() error
}

// cacheLayer is the cache over the service's volume, if it has one.
type cacheLayer struct {
	*volumeGroup
	cache  stack  // opened when it is first needed
	action string // of the agent; "" for the watcher
}

// openCache reads the config of the volume's cache. Without a config it returns
// a stack that can only take down the remains of a cache that was turned off.
func (s *cacheLayer) openCache() (stack, error) {
	if s.cache != nil {
		return s.cache, nil
	}
	cfg := &cache.Config{Service: s.cfg.Service, VG: s.cfg.VG, LV: s.cfg.LV}
	if s.cfg.Cache != "" {
		var err error
		if cfg, err = s.cacheConfig(); err != nil {
			return nil, err
		}
		if cfg.VG != s.cfg.VG || cfg.LV != s.cfg.LV {
			return nil, fmt.Errorf("%s is the cache of %s/%s, not of %s/%s", s.cfg.Cache, cfg.VG, cfg.LV, s.cfg.VG, s.cfg.LV)
		}
	}
	s.cache = cache.New(cfg, s.Log.Note)
	return s.cache, nil
}

// noteSSDs has the cache write down which SSDs hold the newest dirty data, under the lock of
// the service's actions. While one runs, that is left to the next time.
func (s *service) noteSSDs(ctx context.Context) error {
	_, release, err := s.hold(unit.AtOnce(ctx))
	if errors.Is(err, unit.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if err := s.Mine(ctx); err != nil {
		return err
	}
	c, err := s.openCache()
	if err != nil {
		return err
	}
	return c.NoteSync()
}

// watchCache writes down that an SSD has left the mirror of dirty data, or is back: until
// then a start would believe the SSD that left, if it came back alone after a crash. And it
// has I/O tried again that failed when the cache lost SSDs for reads.
func (w *watcher) watchCache(s *service) []*unit.Reflex {
	if s.cfg.Cache == "" {
		return nil
	}
	note := &unit.Reflex{Name: "cache: an SSD has left its mirror", Locked: true, Beside: true, Sees: func(context.Context) unit.Act {
		c, err := s.openCache()
		if err != nil || !c.SyncChanged() {
			return nil // the next row tells of an error
		}
		return func(ctx context.Context) {
			err := s.Mine(ctx)
			if err == nil {
				err = c.NoteSync()
			}
			if err != nil {
				w.log("which SSDs hold the newest dirty data of %s is not written down: %v", s.cfg.Service, err)
			}
		}
	}}
	revive := &unit.Reflex{Name: "cache: I/O that failed", Sees: unit.Always(func(ctx context.Context) {
		c, err := s.openCache()
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			err = c.Revive(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.log("cache of %s: %v", s.cfg.Service, err)
		}
	})}
	return []*unit.Reflex{note, revive}
}

// cacheConfig reads the config of the volume's cache, for the same needs as agent.config.
func (s *cacheLayer) cacheConfig() (*cache.Config, error) {
	cfg, err := cache.LoadKept(s.cfg.Cache)
	if !goesOn(s.action) && err != nil {
		return nil, err
	}
	if cfg != nil && err != nil {
		s.Log.Note("%v; the last good one since the boot counts", err)
		err = nil
	}
	if cfg == nil && s.action == "stop" && !s.there(s.cfg.VG+".cached") && !s.there(s.cfg.VG+".origin") {
		s.Log.Note("%v; no part of the cache is up", err)
		return &cache.Config{Service: s.cfg.Service, VG: s.cfg.VG, LV: s.cfg.LV}, nil
	}
	return cfg, err
}

// there says whether the device mapper has a device of that name.
func (s *volumeGroup) there(name string) bool {
	names, err := s.K.ReadDir("/sys/block")
	dev, _ := s.DM(names, name)
	return err == nil && dev != ""
}

func (s *cacheLayer) cacheState() (unit.State, error) {
	c, err := s.openCache()
	if err != nil {
		return unit.Broken, err
	}
	switch up, err := c.State(); {
	case err != nil:
		return unit.Broken, err
	case up:
		return unit.Running, nil
	}
	return unit.Stopped, nil
}

func (s *cacheLayer) startCache(ctx context.Context) error {
	c, err := s.openCache()
	if err != nil {
		return err
	}
	// bcache reads its whole index when a set is registered: minutes, of a cache of terabytes.
	return s.Long("start of the cache", s.Moved(s.ssdArrays), func() error { return c.Start(ctx) })
}

// ssdArrays are the arrays of the cache's SSDs that are assembled (md126).
func (s *cacheLayer) ssdArrays() (devs []string) {
	cfg, err := s.cacheConfig()
	if err != nil {
		return nil
	}
	all, _ := linux.MDArrays(s.K)
	for _, a := range all {
		if slices.ContainsFunc(slices.Concat(cfg.DirtyUUIDs, cfg.CleanUUIDs), func(u string) bool { return md.SameUUID(u, a.UUID) }) {
			devs = append(devs, a.Dev)
		}
	}
	return devs
}

func (s *cacheLayer) stopCache(ctx context.Context) error {
	c, err := s.openCache()
	if err != nil {
		return err
	}
	return c.Stop(ctx)
}

// NoCache refuses to mount the volume without its cache while the volume has
// one.
func (s *cacheLayer) NoCache() error {
	if s.cfg.Cache != "" || !s.there(linux.DMName(s.cfg.VG, cache.HeaderLV)) || s.there(s.cfg.VG+".cached") {
		return nil
	}
	c, err := s.openCache()
	if err != nil {
		return err
	}
	return c.OnDisks()
}

// uncached says whether the service runs on its volume alone, because it was started before
// apply gave it a cache. It goes on so until it stops; the next start brings the cache up. By
// then no SSD has data of the volume: apply gives SSDs to layers that are up.
func (s *cacheLayer) uncached() bool {
	if s.cfg.Cache == "" || s.there(s.cfg.VG+".cached") || s.there(s.cfg.VG+".origin") {
		return false
	}
	names, err := s.K.ReadDir("/sys/block")
	if err != nil {
		return false
	}
	_, devno := s.DM(names, linux.DMName(s.cfg.VG, s.cfg.LV))
	all, err := s.Mounts()
	if err != nil || devno == "" || !slices.ContainsFunc(all, func(m linux.Mount) bool { return m.Dev == devno }) {
		return false
	}
	c, err := s.openCache()
	return err == nil && c.OnDisks() == nil
}

// dropCache takes down the remains of a cache that was turned off.
func (s *cacheLayer) dropCache(ctx context.Context) error {
	if s.cfg.Cache != "" || !s.there(s.cfg.VG+".cached") && !s.there(s.cfg.VG+".origin") {
		return nil
	}
	return s.stopCache(ctx)
}
