package ocf

import (
	"context"
	"maps"
	"path"
	"reflect"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// A start goes without members that are not there, or do not answer, if the level of the
// array allows it. When such a member is back, the watcher adds it again: md copies only what
// its bitmap names. A spare that was rebuilt meanwhile would make that impossible. So a start
// leaves the spares of such an array out, and the watcher adds them once the member is back,
// or late for too long. A disk that an administrator, md or the watcher has taken out of its
// array is not added: no start has missed it.

const (
	// lateEvery is how often the watcher looks for late members. Disks that come up after
	// servers do so within youngHost, which is how long their arrays wait for them.
	lateEvery = 5 * time.Second
	lateWait  = youngHost
	// lateTime bounds each command.
	lateTime = 20 * time.Second
)

// lateArray is an array that was started without members.
type lateArray struct {
	UUID    string   `json:"uuid"`    // 32 hex digits
	Numbers []int    `json:"numbers"` // of the members, in its superblocks
	Spares  []string `json:"spares"`  // that the start has left out
}

// lateNote is a list of lateArray. It goes when the arrays stop.
func (s *lateMembers) lateNote() runNote { return s.runNote("late", ".json") }

// expectLate notes which members a start goes without, and leaves spares of their arrays out.
func (s *lateMembers) expectLate(verdicts []verdict) error {
	var all []lateArray
	for i, a := range s.cfg.Arrays {
		v := &verdicts[i]
		if len(v.Awaited) == 0 {
			continue
		}
		v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(dev string) bool { return slices.Contains(v.Spares, dev) })
		all = append(all, lateArray{md.Hex(a.UUID), v.Awaited, v.Spares})
	}
	if len(all) == 0 {
		s.lateNote().forget()
		return nil
	}
	return s.lateNote().save(all)
}

// expected are the arrays that were started without members.
func (s *lateMembers) expected() (all []lateArray) {
	if err := s.lateNote().load(&all); err != nil {
		s.log.note("%v", err)
	}
	return all
}

// awaits says whether members of an array are still waited for before a spare is rebuilt.
func (s *lateMembers) awaits(uuid string, now time.Time) bool {
	return (s.lateSince.IsZero() || now.Sub(s.lateSince) < lateWait) &&
		slices.ContainsFunc(s.expected(), func(a lateArray) bool { return md.SameUUID(a.UUID, uuid) && len(a.Numbers) > 0 })
}

// lateDue adds late members again, and spares that were left out for them.
func (s *lateMembers) lateDue(w watch) action {
	if len(s.expected()) == 0 {
		s.lateSince = time.Time{}
		return nil
	}
	if _, all, err := s.svc.active(); err != nil || !all {
		return nil
	}
	if s.lateSince.IsZero() {
		s.lateSince = s.k.Now()
	}
	waited := s.k.Now().Sub(s.lateSince) >= lateWait
	return func(ctx context.Context) {
		// Disks are asked without the lock, which a stop needs. The end of the watcher ends that.
		before := s.expected()
		adds, left := s.lateAdds(ctx, before, waited)
		if len(adds) == 0 && reflect.DeepEqual(left, before) {
			return
		}
		unlock, err := w.lock()
		if err != nil {
			return
		}
		defer unlock()
		if s.svc.mine(ctx) != nil || !reflect.DeepEqual(s.expected(), before) {
			return
		}
		for _, a := range adds {
			s.addLate(context.WithoutCancel(ctx), a, w.record)
		}
		if len(left) == 0 {
			s.lateNote().forget()
		} else if err := s.lateNote().save(left); err != nil {
			w.log("%v", err)
		}
	}
}

// lateAdd is a disk to be added to an array.
type lateAdd struct{ array, how, disk, why string }

// lateAdds are the disks to be added now, and what is waited for afterwards.
func (s *lateMembers) lateAdds(ctx context.Context, expected []lateArray, waited bool) (adds []lateAdd, left []lateArray) {
	all, err := s.arrays()
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
		a, ok := all[late.UUID]
		if !ok || a.usable() != nil {
			left = append(left, late)
			continue
		}
		var numbers []int
		for _, n := range late.Numbers {
			dev := ""
			for d, sb := range found {
				if sb != nil && sb.UUID == late.UUID && int(sb.DevNumber) == n {
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
		if len(numbers) == 0 || waited {
			for _, d := range late.Spares {
				if sb := found[d]; sb != nil && sb.UUID == late.UUID {
					adds = append(adds, lateAdd{a.Dev, "--add", d, "a spare that the start had left out while a member was waited for"})
				}
			}
			late.Spares = nil
		}
		if len(late.Numbers) > 0 || len(late.Spares) > 0 {
			left = append(left, late)
		}
	}
	return adds, left
}

// outside reads the superblocks of disks of the service that no array of it works with.
func (s *lateMembers) outside(ctx context.Context, in map[string]bool) []member {
	var names []string
	for _, a := range s.cfg.Arrays {
		for _, dev := range a.Members {
			if real, err := s.k.Realpath(dev); err == nil && !in[path.Base(real)] && s.hasPath(path.Base(real)) {
				names = append(names, dev)
			}
		}
	}
	read := superblocks{}
	s.readSuperblocks(ctx, names, read)
	return slices.Collect(maps.Values(read))
}

// addLate adds a disk. A member that md does not take back stays out, as one does that was
// thrown out; `mortar apply` adds it anew.
//
// Source: mdadm(8), --re-add
func (s *lateMembers) addLate(ctx context.Context, a lateAdd, record func(string, ...any)) {
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	what := "add " + path.Base(a.disk) + " to array " + a.array + " again"
	if a.how == "--add" {
		what = "add spare " + path.Base(a.disk) + " to array " + a.array
	}
	if _, err := s.k.Run(ctx, kernel.Command{Argv: []string{"mdadm", "--manage", "/dev/" + a.array, a.how, a.disk}}); err != nil {
		record("failed: %s: `mortar apply` adds it anew: %v", what, err)
		return
	}
	record("%s: %s", what, a.why)
}
