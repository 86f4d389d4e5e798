package observe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

const (
	wornWarn = 10 // percent of life left
	// fullWarn is the share of dirty data in the mirror, in percent, from which
	// status warns: from 70 % on bcache takes no more, and writes have the disks'
	// speed.
	fullWarn = 60
	// stuckWarn is how long, in seconds, dirty data may stay without decreasing:
	// bcache writes some of it back all the time.
	stuckWarn = 600
)

// cache checks that the cache is up on the volume's server, that dirty data is on
// two SSDs, and the SSDs' wear.
func (v *view) cache() *Part {
	p := &Part{Name: "cache"}
	svc := v.cached()
	k := svc.Storage.Cache
	for _, s := range v.answering() {
		r, asked := s.host.Run[strings.Join(gather.CacheCommand(v.d.Cached().Name), " ")]
		var st cache.Stats
		if !asked || json.Unmarshal([]byte(r.Stdout), &st) != nil || !st.Up && st.Uncached == 0 {
			continue
		}
		if st.Uncached > 0 {
			p.find("past", "cache-past", with{"size": spec.Bytes(st.Uncached).Decimal(), "service": svc.Name})
		}
		if p.Text = "waits for the next start on " + s.name; !st.Up {
			return p
		}
		judgeCache(p, k, s.name, st)
		slowSSDs(p, st.SSDs, s.host.Pace)
		return p
	}
	v.only(p, svc.Storage.VG, "cache", func(*server) bool { return false })
	p.Text = "not up"
	return p
}

// slowSSDs finds the SSDs of a cache that answer much later than the others.
func slowSSDs(p *Part, ssds []cache.Life, pace map[string]gather.Pace) {
	serial := map[string]string{}
	for _, l := range ssds {
		if l.Device != "" {
			serial[l.Device] = l.Serial
		}
	}
	slowest(slices.Sorted(maps.Keys(serial)), pace, func(dev string, args with) {
		args["ssd"] = serial[dev]
		p.find("", "ssd-slow", args)
	})
}

// judgeCache judges a cache that is up.
func judgeCache(p *Part, k *design.Cache, server string, st cache.Stats) {
	b := func(n int64) string { return spec.Bytes(n).Decimal() }
	p.Text = k.Mode + " on " + server
	if st.Error != "" {
		p.find("stack", "cache-broken", with{"host": server, "error": st.Error})
	}
	if k.Mode == cache.WriteBack {
		switch n := len(st.Mirror.InSync); {
		case st.Mirror.Members == 0:
			p.find("mirror", "ssd-writes-none", nil)
		case n < st.Mirror.Members:
			p.find("mirror", CacheDegraded, with{"in_sync": n, "members": st.Mirror.Members, "ssds": st.Mirror.InSync, "dirty": b(st.Dirty)})
		default:
			p.add("mirror", "dirty data is on two SSDs of %s", health.List(st.Mirror.InSync))
		}
		if st.DirtyRoom > 0 {
			used := 100 * st.Dirty / st.DirtyRoom
			args := with{"dirty": b(st.Dirty), "room": b(st.DirtyRoom), "used": used, "minutes": st.DirtySeconds / 60}
			if st.Dirty > 0 {
				args["rate"] = b(st.FlushRate)
			}
			switch {
			case st.Dirty > 0 && st.DirtySeconds >= stuckWarn:
				p.find("dirty", "cache-stuck", args)
			case used >= fullWarn:
				p.find("dirty", "cache-full", args)
			default:
				text, _ := health.Fill(cacheDirty, args)
				p.add("dirty", "%s", text)
			}
		}
	}
	if st.CleanRoom == 0 {
		p.find("reads", "ssd-reads-none", nil)
	} else {
		c := p.add("reads", "%s for reads, %d %% used", b(st.CleanRoom), st.CleanUsed)
		if all := st.ReadHits + st.ReadMisses; all > 0 {
			c.Text += ", " + percent(st.ReadHits, all) + " of reads from SSD"
		}
	}
	for _, l := range st.SSDs {
		switch {
		case l.Device == "":
			p.find(l.Serial, SSDMissing, with{"ssd": l.Serial})
		case l.Failing:
			p.find(l.Serial, "ssd-failing", with{"ssd": l.Serial, "warning": l.Warning})
		case l.Warning != "":
			p.find(l.Serial, "ssd-warns", with{"ssd": l.Serial, "warning": l.Warning})
		case l.Left >= 0 && l.Left <= wornWarn:
			p.find(l.Serial, "ssd-worn", with{"ssd": l.Serial, "left": l.Left})
		case l.Left >= 0:
			p.add(l.Serial, "SSD %s (%s), %d %% of its life left", l.Serial, l.Device, l.Left)
		default:
			p.add(l.Serial, "SSD %s (%s)", l.Serial, l.Device)
		}
		if len(l.Unread) > 0 {
			p.find(l.Serial, "ssd-unread", with{"ssd": l.Serial, "records": l.Unread.String()})
		}
		if l.NoAnswer != "" {
			p.find(l.Serial, "ssd-silent", with{"ssd": l.Serial, "why": l.NoAnswer, "mend": smart.Mend(l.NoAnswer)})
		}
	}
}

func percent(n, of int64) string { return fmt.Sprintf("%d %%", 100*n/of) }
