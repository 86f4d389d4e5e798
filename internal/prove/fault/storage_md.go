package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// mdStorage are md arrays of disks.
type mdStorage struct{ Scene }

func (m mdStorage) RAIDGroup(ctx context.Context, b *Site) (g design.Group, members []string, err error) {
	all := m.Design.MDGroups(m.Service)
	if len(all) == 0 {
		return g, nil, nil
	}
	_, members, err = b.GroupMembers(ctx, all[0])
	return all[0], members, err
}

func (m mdStorage) Reached() (string, error) {
	ds, err := m.Disks(1)
	return strings.Join(ds, ""), err
}

func (m mdStorage) Module() (f Fault, home *Condition, err error) {
	all := m.enclosures()
	if len(all) == 0 {
		return f, nil, errors.New("the service has no disk in an enclosure")
	}
	return Fault{Kind: ModuleOut, Args: []string{all[0], "0"}}, nil, nil
}

func (m mdStorage) Pulled(serial string) Fault { return Fault{Kind: DiskOut, Args: []string{serial}} }

func (m mdStorage) Slow() (Fault, error) {
	ds, err := m.Disks(1)
	if err != nil {
		return Fault{}, err
	}
	return Fault{Kind: DiskSlow, Args: slowed(ds[:1])}, nil
}

// slowed are the arguments of DiskSlow for a disk: operations and bytes a second.
func slowed(disk []string) []string { return append(slices.Clone(disk), "2", "20000") }

func (m mdStorage) Without(serials ...string) *Condition {
	g, n := m.Group, len(serials)
	spared, what := len(g.Spares) >= n, "degraded"
	if spared {
		what = "spare takes over"
	}
	// The watcher adds a spare after half a minute, and looks each 10 s.
	return &Condition{What: what, Limit: 2 * time.Minute, Sign: true, Look: func(ctx context.Context, v *Site) (bool, string) {
		a, members, err := v.GroupMembers(ctx, g)
		if err != nil {
			return false, err.Error()
		}
		for _, s := range serials {
			if slices.Contains(members, s) {
				return false, fmt.Sprintf("disk %s is in its place in array %s", s, g.Name)
			}
		}
		switch {
		case !spared:
			return a.Degraded == n, fmt.Sprintf("array %s runs without %d of its disks", g.Name, a.Degraded)
		case a.Action == "recover":
			return true, fmt.Sprintf("array %s rebuilds a spare", g.Name)
		case a.Degraded == 0:
			return true, fmt.Sprintf("array %s has rebuilt its spares", g.Name)
		}
		return false, fmt.Sprintf("array %s does not rebuild (sync_action is %q, degraded %d)", g.Name, a.Action, a.Degraded)
	}}
}

// overEach are the paths to disks or LUNs over each HBA of a server.
func overEach(names [][]string) (out [][]string) {
	for _, n := range names {
		out = append(out, append(slices.Clone(n), "0"), append(slices.Clone(n), "1"))
	}
	return out
}

// enclosures are those with disks of the service's pair: only its servers lose a path with
// their modules.
func (m mdStorage) enclosures() (out []string) {
	disks := m.Design.DisksOf(m.Design.PairOf(m.Service.Name))
	for _, e := range m.Design.Spec.Enclosures {
		if slices.ContainsFunc(disks, func(d design.Disk) bool { return d.Enclosure == e.Name }) {
			out = append(out, e.Name)
		}
	}
	return out
}

func (m mdStorage) Parts() map[Kind][][]string {
	var modules [][]string
	for _, name := range m.enclosures() {
		modules = append(modules, []string{name, "0"}, []string{name, "1"})
	}
	var slow [][]string
	for _, d := range m.members() {
		slow = append(slow, slowed(d))
	}
	return map[Kind][][]string{ModuleOut: modules, DiskOut: m.members(), DiskSlow: slow, PathOut: overEach(m.members())}
}

// parityTime bounds the comparison of a group's data and parities. It is enough
// for the disks of a virtual rack. Real disks take days; `mortar scrub` reads them
// whole.
const parityTime = 3 * time.Minute

// Parity makes md compare the groups of every service concurrently: a fault of the
// whole rack meets them all. It skips mirrors: if a page changes while md writes it,
// the halves differ without a fault.
//
// Source: Documentation/admin-guide/md.rst, sync_action and mismatch_cnt; md(4), SCRUBBING AND MISMATCHES
func (m mdStorage) Parity(ctx context.Context, b *Site) []report.Check {
	var groups []design.Group
	for _, s := range m.Design.Services() {
		groups = append(groups, m.Design.MDGroups(s)...)
	}
	groups = slices.DeleteFunc(groups, func(g design.Group) bool {
		if g.Level != 6 {
			b.Say("not compared: %s (the halves of a mirror may differ without a fault)", g.Name)
		}
		return g.Level != 6
	})
	out := make([]report.Check, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			b.Say("comparing data and parities of %s", g.Name)
			p, err := compareGroup(ctx, b, g)
			out[i] = p.check(g, err)
		})
	}
	wg.Wait()
	return out
}

// compared is the progress and the result of a comparison by md.
type compared struct {
	Done       string // sync_completed, if the comparison did not end in time
	Nothing    bool   // it has not begun, or md did something else
	Stopped    bool   // it ended, but not at the end of the group
	Mismatches string // sectors
}

// check passes only if no sector differs.
func (p compared) check(g design.Group, err error) report.Check {
	c := report.Check{Name: "RAID consistent", OK: err == nil && p.Mismatches == "0" && !p.Stopped && !p.Nothing}
	switch {
	case err != nil:
		c.Detail = fmt.Sprintf("%s could not be compared: %v", g.Name, err)
	case p.Nothing:
		c.Detail = fmt.Sprintf("nothing of %s was compared", g.Name)
	case p.Stopped:
		c.Detail = fmt.Sprintf("the comparison of %s was stopped before its end", g.Name)
	case p.Done == "":
		c.Detail = fmt.Sprintf("data and parities of %s differ in %s sectors", g.Name, p.Mismatches)
	default:
		c.Detail = fmt.Sprintf("data and parities of %s differ in %s of the sectors compared within %s (%s)", g.Name, p.Mismatches, report.Seconds(parityTime.Seconds()), p.Done)
	}
	return c
}

// compareGroup makes md read a group, to its end or until parityTime has passed.
func compareGroup(ctx context.Context, b *Site, g design.Group) (p compared, err error) {
	of := b.Design.On(g.Name)
	if of == nil {
		return p, fmt.Errorf("no service has group %s", g.Name)
	}
	on, err := b.server(ctx, of.Name)
	if err != nil {
		return p, err
	}
	a, _, err := ArrayOn(ctx, b, on, g)
	if err != nil {
		return p, err
	}
	return compareAt(ctx, b, g, on, a.Dev)
}

// compareAt is compareGroup, once it is known where the array is.
func compareAt(ctx context.Context, b *Site, g design.Group, on, dev string) (p compared, err error) {
	act := func(ctx context.Context, action string) error {
		return b.Run(ctx, on, action+" "+g.Name, "mdadm", "--action="+action, "/dev/"+dev)
	}
	read := func(file string) string {
		s, rerr := b.Read(ctx, on, "/sys/block/"+dev+"/md/"+file)
		err = errors.Join(err, rerr)
		return s
	}
	// A check that was stopped had md begin the next one where it stopped.
	fromStart := func() error {
		return b.Do(ctx, on, resource.Action{Title: "compare " + g.Name + " from its start", File: &resource.File{Path: "/sys/block/" + dev + "/md/sync_min", Content: []byte("0")}})
	}
	if err := errors.Join(fromStart(), act(ctx, "check")); err != nil {
		return p, err
	}
	p.Nothing = true // until md is seen at it
	for limit := time.Now().Add(parityTime); ; {
		if read("sync_action") != "check" || err != nil {
			break
		}
		p.Nothing = false
		if time.Now().After(limit) {
			p.Done = read("sync_completed")
			n, _, _ := strings.Cut(p.Done, " ") // "none" and "delayed", too
			sectors, _ := strconv.ParseInt(n, 10, 64)
			p.Nothing = sectors == 0
			err = errors.Join(err, act(ctx, "idle"), untilSeen(ctx, fromStart)) // md refuses it until it is idle
			break
		}
		if err := b.Sleep(ctx, time.Second); err != nil {
			return p, errors.Join(err, act(context.WithoutCancel(ctx), "idle"))
		}
	}
	p.Mismatches = read("mismatch_cnt")
	// md forgets where a check began when it reaches the end; one that is stopped
	// leaves the place. Source: md_do_sync() in drivers/md/md.c
	p.Stopped = p.Done == "" && read("sync_min") != "0"
	return p, err
}

func (m mdStorage) Rot() error {
	if m.Group.Level != 6 || len(m.Service.Storage.Groups) != 1 {
		return errors.New("bytes are only found again on a volume of one RAID 6 group")
	}
	return nil
}
