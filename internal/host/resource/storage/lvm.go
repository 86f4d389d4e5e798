package storage

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// lvActive tells whether the logical volume is there as a device, without a
// fork.
func lvActive(sys resource.Look, vg, lv string) bool {
	return slices.Contains(sys.Mapped(), linux.DMName(vg, lv)) && sys.Exists("/dev/"+vg+"/"+lv)
}

// VolumeGroup is an LVM volume group over md arrays or LUNs.
type VolumeGroup struct {
	Name string
	PVs  []string // /dev/md/…, /dev/mapper/…
	// Serials are what a person types to have the LUNs wiped; of LUNs only. They
	// must be blank when the group takes them.
	Serials []string `json:",omitempty"`
	// SystemID owns the group while apply builds it, so that no host activates
	// it by itself; "" for a group with one host.
	SystemID string
	// RestID owns it once it is released. A group that was released before any
	// cluster had its service is taken back. "" where a cluster has it.
	RestID string
	// Align is where data starts on each physical volume, bytes: a full
	// stripe, so that stripes of the layers above begin with the array's.
	Align int64
	// ExtentSize in bytes; 0 for LVM's default.
	ExtentSize int64
	// LV is the group's logical volume; if that is active, so is the group.
	LV string
	// Later are physical volumes that growths add, or have added.
	Later []string `json:",omitempty"`
}

func (v *VolumeGroup) Identity() (kind, id string) { return "volume-group", v.Name }

// Diff asks LVM which group each physical volume is in.
func (v *VolumeGroup) Diff(sys resource.Look) ([]resource.Action, error) {
	if len(withLater(sys, nil, v.PVs)) < len(v.PVs) {
		return v.create(), nil // its array is made first
	}
	// From sysfs, without a fork: each physical volume holds part of the group's active volume.
	if v.LV != "" && v.RestID == "" && !slices.ContainsFunc(v.PVs, func(pv string) bool { return !holdsVolume(sys, pv, v.Name, v.LV) }) {
		return nil, nil
	}
	devices := withLater(sys, v.PVs, v.Later)
	out, owner := outside(sys, v.Name, v.PVs, v.SystemID, devices)
	switch {
	case len(out) == 0:
		return v.own(owner, devices)
	case len(out) == len(v.PVs):
		return v.create(), nil
	}
	return []resource.Action{v.taking(out, vgextend(v.Name, v.Align, resource.LVMArgs(v.SystemID, devices), out))}, nil
}

// withLater adds those physical volumes of growths that exist. LVM sees only the
// devices in its arguments, and must see all of a volume group.
func withLater(sys resource.Look, pvs, later []string) []string {
	out := slices.Clone(pvs)
	for _, pv := range later {
		if sys.Exists(pv) {
			out = append(out, pv)
		}
	}
	return out
}

// outside lists those devices that are in no volume group, and the system ID of
// the group that the others are in. It refuses one of another group. LVM sees devices only.
func outside(sys resource.Look, vg string, pvs []string, systemID string, devices []string) (out []string, owner string) {
	rows := lvmReport(sys, "pvs", "pv_name,vg_name,vg_systemid", systemID, devices)
	for _, pv := range pvs {
		i := slices.IndexFunc(rows, func(r map[string]string) bool {
			return sys.Kernel(r["pv_name"]) == sys.Kernel(pv)
		})
		switch {
		case i < 0 || rows[i]["vg_name"] == "":
			out = append(out, pv)
		case rows[i]["vg_name"] != vg:
			sys.Check(resource.Refuse("vg-other", resource.With{"device": pv, "vg": rows[i]["vg_name"], "want": vg}))
		default:
			owner = rows[i]["vg_systemid"]
		}
	}
	return out, owner
}

func vgextend(vg string, align int64, args, pvs []string) resource.Action {
	argv := []string{"lvm", "vgextend", "--yes"}
	if align > 0 {
		argv = append(argv, "--dataalignment", strconv.FormatInt(align/1024, 10)+"k")
	}
	return resource.Action{
		Title: "extend volume group " + vg,
		Cmd:   append(append(append(argv, args...), vg), pvs...),
	}
}

// own takes a group that apply released back, and refuses one of another host.
func (v *VolumeGroup) own(owner string, devices []string) ([]resource.Action, error) {
	switch {
	case v.RestID == "" || owner == v.SystemID:
		return nil, nil
	case owner == v.RestID:
		argv := append([]string{"lvm", "vgchange", "--yes", "--systemid", v.SystemID}, resource.LVMArgs(owner, devices)...)
		return []resource.Action{{
			Title: "take volume group " + v.Name + " back to build it", Cmd: append(argv, v.Name),
			Why: "no cluster has its service, and with this owner the resource agent refuses it",
		}}, nil
	}
	return nil, resource.Refuse("vg-owned", resource.With{"vg": v.Name, "owner": owner, "rest": v.RestID})
}

// holdsVolume tells whether a device holds part of an active logical volume.
func holdsVolume(sys resource.Look, pv, vg, lv string) bool {
	return slices.ContainsFunc(sys.Files("/sys/block/"+sys.Kernel(pv)+"/holders/dm-*/dm/name"), func(h string) bool { return sys.Text(h) == linux.DMName(vg, lv) })
}

func (v *VolumeGroup) create() []resource.Action {
	argv := []string{"lvm", "vgcreate", "--yes"}
	why := ""
	if v.Align > 0 {
		argv = append(argv, "--dataalignment", strconv.FormatInt(v.Align/1024, 10)+"k")
	}
	if v.ExtentSize > 0 {
		argv = append(argv, "--physicalextentsize", strconv.FormatInt(v.ExtentSize/1024, 10)+"k")
	}
	if v.SystemID != "" {
		argv = append(argv, "--systemid", v.SystemID, "--setautoactivation", "n")
		why = "the system ID " + v.SystemID + " is no host's, and the resource agent refuses it: nothing brings the group up before it is built"
	}
	argv = append(argv, resource.LVMArgs(v.SystemID, v.PVs)...)
	return []resource.Action{v.taking(v.PVs, resource.Action{
		Title: "create volume group " + v.Name, Why: why,
		Cmd: append(append(argv, v.Name), v.PVs...),
	})}
}

// taking marks an action that takes physical volumes: LUNs must be blank. An md
// array of the brick was made of blank disks.
func (v *VolumeGroup) taking(pvs []string, a resource.Action) resource.Action {
	for i, s := range v.Serials {
		if slices.Contains(pvs, v.PVs[i]) {
			a.Blank = append(a.Blank, v.PVs[i])
			a.Destroys = append(a.Destroys, s)
		}
	}
	return a
}

// LogicalVolume takes all that is left of its group, or Size.
type LogicalVolume struct {
	VG, Name   string
	PVs        []string
	SystemID   string
	Stripes    int
	StripeSize int64 // bytes
	Size       int64 // bytes, rounded up to LVM's extents; 0: all that is left
	Activate   bool
	// Later are physical volumes that growths add, or have added.
	Later []string `json:",omitempty"`
	// Before names the volume that takes all that is left of the group. Once that is there,
	// this one gets Late extents anywhere in the group; 0: it may be missing.
	Before string `json:",omitempty"`
	Late   int    `json:",omitempty"`
}

func (l *LogicalVolume) Identity() (kind, id string) { return "logical-volume", l.VG + "/" + l.Name }

// Diff looks at the device first, and asks LVM only if it is not there.
func (l *LogicalVolume) Diff(sys resource.Look) ([]resource.Action, error) {
	if lvActive(sys, l.VG, l.Name) || l.Before != "" && l.Late == 0 && lvActive(sys, l.VG, l.Before) {
		return nil, nil
	}
	id := l.VG + "/" + l.Name
	create := []string{"lvm", "lvcreate", "--yes", "--wipesignatures", "y", "--name", l.Name}
	if l.Size > 0 {
		create = append(create, "--size", strconv.FormatInt(l.Size, 10)+"b")
	} else {
		create = append(create, "--extents", "100%FREE")
	}
	if l.Stripes > 1 {
		create = append(create, "--stripes", strconv.Itoa(l.Stripes), "--stripesize", strconv.FormatInt(l.StripeSize/1024, 10)+"k")
	}
	create = append(append(create, resource.LVMArgs(l.SystemID, l.PVs)...), l.VG)
	made := []resource.Action{{Title: "create logical volume " + id, Cmd: create}}
	if l.Before != "" {
		made = append(made, zeroed(l.VG, l.Name))
	}
	if len(withLater(sys, nil, l.PVs)) < len(l.PVs) {
		return made, nil
	}
	devices, late := withLater(sys, l.PVs, l.Later), false
	for _, r := range lvmReport(sys, "lvs", "lv_name,vg_name", l.SystemID, devices) {
		late = late || l.Before != "" && r["vg_name"] == l.VG && r["lv_name"] == l.Before
		if r["vg_name"] == l.VG && r["lv_name"] == l.Name {
			if !l.Activate {
				return nil, nil
			}
			argv := append([]string{"lvm", "lvchange", "--activate", "y"}, resource.LVMArgs(l.SystemID, devices)...)
			return []resource.Action{{Title: "activate logical volume " + id, Cmd: append(argv, id)}}, nil
		}
	}
	switch {
	case !late:
		return made, nil
	case l.Late == 0:
		return nil, nil
	}
	return l.late(sys, devices)
}

// late makes the volume in what is left of its group.
func (l *LogicalVolume) late(sys resource.Look, devices []string) ([]resource.Action, error) {
	args := resource.LVMArgs(l.SystemID, devices)
	for _, r := range lvmReport(sys, "vgs", "vg_name,vg_free_count", l.SystemID, devices) {
		if n, err := strconv.Atoi(r["vg_free_count"]); r["vg_name"] == l.VG && (err != nil || n < l.Late) {
			return nil, resource.Refuse("vg-full", resource.With{"vg": l.VG, "need": l.Late, "free": r["vg_free_count"]})
		}
	}
	return []resource.Action{{Title: "create logical volume " + l.VG + "/" + l.Name, Cmd: append(append([]string{"lvm", "lvcreate", "--yes", "--wipesignatures", "y", "--name", l.Name,
		"--extents", strconv.Itoa(l.Late)}, args...), l.VG)}, zeroed(l.VG, l.Name)}, nil
}

// zeroed clears the header of a cache: LUNs that are used again may have the label of another
// brick there.
func zeroed(vg, name string) resource.Action {
	return resource.Action{Title: "zero logical volume " + vg + "/" + name, Cmd: []string{"blkdiscard", "--zeroout", "/dev/" + vg + "/" + name}, Seconds: 300}
}

// lvmReport runs a reporting command of LVM over devices; without LVM there is nothing.
func lvmReport(sys resource.Look, command, columns, systemID string, devices []string) []map[string]string {
	argv := append([]string{"lvm", command, "--foreign", "--reportformat", "json", "-o", columns}, resource.LVMArgs(systemID, devices)...)
	out, installed := sys.Command(argv...)
	if !installed {
		return nil
	}
	if strings.TrimSpace(out.Stdout) == "" {
		sys.Check(resource.Failed(out, argv...))
	}
	rows, err := parseLVM(out.Stdout)
	sys.Check(err)
	return rows
}

// parseLVM reads a --reportformat json report of one command. LVM exits with
// 5 where a device it was pointed at is no physical volume yet, and the
// report is complete all the same.
func parseLVM(s string) ([]map[string]string, error) {
	var doc struct {
		Report []map[string][]map[string]string `json:"report"`
	}
	unread, err := health.JSON(s, &doc)
	if err == nil && len(unread) > 0 {
		err = errors.New(unread.String()) // a plan is made of whole facts
	}
	if err != nil {
		return nil, fmt.Errorf("lvm: %w", err)
	}
	var rows []map[string]string
	for _, r := range doc.Report {
		for _, t := range r {
			rows = append(rows, t...)
		}
	}
	return rows, nil
}

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
	// Cache is the config of the volume's cache; "" without.
	Cache string `json:",omitempty"`
	// Header is the logical volume that a cache needs, which a group of an earlier build
	// lacks; HeaderBytes on the physical volumes of each growth. "": none.
	Header      string  `json:",omitempty"`
	HeaderBytes []int64 `json:",omitempty"`
}

func (g *GrownVolume) Identity() (kind, id string) { return "grown-volume", g.VG + "/" + g.LV }

// Diff finds out from sysfs which physical volumes the volume is on, and asks LVM
// only if one is missing.
func (g *GrownVolume) Diff(sys resource.Look) ([]resource.Action, error) {
	var out []string // of the volume
	for _, pv := range slices.Concat(g.Growths...) {
		if !holdsVolume(sys, pv, g.VG, g.LV) {
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
	header := g.Header != "" && !lvActive(sys, g.VG, g.Header)
	for i, pvs := range g.Growths {
		if slices.ContainsFunc(pvs, func(pv string) bool { return slices.Contains(out, pv) }) {
			if header {
				a := g.extend(i, pvs)
				a.Title, a.Why, header = "create logical volume "+g.VG+"/"+g.Header, "a cache needs it, which may be added later", false
				a.Cmd = slices.Concat([]string{"lvm", "lvcreate", "--yes", "--wipesignatures", "y", "--name", g.Header, "--size", strconv.FormatInt(g.HeaderBytes[i], 10) + "b"},
					g.striped(len(pvs)), resource.LVMArgs(g.SystemID, g.PVs), []string{g.VG}, pvs)
				as = append(as, a, zeroed(g.VG, g.Header))
			}
			as = append(as, g.extend(i, pvs))
		}
	}
	if _, mounted := g.mounted(sys); mounted {
		as = append(as, g.growFS()...)
	}
	return as, nil
}

func (g *GrownVolume) striped(n int) []string {
	if n > 1 {
		return []string{"--stripes", strconv.Itoa(n), "--stripesize", strconv.FormatInt(g.StripeSize/1024, 10) + "k"}
	}
	return []string{"--stripes", "1"}
}

// extend puts all of a growth's physical volumes behind the volume, striped over
// them as the volume is over its first.
func (g *GrownVolume) extend(i int, pvs []string) resource.Action {
	argv := slices.Concat([]string{"lvm", "lvextend", "--yes", "--extents", "+100%PVS"}, g.striped(len(pvs)), resource.LVMArgs(g.SystemID, g.PVs))
	return resource.Action{
		Title: fmt.Sprintf("extend logical volume %s/%s by growth %d", g.VG, g.LV, i+1),
		Cmd:   append(append(argv, g.VG+"/"+g.LV), pvs...),
	}
}

func (g *GrownVolume) mounted(sys resource.Look) (linux.Mount, bool) {
	m, ok := linux.MountAt(sys.Mounts(), g.MountPoint)
	return m, ok && m.Type == "xfs"
}

// growFS gives the file system all of the volume; over a cache, first the device that it is on.
func (g *GrownVolume) growFS() []resource.Action {
	as := []resource.Action{{
		Title: "grow the file system on " + g.MountPoint, Cmd: []string{"xfs_growfs", "-d", g.MountPoint},
		Why: "it may be used meanwhile; an XFS never shrinks again",
	}}
	if g.Cache == "" {
		return as
	}
	return append([]resource.Action{{
		Title: "extend the cached device of " + g.VG + "/" + g.LV, Cmd: []string{resource.MortarCommand, "host-cache", "extend", g.Cache}, Beside: path.Base(g.Cache),
		Why: "what is new goes past the SSDs until the service starts the next time",
	}}, as...)
}

var xfsData = regexp.MustCompile(`(?m)^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)`)

// fill compares the mounted file system with its volume: an apply may have ended
// between extending the one and the other.
func (g *GrownVolume) fill(sys resource.Look) []resource.Action {
	m, mounted := g.mounted(sys)
	if !mounted {
		return nil
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			sys.Check(fmt.Errorf("size of %s or of its file system: %w", linux.DMName(g.VG, g.LV), err))
		}
		return n
	}
	size := func(device string) int64 { return 512 * number(sys.Text("/sys/block/"+sys.Kernel(device)+"/size")) }
	volume := size("/dev/" + g.VG + "/" + g.LV)
	if g.Cache == "" && size(m.Source) < volume {
		sys.Check(resource.Refuse("grow-old-cache", resource.With{"path": g.MountPoint}))
	}
	text := sys.Ask("xfsprogs", "xfs_info", g.MountPoint)
	d := xfsData.FindStringSubmatch(text)
	if d == nil {
		sys.Check(fmt.Errorf("xfs_info %s: no line of the data section:\n%s", g.MountPoint, text))
	}
	if volume-number(d[1])*number(d[2]) <= g.Slack {
		return nil
	}
	return g.growFS()
}
