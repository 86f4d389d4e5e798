package mdraid

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The RAID groups of a service share their spares, and a spare that waits is in no array: md
// rebuilds one that it has when a member fails, also for an enclosure that restarts. A start
// leaves spares out, the watcher of the server that serves takes those out that apply has
// added, and a note lists them. If a group lacks a member for long enough, the watcher adds a
// spare, one of the group if there is one.
// mdadm --monitor could move spares (spare-group of mdadm.conf(5)). It needs ARRAY lines,
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
	waits     bool  // as a spare of the group, which does not have it
}

// idle says whether the member is a spare that no group uses.
func (m raidMember) idle() bool {
	return m.Slot < 0 && m.Is("spare") && !m.Is("faulty") && !m.Is("replacement") && m.works
}

// lacks is the number of members that a group lacks, and for which md has no spare.
func (g raidGroup) lacks() int {
	n := g.Degraded
	for _, m := range g.members {
		rebuilt := m.Slot >= 0 && m.Is("spare") && !m.Is("faulty") && !m.Is("replacement")
		if rebuilt || m.idle() && !m.waits {
			n--
		}
	}
	return n
}

// takes says whether a group needs a spare now.
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
	ms := lists.Map(g.members, func(m raidMember) linux.MDMember { return m.MDMember })
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

// spareMove is a spare, the group that it is of and the one that it joins.
type spareMove struct {
	disk     raidMember
	from, to raidGroup
	// crowded: the group that it joins does not survive the loss of its enclosure.
	crowded bool
	near    int // members of the group in that enclosure
}

// chooseSpare finds the spare that should be added now; ok is false if none should. The
// group that can lose least comes first. A spare in an enclosure that the group can
// lose goes before others; then the group's own, the smallest, and that in the enclosure
// with fewest members.
func chooseSpare(groups []raidGroup) (best spareMove, ok bool) {
	needy := slices.DeleteFunc(slices.Clone(groups), func(g raidGroup) bool { return !g.takes() })
	slices.SortStableFunc(needy, func(a, b raidGroup) int {
		left := func(g raidGroup) int { return md.CanLose(md.Level(g.Level), g.Layout, g.present()) }
		return cmp.Compare(left(a), left(b))
	})
	for _, to := range needy {
		var all []spareMove
		for _, from := range groups {
			if from.UUID == to.UUID || from.gives() {
				all = append(all, spares(from, to)...)
			}
		}
		if len(all) > 0 {
			return slices.MinFunc(all, func(a, b spareMove) int {
				yes := func(is bool) int { return map[bool]int{true: 1}[is] }
				return cmp.Or(cmp.Compare(yes(a.crowded), yes(b.crowded)), cmp.Compare(yes(a.from.UUID != to.UUID), yes(b.from.UUID != to.UUID)), cmp.Compare(a.disk.size, b.disk.size), cmp.Compare(a.near, b.near),
					cmp.Compare(a.from.name, b.from.name), cmp.Compare(a.disk.path, b.disk.path))
			}), true
		}
	}
	return spareMove{}, false
}

// spares are the moves of spares that are large enough for a group.
func spares(from, to raidGroup) (out []spareMove) {
	for _, m := range from.members {
		if m.waits && m.idle() && m.size >= to.need() {
			near, over := to.crowd(m.enclosure)
			out = append(out, spareMove{disk: m, from: from, to: to, crowded: over, near: near})
		}
	}
	return out
}

// Groups are the arrays of the service that run here, each with the spares that wait for it.
func (s *spareMover) Groups() ([]raidGroup, error) {
	all, err := linux.MDArrays(s.K)
	if err != nil {
		return nil, err
	}
	places, names := map[string]raidMember{}, map[string]string{} // by path; paths by kernel name
	for _, a := range s.Cfg.Arrays {
		for i, p := range a.Members {
			m := raidMember{path: p}
			if i < len(a.Enclosures) {
				m.enclosure = a.Enclosures[i]
			}
			if real, err := s.K.Realpath(p); err == nil {
				m.Dev = path.Base(real)
				m.works, m.size = s.HasPath(m.Dev), int64(s.Number("/sys/block/"+m.Dev+"/size"))*unit.Sector
				names[m.Dev] = p
			}
			m.States, m.Slot = []string{"spare"}, -1
			places[p] = m
		}
	}
	var out []raidGroup
	for _, want := range s.Cfg.Arrays {
		i := slices.IndexFunc(all, func(a linux.MDArray) bool { return md.SameUUID(a.UUID, want.UUID) && a.Running() })
		if i < 0 {
			continue
		}
		g := raidGroup{MDArray: all[i], name: want.Name}
		members, err := linux.MDMembers(s.K, g.Dev)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			x := places[names[m.Dev]]
			delete(places, x.path)
			x.MDMember, x.works = m, s.HasPath(m.Dev)
			g.members = append(g.members, x)
		}
		out = append(out, g)
	}
	waiting := s.waiting()
	for _, a := range s.Cfg.Arrays {
		for i, p := range a.Members {
			of := slices.IndexFunc(out, func(g raidGroup) bool { return g.UUID == waiting[p] })
			if x, free := places[p]; of >= 0 && free && !a.failed(i) {
				x.waits = true
				out[of].members = append(out[of].members, x)
			}
		}
	}
	return out, nil
}

// SparesNote has the spares that wait, as in the config, each with the UUID of the array that it is of.
// It goes when the arrays stop. linux.MDSpares reads it.
func (s *disks) SparesNote() unit.Note { return s.RunNote("spares", ".json") }

func (s *disks) waiting() map[string]string {
	all := map[string]string{}
	s.Log.NoteErr(s.SparesNote().Load(&all), "")
	return all
}

// leaveOut notes the spares that a start leaves out.
func (s *disks) leaveOut(verdicts []Verdict) error {
	all := map[string]string{}
	for i, a := range s.Cfg.Arrays {
		for _, dev := range verdicts[i].Spares {
			all[dev] = md.Hex(a.UUID)
		}
	}
	return s.SparesNote().Save(all)
}

// sparesNow are all spares, for the note, and those of them that are to be taken out of their arrays: a
// spare that is in a whole array, and has been for spareAfter, since a command may have added
// it to copy a member to it.
func (s *spareMover) sparesNow(groups []raidGroup, now time.Time) (note map[string]string, in []lateAdd) {
	idle := map[string]time.Time{}
	note = map[string]string{}
	for _, g := range groups {
		for _, m := range g.members {
			if !m.waits {
				if m.path == "" || !m.idle() || !g.gives() {
					continue
				}
				if idle[m.path] = cmp.Or(s.idle[m.path], now); now.Sub(idle[m.path]) < spareAfter {
					continue
				}
				in = append(in, lateAdd{g.Dev, "--remove", m.path, "it is a spare, and waits until a group lacks a member"})
			}
			note[m.path] = g.UUID
		}
	}
	s.idle = idle
	return note, in
}

// look shows the groups to see, if the service runs here. What see wants done, only the server
// does whose service it is.
func (s *spareMover) look(w unit.Watch, see func([]raidGroup, time.Time) unit.Act) unit.Act {
	if _, all, err := s.svc.Active(); err != nil || !all {
		return nil
	}
	groups, err := s.Groups()
	if err != nil {
		return nil
	}
	act := see(groups, s.K.Now())
	if act == nil {
		return nil
	}
	return func(ctx context.Context) {
		if err := s.svc.Mine(ctx); err != nil {
			w.Log("spares stay where they are: %v", err)
			return
		}
		act(ctx)
	}
}

// outDue keeps the note of spares, and takes spares out of arrays that do not need them.
func (s *spareMover) outDue(w unit.Watch) unit.Act {
	return s.look(w, func(groups []raidGroup, now time.Time) unit.Act {
		note, in := s.sparesNow(groups, now)
		if len(in) == 0 && maps.Equal(note, s.waiting()) {
			return nil
		}
		return func(ctx context.Context) {
			if err := s.SparesNote().Save(note); err != nil {
				w.Log("%v", err)
				return
			}
			for _, x := range in {
				s.Late.addLate(ctx, x, w.Record) // it keeps its superblock, by which the next start knows it
			}
		}
	})
}

// addDue adds a spare to a group that lacks a member.
func (s *spareMover) addDue(w unit.Watch) unit.Act {
	return s.look(w, func(groups []raidGroup, now time.Time) unit.Act {
		m, ok := s.SpareDue(groups, now)
		if !ok {
			return nil
		}
		return func(ctx context.Context) { s.addSpare(ctx, m, w.Record) }
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

// lackingGroup is what is remembered of a group while it lacks members and has no spare.
type lackingGroup struct {
	since time.Time
	away  int // members that were in enclosures that were gone
}

// SpareDue is the spare that should be added now.
func (s *spareMover) SpareDue(groups []raidGroup, now time.Time) (spareMove, bool) {
	lacking, gone, waits := map[string]lackingGroup{}, s.gone(), s.waiting()
	for i := range groups {
		g := &groups[i]
		if g.lacks() <= 0 {
			continue
		}
		l := s.lacking[g.UUID]
		away, wait := 0, spareAfter
		for _, a := range s.Cfg.Arrays {
			for _, dev := range a.Members {
				if gone[dev] && waits[dev] == "" && md.SameUUID(a.UUID, g.UUID) {
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

// addSpare adds a spare to an array: --add gives the disk another superblock. A spare that no
// array takes waits no longer, so that the next look tries another one.
func (s *spareMover) addSpare(ctx context.Context, m spareMove, record func(string, ...any)) {
	why := fmt.Sprintf("group %s lacks %d of %d members", m.to.name, m.to.Degraded, m.to.RaidDisks)
	if m.from.UUID != m.to.UUID {
		why += fmt.Sprintf(", and group %s, whose spare it was, is whole", m.from.name)
	}
	if m.crowded {
		why += fmt.Sprintf("; with it the group has more disks in enclosure %s than it can lose, as no other spare is there", m.disk.enclosure)
	}
	if sb, err := s.Superblock(ctx, m.disk.path); err != nil || sb.UUID != m.from.UUID || sb.Slot() >= 0 {
		record("failed: add spare %s to array %s: its superblock does not say that it is a spare: %v", path.Base(m.disk.path), m.to.Dev, err)
	} else {
		s.Late.addLate(ctx, lateAdd{m.to.Dev, "--add", m.disk.path, why}, record)
	}
	note := s.waiting()
	delete(note, m.disk.path)
	if err := s.SparesNote().Save(note); err != nil {
		record("failed: %v", err)
	}
}
