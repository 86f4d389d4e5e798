package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// hostMortar is the binary on a server.
const hostMortar = "/usr/local/sbin/mortar"

// mirrorFull is how much of the mirror is dirty when the mirror is full, in percent. bcache
// writes past the SSDs when 70 % of the buckets are in use; some hold metadata, and some are
// not full. On a rack 57 to 61 % were dirty then.
//
// Source: drivers/md/bcache/writeback.h, CUTOFF_WRITEBACK_SYNC
const mirrorFull = 50

// cacheDrills are the drills of a brick with SSDs in front of its volume. With
// server-crash and rack-power they prove that dirty data moves with the service.
var cacheDrills = []Drill{
	{
		Name: "ssd-fail", Title: "an SSD of the cache fails mid-write; dirty data is on the other one",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{
			{How: "first", Title: "the first SSD is pulled from its slot", Steps: ssdFail(0)},
			{How: "second", Title: "the second SSD is pulled from its slot", Steps: ssdFail(1)},
		},
	},
	{
		Name: "ssd-replace", Title: "an SSD of the cache fails and is replaced, under load",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "the first SSD is pulled, pushed in again, and given back to the cache", Steps: ssdReplace}},
	},
	{
		Name: "ssd-both", Title: "every SSD of a write-through cache fails; the service goes on at the disks' speed",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "all SSDs are pulled, one after the other", Steps: ssdAll}},
	},
	{
		Name: "cache-full", Title: "more is written than the disks take, until the mirror of dirty data is full; writes go on at the disks' speed",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "filled", Title: "nothing dirty is written to the disks, and a file of random writes fills the mirror", Steps: func(s Scene) ([]Step, error) {
			full, err := mirrorFills(s)
			if err != nil {
				return nil, err
			}
			full.Wait, full.Look = linkHold, true
			return []Step{full, {Fault: full.Fault, Mend: true, Wait: 5 * time.Second, Until: dirtyAt(s, "dirty data shrinks", func(percent int64) bool { return percent < mirrorFull })}}, nil
		}}},
	},
	{
		Name: "cache-flush-move", Title: "the service leaves its server while all dirty data is written to the disks; it goes on with the rest on the SSDs",
		Expect: Expect{Where: Moves, Fencing: Nobody, Stall: 15, Disks: true},
		Variants: []Variant{
			{How: "mode", Title: "mortar cache mode write-through begins, then the service is moved by command", Steps: flushMove(modeFlush, Fault{Kind: Move})},
			{How: "off", Title: "mortar cache off begins, then the service is moved by command", Steps: flushMove(offFlush, Fault{Kind: Move})},
			{How: "freeze", Title: "mortar cache mode write-through begins, then the server stops executing", Steps: flushMove(modeFlush, Fault{Kind: Freeze}),
				Expect: &Expect{Where: Moves, Fencing: Victim, Stall: 15, Disks: true}},
		},
	},
	{
		Name: "ssd-missing", Title: "the active server dies while an SSD is missing, or holds what is not true any more; the service starts on the other one with the rest",
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 15, Disks: true},
		Variants: []Variant{{How: "freeze", Title: "the first SSD is pulled, then the server stops executing", Steps: func(s Scene) ([]Step, error) {
			steps, err := ssdFail(0)(s)
			if err != nil {
				return nil, err
			}
			steps[0].Prepare = true
			return append(steps, Step{Fault: Fault{Kind: Freeze, On: s.Active}}), nil
		}}, {How: "returned", Title: "the first SSD is pulled and pushed in again with what it held, then the server stops executing", Steps: func(s Scene) ([]Step, error) {
			steps, err := ssdFail(0)(s)
			if err != nil {
				return nil, err
			}
			steps[0].Prepare = true
			return append(steps, Step{Fault: steps[0].Fault, Mend: true, Prepare: true, Wait: 3 * time.Second}, Step{Fault: Fault{Kind: Freeze, On: s.Active}}), nil
		}}},
	},
}

// These drills come before those that cut all power.
func init() { Table = slices.Insert(Table, len(Table)-2, cacheDrills...) }

// ofCache tells whether a drill is about the SSDs of a cache.
func ofCache(d Drill) bool {
	return slices.ContainsFunc(cacheDrills, func(x Drill) bool { return x.Name == d.Name })
}

// Suits returns the drills whose parts the brick has. A brick with one server
// has no partner.
func Suits(all []Choice, d *design.Design) []Choice {
	return slices.DeleteFunc(slices.Clone(all), func(c Choice) bool {
		if _, ok := alone[c.Name()]; !ok && !d.Clustered() {
			return true
		}
		if slices.Contains(lustreDrills, c.Drill.Name) {
			return kind.Of(d).LNet(d) == ""
		}
		if of := slices.ContainsFunc(arrayDrills, func(x Drill) bool { return x.Name == c.Drill.Name }); of {
			return len(d.LUNs()) == 0
		}
		if c.Drill.Name == "disk-slow" {
			// One variant for services whose slow disks are dropped, one for the others.
			return !slices.ContainsFunc(d.Services(), func(s *design.Service) bool { return s.Storage.DropSlow == (c.Variant.How == "dropped") })
		}
		if !ofCache(c.Drill) {
			return c.Drill.Name == fencingLiesName && !d.Reservable()
		}
		s := d.Cached()
		if s == nil {
			return true
		}
		k := s.Storage.Cache
		return c.Drill.Name == "ssd-both" && k.Mode != cache.WriteThrough ||
			slices.Contains([]string{"ssd-replace", "cache-full", "cache-flush-move"}, c.Drill.Name) && k.Mode != cache.WriteBack || c.Variant.How == "second" && len(k.SSDs) < 2
	})
}

// ssd returns the serial of the i-th SSD of the cache. Both servers reach all
// SSDs.
func (s Scene) ssd(i int) (string, error) {
	c := s.Service.Storage.Cache
	if c == nil {
		return "", fmt.Errorf("service %s has no cache", s.Service.Name)
	}
	if i >= len(c.SSDs) {
		return "", fmt.Errorf("the cache has %d SSD", len(c.SSDs))
	}
	return c.SSDs[i].Serial, nil
}

// mirrorFills fills the mirror with dirty data, and keeps bcache from writing it to the disks.
func mirrorFills(s Scene) (Step, error) {
	if _, err := s.ssd(0); err != nil {
		return Step{}, err
	}
	if s.Service.Storage.Cache.Mode != cache.WriteBack {
		return Step{}, errors.New("the cache is write-through: nothing in it is dirty")
	}
	return Step{
		Fault: Fault{Kind: CacheFill, On: s.Active, Args: []string{s.Service.Name, s.Service.MountPoints()[0]}},
		Until: dirtyAt(s, "the mirror is full", func(percent int64) bool { return percent >= mirrorFull }),
	}, nil
}

// Commands that flush, as arguments of CacheFlush.
const (
	modeFlush = "mode " + cache.WriteThrough
	offFlush  = "off"
)

// flushMove has the service leave the server on which a flush waits.
func flushMove(command string, then Fault) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		full, err := mirrorFills(s)
		if err != nil {
			return nil, err
		}
		full.Prepare = true
		if then.On = s.Active; then.Kind == Move {
			then.On, then.Args = s.Passive, []string{s.Service.Name}
		}
		return []Step{
			full,
			{Fault: Fault{Kind: CacheFlush, On: s.Active, Args: []string{s.Service.Name, command}}, Prepare: true, Wait: 3 * time.Second, Until: flushWaits},
			{Fault: then, Look: true, Until: flushCut(s, then.Kind == Move)},
		}, nil
	}
}

// flushWaits waits until the command of CacheFlush runs and has data to wait for.
var flushWaits = &Condition{What: "the flush waits for the disks", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
	st, err := v.cacheStats(ctx, v.Active)
	runs := v.runs(ctx, v.Active, flushUnit)
	return err == nil && st.Up && st.Dirty > 0 && runs, fmt.Sprintf("%s on %s: %v; %d bytes dirty", flushUnit, v.Active, runs, st.Dirty)
}}

// flushCut waits until the partner's cache has the dirty data of a flush that did not end,
// on every SSD, and finds no fault: it compares the label with bcache's superblock. On a
// server that goes on the flush must have ended by itself.
func flushCut(s Scene, ends bool) *Condition {
	n := len(s.Service.Storage.Cache.SSDs)
	return &Condition{What: "the partner has the dirty data, and label and superblock agree", Limit: 2 * time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		st, err := v.cacheStats(ctx, v.Passive)
		if err != nil {
			return false, err.Error()
		}
		text := fmt.Sprintf("on %s: in sync: %v of %d, %d bytes dirty", v.Passive, st.Mirror.InSync, st.Mirror.Members, st.Dirty)
		if st.Error != "" {
			return false, text + "; " + st.Error
		}
		if ends && v.runs(ctx, v.Active, flushUnit) {
			return false, text + "; the flush still runs on " + v.Active
		}
		return st.Up && st.Dirty > 0 && len(st.Mirror.InSync) == n, text
	}}
}

func ssdFail(i int) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		serial, err := s.ssd(i)
		if err != nil {
			return nil, err
		}
		return []Step{{Fault: Fault{Kind: DiskOut, Args: []string{serial}}, Wait: linkHold, Look: true, Until: ssdOut(s, serial)}}, nil
	}
}

// ssdOut waits until the cache works without an SSD. It is nil for one that no server looks at.
func ssdOut(s Scene, serial string) *Condition {
	k := s.Service.Storage.Cache
	i := slices.IndexFunc(k.SSDs, func(d design.Disk) bool { return d.Serial == serial })
	switch {
	case i < 0 || s.elsewhere(k.SSDs[i]):
		return nil
	case k.Mode != cache.WriteBack:
		return ssdsAway(k.SSDs[i])
	}
	c := mirrorOf(s, len(k.SSDs)-1)
	c.Sign = true
	return c
}

func ssdReplace(s Scene) ([]Step, error) {
	if s.Service.Storage.Cache != nil && s.Service.Storage.Cache.Mode != cache.WriteBack {
		return nil, errors.New("the cache is write-through: see ssd-both")
	}
	steps, err := ssdFail(0)(s)
	if err != nil {
		return nil, err
	}
	back := steps[0]
	back.Mend, back.Until, back.Look, back.Wait = true, nil, false, 3*time.Second
	return append(steps, back, Step{
		Fault: Fault{Kind: CacheApply, On: s.Active, Args: []string{s.Service.Name}}, Wait: 5 * time.Second, Look: true,
		Until: mirrorOf(s, len(s.Service.Storage.Cache.SSDs)),
	}), nil
}

func ssdAll(s Scene) ([]Step, error) {
	if _, err := s.ssd(0); err != nil {
		return nil, err
	}
	c := s.Service.Storage.Cache
	if c.Mode != cache.WriteThrough {
		return nil, errors.New("the cache is write-back: with all of its SSDs, data that is not on the disks would be gone")
	}
	var steps []Step
	for _, d := range c.SSDs {
		steps = append(steps, Step{Fault: Fault{Kind: DiskOut, Args: []string{d.Serial}}, Wait: 5 * time.Second})
	}
	last := &steps[len(steps)-1]
	last.Wait, last.Look, last.Until = linkHold, true, ssdsAway(slices.DeleteFunc(slices.Clone(c.SSDs), s.elsewhere)...)
	return steps, nil
}

// elsewhere tells whether an SSD is inside a server that does not serve. No server looks at it.
func (s Scene) elsewhere(ssd design.Disk) bool { return ssd.Server != "" && ssd.Server != s.Active }

// ssdsAway waits until mortar status misses each SSD.
func ssdsAway(ssds ...design.Disk) *Condition {
	var signs []sign
	for _, d := range ssds {
		signs = append(signs, signOf(observe.SSDMissing, "ssd", d.Serial))
	}
	return shows(seenLimit, signs...)
}

// cacheCondition waits until seen accepts the cache's counters.
func cacheCondition(s Scene, what string, seen func(cache.Stats) bool) *Condition {
	return &Condition{What: what, Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		for _, server := range []string{v.Active, v.Passive} {
			st, err := v.cacheStats(ctx, server)
			if err != nil || !st.Up {
				continue
			}
			return seen(st), fmt.Sprintf("in sync: %v of %d, %d of %d bytes dirty", st.Mirror.InSync, st.Mirror.Members, st.Dirty, st.DirtyRoom)
		}
		return false, "the cache runs on no server"
	}}
}

// cacheStats reads the counters and the state of the service's cache on a server.
func (v *View) cacheStats(ctx context.Context, server string) (st cache.Stats, err error) {
	out, err := v.e.query(ctx, server, hostMortar, "host-cache", "stats", cache.ConfigPath(v.Service.Name))
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("%s: the cache's state: exit code %d: %s", server, out.Code, strings.TrimSpace(out.Stderr))
	}
	if err == nil {
		err = json.Unmarshal([]byte(out.Stdout), &st)
	}
	return st, err
}

// runs reports whether a systemd unit is active on a server.
func (v *View) runs(ctx context.Context, server, unit string) bool {
	out, err := v.e.query(ctx, server, "systemctl", "is-active", unit)
	return err == nil && strings.TrimSpace(out.Stdout) == "active"
}

// mirrorOf waits until n SSDs hold the newest dirty data.
func mirrorOf(s Scene, n int) *Condition {
	return cacheCondition(s, fmt.Sprintf("dirty data on %d SSDs", n), func(st cache.Stats) bool { return len(st.Mirror.InSync) == n })
}

func dirtyAt(s Scene, what string, is func(percent int64) bool) *Condition {
	return cacheCondition(s, what, func(st cache.Stats) bool { return st.DirtyRoom > 0 && is(100*st.Dirty/st.DirtyRoom) })
}

// applyCache brings the service's cache to its config, on the server that runs
// the service.
func (e *engine) applyCache(ctx context.Context, f Fault) error {
	return e.do(ctx, f.On, resource.Action{
		Title: "bring the cache to its config", Cmd: []string{hostMortar, "host-cache", "apply", cache.ConfigPath(f.Args[0])}, Seconds: 600, Beside: path.Base(cache.ConfigPath(f.Args[0])),
	})
}

func cacheFiller(f Fault) string { return path.Join(f.Args[1], ".mortar-cache-fill") }

// fillCache fills the mirror of dirty data, on the server that runs the service.
func (e *engine) fillCache(ctx context.Context, f Fault) error {
	return e.do(ctx, f.On, resource.Action{
		Title: "fill the mirror of dirty data", Cmd: []string{hostMortar, "host-cache", "fill", cache.ConfigPath(f.Args[0]), cacheFiller(f)}, Seconds: 300,
	})
}

// drainCache undoes fillCache on the server that has the volume now.
func (e *engine) drainCache(ctx context.Context, f Fault) error {
	v := e.view()
	for _, server := range e.servers {
		if v.mounted(ctx, server) {
			return e.do(ctx, server, resource.Action{
				Title: "let dirty data go to the disks", Cmd: []string{hostMortar, "host-cache", "drain", cache.ConfigPath(f.Args[0]), cacheFiller(f)},
			})
		}
	}
	return fmt.Errorf("%s is mounted on no server: %s could not be removed", f.Args[1], cacheFiller(f))
}

// flushUnit is the command of CacheFlush on a server.
const flushUnit = "mortar-drill-flush.service"

// startFlush has bcache write nothing of what is dirty, as if the disks took nothing, and
// starts the command that waits for it. The brick's own configuration stays as it is: it
// is what the flush is taken back to.
func (e *engine) startFlush(ctx context.Context, f Fault) error {
	file := cache.ConfigPath(f.Args[0])
	run := []string{"off", file}
	if f.Args[1] == modeFlush {
		text, err := e.read(ctx, f.On, file)
		if err != nil {
			return err
		}
		cfg, err := cache.Parse(file, []byte(text))
		if err != nil {
			return err
		}
		cfg.Mode = cache.WriteThrough
		b, err := json.Marshal(cfg)
		if err != nil {
			return err
		}
		run = []string{"apply", string(b)}
	}
	if err := e.do(ctx, f.On, resource.Action{Title: "keep dirty data from the disks", Cmd: []string{hostMortar, "host-cache", "stall", file}}); err != nil {
		return err
	}
	return e.do(ctx, f.On, resource.Action{
		Title: "begin mortar cache " + f.Args[1],
		Cmd:   append([]string{"systemd-run", "--quiet", "--collect", "--service-type=exec", "--unit=" + flushUnit, hostMortar, "host-cache"}, run...),
	})
}

// endFlush ends a command of startFlush that still runs, and takes back what it has done.
func (e *engine) endFlush(ctx context.Context, f Fault) error {
	v := e.view()
	if v.runs(ctx, f.On, flushUnit) {
		if err := e.do(ctx, f.On, resource.Action{Title: "end the flush", Cmd: []string{"systemctl", "stop", flushUnit}}); err != nil {
			return err
		}
	}
	for _, server := range e.servers {
		if v.mounted(ctx, server) {
			return e.applyCache(ctx, Fault{On: server, Args: f.Args})
		}
	}
	return fmt.Errorf("service %s is mounted on no server: its cache is not set back to write-back", f.Args[0])
}

// cacheHas reports whether a disk is an SSD of a cache.
func cacheHas(d *design.Design, serial string) bool {
	return slices.ContainsFunc(d.Services(), func(s *design.Service) bool {
		return s.Storage.Cache != nil && slices.ContainsFunc(s.Storage.Cache.SSDs, func(x design.Disk) bool { return x.Serial == serial })
	})
}
