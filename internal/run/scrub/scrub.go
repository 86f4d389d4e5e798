// Package scrub checks the RAID groups of a brick and mends them where a single
// member is wrong. The kernel's own "repair" does not: it takes the data for
// right and computes P and Q anew, so that wrong data becomes consistent. With
// two parities and one wrong member the culprit can be computed; raid6check of
// mdadm's sources does so, but no Debian package carries it.
//
// Package raid6 has the arithmetic. array.go works on the server that
// has the array (`mortar scrub-array`). scrub.go, on the administrator's
// machine, knows which group is where and which disk a member is. Nothing here
// decides when to scrub, or prints.
package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Group is the outcome for one RAID group.
type Group struct {
	Name   string `json:"group"`
	Server string `json:"server"` // that had the array
	Result
	// Disks that were wrong: how many blocks of each.
	Disks []Disk `json:"disks"`
}

// Disk that did not hold what it should.
type Disk struct {
	Serial    string `json:"serial"`
	Enclosure string `json:"enclosure"`
	Bay       int    `json:"bay"`
	Blocks    int    `json:"blocks"` // of 4 KiB, among the findings
}

// Clean says that nothing is wrong any more.
func (g *Group) Clean() bool { return g.Left == 0 }

// longest a scrub of the largest disks may take.
const longest = 14 * 24 * 3600

// Run scrubs a group. progress is told how far the kernel's check is, in percent
// of a pass.
func Run(ctx context.Context, hosts host.ByName, d *design.Design, g design.Group, repair bool, progress func(percent float64)) (Group, error) {
	out := Group{Name: g.Name, Disks: []Disk{}}
	if g.Array != "" {
		return out, &resource.Refusal{What: fmt.Sprintf("group %s is inside of array %s", g.Name, g.Array), Mend: "let the array scrub it (its own scrub or media scan)"}
	}
	if g.Level != 6 {
		return out, &resource.Refusal{What: fmt.Sprintf("group %s is RAID %d, where nothing says which copy is right", g.Name, g.Level), Mend: "only RAID 6 is scrubbed"}
	}
	var facts resource.HostFacts
	var errs []error
	dev := ""
	for _, s := range d.Spec.Servers {
		f, err := hosts(s.Name).Facts(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		facts = f.HostFacts
		for _, a := range facts.Arrays {
			if md.SameUUID(a.UUID, g.UUID) && a.Running() {
				out.Server, dev = s.Name, a.Dev
			}
		}
		if out.Server != "" {
			break
		}
	}
	if out.Server == "" {
		return out, errors.Join(append(errs, fmt.Errorf("group %s runs on no server that answers", g.Name))...)
	}
	argv := []string{plan.BinaryName, "scrub-array", "/dev/" + dev}
	if repair {
		argv = append(argv, "--repair")
	}
	server := hosts(out.Server)
	pctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { follow(pctx, server, dev, progress) })
	a := resource.Action{Title: "scrub " + g.Name, Cmd: argv, Seconds: longest}
	o, err := server.Run(ctx, a)
	stop()
	wg.Wait()
	if err != nil {
		return out, fmt.Errorf("%s: %w", out.Server, err)
	}
	if err := json.Unmarshal([]byte(o.Stdout), &out.Result); err != nil {
		return out, fmt.Errorf("%s: what scrub-array says: %w", out.Server, err)
	}
	return out, out.blame(ctx, server, d, facts.Disks)
}

// blame finds out which disks the members are.
func (g *Group) blame(ctx context.Context, s *host.Session, d *design.Design, disks []resource.DiskFact) error {
	blocks := map[string]int{}
	var order []string
	for _, f := range g.Findings {
		if f.Member == "" {
			continue
		}
		if blocks[f.Member] == 0 {
			order = append(order, f.Member)
		}
		blocks[f.Member]++
	}
	for _, m := range order {
		name, _ := s.Read(ctx, "/sys/block/"+m+"/dm/name") // not every disk is a map
		x := Disk{Serial: m, Blocks: blocks[m]}
		if f, ok := resource.DiskOf(disks, m, strings.TrimSpace(name)); ok {
			x.Serial = f.Serial
			for _, k := range d.Disks {
				if strings.EqualFold(k.Serial, f.Serial) {
					x.Enclosure, x.Bay = k.Enclosure, k.Bay
				}
			}
		}
		g.Disks = append(g.Disks, x)
	}
	return nil
}

// follow looks how far the check is. Source: Documentation/admin-guide/md.rst
func follow(ctx context.Context, s *host.Session, dev string, progress func(float64)) {
	if progress == nil {
		return
	}
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		text, err := s.Read(ctx, path.Join("/sys/block", dev, "md/sync_completed"))
		if err != nil {
			continue // the outcome is told by the scrub itself
		}
		if p, ok := percent(text); ok {
			progress(p)
		}
	}
}

// percent reads "done / all" of sync_completed.
func percent(s string) (float64, bool) {
	done, all, ok := strings.Cut(s, " / ")
	a, err1 := strconv.ParseFloat(strings.TrimSpace(done), 64)
	b, err2 := strconv.ParseFloat(strings.TrimSpace(all), 64)
	if !ok || err1 != nil || err2 != nil || b <= 0 {
		return 0, false
	}
	return 100 * a / b, true
}

// Groups are the RAID groups of those names, or all.
func Groups(d *design.Design, names []string) ([]design.Group, error) {
	var out []design.Group
	var all []string
	for _, g := range d.Groups {
		all = append(all, g.Name)
		if len(names) == 0 || slices.Contains(names, g.Name) {
			out = append(out, g)
		}
	}
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("there is no RAID group %s; there are %s", n, strings.Join(all, ", "))
		}
	}
	return out, nil
}
