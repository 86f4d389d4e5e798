package storage

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
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

func (g *GrownVolume) Identity() (kind, id string) { return "grown-volume", g.VG + "/" + g.LV }

// Diff finds out from sysfs which physical volumes the volume is on, and asks LVM
// only if one is missing.
func (g *GrownVolume) Diff(sys resource.Look) ([]resource.Action, error) {
	var out []string // of the volume
	for _, pv := range slices.Concat(g.Growths...) {
		if !holds(sys, pv, g.VG, g.LV) {
			out = append(out, pv)
		}
	}
	if len(out) == 0 {
		return g.fill(sys), nil
	}
	free := out // of the volume group
	if len(withLater(sys, nil, g.PVs)) == len(g.PVs) && lvActive(sys, g.VG, g.LV) {
		free, _ = outside(sys, g.VG, out, g.SystemID, g.PVs)
	}
	var as []resource.Action
	if len(free) > 0 {
		as = append(as, vgextend(g.VG, g.Align, resource.LVMArgs(g.SystemID, g.PVs), free))
	}
	for i, pvs := range g.Growths {
		if slices.ContainsFunc(pvs, func(pv string) bool { return slices.Contains(out, pv) }) {
			as = append(as, g.extend(i, pvs))
		}
	}
	if g.mounted(sys) {
		as = append(as, g.growFS())
	}
	return as, nil
}

// extend puts all of a growth's physical volumes behind the volume, striped over
// them as the volume is over its first.
func (g *GrownVolume) extend(i int, pvs []string) resource.Action {
	argv := append([]string{"lvm", "lvextend", "--yes", "--extents", "+100%PVS", "--stripes", strconv.Itoa(len(pvs))}, resource.LVMArgs(g.SystemID, g.PVs)...)
	if len(pvs) > 1 {
		argv = append(argv, "--stripesize", strconv.FormatInt(g.StripeSize/1024, 10)+"k")
	}
	return resource.Action{
		Title: fmt.Sprintf("extend logical volume %s/%s by growth %d", g.VG, g.LV, i+1),
		Cmd:   append(append(argv, g.VG+"/"+g.LV), pvs...),
	}
}

func (g *GrownVolume) mounted(sys resource.Look) bool {
	return slices.ContainsFunc(sys.Mounts(), func(m linux.Mount) bool { return m.Type == "xfs" && m.Target == g.MountPoint })
}

func (g *GrownVolume) growFS() resource.Action {
	return resource.Action{
		Title: "grow the file system on " + g.MountPoint, Cmd: []string{"xfs_growfs", "-d", g.MountPoint},
		Why: "it may be used meanwhile; an XFS never shrinks again",
	}
}

var xfsData = regexp.MustCompile(`(?m)^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)`)

// fill compares the mounted file system with its volume: an apply may have ended
// between extending the one and the other.
func (g *GrownVolume) fill(sys resource.Look) []resource.Action {
	if !g.mounted(sys) {
		return nil
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			sys.Check(fmt.Errorf("size of %s or of its file system: %w", linux.DMName(g.VG, g.LV), err))
		}
		return n
	}
	volume := 512 * number(sys.Text("/sys/block/"+sys.Kernel("/dev/"+g.VG+"/"+g.LV)+"/size"))
	text := sys.Ask("xfsprogs", "xfs_info", g.MountPoint)
	m := xfsData.FindStringSubmatch(text)
	if m == nil {
		sys.Check(fmt.Errorf("xfs_info %s: no line of the data section:\n%s", g.MountPoint, text))
	}
	if volume-number(m[1])*number(m[2]) <= g.Slack {
		return nil
	}
	return []resource.Action{g.growFS()}
}
