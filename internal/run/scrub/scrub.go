// Package scrub checks the RAID groups of a brick and repairs stripes in which a
// single member is wrong. The kernel's own "repair" does not: it assumes that the
// data is right and computes P and Q again, which makes wrong data consistent. From
// two parities and one wrong member, scrub computes which member is wrong.
// raid6check of mdadm's sources does the same, but no Debian package contains it.
//
// Package raid6 has the arithmetic. array.go works on the server that has the array
// (`mortar scrub-array`). scrub.go works on the administrator's machine and maps
// groups to servers and members to disks; run.go scrubs one group after the other.
// The package does not decide when to scrub.
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

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Group is the outcome for one RAID group.
type Group struct {
	Name   string `json:"group"`
	Server string `json:"server"` // server of the array
	Result
	// Disks with wrong blocks.
	Disks []Disk `json:"disks"`
}

// Disk is a disk with wrong blocks.
type Disk struct {
	Serial    string `json:"serial"`
	Enclosure string `json:"enclosure"`
	Bay       int    `json:"bay"`
	Blocks    int    `json:"blocks"` // of 4 KiB, among the findings
}

// Clean reports whether no mismatch is left.
func (g *Group) Clean() bool { return g.Left == 0 }

// Repair is the option with which what can be mended is.
const Repair = "--repair"

// longest bounds a scrub of the largest disks, in seconds.
const longest = 14 * 24 * 3600

// Run scrubs a group, with options of `mortar scrub-array`. progress, which may be nil, receives
// the kernel's progress in percent of a pass.
func Run(ctx context.Context, hosts host.ByName, d *design.Design, g design.Group, progress func(percent float64), options ...string) (Group, error) {
	out := Group{Name: g.Name, Disks: []Disk{}}
	if g.Array != "" {
		return out, resource.Refuse("scrub-in-array", resource.With{"group": g.Name, "array": g.Array})
	}
	if g.Level != 6 {
		return out, resource.Refuse("scrub-level", resource.With{"group": g.Name, "level": g.Level})
	}
	var seen gather.Host
	var errs []error
	dev := ""
	for _, s := range d.Spec.Servers {
		var err error
		if seen, err = host.Ask(ctx, hosts(s.Name), gather.Op, gather.ArrayRequest()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		if a := seen.Running(g.UUID); a != nil {
			out.Server, dev = s.Name, a.Dev
			break
		}
	}
	if out.Server == "" {
		return out, errors.Join(append(errs, fmt.Errorf("group %s runs on no server that answers", g.Name))...)
	}
	argv := append([]string{plan.BinaryName, "scrub-array", "/dev/" + dev}, options...)
	server := hosts(out.Server)
	pctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { follow(pctx, server, dev, progress) })
	a := resource.Action{Title: "scrub " + g.Name, Cmd: argv, Seconds: longest}
	if !slices.Contains(options, Repair) { // which writes to members, so that none may be taken out meanwhile
		a.Beside = "scrub-" + dev
	}
	o, err := server.Run(ctx, a)
	stop()
	wg.Wait()
	if err != nil {
		return out, fmt.Errorf("%s: %w", out.Server, err)
	}
	if err := json.Unmarshal([]byte(o.Stdout), &out.Result); err != nil {
		return out, fmt.Errorf("%s: what scrub-array says: %w", out.Server, err)
	}
	return out.blame(d, &seen), nil
}

// blame is the group with the disks of the wrong members.
func (g Group) blame(d *design.Design, seen *gather.Host) Group {
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
		x := Disk{Serial: m, Blocks: blocks[m]}
		if f, ok := seen.DiskOf(m); ok {
			x.Serial = f.Serial
			for _, k := range d.Disks {
				if strings.EqualFold(k.Serial, f.Serial) {
					x.Enclosure, x.Bay = k.Enclosure, k.Bay
				}
			}
		}
		g.Disks = append(g.Disks, x)
	}
	return g
}

// follow reports the progress of the check. Source: Documentation/admin-guide/md.rst
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
			continue // the scrub itself reports errors
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

// Groups returns the RAID groups with those names, or all. An unknown name is an
// error.
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
