// Package disk handles single disks of md arrays: it finds a disk, returns the
// reasons against taking it out of service or replacing it, and follows md's
// rebuild. It does not change arrays: the spec says which disks are in service, and
// package plan changes the arrays accordingly.
//
// The package does not change a host, does not write a spec, and prints nothing.
package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Place is a disk of a brick and its RAID group in the design.
type Place struct {
	Disk  design.Disk
	Group design.Group
	// peers are the other groups of the service: as a spare the disk may have moved
	// to one of them.
	peers []design.Group
	// servers that reach it.
	servers []string
}

// String names the disk with enclosure, bay and group.
func (p *Place) String() string {
	return fmt.Sprintf("disk %s (enclosure %s, bay %d) of group %s", p.Disk.Serial, p.Disk.Enclosure, p.Disk.Bay, p.Group.Name)
}

func (p *Place) named() resource.Named { return resource.Named{ID: p.Disk.Serial, Words: p.String()} }

// Find returns the place of a disk by its serial number. An unknown serial is an
// error.
func Find(d *design.Design, serial string) (*Place, error) {
	for i := range d.Pairs {
		for _, g := range d.ArraysOf(&d.Pairs[i]) {
			for _, k := range append(slices.Clone(g.Members), g.Spares...) {
				if strings.EqualFold(k.Serial, serial) {
					return &Place{Disk: k, Group: g, peers: d.Peers(&g), servers: d.Pairs[i].Servers}, nil
				}
			}
		}
	}
	if slices.ContainsFunc(d.Disks, func(k design.Disk) bool { return strings.EqualFold(k.Serial, serial) }) {
		return nil, resource.Refuse("disk-in-no-array", resource.With{"disk": serial})
	}
	return nil, resource.Refuse("disk-no-such", resource.With{"disk": serial})
}

// Seen is a disk as a server sees it.
type Seen struct {
	Server string
	resource.DiskFact
}

// SeenBy returns the disks of a pair's md arrays that a server sees, and those that
// the server misses. It skips disks that the spec lists as failed.
func SeenBy(ctx context.Context, hosts host.ByName, d *design.Design, p *design.Pair, server string) (seen, missing []string, err error) {
	h, err := host.Ask(ctx, hosts(server), gather.Op, gather.Request{Disks: true})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", server, err)
	}
	for _, k := range d.DisksOf(p) {
		if k.Failed {
			continue
		}
		if slices.ContainsFunc(h.Disks, func(x resource.DiskFact) bool { return strings.EqualFold(x.Serial, k.Serial) }) {
			seen = append(seen, k.Serial)
		} else {
			missing = append(missing, k.Serial)
		}
	}
	return seen, missing, nil
}

// State is a group on the server that has it assembled.
type State struct {
	Server string
	Group  design.Group
	Array  gather.Array
	// disks of that server.
	disks []resource.DiskFact
}

// Look finds the server that has a place's group assembled, and returns the group's
// state. If the disk has moved to another group of the service, that is the group.
func (p *Place) Look(ctx context.Context, hosts host.ByName) (*State, error) {
	var errs []error
	for _, s := range p.servers {
		h, err := host.Ask(ctx, hosts(s), gather.Op, gather.ArrayRequest())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
			continue
		}
		if st := p.state(s, &h); st != nil {
			return st, nil
		}
	}
	return nil, errors.Join(append(errs, fmt.Errorf("group %s runs on no server that answers", p.Group.Name))...)
}

// state is the state of the group that has the disk on a server; nil if the server does
// not have it assembled.
func (p *Place) state(server string, h *gather.Host) (own *State) {
	for _, g := range append([]design.Group{p.Group}, p.peers...) {
		a := h.Running(g.UUID)
		if a == nil {
			continue
		}
		st := &State{Server: server, Group: g, Array: *a, disks: slices.Clone(h.Disks)}
		st.name(h.Mapped())
		if st.Member(p.Disk.Serial) != nil {
			return st
		}
		if g.Name == p.Group.Name {
			own = st
		}
	}
	return own
}

// name adds to each disk its kernel names: those of its paths and of its multipath
// map.
func (st *State) name(mapped map[string]string) {
	maps := map[string]string{}
	for dev, name := range mapped {
		maps["/dev/mapper/"+name] = dev
	}
	for i := range st.disks {
		if dev := maps[st.disks[i].Device]; dev != "" {
			st.disks[i].Paths = append(st.disks[i].Paths, dev)
		}
	}
}

// Member returns a disk's member of the array; nil if the disk is no member, or the
// server does not see the disk.
func (st *State) Member(serial string) *linux.MDMember {
	for _, k := range st.disks {
		if !strings.EqualFold(k.Serial, serial) {
			continue
		}
		for i := range st.Array.Members {
			if slices.ContainsFunc(k.Paths, func(p string) bool { return p[strings.LastIndexByte(p, '/')+1:] == st.Array.Members[i].Dev }) {
				return &st.Array.Members[i]
			}
		}
	}
	return nil
}

// Busy reports whether md rebuilds or copies in the group.
func (st *State) Busy() bool {
	return slices.Contains([]string{"recovery", "resync", "reshape"}, st.Array.Stat.Action)
}

// Copying reports whether md is copying a member to a spare.
func (st *State) Copying(m *linux.MDMember) bool {
	return m != nil && m.Is("want_replacement") && !m.Is("faulty")
}

// spares counts the members that can replace another.
func (st *State) spares() (n int) {
	for _, m := range st.Array.Members {
		if m.Is("spare") && m.Slot < 0 && !m.Is("faulty") {
			n++
		}
	}
	return n
}

// MayFail refuses to take a disk out of service if its group would lose data, or,
// unless bare is set, its last redundancy.
func (p *Place) MayFail(st *State, bare bool) error {
	m := st.Member(p.Disk.Serial)
	if m == nil || m.Is("faulty") || m.Slot < 0 {
		return nil // the disk holds no data of the group
	}
	if st.spares() > 0 && st.Array.Degraded == 0 {
		return nil // md copies the disk to the spare first
	}
	present := linux.MDPresent(st.Array.RaidDisks, st.Array.Members, func(x linux.MDMember) bool { return x.Dev != m.Dev })
	switch left := md.CanLose(st.Group.Level, md.Near2, present); {
	case left < 0:
		return resource.Refuse("disk-needed", resource.With{"disk": p.named(), "group": st.Group.Name, "missing": st.Array.Degraded, "members": st.Array.RaidDisks})
	case left == 0 && !bare:
		return resource.Refuse("disk-last-copy", resource.With{"disk": p.named(), "group": st.Group.Name})
	}
	return nil
}

// MayReplace refuses to replace a disk that its group still uses.
func (p *Place) MayReplace(st *State, file string) error {
	m := st.Member(p.Disk.Serial)
	switch {
	case st.Copying(m):
		return resource.Refuse("disk-copied", resource.With{"disk": p.named(), "file": file})
	case m != nil && m.Is("in_sync"):
		return resource.Refuse("disk-works", resource.With{"disk": p.named(), "file": file})
	}
	return nil
}

// Found finds a disk on each server that its place is cabled to. It refuses a disk
// that one of these servers does not see.
func (p *Place) Found(ctx context.Context, hosts host.ByName, serial string) ([]Seen, error) {
	var out []Seen
	var not []string
	for _, s := range p.servers {
		f, err := host.Ask(ctx, hosts(s), gather.Op, gather.Request{Disks: true})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		i := slices.IndexFunc(f.Disks, func(k resource.DiskFact) bool { return strings.EqualFold(k.Serial, serial) })
		if i < 0 {
			not = append(not, s)
			continue
		}
		out = append(out, Seen{s, f.Disks[i]})
	}
	if len(not) > 0 {
		return out, resource.Refuse("disk-unseen", resource.With{"disk": serial, "servers": not})
	}
	return out, nil
}

// Progress is the progress of md.
type Progress struct {
	Group   string  `json:"group"`
	Server  string  `json:"server"`
	Action  string  `json:"action"`
	Percent float64 `json:"percent"`
	// Left is md's estimate in seconds; 0: unknown.
	Left float64 `json:"seconds_left"`
}

// Wait waits until md neither rebuilds nor copies in the group, and returns the
// group's state. It follows the group to another server. on receives progress.
func (p *Place) Wait(ctx context.Context, hosts host.ByName, on func(Progress)) (*State, error) {
	const (
		every   = 3 * time.Second
		patient = 5 * time.Minute // for the move of a service, or the reboot of a server
		settled = 3               // idle looks in a row: md starts a moment after the disk is added
	)
	t := time.NewTicker(every)
	defer t.Stop()
	idle, seen := 0, time.Now()
	for {
		st, err := p.Look(ctx, hosts)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && time.Since(seen) > patient:
			return nil, err
		case err != nil:
			idle = 0
		case st.Busy():
			idle, seen = 0, time.Now()
			on(Progress{st.Group.Name, st.Server, st.Array.Stat.Action, st.Array.Stat.Percent, st.Array.Stat.Left.Seconds()})
		default:
			seen = time.Now()
			if idle++; idle >= settled {
				return st, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// Lacks is the number of missing members of a group that are not explained by disks
// taken out of service.
func (p *Place) Lacks(st *State) int {
	out := 0
	for _, k := range append(slices.Clone(st.Group.Members), st.Group.Spares...) {
		if k.Failed {
			out++
		}
	}
	return max(0, st.Array.Degraded-out)
}
