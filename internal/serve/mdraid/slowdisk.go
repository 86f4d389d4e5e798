package mdraid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	rule "github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/pace"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The watcher has md go on without a slow disk, if the spec says so (pace.go has the
// rule). It calls the disk failed, and md rebuilds a spare from the other members.
//
// It does not have md copy the disk to a spare (mdadm --replace), which would keep
// the redundancy: md reads the copy from the disk that is to go, and writes to it
// until the copy is done. A disk that does two operations a second would need years,
// and clients would wait for it all the time. Source: mdadm(8), --replace.
//
// Before, it records the disk in the cluster's configuration (linux.Dropped): status
// says why the disk is out, and apply does not add it again. A restart of the service
// leaves it out by its superblock, which is out of date.

// slowDisks is what the watcher knows of the disks of a service.
type slowDisks struct {
	*disks
	Shots []pace.Shot // the newest is the last
	past  pace.History
	said  unit.Limit // by kernel name: it was logged why the disk is not dropped
}

const (
	// sayAgain is after how long it is logged once more that a disk is slow.
	sayAgain = 10 * time.Minute
	// tidyEvery is how often records of disks that are back are looked for.
	tidyEvery = time.Minute
	// stoodStill is how long no server takes for a window, however busy it is: one that
	// stood still has seen nothing of its disks.
	stoodStill = 4 * pace.PaceWindow
	// dropTime bounds each command of a drop. md waits for requests that are under way.
	dropTime = time.Minute
)

// Paced measures the members of the arrays.
func (s *Kind) Paced() func() string { return pace.Measured(s.Host, s.slowSince) }

// slowSince names the one disk that was slow since a shot. A disk that answers nothing at
// all is not named: md drops it, or the server has lost it. Nor are two slow ones, or one
// with a well path: then the cause may be this server.
func (s *Kind) slowSince(before pace.Shot) string {
	after, err := pace.Shoot(s.Host)
	all, aerr := s.Arrays()
	if err != nil || aerr != nil {
		return ""
	}
	seen, window := rule.Between(before.Stat, after.Stat), after.At.Sub(before.At)
	var late []string
	for _, a := range s.ours(all) {
		members, err := linux.MDMembers(s.K, a.Dev)
		if err != nil {
			return ""
		}
		for dev, p := range pacesOf(members, seen, window) {
			if p.Verdict != pace.Slow {
				continue
			}
			paths, err := s.pathsOf(dev)
			if seen[dev].Stuck || err != nil || pace.OfThePath(seen[dev], paths, seen) != nil {
				return ""
			}
			serial, _ := s.Named(dev)
			late = append(late, fmt.Sprintf("disk %s takes %d ms for an answer, its peers %d ms", cmp.Or(serial, dev), p.Took.Milliseconds(), p.Peers.Milliseconds()))
		}
	}
	if len(late) != 1 {
		return ""
	}
	return late[0]
}

// pacesOf judges the members of a group that are in sync.
func pacesOf(members []linux.MDMember, seen map[string]rule.Answers, window time.Duration) map[string]pace.Pace {
	out := map[string]pace.Pace{}
	for _, m := range members {
		var peers []rule.Answers
		for _, p := range members {
			if got, ok := seen[p.Dev]; ok && p.Dev != m.Dev && p.Is("in_sync") {
				peers = append(peers, got)
			}
		}
		if own, ok := seen[m.Dev]; ok && m.Is("in_sync") {
			out[m.Dev] = pace.PaceOf(own, peers, window)
		}
	}
	return out
}

// pathsOf are the paths of a disk; none if it has only one.
func (s *disks) pathsOf(dev string) ([]string, error) {
	if !strings.HasPrefix(dev, "dm-") {
		return nil, nil
	}
	return s.K.ReadDir("/sys/block/" + dev + "/slaves")
}

// forget makes the past count no more.
func (d *slowDisks) forget() { d.Shots, d.past = nil, pace.History{} }

// dropDue takes in what the members did since the last look, and drops the one that is slow.
func (s *slowDisks) dropDue(w unit.Watch) unit.Act {
	if !s.Cfg.DropSlow {
		s.forget()
		return nil
	}
	all, err := s.Arrays()
	if err != nil || len(s.ours(all)) == 0 {
		s.forget()
		return nil
	}
	next, err := pace.Shoot(s.Host)
	if err == nil {
		err = s.window(next, all)
	}
	if err != nil {
		s.forget()
		return nil
	}
	return s.drop(w, all)
}

// window takes in what the members did since the last shot.
func (s *slowDisks) window(next pace.Shot, all map[string]mdArray) error {
	d := s
	n := len(d.Shots)
	if n > 0 && next.At.Sub(d.Shots[n-1].At) > stoodStill || d.past == nil {
		d.forget()
		n = 0
	}
	d.Shots = append(d.Shots, next)
	d.Shots = d.Shots[max(0, len(d.Shots)-1-pace.PaceWindows):]
	if n == 0 {
		return nil
	}
	last := d.Shots[len(d.Shots)-2]
	seen := rule.Between(last.Stat, next.Stat)
	past := d.past
	d.past = pace.History{} // without those that are no members now
	for _, a := range s.ours(all) {
		members, err := linux.MDMembers(s.K, a.Dev)
		if err != nil {
			return err
		}
		for dev, p := range pacesOf(members, seen, next.At.Sub(last.At)) {
			d.past[dev] = past[dev]
			d.past.Add(dev, p)
		}
	}
	return nil
}

// drop drops the disk that was slow for most of a minute, if there is one and its
// array can go on without it. Otherwise it logs why not.
func (s *slowDisks) drop(w unit.Watch, all map[string]mdArray) unit.Act {
	dev, p, err := s.past.Suspect()
	if dev == "" {
		return nil
	}
	group, ferr := s.mayLose(all, dev)
	rec := linux.Dropped{Node: s.Node, Group: group.Name, At: s.K.Now(), TookMS: p.Took.Milliseconds(), PeersMS: p.Peers.Milliseconds()}
	rec.Serial, rec.Device = s.Named(dev)
	if err == nil && rec.Serial == "" {
		err = errors.New("the configuration does not have it")
	}
	if err == nil {
		err = ferr
	}
	if err == nil {
		err = s.OfThePath(dev)
	}
	if err != nil {
		if s.said.Allows(dev, s.K.Now(), 1, sayAgain) {
			w.Log("%s", whyStays(rec, dev, err))
		}
		return nil
	}
	s.forget()
	return func(context.Context) { s.fail(w, rec, dev) }
}

// whyStays says why a slow disk stays in its group.
func whyStays(rec linux.Dropped, dev string, why error) string {
	return fmt.Sprintf("disk %s of group %s is slow (%s), and stays in it: %v", cmp.Or(rec.Serial, dev), rec.Group, rec.Words(), why)
}

// mayLose finds the group of a disk, and says why the group must not go on without it.
func (s *slowDisks) mayLose(all map[string]mdArray, dev string) (Array, error) {
	group, a, members, err := s.groupOf(all, dev)
	if err != nil {
		return group, err
	}
	absent, err := s.Absent(group, all)
	if err != nil {
		return group, err
	}
	return group, pace.MayDrop(a.MDArray, members, dev, absent)
}

func (s *slowDisks) groupOf(all map[string]mdArray, dev string) (Array, mdArray, []linux.MDMember, error) {
	for _, want := range s.Cfg.Arrays {
		a, ok := all[md.Hex(want.UUID)]
		if !ok {
			continue
		}
		members, err := linux.MDMembers(s.K, a.Dev)
		if err != nil {
			return want, a, nil, err
		}
		if slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Dev == dev }) {
			return want, a, members, nil
		}
	}
	return Array{}, mdArray{}, nil, errors.New("no array has it")
}

// Named gives serial number and device of a member by the configuration. As a spare
// it may have been of another group of the service.
func (s *disks) Named(dev string) (serial, device string) {
	for _, a := range s.Cfg.Arrays {
		for i, m := range a.Members {
			if real, err := s.K.Realpath(m); err == nil && path.Base(real) == dev && i < len(a.Serials) {
				return a.Serials[i], m
			}
		}
	}
	return "", ""
}

// Absent are the serial numbers of the group's disks that no array of the service
// has. A spare that waits or that another group has, and a disk that the spec lists as
// failed, are not absent.
func (s *slowDisks) Absent(group Array, all map[string]mdArray) (out []string, err error) {
	in, err := s.membersOf(all)
	if err != nil {
		return nil, err
	}
	waits := s.waiting()
	for i, m := range group.Members {
		if i >= len(group.Serials) || group.failed(i) {
			continue
		}
		real, err := s.K.Realpath(m)
		if err != nil || !in[path.Base(real)] && !(waits[m] != "" && s.HasPath(path.Base(real))) {
			out = append(out, group.Serials[i])
		}
	}
	return out, nil
}

// membersOf are the kernel names of the disks that the service's groups have, without
// those that md calls failed.
func (s *disks) membersOf(all map[string]mdArray) (map[string]bool, error) {
	in := map[string]bool{}
	for _, a := range s.ours(all) {
		members, err := linux.MDMembers(s.K, a.Dev)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if !m.Is("faulty") {
				in[m.Dev] = true
			}
		}
	}
	return in, nil
}

// OfThePath compares the paths of a slow disk over windows in which it was slow from
// begin to end.
func (s *slowDisks) OfThePath(dev string) error {
	paths, err := s.pathsOf(dev)
	if err != nil {
		return fmt.Errorf("its paths cannot be read: %w", err)
	}
	n := len(s.Shots)
	oldest, newest := s.Shots[n-pace.SlowWindows], s.Shots[n-1]
	seen := rule.Between(oldest.Stat, newest.Stat)
	return pace.OfThePath(seen[dev], paths, seen)
}

// fail records a disk as dropped, and has md call it failed. It runs beside the
// watcher, which has more urgent things to see: md waits for requests that are under
// way.
//
// The cluster may take a minute for the record, in which the group may lose another disk
// or the service stop. So it looks once more, under the lock of the service's actions,
// and takes the record back if the disk is to stay.
func (s *slowDisks) fail(w unit.Watch, rec linux.Dropped, dev string) {
	text := fmt.Sprintf("%s of group %s: %s", rec.Serial, rec.Group, rec.Words())
	if err := s.run(context.Background(), dropTime, "crm_attribute", "--node", rec.Node, "--name", rec.Attr(), "--update", rec.String(), "--lifetime", "forever"); err != nil {
		w.Record("failed: drop slow disk %s: %v", text, err)
		return
	}
	keep, err := s.failNow(w, rec, dev)
	switch {
	case keep != nil:
		w.Log("%s", whyStays(rec, dev, keep))
		if err := s.run(context.Background(), dropTime, rec.Forget()...); err != nil {
			w.Log("%v", err) // tidy tries again
		}
	case err != nil:
		w.Record("failed: drop slow disk %s: %v", text, err)
	default:
		w.Record("%s%s", linux.DroppedLog, text)
	}
}

// failNow has md call a disk failed, under the lock of the service's actions; keep says
// why the disk must stay instead.
func (s *slowDisks) failNow(w unit.Watch, rec linux.Dropped, dev string) (keep, err error) {
	unlock, keep := w.Lock()
	if keep != nil {
		return keep, nil
	}
	defer unlock()
	array, keep := s.stillDue(rec, dev)
	if keep != nil {
		return keep, nil
	}
	return nil, s.run(context.Background(), dropTime, "mdadm", "--manage", "/dev/"+array, "--fail", dev)
}

// run runs a command, and ends it after limit.
func (s *disks) run(ctx context.Context, limit time.Duration, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := s.K.Run(ctx, kernel.Command{Argv: argv})
	return err
}

// stillDue looks once more at a disk that was recorded as dropped. It gives the kernel's
// name of its array, or says why the disk must stay there.
func (s *slowDisks) stillDue(rec linux.Dropped, dev string) (array string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), dropTime)
	defer cancel()
	if err := s.svc.Mine(ctx); err != nil {
		return "", err
	}
	all, err := s.Arrays()
	if err != nil {
		return "", err
	}
	group, err := s.mayLose(all, dev)
	if err != nil {
		return "", err
	}
	// The kernel gives a name again whose disk is gone.
	if serial, _ := s.Named(dev); serial != rec.Serial || group.Name != rec.Group {
		return "", fmt.Errorf("%s is disk %s of group %s now", dev, serial, group.Name)
	}
	return all[md.Hex(group.UUID)].Dev, nil
}

// tidy removes the records of disks that are in their array again, or that the
// configuration has no more.
func (s *slowDisks) tidy(ctx context.Context, w unit.Watch) {
	recs, err := linux.ReadDropped(s.K.ReadFile)
	if err != nil {
		w.Log("%v", err)
	}
	if len(recs) == 0 {
		return
	}
	all, err := s.Arrays()
	if err != nil {
		return
	}
	for _, rec := range recs {
		i := slices.IndexFunc(s.Cfg.Arrays, func(a Array) bool { return a.Name == rec.Group })
		if i < 0 || s.Out(s.Cfg.Arrays[i], all, rec) {
			continue
		}
		if err := s.run(ctx, 10*time.Second, rec.Forget()...); err != nil {
			w.Log("%v", err)
			continue
		}
		w.Log("disk %s of group %s is no dropped disk any more", rec.Serial, rec.Group)
	}
}

// Out says whether a dropped disk is still one: the service has it by the
// configuration, and no array of the service works with it. A group that is not here
// tells nothing.
func (s *slowDisks) Out(group Array, all map[string]mdArray, rec linux.Dropped) bool {
	if _, ok := all[md.Hex(group.UUID)]; !ok {
		return true
	}
	if !slices.ContainsFunc(s.Cfg.Arrays, func(a Array) bool { return slices.Contains(a.Members, rec.Device) }) {
		return false
	}
	real, err := s.K.Realpath(rec.Device)
	if err != nil {
		return true
	}
	in, err := s.membersOf(all)
	return err != nil || !in[path.Base(real)]
}
