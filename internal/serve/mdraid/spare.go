package mdraid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The RAID groups of a service share their spares: if a group lacks a member and
// has no spare, the watcher of the server that serves moves one from another group.
// mdadm --monitor could do so (spare-group of mdadm.conf(5)). It needs ARRAY lines,
// which tell these servers to ignore the arrays, and it does not know enclosures.
const (
	// spareEvery is how often the watcher looks, spareAfter how long a group must
	// lack a member: an enclosure that restarts takes the members of several groups
	// one after the other, and until the last one is gone a donor seems to be whole.
	spareEvery = 10 * time.Second
	spareAfter = 30 * time.Second
	// enclosureAfter is how long the members of a whole enclosure are waited for: one that
	// restarts (new firmware, a power cycle) is back within three minutes, the watcher gives
	// its disks back (see lateMembers), and md copies what its bitmaps name. Rebuilds of every
	// group onto spares would take days.
	enclosureAfter = 15 * time.Minute
	// sparePause follows a move, also one that failed.
	sparePause = time.Minute
	// spareTime bounds each command of a move.
	spareTime = 20 * time.Second
)

// raidGroup is an array of a service with its disks.
type raidGroup struct {
	linux.MDArray
	name    string
	members []raidMember
	// due: the group has lacked a member for long enough.
	due bool
}

// raidMember is a member of an array and its place.
type raidMember struct {
	linux.MDMember
	path      string // in the config; "": the config does not have it
	enclosure string
	size      int64 // bytes
	works     bool  // it has a path
}

// idle says whether the member is a spare that its group does not use.
func (m raidMember) idle() bool {
	return m.Slot < 0 && m.Is("spare") && !m.Is("faulty") && !m.Is("replacement") && m.works
}

// lacks is the number of members that a group lacks and has no spare for.
func (g raidGroup) lacks() int {
	n := g.Degraded
	for _, m := range g.members {
		rebuilt := m.Slot >= 0 && m.Is("spare") && !m.Is("faulty") && !m.Is("replacement")
		if rebuilt || m.idle() {
			n--
		}
	}
	return n
}

// takes says whether a group needs another group's spare now.
func (g raidGroup) takes() bool {
	return g.due && g.lacks() > 0 && mdArray{MDArray: g.MDArray, Present: g.present()}.usable() == nil
}

// gives says whether a group is whole, in sync, and copies no member to a spare.
func (g raidGroup) gives() bool {
	busy := slices.ContainsFunc(g.members, func(m raidMember) bool {
		return !m.Is("faulty") && (m.Is("want_replacement") || m.Is("replacement"))
	})
	return g.Degraded == 0 && !busy && slices.Contains([]string{"", "idle", "check"}, g.Action) && (mdArray{MDArray: g.MDArray}).usable() == nil
}

func (g raidGroup) present() []bool {
	var ms []linux.MDMember
	for _, m := range g.members {
		ms = append(ms, m.MDMember)
	}
	return linux.MDPresent(g.RaidDisks, ms, nil)
}

// need is the smallest size of a new member in bytes.
func (g raidGroup) need() int64 {
	offset := int64(0)
	for _, m := range g.members {
		offset = max(offset, m.Offset)
	}
	return g.Size + offset
}

// crowd says how many members a group would have in an enclosure with one more
// there, and whether the loss of that enclosure would be more than the group can lose.
func (g raidGroup) crowd(enclosure string) (n int, over bool) {
	if enclosure == "" {
		return 0, false // an earlier release wrote the config
	}
	at := map[int]string{} // enclosure by slot
	n = 1
	for _, m := range g.members {
		if m.Slot < 0 || m.Is("faulty") || m.Is("replacement") {
			continue
		}
		at[m.Slot] = m.enclosure
		if m.enclosure == enclosure {
			n++
		}
	}
	whole := make([]bool, g.RaidDisks)
	for i := range whole {
		whole[i] = at[i] != enclosure
	}
	// md fills the first empty slot. Source: drivers/md/raid5.c and raid10.c, add_disk
	for i := range whole {
		if _, there := at[i]; !there {
			whole[i] = false
			break
		}
	}
	return n, md.CanLose(md.Level(g.Level), g.Layout, whole) < 0
}

// spareMove is a spare and the groups that it leaves and joins.
type spareMove struct {
	disk     raidMember
	from, to raidGroup
	// crowded: the group that it joins does not survive the loss of its enclosure.
	crowded bool

	near, left int // members of the group in that enclosure; spares of the donor
}

// chooseSpare finds the spare that should move now; ok is false if none should. The
// group that can lose least comes first. A spare in an enclosure that the group can
// lose goes before others; then the smallest, that of the group with most spares, and
// that in the enclosure with fewest members.
func chooseSpare(groups []raidGroup) (best spareMove, ok bool) {
	needy := slices.DeleteFunc(slices.Clone(groups), func(g raidGroup) bool { return !g.takes() })
	slices.SortStableFunc(needy, func(a, b raidGroup) int {
		left := func(g raidGroup) int { return md.CanLose(md.Level(g.Level), g.Layout, g.present()) }
		return cmp.Compare(left(a), left(b))
	})
	for _, to := range needy {
		var all []spareMove
		for _, from := range groups {
			if from.UUID != to.UUID && from.gives() {
				all = append(all, spares(from, to)...)
			}
		}
		if len(all) > 0 {
			return slices.MinFunc(all, func(a, b spareMove) int {
				over := func(m spareMove) int { return map[bool]int{true: 1}[m.crowded] }
				return cmp.Or(cmp.Compare(over(a), over(b)), cmp.Compare(a.disk.size, b.disk.size), cmp.Compare(b.left, a.left), cmp.Compare(a.near, b.near),
					cmp.Compare(a.from.name, b.from.name), cmp.Compare(a.disk.path, b.disk.path))
			}), true
		}
	}
	return spareMove{}, false
}

// spares are the moves of spares that are large enough for a group.
func spares(from, to raidGroup) (out []spareMove) {
	for _, m := range from.members {
		if m.idle() && m.path != "" && m.size >= to.need() {
			near, over := to.crowd(m.enclosure)
			out = append(out, spareMove{disk: m, from: from, to: to, crowded: over, near: near})
		}
	}
	for i := range out {
		out[i].left = len(out)
	}
	return out
}

// raidGroups are the arrays of the service that run here.
func (s *spareMover) raidGroups() ([]raidGroup, error) {
	all, err := linux.MDArrays(unit.Tree{Host: s.K})
	if err != nil {
		return nil, err
	}
	places := map[string]raidMember{} // by kernel name
	for _, a := range s.Cfg.Arrays {
		for i, p := range a.Members {
			if real, err := s.K.Realpath(p); err == nil {
				m := raidMember{path: p}
				if i < len(a.Enclosures) {
					m.enclosure = a.Enclosures[i]
				}
				places[path.Base(real)] = m
			}
		}
	}
	var out []raidGroup
	for _, want := range s.Cfg.Arrays {
		i := slices.IndexFunc(all, func(a linux.MDArray) bool { return md.SameUUID(a.UUID, want.UUID) && a.Running() })
		if i < 0 {
			continue
		}
		g := raidGroup{MDArray: all[i], name: want.Name}
		members, err := linux.MDMembers(unit.Tree{Host: s.K}, g.Dev)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			x := places[m.Dev]
			x.MDMember, x.works, x.size = m, s.HasPath(m.Dev), int64(s.Number("/sys/block/"+m.Dev+"/size"))*unit.Sector
			g.members = append(g.members, x)
		}
		out = append(out, g)
	}
	return out, nil
}

// moveDue moves a spare to a group that lacks a member and has none.
func (s *spareMover) moveDue(w unit.Watch) unit.Act {
	if len(s.Cfg.Arrays) < 2 {
		return nil
	}
	if _, all, err := s.svc.Active(); err != nil || !all {
		return nil
	}
	m, ok := s.SpareDue(s.K.Now())
	if !ok {
		return nil
	}
	return func(ctx context.Context) {
		if err := s.svc.Mine(ctx); err != nil {
			w.Log("spare %s of array %s does not move to array %s: %v", path.Base(m.disk.path), m.from.name, m.to.name, err)
			return
		}
		s.moveSpare(ctx, m, w.Record)
	}
}

// degraded says whether an array of the service lacks a member.
func (s *spareMover) degraded() bool {
	all, err := linux.MDArrays(unit.Tree{Host: s.K})
	return err == nil && slices.ContainsFunc(all, func(a linux.MDArray) bool {
		return a.Degraded > 0 && slices.ContainsFunc(s.Cfg.Arrays, func(x Array) bool { return md.SameUUID(x.UUID, a.UUID) })
	})
}

// gone are the disks, as in the config, of enclosures that are gone: no disk of the service
// there has a path, of two at least.
func (s *disks) gone() map[string]bool {
	there, all := map[string]bool{}, map[string][]string{}
	for _, a := range s.Cfg.Arrays {
		for i, dev := range a.Members {
			if i >= len(a.Enclosures) {
				continue
			}
			e := a.Enclosures[i]
			all[e] = append(all[e], dev)
			if !there[e] {
				real, err := s.K.Realpath(dev)
				there[e] = err == nil && s.HasPath(path.Base(real))
			}
		}
	}
	out := map[string]bool{}
	for e, devs := range all {
		for _, dev := range devs {
			if !there[e] && len(devs) > 1 {
				out[dev] = true
			}
		}
	}
	return out
}

// lack is what is remembered of a group while it lacks members and has no spare.
type lack struct {
	since time.Time
	away  int // members that were in enclosures that were gone
}

func (s *spareMover) SpareDue(now time.Time) (spareMove, bool) {
	if !s.degraded() {
		s.lacking = nil
		return spareMove{}, false
	}
	groups, err := s.raidGroups()
	if err != nil {
		return spareMove{}, false
	}
	lacking, gone := map[string]lack{}, s.gone()
	for i := range groups {
		g := &groups[i]
		if g.lacks() <= 0 {
			continue
		}
		l := s.lacking[g.UUID]
		away, wait := 0, spareAfter
		for _, a := range s.Cfg.Arrays {
			for _, dev := range a.Members {
				if gone[dev] && md.SameUUID(a.UUID, g.UUID) {
					away++
				}
			}
		}
		l.since, l.away = cmp.Or(l.since, now), max(l.away, away)
		lacking[g.UUID] = l
		if g.lacks() <= l.away { // also once the enclosure is back: its disks are given back meanwhile
			wait = enclosureAfter
		}
		g.due = now.Sub(l.since) >= wait && !s.Late.awaits(g.UUID, now)
	}
	s.lacking = lacking
	return chooseSpare(groups)
}

// moveSpare removes a spare from its array and adds it to another one. An array that
// does not take it leaves it to the first one. --add gives the disk another superblock.
//
// Source: mdadm, Monitor.c, move_spare
func (s *spareMover) moveSpare(ctx context.Context, m spareMove, record func(string, ...any)) {
	disk := path.Base(m.disk.path)
	where := ""
	if m.crowded {
		where = fmt.Sprintf("; with it the group has more disks in enclosure %s than it can lose, as no other spare is there", m.disk.enclosure)
	}
	record("move spare %s from array %s, which is whole, to array %s, which lacks %d of %d members and has none%s", disk, m.from.name, m.to.name, m.to.Degraded, m.to.RaidDisks, where)
	manage := func(g raidGroup, what string) error {
		return s.run(ctx, spareTime, "mdadm", "--manage", "/dev/"+g.Dev, what, m.disk.path)
	}
	if err := manage(m.from, "--remove"); err != nil {
		record("failed: move spare %s: array %s keeps it: %v", disk, m.from.name, err)
		return
	}
	err := manage(m.to, "--add")
	if err == nil {
		return
	}
	if back := manage(m.from, "--add"); back != nil {
		record("failed: move spare %s: it is in no array now; `mortar apply` adds it to its own: %v", disk, errors.Join(err, back))
		return
	}
	record("failed: move spare %s: array %s does not take it, and array %s has it again: %v", disk, m.to.name, m.from.name, err)
}
