package resource

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// GrownVolume is a logical volume that covers the groups of its growths, and whose
// file system fills it.
type GrownVolume struct {
	VG, LV string
	// PVs are all physical volumes of the group; Growths those of each growth, in
	// order.
	PVs     []string
	Growths [][]string
	// SystemID owns the group while apply builds it; "" for this host.
	SystemID   string
	Align      int64 // as of VolumeGroup
	StripeSize int64 // bytes
	// MountPoint is where the volume's XFS is mounted. Where it is not, the volume is
	// being built, and the file system is made after all growths.
	MountPoint string
	// Slack in bytes: how much smaller than its volume a file system that fills it
	// may be.
	Slack int64
}

// Kind is "grown-volume".
func (g *GrownVolume) Kind() string { return "grown-volume" }

// ID is VG/LV.
func (g *GrownVolume) ID() string { return g.VG + "/" + g.LV }

// Diff finds out from sysfs which physical volumes the volume is on, and asks LVM
// only if one is missing.
func (g *GrownVolume) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	there, err := withLater(sys, nil, g.PVs)
	if err != nil {
		return nil, err
	}
	active, err := lvActive(sys, g.VG, g.LV)
	if err != nil {
		return nil, err
	}
	var out []string // of the volume
	for _, pv := range slices.Concat(g.Growths...) {
		held, err := holds(sys, pv, g.VG, g.LV)
		if err != nil {
			return nil, err
		}
		if !held {
			out = append(out, pv)
		}
	}
	if len(out) == 0 {
		return g.fill(ctx, sys)
	}
	free := out // of the volume group
	if len(there) == len(g.PVs) && active {
		if free, _, err = outside(ctx, sys, g.VG, out, lvmArgs(g.SystemID, g.PVs)); err != nil {
			return nil, err
		}
	}
	var as []Action
	if len(free) > 0 {
		as = append(as, vgextend(g.VG, g.Align, lvmArgs(g.SystemID, g.PVs), free))
	}
	for i, pvs := range g.Growths {
		if slices.ContainsFunc(pvs, func(pv string) bool { return slices.Contains(out, pv) }) {
			as = append(as, g.extend(i, pvs))
		}
	}
	mounted, err := g.mounted(sys)
	if err == nil && mounted {
		as = append(as, g.growFS())
	}
	return as, err
}

// extend puts all of a growth's physical volumes behind the volume, striped over
// them as the volume is over its first.
func (g *GrownVolume) extend(i int, pvs []string) Action {
	argv := append([]string{"lvm", "lvextend", "--yes", "--extents", "+100%PVS", "--stripes", strconv.Itoa(len(pvs))}, lvmArgs(g.SystemID, g.PVs)...)
	if len(pvs) > 1 {
		argv = append(argv, "--stripesize", strconv.FormatInt(g.StripeSize/1024, 10)+"k")
	}
	return Action{
		Title: fmt.Sprintf("extend logical volume %s by growth %d", g.ID(), i+1),
		Cmd:   append(append(argv, g.ID()), pvs...),
	}
}

func (g *GrownVolume) mounted(sys Sys) (bool, error) {
	ms, err := mounts(sys)
	return slices.ContainsFunc(ms, func(m linux.Mount) bool { return m.Type == "xfs" && m.Target == g.MountPoint }), err
}

func (g *GrownVolume) growFS() Action {
	return Action{
		Title: "grow the file system on " + g.MountPoint, Cmd: []string{"xfs_growfs", "-d", g.MountPoint},
		Why: "it may be used meanwhile; an XFS never shrinks again",
	}
}

var xfsData = regexp.MustCompile(`(?m)^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)`)

// fill compares the mounted file system with its volume: an apply may have ended
// between extending the one and the other.
func (g *GrownVolume) fill(ctx context.Context, sys Sys) ([]Action, error) {
	if mounted, err := g.mounted(sys); err != nil || !mounted {
		return nil, err
	}
	sectors, err := readTrim(sys, "/sys/block/"+kernelName(sys, "/dev/"+g.ID())+"/size")
	if err != nil {
		return nil, err
	}
	volume, err := strconv.ParseInt(sectors, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", linux.DMName(g.VG, g.LV), err)
	}
	argv := []string{"xfs_info", g.MountPoint}
	o, installed, err := query(ctx, sys, argv...)
	switch {
	case err != nil:
		return nil, err
	case !installed:
		return nil, fmt.Errorf("xfs_info is missing (package xfsprogs)")
	case o.Code != 0:
		return nil, failed(o, argv...)
	}
	m := xfsData.FindStringSubmatch(o.Stdout)
	if m == nil {
		return nil, fmt.Errorf("%s: no line of the data section:\n%s", argv, o.Stdout)
	}
	bsize, err1 := strconv.ParseInt(m[1], 10, 64)
	blocks, err2 := strconv.ParseInt(m[2], 10, 64)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("%s: %s", argv, m[0])
	}
	if volume*512-bsize*blocks <= g.Slack {
		return nil, nil
	}
	return []Action{g.growFS()}, nil
}
