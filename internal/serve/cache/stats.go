package cache

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/smart"
)

// Stats is the state of a cache: counters since its layers came up, and the state of
// its parts. Amounts are in bytes unless the field says otherwise.
type Stats struct {
	TimeNS int64  `json:"t_ns"`
	Mode   string `json:"mode"`
	Up     bool   `json:"up"`
	Error  string `json:"error,omitempty"`
	// Uncached is the part of the volume that goes past the cache until the service starts
	// the next time.
	Uncached int64 `json:"uncached,omitempty"`

	// Reads of file data from SSDs, and from the disks. A request to both is a
	// miss. Source: admin-guide/bcache.rst, stats_total
	ReadHits   int64 `json:"read_hits"`
	ReadMisses int64 `json:"read_misses"`
	// ReadBypassed are misses that were not cached afterwards: parts of a stream.
	ReadBypassed int64 `json:"read_bypassed"`
	// Writes since the mirror is in use: to the SSDs, and past them to the disks.
	WrittenSSD   int64 `json:"written_to_ssds"`
	WrittenDisks int64 `json:"written_past_ssds"`

	Dirty int64 `json:"dirty"` // on SSDs only
	// DirtySeconds is for how long dirty data has not decreased.
	DirtySeconds int64 `json:"dirty_not_less_seconds"`
	DirtyRoom    int64 `json:"dirty_room"` // size of the mirror
	CleanRoom    int64 `json:"clean_room"`
	// CleanUsed is in percent of CleanRoom.
	CleanUsed int64 `json:"clean_used_percent"`
	FlushRate int64 `json:"flush_rate"` // bcache's target rate, bytes/s
	Flushed   int64 `json:"flushed"`    // to the disks, since the layer came up

	// The volume as its users see it, and the devices below.
	Volume linux.BlockIO `json:"volume"`
	Disks  linux.BlockIO `json:"disks"`
	SSDIO  linux.BlockIO `json:"ssd_io"`

	Mirror Mirror `json:"mirror"`
	SSDs   []Life `json:"ssds"`
}

// Mirror of dirty data.
type Mirror struct {
	Members int      `json:"members"` // number of members that it should have
	InSync  []string `json:"in_sync"` // serials
}

// Life of an SSD, as it reports it.
type Life struct {
	Serial string `json:"serial"`
	Device string `json:"device,omitempty"` // "" if the SSD is missing
	// Left is the remaining life in percent; -1 if the SSD does not report it.
	Left int `json:"life_left_percent"`
	// Failing: the SSD predicts its failure.
	Failing bool `json:"failure_predicted"`
	// Warning is why it predicts its failure, or what else the SSD warns of.
	Warning string `json:"warning,omitempty"`
	// NoAnswer is why the SSD's health cannot be read; Unread is what smartctl or the SSD said
	// that is not understood.
	NoAnswer string        `json:"no_answer,omitempty"`
	Unread   health.Unread `json:"unread,omitempty"`
}

func (s *host) io(devs ...string) (all linux.BlockIO) {
	for _, d := range devs {
		one, _ := linux.ParseBlockIO(s.line("/sys/class/block/" + d + "/stat"))
		all.Add(one)
	}
	return all
}

// counted is the amount written before the mirror was put to use: bcache counts from
// that moment, but the devices count since they came up.
type counted struct {
	Volume int64 `json:"volume"`
	Below  int64 `json:"below"`
}

func (s *parts) countFile() string { return "/run/mortar/cache-" + s.cfg.Service + "-attached.json" }

func (s *parts) noteAttached() {
	clean, _ := s.layers()
	if err := s.keep(s.countFile(), counted{s.io(s.dm(s.cfg.Mounted())).WriteBytes, s.io(clean).WriteBytes}); err != nil {
		s.note("%v", err)
	}
}

func (s *parts) attachedAt() (c counted) {
	if b, err := s.sys.ReadFile(s.countFile()); err == nil && json.Unmarshal(b, &c) != nil {
		return counted{}
	}
	return c
}

func (s *host) number(p string) int64 {
	n, _ := strconv.ParseInt(s.line(p), 10, 64)
	return n
}

// Read returns the state of the cache. With life it also asks each SSD for its
// health, which takes a command each.
func (s *Stack) Read(ctx context.Context, life bool) Stats {
	st := Stats{Mode: s.cfg.Mode}
	if err := s.readLabel(); err != nil {
		st.Error = err.Error()
		return st
	}
	up, err := s.State()
	st.Up = up
	if err != nil {
		st.Error = err.Error()
	}
	st.Uncached = s.uncached(up)
	if s.label == nil {
		return st
	}
	if s.label.Dirty == nil {
		if state, err := s.dirtyState(); err == nil && state == stateDirty {
			st.Error = "bcache's superblock says that data is on SSDs alone, and the label of the cache knows no such SSDs"
		}
	}
	clean, dirty := s.layers()
	st.Volume = s.io(s.dm(s.cfg.Mounted()))
	if o := s.dm(s.cfg.origin()); o != "" {
		st.Disks = s.io(o)
	}
	if clean != "" {
		t := "/sys/block/" + clean + "/bcache/stats_total/"
		st.ReadHits = s.number(t+"cache_hits") + s.number(t+"cache_bypass_hits")
		st.ReadBypassed = s.number(t + "cache_bypass_misses")
		st.ReadMisses = s.number(t+"cache_misses") + st.ReadBypassed
	}
	if l := s.label.Clean[s.place()]; l != nil {
		if a := s.array(l.Array); a != nil {
			st.CleanRoom = s.sectors(a.Dev) * 512
			if s.exists("/sys/fs/bcache/" + l.Set) {
				st.CleanUsed = 100 - s.number("/sys/fs/bcache/"+l.Set+"/cache_available_percent")
			}
		}
	}
	below := s.io(clean)
	st.WrittenDisks = st.Volume.WriteBytes
	if l := s.label.Dirty; l != nil && dirty != "" {
		// The dirty layer caches no reads of file data. So the bytes written to its
		// set are the volume's writes to the SSDs, except a few reads of metadata.
		since := s.attachedAt()
		all := max(st.Volume.WriteBytes-since.Volume, 0)
		st.WrittenSSD = min(linux.ParseBcacheBytes(s.line("/sys/fs/bcache/"+l.Set+"/cache0/written")), all)
		st.WrittenDisks = all - st.WrittenSSD
		st.Flushed = max(below.WriteBytes-since.Below-st.WrittenDisks, 0)
		// The dirty layer answers reads of dirty data.
		t := "/sys/block/" + dirty + "/bcache/stats_total/"
		st.ReadHits += s.number(t+"cache_hits") + s.number(t+"cache_bypass_hits")
		st.Dirty = s.dirtyBytes(dirty)
		if last, ok := s.lastLook(); ok && st.Dirty >= last.Dirty && st.Dirty > 0 {
			st.DirtySeconds = int64(s.sys.Now().Sub(last.Since).Seconds())
		}
		st.FlushRate = rate(s.line("/sys/block/" + dirty + "/bcache/writeback_rate"))
		if a := s.array(l.Array); a != nil {
			st.DirtyRoom = s.sectors(a.Dev) * 512
			st.Mirror = Mirror{Members: a.RaidDisks, InSync: s.inSync(a)}
		}
	}
	there := s.ssds()
	for _, serial := range s.cfg.here(s.name()) {
		l := Life{Serial: serial, Device: there[serial], Left: -1}
		if d := there[serial]; d != "" {
			st.SSDIO.Add(s.io(d))
			if life {
				// Ignore smartctl's exit code, a bit mask that includes warnings.
				out, _ := s.run(ctx, "", "smartctl", "--json", "--all", "/dev/"+d)
				r, err := smart.Parse(out)
				if err != nil {
					r.NoAnswer = err.Error()
				}
				l.Left, l.Failing, l.Warning, l.Unread, l.NoAnswer = r.Left, r.Failing, r.Why, r.Unread, r.NoAnswer
				switch {
				case r.Failing:
				case r.Hot:
					l.Warning = "it is too hot"
				default:
					l.Warning = strings.Join(r.Warns, ", ")
				}
			}
		}
		st.SSDs = append(st.SSDs, l)
	}
	slices.SortFunc(st.SSDs, func(a, b Life) int { return strings.Compare(a.Serial, b.Serial) })
	return st
}

// rate reads writeback_rate, which has "/sec" behind a human number.
func rate(t string) int64 {
	t, _, _ = strings.Cut(t, "/")
	return linux.ParseBcacheBytes(strings.TrimSpace(t))
}
