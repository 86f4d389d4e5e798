package mdraid

import (
	"cmp"
	"context"
	"maps"
	"path"
	"reflect"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A start goes without members that are not there, or do not answer, if the level of the
// array allows it. When such a member is back, the watcher adds it again: md copies only what
// its bitmap names. No spare is added meanwhile, which would make that impossible.
//
// An enclosure that restarts takes its disks away while their arrays run, and md goes on
// without them: it throws them out, and takes none back by itself. The watcher does so when
// they are back, in the same way. Any other disk that an administrator, md or the watcher has
// taken out of its array is not added.

const (
	// lateEvery is how often the watcher looks for late members. Disks that come up after
	// servers do so within YoungHost, which is how long their arrays wait for them.
	lateEvery = 5 * time.Second
	lateWait  = unit.YoungHost
	// lateTime bounds each command.
	lateTime = 20 * time.Second
)

// LateArray is an array that was started without members.
type LateArray struct {
	UUID    string `json:"uuid"`    // 32 hex digits
	Numbers []int  `json:"numbers"` // of the members, in its superblocks
	// Away are disks, as in the config, that have left together with their enclosure.
	Away []string `json:"away,omitempty"`
}

// LateNote is a list of lateArray. It goes when the arrays stop.
func (s *lateMembers) LateNote() unit.Note { return s.RunNote("late", ".json") }

// expectLate notes which members a start goes without.
func (s *lateMembers) expectLate(verdicts []Verdict) error {
	var all []LateArray
	for i, a := range s.Cfg.Arrays {
		if awaited := verdicts[i].Awaited; len(awaited) > 0 {
			all = append(all, LateArray{UUID: md.Hex(a.UUID), Numbers: awaited})
		}
	}
	if len(all) == 0 {
		s.LateNote().Forget()
		return nil
	}
	return s.LateNote().Save(all)
}

// expected are the arrays that were started without members.
func (s *lateMembers) expected() (all []LateArray) {
	s.Log.NoteErr(s.LateNote().Load(&all), "")
	return all
}

// awaits says whether members of an array are still waited for before a spare is added.
func (s *lateMembers) awaits(uuid string, now time.Time) bool {
	return (s.LateSince.IsZero() || now.Sub(s.LateSince) < lateWait) &&
		slices.ContainsFunc(s.expected(), func(a LateArray) bool { return md.SameUUID(a.UUID, uuid) && len(a.Numbers) > 0 })
}

// lateDue adds late members again.
func (s *lateMembers) lateDue(w unit.Watch) unit.Act {
	if _, all, err := s.svc.Active(); err != nil || !all {
		s.out = nil
		return nil
	}
	if err := s.expectAway(s.K.Now()); err != nil {
		w.Log("%v", err)
		return nil
	}
	if len(s.expected()) == 0 {
		s.LateSince = time.Time{}
		return nil
	}
	if s.LateSince.IsZero() {
		s.LateSince = s.K.Now()
	}
	return func(ctx context.Context) {
		// Disks are asked without the lock, which a stop needs. The end of the watcher ends that.
		before := s.expected()
		adds, left := s.lateAdds(ctx, before)
		if len(adds) == 0 && reflect.DeepEqual(left, before) {
			return
		}
		unlock, err := w.Lock()
		if err != nil {
			return
		}
		defer unlock()
		if s.svc.Mine(ctx) != nil || !reflect.DeepEqual(s.expected(), before) {
			return
		}
		for _, a := range adds {
			s.addLate(context.WithoutCancel(ctx), a, w.Record)
		}
		if len(left) == 0 {
			s.LateNote().Forget()
		} else if err := s.LateNote().Save(left); err != nil {
			w.Log("%v", err)
		}
	}
}

// expectAway notes the disks that have left together with their enclosure. The paths of an
// enclosure go one after another; a disk that had left spareAfter before the last one did so
// for a reason of its own.
func (s *lateMembers) expectAway(now time.Time) error {
	all, err := s.Arrays()
	if err != nil {
		return err
	}
	in, err := s.membersOf(all)
	if err != nil {
		return err
	}
	gone, waiting, out := s.gone(), s.waiting(), map[string]time.Time{}
	expected, added := s.expected(), false
	for _, a := range s.Cfg.Arrays {
		for i, dev := range a.Members {
			if real, err := s.K.Realpath(dev); err == nil && in[path.Base(real)] {
				continue
			}
			out[dev] = cmp.Or(s.out[dev], now)
			if !gone[dev] || a.failed(i) || waiting[dev] != "" || now.Sub(out[dev]) >= spareAfter {
				continue
			}
			at := slices.IndexFunc(expected, func(l LateArray) bool { return md.SameUUID(l.UUID, a.UUID) })
			if at < 0 {
				at, expected = len(expected), append(expected, LateArray{UUID: md.Hex(a.UUID)})
			}
			if !slices.Contains(expected[at].Away, dev) {
				expected[at].Away, added = append(expected[at].Away, dev), true
			}
		}
	}
	s.out = out
	if !added {
		return nil
	}
	return s.LateNote().Save(expected)
}

// giveBack is what brings a disk back that had left with its enclosure; done: it is waited
// for no longer. in are the disks that arrays work with.
func (s *lateMembers) giveBack(dev string, all map[string]mdArray, in map[string]bool, sb *md.Superblock) (add *lateAdd, done bool) {
	real, err := s.K.Realpath(dev)
	switch {
	case err != nil || !s.HasPath(path.Base(real)):
		return nil, false
	case in[path.Base(real)]:
		return nil, true
	case sb == nil: // it does not answer yet
		return nil, false
	}
	// By its superblock: it may have been a spare that had moved.
	a, ok := all[sb.UUID]
	switch {
	case !ok || !slices.ContainsFunc(s.Cfg.Arrays, func(x Array) bool { return md.SameUUID(x.UUID, sb.UUID) }):
		return nil, true
	case a.usable() != nil:
		return nil, false
	case a.Degraded == 0 && sb.Slot() >= 0: // a spare stands in
		return nil, true
	}
	members, err := linux.MDMembers(s.K, a.Dev)
	if err != nil {
		return nil, false
	}
	const why = "it had left together with its enclosure, and is back"
	switch {
	case slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Dev == path.Base(real) }):
		return &lateAdd{a.Dev, "--remove", dev, "it counts as failed: " + why}, false // the next look adds it
	case sb.Slot() < 0:
		return &lateAdd{a.Dev, "--add", dev, why}, true
	}
	return &lateAdd{a.Dev, "--re-add", dev, why}, true
}

// lateAdd is a disk to be added to an array, or taken out of it.
type lateAdd struct{ array, how, disk, why string }

// lateAdds are the disks to be added now, and what is waited for afterwards.
func (s *lateMembers) lateAdds(ctx context.Context, expected []LateArray) (adds []lateAdd, left []LateArray) {
	all, err := s.Arrays()
	if err != nil {
		return nil, expected
	}
	in, err := s.membersOf(all)
	if err != nil {
		return nil, expected
	}
	found := map[string]*md.Superblock{} // by device in the config
	for _, m := range s.outside(ctx, in) {
		found[m.Dev] = m.SB
	}
	for _, late := range expected {
		var away []string
		for _, dev := range late.Away {
			add, done := s.giveBack(dev, all, in, found[dev])
			if add != nil {
				adds = append(adds, *add)
			}
			if !done {
				away = append(away, dev)
			}
		}
		late.Away = away
		a, ok := all[late.UUID]
		if !ok || a.usable() != nil {
			left = append(left, late)
			continue
		}
		var numbers []int
		for _, n := range late.Numbers {
			dev := ""
			for d, sb := range found {
				if sb != nil && sb.UUID == late.UUID && int(sb.DevNumber) == n && sb.Slot() >= 0 {
					dev = d
				}
			}
			switch {
			case a.Degraded == 0:
			case dev == "":
				numbers = append(numbers, n)
			default:
				adds = append(adds, lateAdd{a.Dev, "--re-add", dev, "it was not there, or did not answer, when the array was started"})
			}
		}
		late.Numbers = numbers
		if len(late.Numbers) > 0 || len(late.Away) > 0 {
			left = append(left, late)
		}
	}
	return adds, left
}

// outside reads the superblocks of disks of the service that no array of it works with.
func (s *lateMembers) outside(ctx context.Context, in map[string]bool) []Member {
	var names []string
	for _, a := range s.Cfg.Arrays {
		for _, dev := range a.Members {
			if real, err := s.K.Realpath(dev); err == nil && !in[path.Base(real)] && s.HasPath(path.Base(real)) {
				names = append(names, dev)
			}
		}
	}
	read := Superblocks{}
	s.ReadSuperblocks(ctx, names, read)
	return slices.Collect(maps.Values(read))
}

// addLate adds a disk. A member that md does not take back stays out, as one does that was
// thrown out; `mortar apply` adds it anew.
//
// Source: mdadm(8), --re-add
func (s *lateMembers) addLate(ctx context.Context, a lateAdd, record func(string, ...any)) {
	disk := path.Base(a.disk)
	what := map[string]string{
		"--re-add": "add " + disk + " to array " + a.array + " again",
		"--add":    "add spare " + disk + " to array " + a.array,
		"--remove": "take " + disk + " out of array " + a.array,
	}[a.how]
	if err := s.run(ctx, lateTime, "mdadm", "--manage", "/dev/"+a.array, a.how, a.disk); err != nil {
		record("failed: %s: `mortar apply` adds it anew: %v", what, err)
		return
	}
	record("%s: %s", what, a.why)
}
