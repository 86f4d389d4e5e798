package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/scrub"
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
	slow := lists.Map(m.members(), slowed)
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
	groups := lists.Flat(m.Design.Services(), m.Design.MDGroups)
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
			r, err := scrub.Run(ctx, b.Hosts.Session, b.Design, g, nil, "--within", parityTime.String())
			out[i] = consistent(g, r.Mismatches, r.Percent, err)
		})
	}
	wg.Wait()
	return out
}

// consistent passes if no sector differs of those that were compared, in percent of the group.
func consistent(g design.Group, mismatches int64, percent float64, err error) report.Check {
	c := report.Check{Name: "RAID consistent", OK: err == nil && mismatches == 0 && percent > 0}
	switch {
	case err != nil:
		c.Detail = fmt.Sprintf("%s could not be compared: %v", g.Name, err)
	case percent == 0:
		c.Detail = fmt.Sprintf("nothing of %s was compared", g.Name)
	case percent >= 100:
		c.Detail = fmt.Sprintf("data and parities of %s differ in %d sectors", g.Name, mismatches)
	default:
		c.Detail = fmt.Sprintf("data and parities of %s differ in %d of the sectors compared within %s (%.0f %% of them)", g.Name, mismatches, report.Seconds(parityTime.Seconds()), percent)
	}
	return c
}

func (m mdStorage) Rot() error {
	if m.Group.Level != 6 || len(m.Service.Storage.Groups) != 1 {
		return errors.New("bytes are only found again on a volume of one RAID 6 group")
	}
	return nil
}
