package storage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// CacheSSDs are the SSDs of a cache on a server: each is there, and carries
// nothing that this brick has not made.
type CacheSSDs struct {
	Host string
	List []WantedDisk
	// Arrays are the UUIDs an array of this cache may have.
	Arrays []string
	// Check: look at what they carry, on the one server that builds.
	Check bool
}

func (c *CacheSSDs) Identity() (kind, id string) { return "cache-ssds", c.Host }

// Diff gives a wipe for each SSD that carries something and may be wiped.
func (c *CacheSSDs) Diff(sys resource.Look) ([]resource.Action, error) {
	return untilAssembled(sys, c.diff)
}

func (c *CacheSSDs) diff(sys resource.Look) ([]resource.Action, error) {
	fs, err := resource.Observe(sys.Ctx, sys.Sys, func(sys resource.Look) ([]foundDisk, error) { return resolve(sys, refsOf(c.List)), nil })
	if r := (*resource.Refusal)(nil); errors.As(err, &r) {
		r.Mend += "; of an SSD that is gone for good: mortar cache remove"
		return nil, r
	}
	sys.Check(err)
	arrays, ms := sys.Arrays(), sys.Mounts()
	v := &verdict{}
	for i, f := range fs {
		names := kernelNames(sys, f)
		if a, in := memberOf(arrays, partitions(sys, names)); in && hasUUID(c.Arrays, a.UUID) {
			continue
		}
		if use := inUse(sys, ms, names); use != "" {
			v.speaks(f.Ref, "is in use by", use)
			continue
		}
		v.free, v.want = append(v.free, f), append(v.want, c.List[i])
	}
	if err := v.refusal("disks-in-use", "serial"); err != nil {
		return nil, err
	}
	if !c.Check || len(v.free) == 0 {
		return nil, nil
	}
	sigs := signatures(sys, v.free)
	for i, f := range v.free {
		if bad := c.foreign(sys, f, sigs[i]); bad != "" {
			v.carries(i, bad, ", not made by this brick", "--force")
		}
	}
	return v.wipes, v.refusal("disks-not-blank", "serial")
}

// foreign describes what an SSD carries that is not this cache's, "" for
// nothing: the partition table must have our partitions only, and those
// nothing but members of our arrays. The kernel need not know the partitions:
// the other server may have made them.
func (c *CacheSSDs) foreign(sys resource.Look, f foundDisk, sigs []signature) string {
	if len(sigs) == 0 {
		return ""
	}
	gpt := true
	var all []string
	for _, s := range sigs {
		gpt = gpt && (s.Type == "gpt" || s.Type == "PMBR")
		all = append(all, s.describe(c.Arrays))
	}
	text := strings.Join(all, " and ")
	if !gpt {
		return text
	}
	parts, sector := partitionTable(sys, f.Device)
	if len(parts) == 0 || slices.ContainsFunc(parts, func(p partition) bool { return !strings.HasPrefix(p.Name, "mortar-") }) {
		return text
	}
	for _, p := range parts {
		v := probe(sys, f.Device, "--offset", strconv.FormatInt(p.Start*sector, 10), "--size", strconv.FormatInt(p.Size*sector, 10))
		if v != nil && (v["TYPE"] != "linux_raid_member" || !hasUUID(c.Arrays, v["UUID"])) {
			return signature{Type: cmp.Or(v["TYPE"], v["PTTYPE"]), UUID: v["UUID"]}.describe(c.Arrays)
		}
	}
	return ""
}

// partition is one of a disk's partition table; start and size are in its sectors.
type partition struct {
	Name        string
	Start, Size int64
}

// partitionTable reads a disk's partition table, and the bytes of a sector; none if it
// cannot be read. The kernel knows names only of tables it has read itself, not of
// partitions that partx and sfdisk have told it of.
// Source: sfdisk(8), --json; block/partitions/core.c, part_uevent
func partitionTable(sys resource.Look, device string) ([]partition, int64) {
	out, installed := sys.Command("sfdisk", "--json", device)
	if !installed || out.Code != 0 {
		return nil, 0
	}
	var t struct {
		Table struct {
			SectorSize int64
			Partitions []partition
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal([]byte(out.Stdout), &t); err != nil {
		sys.Check(fmt.Errorf("sfdisk --json %s: %w", device, err))
	}
	return t.Table.Partitions, cmp.Or(t.Table.SectorSize, 512)
}

// partitions of disks, by kernel name.
func partitions(sys resource.Look, names []string) []string {
	var out []string
	for _, n := range names {
		for _, p := range sys.Files("/sys/class/block/" + n + "/" + n + "*/partition") {
			out = append(out, path.Base(path.Dir(p)))
		}
	}
	return out
}

// Cache is the cache of a volume, on the server where the volume is.
type Cache struct {
	Path   string // of the config on the host
	VG, LV string
	Header string          // logical volume with bcache's superblocks
	Device string          // what the file system is on
	Config json.RawMessage // cache.Config
}

func (c *Cache) Identity() (kind, id string) { return "cache", c.VG + "/" + c.LV }

// Diff asks the host's own mortar what is to be done: it knows the label. A volume that is in
// use without its cache is for CacheFront.
func (c *Cache) Diff(sys resource.Look) ([]resource.Action, error) {
	if _, mounted := c.mounted(sys); mounted {
		return nil, nil
	}
	why, err := c.needs(sys)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return []resource.Action{c.command("apply", "cache of "+c.VG+"/"+c.LV, why), c.wait()}, nil
	}
	if sys.Exists(c.Device) {
		return nil, nil
	}
	return []resource.Action{c.wait()}, nil
}

// command is one of the host's own mortar.
func (c *Cache) command(op, title, why string) resource.Action {
	return resource.Action{Title: title, Why: why, Cmd: []string{resource.MortarCommand, "host-cache", op, c.Path}, Seconds: 24 * 3600, Beside: path.Base(c.Path)}
}

// wait: udev gives the device its name, on a busy host a little later.
func (c *Cache) wait() resource.Action {
	return resource.Action{Title: "wait for " + c.Device, Cmd: []string{"udevadm", "wait", "--timeout=100", c.Device}}
}

// needs asks the host's own mortar what is to be done, "" for nothing.
func (c *Cache) needs(sys resource.Look) (string, error) {
	if !lvActive(sys, c.VG, c.Header) {
		return cache.MakeLayers, nil
	}
	out, installed := sys.Command(resource.MortarCommand, "host-cache", "needs", string(c.Config))
	if !installed {
		return cache.MakeLayers, nil
	}
	if out.Code != 0 {
		return "", resource.Refuse("cache-refused", resource.With{"error": strings.TrimPrefix(strings.TrimSpace(out.Stderr), "mortar: ")})
	}
	return strings.TrimSpace(out.Stdout), nil
}

// mounted finds a file system that is on the volume itself.
func (c *Cache) mounted(sys resource.Look) (linux.Mount, bool) {
	dev := sys.Kernel("/dev/" + c.VG + "/" + c.LV)
	ms := sys.Mounts()
	i := slices.IndexFunc(ms, func(m linux.Mount) bool { return dev != "" && m.Type == "xfs" && sys.Kernel(m.Source) == dev })
	if i < 0 {
		return linux.Mount{}, false
	}
	return ms[i], true
}

// CacheFront brings both layers of bcache, without SSDs, in front of a volume that is there
// without them. The file system moves onto them where the service starts anew.
type CacheFront struct {
	Cache
	// Managed: a cluster has the service. The layers are prepared, and the agent brings them
	// up when it starts the service the next time.
	Managed bool
	// Stop are units that use the file system, and have to stop for some seconds. Options are
	// those of its mount.
	Stop    []string `json:",omitempty"`
	Options []string `json:",omitempty"`
}

func (c *CacheFront) Identity() (kind, id string) { return "cache-front", c.VG + "/" + c.LV }

// Diff looks whether the layers are up, and else what the file system is on.
func (c *CacheFront) Diff(sys resource.Look) ([]resource.Action, error) {
	if sys.Exists(c.Device) {
		return nil, nil
	}
	why, err := c.needs(sys)
	if err != nil {
		return nil, err
	}
	var prepare, before, after []resource.Action
	if cache.NeverMade(why) {
		prepare = []resource.Action{c.command("prepare", "prepare the cache of "+c.VG+"/"+c.LV, "bcache's superblocks and the label go into the header; the volume may be in use")}
	}
	if c.Managed {
		return prepare, nil
	}
	if m, mounted := c.mounted(sys); mounted {
		for _, u := range c.Stop {
			before = append(before, resource.Action{Title: "stop " + u, Cmd: []string{"systemctl", "stop", u}, Seconds: 300, Why: "the file system moves onto the layers of the cache; clients wait"})
			after = append(after, resource.Action{Title: "start " + u, Cmd: []string{"systemctl", "start", u}, Seconds: 300})
		}
		before = append(before, resource.Action{Title: "unmount " + m.Target, Cmd: []string{"umount", m.Target}, Seconds: 300})
		mount := &MountPoint{Options: c.Options}
		after = append([]resource.Action{{Title: "mount " + m.Target, Cmd: []string{"mount", "-t", m.Type, "-o", strings.Join(mount.liveOptions(), ","), c.Device, m.Target}, Seconds: 180}}, after...)
	}
	start := []resource.Action{c.command("start", "start the cache of "+c.VG+"/"+c.LV, "both layers of bcache, which pass all I/O on until they have their SSDs"), c.wait()}
	return slices.Concat(before, prepare, start, after), nil
}

// NoCache ends a cache that the spec no longer has, by the config that is
// still on the host.
type NoCache struct {
	Path string // of the config on the host
	// Forget: remove the config and Units. Otherwise what is dirty goes to the
	// disks, which is done where the volume is.
	Forget bool
	Units  []string `json:",omitempty"` // paths of the units that bring it up at boot
}

func (c *NoCache) Identity() (kind, id string) { return "no-cache", c.Path }

// Diff looks for the config, and asks the host's own mortar whether the cache
// is off.
func (c *NoCache) Diff(sys resource.Look) ([]resource.Action, error) {
	if !sys.Exists(c.Path) {
		return nil, nil
	}
	if c.Forget {
		as := []resource.Action{{Title: "remove " + c.Path, File: &resource.File{Path: c.Path, Remove: true}}}
		for _, u := range c.Units {
			as = append(as, resource.Action{Title: "remove " + u, File: &resource.File{Path: u, Remove: true}})
		}
		return as, nil
	}
	if strings.TrimSpace(sys.Ask("mortar", resource.MortarCommand, "host-cache", "on", c.Path)) == "no" {
		return nil, nil
	}
	return []resource.Action{{
		Title: "turn the cache off", Why: "the spec has none; dirty data is written to the disks while the service goes on",
		Cmd: []string{resource.MortarCommand, "host-cache", "off", c.Path}, Seconds: 24 * 3600, Beside: path.Base(c.Path),
	}}, nil
}
