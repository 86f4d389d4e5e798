package observe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// cacheCommand asks a server for its view of the cache. The health of each SSD takes
// a command of its own; the agent's time-out covers them.
func cacheCommand(service string) []string {
	return []string{"/usr/local/sbin/mortar", "host-cache", "stats", cache.ConfigPath(service)}
}

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
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	svc := v.cached()
	k, name := svc.Storage.Cache, svc.Storage.VG
	for _, s := range v.servers {
		if s.host == nil {
			continue
		}
		r, asked := s.host.Run[strings.Join(cacheCommand(v.d.Cached().Name), " ")]
		var st cache.Stats
		if !asked || json.Unmarshal([]byte(r.Stdout), &st) != nil || !st.Up {
			continue
		}
		judgeCache(p, k, s.name, st)
		p.Parts = append(p.Parts, slowSSDs(st.SSDs, s.host.Pace)...)
		return p
	}
	if len(v.silent()) > 0 {
		p.add(Unknown, name, "up on no server that answers; %s may have it", list(v.silent()))
	} else {
		p.add(Fault, name, "the cache of %s is not up on any server", name)
	}
	p.Text = "not up"
	return p
}

// slowSSDs finds the SSDs of a cache that answer much later than the others.
func slowSSDs(ssds []cache.Life, pace map[string]Pace) (out []*Part) {
	serial := map[string]string{}
	for _, l := range ssds {
		if l.Device != "" {
			serial[l.Device] = l.Serial
		}
	}
	slow, usual := latecomers(slices.Sorted(maps.Keys(serial)), pace)
	for _, d := range slow {
		out = append(out, &Part{Name: serial[d], Level: Warning,
			Text: fmt.Sprintf("SSD %s is slow: it %s, the others %.0f ms", serial[d], pace[d], usual),
			Mend: "look at its SMART data; if it stays slow, `mortar cache add` another one and `mortar cache remove` it"})
	}
	return out
}

// judgeCache judges a cache that is up.
func judgeCache(p *Part, k *design.Cache, server string, st cache.Stats) {
	b := func(n int64) string { return spec.Bytes(n).Decimal() }
	p.Text = k.Mode + " on " + server
	if st.Error != "" {
		p.add(Fault, "stack", "%s", st.Error)
	}
	if k.Mode == cache.WriteBack {
		switch n := len(st.Mirror.InSync); {
		case st.Mirror.Members == 0:
			c := p.add(Warning, "mirror", "no SSD takes writes: they go at the disks' speed")
			c.Mend = "mortar apply, once the SSDs are there"
		case n < st.Mirror.Members:
			c := p.add(Warning, "mirror", "dirty data is on %d of %d SSDs (%s): %s would be lost with it", n, st.Mirror.Members, list(st.Mirror.InSync), b(st.Dirty))
			c.Mend = "replace the SSD and run mortar apply; until then: mortar cache remove it, with --mode write-through"
		default:
			p.add(OK, "mirror", "dirty data is on two SSDs of %s", list(st.Mirror.InSync))
		}
		if st.DirtyRoom > 0 {
			used := 100 * st.Dirty / st.DirtyRoom
			level := OK
			stuck := st.Dirty > 0 && st.DirtySeconds >= stuckWarn
			if used >= fullWarn || stuck {
				level = Warning
			}
			c := p.add(level, "dirty", "%s of %s dirty (%d %%)", b(st.Dirty), b(st.DirtyRoom), used)
			if st.Dirty > 0 {
				c.Text += ", written to the disks at up to " + b(st.FlushRate) + "/s"
			}
			switch {
			case stuck:
				c.Text += fmt.Sprintf(", and not less for %d min", st.DirtySeconds/60)
				c.Mend = "see whether the disks take it (mortar cache stats --watch, mortar cache events)"
			case level == Warning:
				c.Mend = "more is written than the disks take; at 70 %% writes go past the SSDs, at the disks' speed"
			}
		}
	}
	if st.CleanRoom == 0 {
		c := p.add(Warning, "reads", "no SSD keeps what is read")
		c.Mend = "mortar apply, once the SSDs are there"
	} else {
		c := p.add(OK, "reads", "%s for reads, %d %% used", b(st.CleanRoom), st.CleanUsed)
		if all := st.ReadHits + st.ReadMisses; all > 0 {
			c.Text += ", " + percent(st.ReadHits, all) + " of reads from SSD"
		}
	}
	for _, l := range st.SSDs {
		switch {
		case l.Device == "":
			p.add(Warning, l.Serial, "SSD %s is not there", l.Serial)
		case l.Failing:
			c := p.add(Warning, l.Serial, "SSD %s predicts its failure: %s", l.Serial, l.Warning)
			c.Mend = "replace it: mortar cache add the new one, then mortar cache remove " + l.Serial
		case l.Warning != "":
			p.add(Warning, l.Serial, "SSD %s warns: %s", l.Serial, l.Warning).Mend = "look at the server's cooling, and at `smartctl --all` of the SSD"
		case l.Left >= 0 && l.Left <= wornWarn:
			c := p.add(Warning, l.Serial, "SSD %s has %d %% of its life left", l.Serial, l.Left)
			c.Mend = "order another one"
		case l.Left >= 0:
			p.add(OK, l.Serial, "SSD %s (%s), %d %% of its life left", l.Serial, l.Device, l.Left)
		default:
			p.add(OK, l.Serial, "SSD %s (%s)", l.Serial, l.Device)
		}
		if len(l.Unread) > 0 {
			p.add(Unknown, l.Serial, "SMART data of SSD %s: %s", l.Serial, l.Unread).Mend = "see `smartctl --all` of the SSD"
		}
	}
}

func percent(n, of int64) string { return fmt.Sprintf("%d %%", 100*n/of) }
